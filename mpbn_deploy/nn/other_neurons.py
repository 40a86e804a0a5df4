"""Neurons that send whole numbers: integer spikes 0..levels (I-LIF), or signed ones (ternary spikes).

A chip with binary spikes runs them exactly: each level of a staircase is a neuron of its own, which fires if
the membrane is beyond that level. All levels of a neuron have the same membrane, because each spike is
subtracted from all of them, and readers take their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base import OptionError
from ..ir import XYLO_HIDDEN_SPIKES
from .kinds import XYLO_DEFAULTS
from .neuron import LIF
from .norm import TimedLayer, batch_norm


class _Stair(torch.autograd.Function):
    """distance > 0; backward, 1 / width where |distance| < width / 2: the slope of a staircase is one"""

    @staticmethod
    def forward(ctx: Any, distance: Tensor, width: float) -> Tensor:
        ctx.save_for_backward(distance)
        ctx.width = width
        return (distance > 0).to(distance.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (distance,) = ctx.saved_tensors
        return gradient * (distance.abs() < ctx.width / 2) / ctx.width, None


class Levels(LIF):
    """The neurons of a `GradedLIF`, one per channel and level; x has the `levels` copies of each channel."""

    def __init__(self, shape: tuple[int, ...], levels: int, signed: bool, neuron: dict[str, Any]) -> None:
        super().__init__(shape, **neuron)
        if self.threshold <= 0 or self.current_leak or levels < 1:
            raise OptionError(
                f"GradedLIF: threshold {self.threshold}, current_leak {self.current_leak}, {levels} levels; "
                "a positive threshold, no current leak and at least one level are needed."
            )
        if self.leak and self.reset != "subtract":
            raise OptionError(
                f"GradedLIF: reset {self.reset!r} with a leak of {self.leak}; a level that fires cannot "
                "clear the membranes of the others. Use reset='subtract', or leak=0."
            )
        self.shape = shape
        ends = [(k + 0.5) * self.threshold for k in range(levels)]
        self.edges = (*ends, *(-end for end in ends)) if signed else tuple(ends)
        self.signs = (*[1.0] * levels, *[-1.0] * levels * signed)

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes, [timesteps * batch, channels * levels, ...]."""
        copies = x.reshape(self.timesteps, -1, self.shape[0], len(self.signs), *x.shape[2:])
        ones = [1] * (copies.dim() - 4)
        signs, edges = (copies.new_tensor(each).view(-1, *ones) for each in (self.signs, self.edges))
        membrane, sent = torch.zeros_like(copies[0, :, :, 0]), []
        for arriving in copies[:, :, :, 0]:
            membrane = self.leak * membrane + arriving
            distance = signs * (self._judged(membrane).unsqueeze(2) - edges)
            spikes: Tensor = _Stair.apply(distance, self.threshold)  # type: ignore[no-untyped-call]
            membrane = membrane - self.threshold * (signs * spikes).sum(2)
            sent.append(spikes.flatten(1, 2))
        return torch.stack(sent).flatten(0, 1)

    def _judged(self, membrane: Tensor) -> Tensor:
        """Return the membrane after MPBN."""
        if self.mpbn is None:
            return membrane
        if self.mpbn.training and self.mpbn.bn.num_batches_tracked is not None:
            self.mpbn.bn.num_batches_tracked.add_(1)
        norm = self.mpbn.norm(tuple(membrane.shape[1:]))
        return batch_norm(membrane, self.mpbn.gain, self.mpbn.bn.bias, norm)


class RepeatChannels(nn.Module):
    """Repeats each channel `count` times, copies side by side."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        super().__init__()
        self.shape, self.count = shape, count

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.count, 1)


class SumChannels(nn.Module):
    """Sums groups of channels that lie side by side, with one sign for each place in a group."""

    def __init__(self, shape: tuple[int, ...], signs: tuple[float, ...]) -> None:
        super().__init__()
        self.shape, self.signs = shape, signs

    def forward(self, x: Tensor) -> Tensor:
        groups = x.reshape(len(x), self.shape[0], len(self.signs), *x.shape[2:])
        signs = x.new_tensor(self.signs).view(-1, *[1] * (x.dim() - 2))
        return (groups * signs).sum(2)


class GradedLIF(nn.Module):
    """Leaky integrate-and-fire neurons that send a number of spikes. In each time step:

        membrane <- leak * membrane + x
        message   = round(MPBN(membrane) / threshold), but 0..levels; if signed, -levels..levels
        membrane <- membrane - message * threshold

    Halves are rounded toward zero. With a leak of zero these are neurons without memory, and the last line
    means nothing. `levels=1, signed=True` are ternary spikes; `levels=4` those of SpikeYOLO and of the
    Spike-Driven Transformer V3 (I-LIF). Backward, the slope of the staircase is one.
    """

    def __init__(
        self, shape: int | tuple[int, ...], *, levels: int = 4, signed: bool = False, **neuron: Any
    ) -> None:
        super().__init__()
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        self.levels = Levels(sizes, levels, signed, {"threshold": 1.0, "reset": "subtract", **neuron})
        self.repeat = RepeatChannels(sizes, len(self.levels.signs))
        self.sum = SumChannels(sizes, self.levels.signs)

    def forward(self, x: Tensor) -> Tensor:
        """Return whole numbers of the inputs' shape, [timesteps * batch, ...]."""
        messages: Tensor = self.sum(self.levels(self.repeat(x)))
        return messages


# Neurons to train for SynSense's Xylo: a float twin whose thresholds, decays and counts are the chip's.


LEAST_THRESHOLD = 0.125  # of the threshold before MPBN: a folded threshold must stay positive
BELOW, ABOVE = 1.0, 1.0  # how fast the slope of a count falls beyond its first and last step, per threshold
RECURRENT_GAIN = 0.3  # of torch's initial weights, which are meant for single spikes


class _Counts(torch.autograd.Function):
    """floor(ratio) in 0..most; backward, the slope of the staircase, one, falling exponentially beyond it"""

    @staticmethod
    def forward(ctx: Any, ratio: Tensor, most: int) -> Tensor:
        ctx.save_for_backward(ratio)
        ctx.most = most
        return ratio.floor().clamp_(0, most)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (ratio,) = ctx.saved_tensors
        distance = BELOW * (1 - ratio).clamp_min(0) + ABOVE * (ratio - ctx.most).clamp_min(0)
        return gradient * torch.exp(-distance), None


class XyloLIF(LIF):
    """Neurons as Xylo's, in real numbers. In each time step:

        current  <- current_leak * current + x
        membrane <- leak * membrane + current + bias
        count     = how often the threshold fits into the membrane, 0..max_spikes
        membrane <- membrane - count * threshold

    With MPBN, the threshold of a channel is that at which MPBN(membrane) reaches `threshold` (Eq. 10), at
    least an eighth of it; what a spike subtracts is the same number, because Xylo has one for both. Its
    statistics are the running ones also in training, over all time steps, so that a threshold is constant
    over time, as on the chip. The chip's decays are leaks of 1 - 2^-k.

    `recurrent` adds a matrix from the counts of the step before to x. Biases belong here: what enters the
    current would build up in it, which no number of the chip does.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        *,
        max_spikes: int = XYLO_HIDDEN_SPIKES,
        recurrent: bool = False,
        mpbn: str = "channel",
        **neuron: Any,
    ) -> None:
        for name in ("reset", "mpbn_gain"):
            if (found := neuron.get(name, XYLO_DEFAULTS[name])) != XYLO_DEFAULTS[name]:
                raise OptionError(f"XyloLIF: {name} {found}; Xylo has {name} {XYLO_DEFAULTS[name]} only.")
        super().__init__(shape, mpbn=mpbn, **{**XYLO_DEFAULTS, **neuron})
        if self.threshold <= 0:
            raise OptionError(f"XyloLIF: threshold {self.threshold}; a positive number is needed.")
        channels = shape if isinstance(shape, int) else shape[0]
        self.max_spikes = max_spikes
        self.bias = nn.Parameter(torch.zeros(channels))
        self.recurrent: nn.Linear | None = None
        if recurrent:
            self.recurrent = nn.Linear(channels, channels, bias=False)
            if not self.recurrent.weight.is_meta:
                nn.init.uniform_(self.recurrent.weight, *_ends(RECURRENT_GAIN / channels**0.5))

    @property
    def least_threshold(self) -> float:
        """The smallest threshold that MPBN can give a channel."""
        return LEAST_THRESHOLD * self.threshold

    def folded_threshold(self) -> Tensor:
        """(threshold - offset) * sqrt(variance + epsilon) / gain + mean, at least `least_threshold`"""
        if self.mpbn is None:
            return torch.full_like(self.bias, self.threshold)
        norm = self.mpbn.bn
        assert norm.running_mean is not None and norm.running_var is not None
        deviation = (norm.running_var + norm.eps).sqrt()
        folded: Tensor = (self.threshold - norm.bias) * deviation / self.mpbn.gain + norm.running_mean
        return folded + (folded.clamp_min(self.least_threshold) - folded).detach()

    def forward(self, x: Tensor) -> Tensor:
        """Return spike counts of the inputs' shape, [timesteps * batch, ...]."""
        steps = x.view(self.timesteps, -1, *x.shape[1:])
        threshold, bias = (_over(each, steps[0]) for each in (self.folded_threshold(), self.bias))
        current = membrane = count = torch.zeros_like(steps[0])
        counts, membranes = [], []
        for arriving in steps:
            if self.recurrent is not None:
                arriving = arriving + self.recurrent(count)
            current = self.current_leak * current + arriving
            membrane = self.leak * membrane + current + bias
            membranes.append(membrane.detach())
            count = _Counts.apply(membrane / threshold, self.max_spikes)  # type: ignore[no-untyped-call]
            membrane = membrane - count * threshold
            counts.append(count)
        self._observe(membranes)
        return torch.stack(counts).flatten(0, 1)

    def _observe(self, membranes: Sequence[Tensor]) -> None:
        """Update the running statistics by those of all time steps together."""
        if self.mpbn is None:
            return
        if self.mpbn.observe is not None:
            for membrane in membranes:
                self.mpbn.observe(membrane)
        if self.mpbn.training:  # frozen statistics: only MPBN is in inference mode
            values = torch.cat(list(membranes))
            nn.functional.batch_norm(
                values,
                self.mpbn.bn.running_mean,
                self.mpbn.bn.running_var,
                training=True,
                momentum=self.mpbn.bn.momentum or 0.1,
            )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_spikes={self.max_spikes}"


def _ends(largest: float) -> tuple[float, float]:
    return -largest, largest


def _over(values: Tensor, sample: Tensor) -> Tensor:
    """Return one value per channel, broadcast over [batch, channels, ...]."""
    return values.view(-1, *[1] * (sample.dim() - 2))


class StepDelay(TimedLayer):
    """y_t = x_(t - 1), and zero in the first step: a spike of a hidden neuron of Xylo takes one time step."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [timesteps * batch, ...], one step later."""
        steps = x.view(self.timesteps, -1, *x.shape[1:])
        return torch.cat([torch.zeros_like(steps[:1]), steps[:-1]]).flatten(0, 1)


class SpikeCount(TimedLayer):
    """y = timesteps * x: the mean over time, which a SpikingNetwork takes, is then the number of spikes."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.timesteps
