"""The neuron over all its time steps at once, with a backward written by hand.

Only the membranes before reset are kept for backward (spikes are kept by the next layer anyway), and
each step is a handful of passes over memory: that is where training a spiking network spends its time.

    forward     membrane      = leak * reset + x
                spike         = MPBN(membrane) > threshold
                reset         = membrane * (1 - spike)

    backward    by_spike      = dL/dspike - leak * by_next * membrane
    (from the   by_normalized = surrogate(by_spike, MPBN(membrane))
    last step)  by_membrane   = dMPBN(by_normalized) + leak * by_next * (1 - spike)
                dL/dx         = by_membrane, which is by_next of the step before
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..base import record
from .norm import Moments, Norm, normalize, normalize_again, normalize_backward
from .surrogate import Surrogate


@record
class Neuron:
    """What stays the same over the time steps."""

    timesteps: int
    leak: float
    threshold: float
    surrogate: Surrogate
    norm: Norm | None


def scan(x: Tensor, gain: Tensor | None, offset: Tensor | None, neuron: Neuron) -> Tensor:
    """Spikes [timesteps * batch, ...] of inputs of the same shape."""
    if gain is not None and x.dtype != gain.dtype:  # under autocast, convolutions give fewer bits
        x = x.to(gain.dtype)
    spikes: Tensor = _Scan.apply(x, gain, offset, neuron)  # type: ignore[no-untyped-call]
    return spikes


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, offset: Tensor | None, neuron: Neuron) -> Tensor:
        x = _dense(x)
        keep = any(ctx.needs_input_grad)
        spikes = torch.empty_like(x)
        # Without a backward to come, one step's membranes are enough: the next overwrite them.
        membranes = torch.empty_like(x if keep else x[: len(x) // neuron.timesteps])
        moments: list[Moments | None] = []
        membrane_steps = _steps(membranes, neuron.timesteps if keep else 1)
        reset: Tensor | None = None
        for step, (current, spike) in enumerate(
            zip(_steps(x, neuron.timesteps), _steps(spikes, neuron.timesteps), strict=True)
        ):
            membrane = membrane_steps[step if keep else 0]
            if reset is None:
                membrane.copy_(current)
            else:
                torch.add(current, reset, alpha=neuron.leak, out=membrane)
            normalized, moment = _normalize(membrane, gain, offset, neuron.norm)
            moments.append(moment)
            torch.gt(normalized, neuron.threshold, out=spike)
            if step + 1 < neuron.timesteps:
                reset = torch.addcmul(membrane, membrane, spike, value=-1)
        if keep:
            ctx.save_for_backward(membranes, spikes, gain, offset)
            ctx.moments, ctx.neuron = moments, neuron
        return spikes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        membranes, spikes, gain, offset = ctx.saved_tensors
        neuron: Neuron = ctx.neuron
        by_x = torch.empty_like(membranes)
        steps = [
            _steps(values, neuron.timesteps)
            for values in (_in_layout_of(membranes, gradients[0]), membranes, spikes, by_x)
        ]
        by_parameters = [torch.zeros_like(each) for each in (gain, offset) if each is not None]
        by_next: Tensor | None = None
        for step in reversed(range(neuron.timesteps)):
            by_spike, membrane, spike, by_membrane = (values[step] for values in steps)
            if by_next is not None:
                by_spike = torch.addcmul(by_spike, by_next, membrane, value=-neuron.leak)
            if neuron.norm is None:
                through_spike = neuron.surrogate(by_spike, membrane)
            else:
                moments = ctx.moments[step]
                normalized = normalize_again(membrane, gain, offset, moments, neuron.norm)
                by_normalized = neuron.surrogate(by_spike, normalized)
                through_spike, *now = normalize_backward(by_normalized, membrane, gain, moments, neuron.norm)
                for total, new in zip(by_parameters, now, strict=True):
                    total += new
            if by_next is None:
                by_membrane.copy_(through_spike)
            else:
                kept = torch.addcmul(by_next, by_next, spike, value=-1)
                torch.add(through_spike, kept, alpha=neuron.leak, out=by_membrane)
            by_next = by_membrane
        return by_x, *(by_parameters or (None, None)), None


def _normalize(
    membrane: Tensor, gain: Tensor | None, offset: Tensor | None, norm: Norm | None
) -> tuple[Tensor, Moments | None]:
    if norm is None or gain is None or offset is None:
        return membrane, None
    return normalize(membrane, gain, offset, norm)


def _steps(values: Tensor, timesteps: int) -> Tensor:
    """[timesteps * batch, ...] -> [timesteps, batch, ...], time first"""
    return values.view(timesteps, -1, *values.shape[1:])


def _dense(x: Tensor) -> Tensor:
    """x without holes in memory, in whichever of torch's two layouts it has."""
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x
    return x.contiguous()


def _in_layout_of(model: Tensor, values: Tensor) -> Tensor:
    """The values in the layout of the model; a layer after us may send gradients in another one."""
    if values.stride() == model.stride():
        return values
    return torch.empty_like(model).copy_(values)
