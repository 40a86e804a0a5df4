"""Neurons that send whole numbers: integer spikes 0..levels (I-LIF), or signed ones (ternary spikes).

A chip with binary spikes runs them exactly: each level of a staircase is a neuron of its own, which fires if
the membrane is beyond that level. All levels of a neuron have the same membrane, because each spike is
subtracted from all of them, and readers take their sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..base import OptionError
from .neuron import LIF
from .norm import batch_norm


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
