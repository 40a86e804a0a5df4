"""The paper's neuron: leaky integrate-and-fire, with batch norm applied to a copy of the membrane."""

from __future__ import annotations

from math import isfinite, prod
from typing import Any

import torch
from torch import Tensor, nn

from ..base import OptionError, did_you_mean
from .feedback import Feedback
from .kinds import (
    MPBN_EPSILON,
    MPBN_GAINS,
    MPBN_KINDS,
    NEURON_DEFAULTS,
    RESET_GRADIENTS,
    RESETS,
    SURROGATE_NAMES,
)
from .norm import Norm, Observer, norm_of
from .parameters import LIFParameters
from .scan import scan
from .surrogate import SURROGATES
from .timed import TimedLayer

LEAST_GAIN = 2.0**-10


class MPBN(nn.Module):
    """Membrane-potential batch norm (Eq. 7): gain * (membrane - mean) / sqrt(variance + eps) + offset

    `channel` has one gain, offset, mean and variance per channel; `element` has one per neuron (Eq. 13).
    Each time step is normalized with its own statistics; the running statistics are updated at every step.

    A negative gain reverses a neuron's comparison, which some chips and shared kernels cannot express.
    With `gain="positive"` the gain is max(|weight|, 2^-10), so that no comparison is reversed.
    """

    def __init__(
        self, shape: tuple[int, ...], kind: str, gain: str = "free", epsilon: float = MPBN_EPSILON
    ) -> None:
        super().__init__()
        self.kind = kind
        self.shape = shape
        self.positive = gain == "positive"
        self.synchronized = False
        self.observe: Observer | None = None
        self.bn = nn.BatchNorm1d(prod(shape) if kind == "element" else shape[0], eps=epsilon)

    @property
    def gain(self) -> Tensor:
        """The factor of the normalized membrane."""
        weight: Tensor = self.bn.weight
        if not self.positive:
            return weight
        # The gradient is +1 or -1 everywhere, also at zero and below LEAST_GAIN, so no weight gets stuck.
        magnitude = torch.where(weight < 0, -weight, weight)
        return magnitude + (magnitude.clamp_min(LEAST_GAIN) - magnitude).detach()

    def norm(self, sample: tuple[int, ...]) -> Norm:
        """Return the norm that `scan` applies to samples of this shape."""
        counted = prod(sample) if self.kind == "element" else sample[0]
        if counted != self.bn.num_features:
            raise OptionError(
                f"LIF: samples of shape {sample}; its {self.kind}-wise MPBN was built for {self.shape}. "
                f"Build it as LIF({sample}, ...)."
            )
        return norm_of(
            self.bn,
            training=self.training,
            synchronized=self.synchronized,
            element_shape=sample if self.kind == "element" else None,
            observe=self.observe,
        )

    def extra_repr(self) -> str:
        epsilon = f", epsilon={self.bn.eps}" if self.bn.eps != MPBN_EPSILON else ""
        return f"kind={self.kind!r}" + (", gain='positive'" if self.positive else "") + epsilon


class LIF(TimedLayer):
    """Leaky integrate-and-fire neurons (Eq. 1, 2 and 8). In each time step:

        membrane <- leak * membrane + x
        spike     = MPBN(membrane) > threshold          (strictly)
        membrane <- membrane * (1 - spike)              (resets the membrane before normalization)

    With `reset="subtract"`, the last line is membrane <- membrane - spike * threshold. With a `current_leak`
    above zero, synapses have a current that outlasts its time step, and the membrane integrates the current:

        current  <- current_leak * current + x
        membrane <- leak * membrane + current

    With `reset_gradient="detached"`, backward takes the spike of the last line for a constant.

    `shape` is the number of channels or features or, for `mpbn="element"`, the shape of a sample. Input
    and output are [timesteps * batch, ...]; SpikingNetwork sets `timesteps`.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        *,
        mpbn: str = "channel",
        mpbn_gain: str = NEURON_DEFAULTS["mpbn_gain"],
        mpbn_epsilon: float = MPBN_EPSILON,
        leak: float = NEURON_DEFAULTS["leak"],
        threshold: float = NEURON_DEFAULTS["threshold"],
        surrogate: str = NEURON_DEFAULTS["surrogate"],
        reset: str = NEURON_DEFAULTS["reset"],
        reset_gradient: str = NEURON_DEFAULTS["reset_gradient"],
        current_leak: float = NEURON_DEFAULTS["current_leak"],
    ) -> None:
        super().__init__()
        _expect("MPBN of kind", mpbn, MPBN_KINDS)
        _expect("MPBN gain", mpbn_gain, MPBN_GAINS)
        _expect("surrogate", surrogate, SURROGATE_NAMES)
        _expect("reset", reset, RESETS)
        _expect("reset gradient", reset_gradient, RESET_GRADIENTS)
        for name, kept in (("leak", leak), ("current leak", current_leak)):
            if not 0 <= kept <= 1:
                raise OptionError(f"LIF: {name} {kept}; allowed are 0 (no memory) to 1 (no decay).")
        if not (isfinite(mpbn_epsilon) and mpbn_epsilon > 0):
            raise OptionError(f"LIF: MPBN epsilon {mpbn_epsilon}; a positive number is needed.")
        if not isfinite(threshold):
            raise OptionError(f"LIF: threshold {threshold}; a finite number is needed.")
        self.leak = leak
        self.current_leak = current_leak
        self.threshold = threshold
        self.surrogate = surrogate
        self.reset = reset
        self.reset_gradient = reset_gradient
        sizes = (shape,) if isinstance(shape, int) else shape
        self.mpbn: MPBN | None = MPBN(sizes, mpbn, mpbn_gain, mpbn_epsilon) if mpbn != "none" else None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that it was built with, after the shape; without MPBN, none of gain and epsilon."""
        kept = {name: getattr(self, name) for name in NEURON_DEFAULTS if not name.startswith("mpbn")}
        if self.mpbn is None:
            return {"mpbn": "none", **kept}
        gain = "positive" if self.mpbn.positive else "free"
        return {"mpbn": self.mpbn.kind, "mpbn_gain": gain, "mpbn_epsilon": self.mpbn.bn.eps, **kept}

    @property
    def subtrahend(self) -> float | None:
        """What a spike subtracts from the membrane; None if it resets the membrane to zero."""
        return self.threshold if self.reset == "subtract" else None

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes of the inputs' shape, [timesteps * batch, ...]."""
        return self._fire(x)

    def _fire(self, x: Tensor, feedback: Feedback | None = None, weight: Tensor | None = None) -> Tensor:
        """Run all time steps; `weight` is that of the feedback of a recurrent layer."""
        if not self.timesteps:
            raise OptionError(
                "LIF: the number of time steps is not set; wrap the body in a SpikingNetwork, which sets it."
            )
        if len(x) % self.timesteps:
            raise OptionError(
                f"LIF: a batch of {len(x)}; it must be a multiple of the {self.timesteps} time steps."
            )
        neuron = LIFParameters(
            timesteps=self.timesteps,
            leak=self.leak,
            current_leak=self.current_leak,
            threshold=self.threshold,
            subtrahend=self.subtrahend,
            reset_is_constant=self.reset_gradient == "detached",
            surrogate=SURROGATES[self.surrogate],
            norm=None if self.mpbn is None else self.mpbn.norm(tuple(x.shape[1:])),
            feedback=feedback,
        )
        if self.mpbn is None:
            return scan(x, None, None, neuron, weight)
        if self.mpbn.training and self.mpbn.bn.num_batches_tracked is not None:
            self.mpbn.bn.num_batches_tracked.add_(self.timesteps)
        return scan(x, self.mpbn.gain, self.mpbn.bn.bias, neuron, weight)

    def extra_repr(self) -> str:
        extra = f", reset={self.reset!r}" if self.reset != "zero" else ""
        extra += f", reset_gradient={self.reset_gradient!r}" if self.reset_gradient != "whole" else ""
        extra += f", current_leak={self.current_leak}" if self.current_leak else ""
        return f"leak={self.leak}, threshold={self.threshold}, surrogate={self.surrogate!r}{extra}"


def _expect(what: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise OptionError(f"LIF: no {what} {found!r}. {did_you_mean(found, allowed)}")
