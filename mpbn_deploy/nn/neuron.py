"""The paper's neuron: leaky integrate-and-fire, with batch norm applied to a copy of the membrane."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d

from ..base import OptionError, did_you_mean
from ..ir import InputFormat, shape_for, timestep_problems
from . import compiled
from .kinds import (
    MPBN_EPSILON,
    MPBN_GAINS,
    MPBN_KINDS,
    NEURON_DEFAULTS,
    RESET_GRADIENTS,
    RESETS,
    SURROGATE_NAMES,
)
from .norm import SURROGATES, Feedback, LIFParameters, Norm, Observer, TimedLayer, norm_of, run_eagerly
from .scan import is_compiled, normalized_membranes, scan, scan_node

# SpikingNetwork: normalizes raw inputs, repeats them over time, and averages the body's outputs.


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """How the body is built, what the outputs mean, and how the network was trained."""

    architecture: str
    arguments: dict[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    training: dict[str, Any] = field(default_factory=dict)


class SpikingNetwork(nn.Module):
    """logits = mean over time steps of body(normalized inputs) (Eq. 3).

    Inputs are raw values, [batch, *shape] (constant over time) or [batch, timesteps, *shape], and are
    normalized per channel: (x - mean) / deviation. The body sees [timesteps * batch, *shape].
    """

    def __init__(
        self, body: nn.Module, *, timesteps: int, input_format: InputFormat, card: ModelCard | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.input_format = input_format
        self.card = card
        self.timesteps = timesteps

    @property
    def timesteps(self) -> int:
        """The number of time steps per sample; setting it updates every layer of the body."""
        return self._timesteps

    @timesteps.setter
    def timesteps(self, timesteps: int) -> None:
        if problems := timestep_problems(timesteps):
            raise OptionError(f"{problems[0]}.")
        self._timesteps = timesteps
        for module in self.body.modules():
            if isinstance(module, TimedLayer):
                module.timesteps = timesteps

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits, [batch, classes]."""
        shape = self.input_format.shape
        given = shape_for(tuple(inputs.shape[1:]), shape)
        inputs = inputs.reshape(len(inputs), *given)
        if given not in (shape, (self.timesteps, *shape)):
            raise OptionError(
                f"inputs of shape {given} per sample; the network takes {shape}, or "
                f"{(self.timesteps, *shape)} for inputs that change over time."
            )
        if not inputs.is_floating_point():
            parameter = next(self.parameters(), None)
            inputs = inputs.to(torch.get_default_dtype() if parameter is None else parameter.dtype)
        if given == shape:
            steps = self.normalize(inputs).expand(self.timesteps, *inputs.shape)
        else:
            steps = self.normalize(inputs.transpose(0, 1))
        steps = steps.flatten(0, 1)
        if self.training and steps.dim() == 4:  # convolutions and norms train fastest in this layout
            steps = steps.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.body(steps)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # half precision under autocast
        return logits.view(self.timesteps, -1, *logits.shape[1:]).mean(0)

    def normalize(self, inputs: Tensor) -> Tensor:
        """Return (x - mean) / deviation, per channel."""
        ones = [1] * (len(self.input_format.shape) - 1)
        mean = torch.tensor(self.input_format.mean, dtype=inputs.dtype, device=inputs.device)
        deviation = torch.tensor(self.input_format.deviation, dtype=inputs.dtype, device=inputs.device)
        return (inputs - mean.view(-1, *ones)) / deviation.view(-1, *ones)


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


# Recurrent layers: neurons that receive the spikes of their own layer, one time step later.


class RecurrentLIF(LIF):
    """LIF neurons with a synapse from their spikes to themselves. In each time step:

        x_t <- x_t + recurrent(spike_(t-1))        (no spikes before the first step)

    and then as `LIF`. With `shape` = features, the synapse is a matrix between all neurons; with `shape` =
    (channels, height, width) it is a convolution with `kernel` x `kernel` weights per pair of channels,
    padded with zeros to keep the shape. Neither has a bias.
    """

    def __init__(self, shape: int | tuple[int, ...], *, kernel: int | None = None, **neuron: Any) -> None:
        super().__init__(shape, **neuron)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if len(sizes) == 1 and kernel is None:
            self.recurrent: nn.Linear | nn.Conv2d = nn.Linear(sizes[0], sizes[0], bias=False)
            return
        if len(sizes) != 3 or kernel is None or kernel < 1 or kernel % 2 == 0:
            raise OptionError(
                f"RecurrentLIF: shape {sizes} with kernel {kernel}; features without a kernel, or (channels, "
                "height, width) with an odd one, are needed."
            )
        self.recurrent = nn.Conv2d(sizes[0], sizes[0], kernel, padding=kernel // 2, bias=False)

    @property
    def feedback(self) -> Feedback:
        """The recurrent synapse without its weight."""
        if isinstance(self.recurrent, nn.Linear):
            return Feedback(padding=None)
        padding = self.recurrent.padding
        assert isinstance(padding, tuple), "made so above"
        return Feedback(padding=(padding[0], padding[1]))

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes of the inputs' shape, [timesteps * batch, ...]."""
        return self._fire(x, self.feedback, self.recurrent.weight)


# Max pooling of spikes, with a gradient that follows the membranes.


HALVES = ([2, 2], [2, 2], [0, 0], [1, 1], False)  # windows of 2 x 2 pixels that do not overlap


class SpikePool(nn.MaxPool2d):
    """nn.MaxPool2d of spikes: in each window, the gradient goes to the neuron with the highest membrane.

    That neuron alone decides whether the window has a spike. nn.MaxPool2d cannot know it: the spikes of a
    window are often equal, and it takes the first of them. Unless it is directly behind a LIF, this is
    nn.MaxPool2d.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the largest spike of each window."""
        return run_eagerly(self._pool, input)

    def _pool(self, input: Tensor) -> Tensor:
        node = scan_node(input)
        if node is None or self.return_indices:
            pooled: Tensor = super().forward(input)
        else:
            pooled = _Pooled.apply(input, node, self)  # type: ignore[no-untyped-call]
        return pooled


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, spikes: Tensor, node: Any, pool: SpikePool) -> Tensor:
        ctx.node = node
        sizes = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
        pairs = ([size] * 2 if isinstance(size, int) else list(size) for size in sizes)
        ctx.geometry = (*pairs, pool.ceil_mode)
        ctx.compiled = is_compiled(node) and ctx.geometry == HALVES and min(spikes.shape[2:]) > 1
        pooled: Tensor = compiled.pool(spikes) if ctx.compiled else max_pool2d(spikes, *ctx.geometry)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.compiled:
            return compiled.pool_gradient(gradients[0], ctx.node), None, None
        membranes = normalized_membranes(ctx.node)
        _, highest = max_pool2d(membranes, *ctx.geometry, return_indices=True)
        by_spike = torch.ops.aten.max_pool2d_with_indices_backward(
            gradients[0].to(membranes.dtype), membranes, *ctx.geometry, highest
        )
        return by_spike.to(gradients[0].dtype), None, None
