"""The paper's neuron: leaky integrate-and-fire, with batch norm on a copy of the membrane."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from ..base import OptionError, did_you_mean
from .kinds import MPBN_GAINS, MPBN_KINDS, SURROGATE_NAMES
from .norm import Norm, norm_of
from .scan import Neuron, scan
from .surrogate import SURROGATES
from .timed import Timed

LEAST_GAIN = 2.0**-10


class MPBN(nn.Module):
    """Membrane-potential batch norm (Eq. 7): gain * (membrane - mean) / sqrt(variance + eps) + offset

    `channel` has one gain, offset, mean and variance per channel; `element` one per neuron (Eq. 13).
    Statistics are those of one time step; the running ones see all steps in turn.

    A gain below zero turns a neuron's comparison around. With `gain="positive"` the gain is
    max(|weight|, 2^-10): the same network as long as all weights stay above that, and no neuron that
    a chip without negated channels, or a shared kernel, could not hold.
    """

    def __init__(self, shape: tuple[int, ...], kind: str, gain: str = "free") -> None:
        super().__init__()
        self.kind = kind
        self.shape = shape
        self.positive = gain == "positive"
        self.synchronized = False
        self.bn = nn.BatchNorm1d(prod(shape) if kind == "element" else shape[0])

    @property
    def gain(self) -> Tensor:
        """What multiplies the normalized membrane."""
        weight: Tensor = self.bn.weight
        if not self.positive:
            return weight
        # The gradient is +1 or -1 everywhere, also at zero and below the least gain: no weight is ever stuck.
        magnitude = torch.where(weight < 0, -weight, weight)
        return magnitude + (magnitude.clamp_min(LEAST_GAIN) - magnitude).detach()

    def norm(self, sample: tuple[int, ...]) -> Norm:
        """What `scan` needs of it, for samples of a shape."""
        counted = prod(sample) if self.kind == "element" else sample[0]
        if counted != self.bn.num_features:
            raise OptionError(
                f"LIF: samples of shape {sample}; its {self.kind}-wise MPBN was made for {self.shape}."
            )
        return norm_of(
            self.bn,
            training=self.training,
            synchronized=self.synchronized,
            element_shape=sample if self.kind == "element" else None,
        )

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}" + (", gain='positive'" if self.positive else "")


class LIF(Timed):
    """Leaky integrate-and-fire neurons (Eq. 1, 2 and 8). In each time step:

        membrane <- leak * membrane + x
        spike     = MPBN(membrane) > threshold          (strictly)
        membrane <- membrane * (1 - spike)              (the un-normalized membrane is reset)

    `shape` is the number of channels or features, or (for `mpbn="element"`) the whole shape of a
    sample. Takes and gives [timesteps * batch, ...]; SpikingNetwork sets `timesteps`.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        *,
        mpbn: str = "channel",
        mpbn_gain: str = "free",
        leak: float = 0.25,
        threshold: float = 0.5,
        surrogate: str = "rectangle",
    ) -> None:
        super().__init__()
        _expect("MPBN of kind", mpbn, MPBN_KINDS)
        _expect("MPBN gain", mpbn_gain, MPBN_GAINS)
        _expect("surrogate", surrogate, SURROGATE_NAMES)
        if not 0 <= leak <= 1:
            raise OptionError(f"LIF: leak {leak}; allowed are 0 (forget at once) to 1 (never forget).")
        self.leak = leak
        self.threshold = threshold
        self.surrogate = surrogate
        sizes = (shape,) if isinstance(shape, int) else shape
        self.mpbn: MPBN | None = MPBN(sizes, mpbn, mpbn_gain) if mpbn != "none" else None

    def forward(self, x: Tensor) -> Tensor:
        """Spikes, [timesteps * batch, ...], of inputs of the same shape."""
        if not self.timesteps:
            raise OptionError(
                "LIF: how many time steps lie in the batch? Put the body into a SpikingNetwork."
            )
        if len(x) % self.timesteps:
            raise OptionError(
                f"LIF: a batch of {len(x)}; {self.timesteps} time steps of each sample are in it."
            )
        neuron = Neuron(
            timesteps=self.timesteps,
            leak=self.leak,
            threshold=self.threshold,
            surrogate=SURROGATES[self.surrogate],
            norm=None if self.mpbn is None else self.mpbn.norm(tuple(x.shape[1:])),
        )
        if self.mpbn is None:
            return scan(x, None, None, neuron)
        if self.training and self.mpbn.bn.num_batches_tracked is not None:
            self.mpbn.bn.num_batches_tracked.add_(self.timesteps)
        return scan(x, self.mpbn.gain, self.mpbn.bn.bias, neuron)

    def extra_repr(self) -> str:
        return f"leak={self.leak}, threshold={self.threshold}, surrogate={self.surrogate!r}"


def _expect(what: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise OptionError(f"LIF: no {what} {found!r}. {did_you_mean(found, allowed)}")
