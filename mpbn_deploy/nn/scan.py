"""LIF neurons over all time steps, as one autograd function with a handwritten backward.

Backward keeps only the membranes before reset (the next layer keeps the spikes anyway). A neuron is a few
operations per number, so each step makes as few passes over memory as possible.

    forward     membrane        = leak * reset + x
                spike           = MPBN(membrane) > threshold
                reset           = membrane * (1 - spike)

    backward    grad_spike      = dL/dspike - leak * grad_next * membrane
    (from the   grad_normalized = surrogate(grad_spike, MPBN(membrane))
    last step)  grad_membrane   = dMPBN(grad_normalized) + leak * grad_next * (1 - spike)
                dL/dx           = grad_membrane, the grad_next of the previous step

    soft reset  reset           = membrane - spike * subtrahend
                grad_spike      = dL/dspike - leak * grad_next * subtrahend
                grad_membrane   = dMPBN(grad_normalized) + leak * grad_next

    detached    grad_spike      = dL/dspike              (the reset takes the spike for a constant)

A synaptic current filters x before all this, and nothing of it need be kept for backward:

    forward     current         = current_leak * current + x
    backward    grad_current    = dL/dcurrent + current_leak * grad_next

In a recurrent layer, spikes of one step arrive in the next, so the current is part of the loop:

    forward     current         = current_leak * current + x + weight * (spike of the step before)
    backward    grad_current    = grad_membrane + current_leak * (grad_current of the step after)
                dL/dspike       gains weight' * (grad_current of the step after)
                dL/dx           = grad_current
                dL/dweight      = sum of grad_current * (spike of the step before)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import compiled
from .compiled import dense, in_layout_of, steps_of
from .norm import (
    LIFParameters,
    Loop,
    Moments,
    Norm,
    normalize,
    normalize_backward,
    normalize_with,
    run_eagerly,
)


def scan(
    x: Tensor,
    gain: Tensor | None,
    offset: Tensor | None,
    lif: LIFParameters,
    weight: Tensor | None = None,
) -> Tensor:
    """Return spikes of the inputs' shape, [timesteps * batch, ...]; `weight` is that of the feedback."""
    return run_eagerly(_scan, x, gain, offset, lif, weight)


def _scan(
    x: Tensor, gain: Tensor | None, offset: Tensor | None, lif: LIFParameters, weight: Tensor | None
) -> Tensor:
    # Under autocast, convolutions return half precision; membranes have at least single precision.
    precision = torch.promote_types(x.dtype, torch.float32) if gain is None else gain.dtype
    if lif.feedback is None:
        if lif.current_leak:
            x = _Current.apply(x.to(precision), lif.current_leak, lif.timesteps)  # type: ignore[no-untyped-call]
        if compiled.serves(x, gain, lif.norm):
            fired: Tensor = compiled.CompiledScan.apply(x, gain, offset, lif)  # type: ignore[no-untyped-call]
            return fired
    x = x.to(precision)
    weight = None if weight is None else weight.to(x.dtype)
    spikes: Tensor = _Scan.apply(x, gain, offset, weight, lif)  # type: ignore[no-untyped-call]
    return spikes


def scan_node(spikes: Tensor) -> Any:
    """Return the node of `scan` in the autograd graph that these spikes come from; None if there is none."""
    node = spikes.grad_fn
    return node if isinstance(node, _Scan._backward_cls) or is_compiled(node) else None


def is_compiled(node: Any) -> bool:
    """Return whether compiled loops computed the spikes of a node."""
    return isinstance(node, compiled.CompiledScan._backward_cls)


def normalized_membranes(node: Any) -> Tensor:
    """Return the membranes of all time steps that a node of `scan_node` compared with the threshold."""
    if is_compiled(node):
        return compiled.normalized_membranes(node)
    gain, offset = node.saved_tensors[2:4]
    membranes: Tensor = node.saved_tensors[0]
    lif: LIFParameters = node.lif
    if lif.norm is None:
        return membranes
    steps = zip(steps_of(membranes, lif.timesteps), node.moments, strict=True)
    return torch.cat([normalize_with(step, gain, offset, moments, lif.norm) for step, moments in steps])


class _Current(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, leak: float, timesteps: int) -> Tensor:
        ctx.leak, ctx.timesteps = leak, timesteps
        return _filtered(x, leak, timesteps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _filtered(gradients[0], ctx.leak, ctx.timesteps, backward=True), None, None


def _filtered(x: Tensor, leak: float, timesteps: int, backward: bool = False) -> Tensor:
    """Return current = leak * current + x in every time step, from the first to the last or backward."""
    x = dense(x)
    currents = torch.empty_like(x)
    steps = list(zip(steps_of(x, timesteps), steps_of(currents, timesteps), strict=True))
    before: Tensor | None = None
    for now, current in reversed(steps) if backward else steps:
        if before is None:
            current.copy_(now)
        else:
            torch.add(now, before, alpha=leak, out=current)
        before = current
    return currents


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor | None,
        offset: Tensor | None,
        weight: Tensor | None,
        lif: LIFParameters,
    ) -> Tensor:
        x = dense(x)
        keep = any(ctx.needs_input_grad)
        spikes = torch.empty_like(x)
        # Without a backward pass, every step can overwrite the membranes of the last. Those of the first
        # step are its inputs, which need no copy if there is no other step.
        single = lif.timesteps == 1
        membranes = x if single else torch.empty_like(x if keep else x[: len(x) // lif.timesteps])
        moments: list[Moments | None] = []
        membrane_steps = steps_of(membranes, lif.timesteps if keep else 1)
        reset: Tensor | None = None
        loop = Loop(weight, lif.feedback, lif.current_leak)
        for step, (arriving, spike) in enumerate(
            zip(steps_of(x, lif.timesteps), steps_of(spikes, lif.timesteps), strict=True)
        ):
            membrane = membrane_steps[step if keep else 0]
            current = loop.current(arriving)
            if reset is not None:
                torch.add(current, reset, alpha=lif.leak, out=membrane)
            elif not single:
                membrane.copy_(current)
            normalized, moment = _normalize(membrane, gain, offset, lif.norm)
            moments.append(moment)
            torch.gt(normalized, lif.threshold, out=spike)
            loop.spike = spike
            if step + 1 < lif.timesteps:
                reset = _reset(membrane, spike, lif.subtrahend)
        if keep:
            ctx.save_for_backward(membranes, spikes, gain, offset, weight)  # also for normalized_membranes
            ctx.moments, ctx.lif = moments, lif
        return spikes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        membranes, spikes, gain, offset, weight = ctx.saved_tensors
        lif: LIFParameters = ctx.lif
        grad_x = torch.empty_like(membranes)
        steps = [
            steps_of(values, lif.timesteps)
            for values in (in_layout_of(membranes, gradients[0]), membranes, spikes, grad_x)
        ]
        grad_parameters = [torch.zeros_like(each) for each in (gain, offset) if each is not None]
        grad_next: Tensor | None = None
        loop = Loop(weight, lif.feedback, lif.current_leak)
        for step in reversed(range(lif.timesteps)):
            grad_spike, membrane, spike, grad_membrane = (values[step] for values in steps)
            grad_spike = loop.by_spike(grad_spike)
            if grad_next is None or lif.reset_is_constant:
                pass
            elif lif.subtrahend is None:
                grad_spike = torch.addcmul(grad_spike, grad_next, membrane, value=-lif.leak)
            else:
                grad_spike = torch.add(grad_spike, grad_next, alpha=-lif.leak * lif.subtrahend)
            if lif.norm is None:
                through_spike = lif.surrogate(grad_spike, membrane)
            else:
                moments = ctx.moments[step]
                normalized = normalize_with(membrane, gain, offset, moments, lif.norm)
                grad_normalized = lif.surrogate(grad_spike, normalized)
                through_spike, *now = normalize_backward(grad_normalized, membrane, gain, moments, lif.norm)
                for total, new in zip(grad_parameters, now, strict=True):
                    total += new
            if grad_next is None:
                grad_membrane.copy_(through_spike)
            else:
                kept = grad_next if lif.subtrahend is not None else _reset(grad_next, spike, None)
                torch.add(through_spike, kept, alpha=lif.leak, out=grad_membrane)
            grad_next = loop.by_membrane(grad_membrane)
        grad_weight = loop.by_weight(steps[3], steps[2])
        return grad_x, *(grad_parameters or (None, None)), grad_weight, None


def _reset(membrane: Tensor, spike: Tensor, subtrahend: float | None) -> Tensor:
    """Return membrane * (1 - spike), or membrane - spike * subtrahend."""
    if subtrahend is None:
        return torch.addcmul(membrane, membrane, spike, value=-1)
    return torch.add(membrane, spike, alpha=-subtrahend)


def _normalize(
    membrane: Tensor, gain: Tensor | None, offset: Tensor | None, norm: Norm | None
) -> tuple[Tensor, Moments | None]:
    if norm is None or gain is None or offset is None:
        return membrane, None
    return normalize(membrane, gain, offset, norm)
