"""Bound the rounding errors of a traced network: which spikes can no arithmetic of this precision decide?

A sum of n terms, computed in any order, differs from the exact one by at most about n * u * (the sum of their
magnitudes), u = epsilon / 2. Layers between neurons are nested sums, so their error is bounded by

    u * (number of operations on the way) * (the same layers with |weights|, |biases| and |inputs|)

and two computations of one membrane, the module's and the folded network's, differ by at most twice that.
Magnitudes are those of the trained layers: what cancels in a folded bias counts. Spikes are exact, so the
bound starts anew at each neuron, and follows a membrane until it is reset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import assert_never

from ..base import Array, record
from ..ir import (
    INPUT_NAME,
    AdaptivePool,
    Add,
    AveragePool,
    BatchNorm,
    Convolution,
    CountingSpike,
    Delay,
    Flatten,
    Gate,
    Linear,
    MaxPool,
    Operation,
    Shape,
    Spike,
    TrainedNetwork,
    counting_threshold,
    per_channel,
)

FEW = 64  # operations beside the sums: normalizing inputs, norms, and what folding did to each number


@record
class RoundingBounds:
    """Where spikes [T, samples, *shape] are ties, by neuron; bounds on the errors of outputs [samples, *]."""

    ties: Mapping[str, Tensor]
    outputs: Tensor
    wrong: Mapping[str, Tensor]  # which of the spikes are not those of the network, after the spikes before
    margins: Mapping[str, Tensor]  # how far above its threshold the network is, after the spikes before
    errors: Mapping[str, Tensor]  # bounds on the rounding errors of these
    result: Tensor  # of the network: its outputs


@record
class _Value:
    """A value [T, samples, *shape], the sum of the magnitudes behind it, the operations on the way to it."""

    value: Tensor
    size: Tensor
    operations: int

    def delayed(self) -> _Value:
        """Return the value one time step later."""
        value, size = (torch.cat([torch.zeros_like(each[:1]), each[:-1]]) for each in (self.value, self.size))
        return replace(self, value=value, size=size)

    def through(self, kind: Operation, sources: list[_Value], shape: Shape = ()) -> _Value:
        """Apply an operation without time, or a norm per time step."""
        if isinstance(kind, BatchNorm) and kind.per_step:
            steps = zip(self.value, self.size, strict=True)
            each = [replace(self, value=value[None], size=size[None]) for value, size in steps]
            parts = [one.through(kind.at(step), [one]) for step, one in enumerate(each)]
            value, size = (torch.cat([getattr(part, name) for part in parts]) for name in ("value", "size"))
            return _Value(value=value, size=size, operations=parts[0].operations)
        leading = self.value.shape[:2]
        value, size = (
            apply_operation(operation, [each.flatten(0, 1) for each in given], shape)
            for operation, given in (
                (kind, [source.value for source in sources]),
                (_absolute(kind), [source.size for source in sources]),
            )
        )
        count = max(source.operations for source in sources) + _operations(kind, tuple(self.value.shape[2:]))
        return _Value(
            value=value.reshape(*leading, *value.shape[1:]),
            size=size.reshape(*leading, *size.shape[1:]),
            operations=count,
        )


def rounding_bounds(
    trained: TrainedNetwork, inputs: Tensor, spikes: Mapping[str, Tensor], epsilon: float
) -> RoundingBounds:
    """Return the ties of a network that gets inputs [T, samples, *shape] and fires these spikes.

    A spike is a tie if its membrane, after the spikes before it, is closer to the threshold than two
    computations with a relative precision of `epsilon` may differ.
    """
    mean, deviation = (
        torch.tensor(each).reshape(-1, *[1] * (inputs.dim() - 3))
        for each in (trained.input.mean, trained.input.deviation)
    )
    first = _Value(
        value=(inputs - mean) / deviation, size=(inputs.abs() + mean.abs()) / deviation, operations=FEW
    )
    values, ties, wrong, margins, errors = {INPUT_NAME: first}, {}, {}, {}, {}
    for operation in trained.operations:
        sources = [values[source] for source in operation.sources]
        if isinstance(operation.kind, (Spike, CountingSpike)):
            given = (sources[0], spikes.get(operation.name), epsilon)
            if isinstance(operation.kind, Spike):
                margin, error, sent = _decisions(operation.kind, *given)
                wrong[operation.name] = (margin > 0) != sent
            else:
                margin, error, sent = _counts(operation.kind, *given)
                wrong[operation.name] = margin < 0
            ties[operation.name] = margin.abs() <= error
            margins[operation.name], errors[operation.name] = margin, error
            values[operation.name] = _Value(value=sent, size=sent, operations=FEW)
        elif isinstance(operation.kind, Delay):
            values[operation.name] = sources[0].delayed()
        else:
            values[operation.name] = sources[0].through(operation.kind, sources, operation.shape)
    last = values[trained.operations[-1].name]
    leak = 1.0 if trained.readout_leak is None else trained.readout_leak
    total, result = torch.zeros_like(last.size[0]), torch.zeros_like(last.size[0])
    for size, value in zip(last.size, last.value, strict=True):
        total, result = leak * total + size, leak * result + value
    if trained.readout_leak is None:
        total, result = total / trained.timesteps, result / trained.timesteps
    bounds = epsilon * (last.operations + trained.timesteps) * total
    return RoundingBounds(
        ties=ties, outputs=bounds, wrong=wrong, margins=margins, errors=errors, result=result
    )


def _decisions(
    neuron: Spike, arriving: _Value, fired: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return margins, bounds on their errors, and spikes of a neuron that fires as given, or by itself."""
    membrane, size = torch.zeros_like(arriving.value[0]), torch.zeros_like(arriving.value[0])
    current, current_size, spike = membrane, size, membrane
    leak, current_leak = (over_channels(each, membrane) for each in (neuron.leak, neuron.current_leak))
    subtrahend = None if neuron.subtrahend is None else over_channels(neuron.subtrahend, membrane)
    operations = arriving.operations + 4 * len(arriving.value)
    margins, errors, sent = [], [], []
    for step, x in enumerate(arriving.value):
        current, current_size = current_leak * current + x, current_leak * current_size + arriving.size[step]
        if neuron.recurrent is not None:
            again = _Value(value=spike[None], size=spike[None], operations=0)
            looped = again.through(neuron.recurrent, [again])
            current, current_size = current + looped.value[0], current_size + looped.size[0]
        # The membrane itself counts too: v + (x - v) / tau rounds it, however much of it is left.
        size = leak * size + membrane.abs() + current_size
        membrane = leak * membrane + current
        judged, around = membrane, size
        if neuron.norm is not None:
            now = neuron.norm.at(step)
            judged, around = (
                apply_operation(norm, [each]) for norm, each in ((now, membrane), (_absolute(now), size))
            )
        above = judged > neuron.threshold
        spike = (above if fired is None else fired[step]).double()
        bound = epsilon * (operations + _loop(neuron)) * (around + abs(neuron.threshold))
        margins.append(judged - neuron.threshold)
        errors.append(bound)
        sent.append(spike)
        after, left = torch.zeros_like(membrane), torch.zeros_like(size)
        if subtrahend is not None:
            after, left = membrane - subtrahend, size + subtrahend.abs()
        membrane, size = torch.where(spike > 0, after, membrane), torch.where(spike > 0, left, size)
    return torch.stack(margins), torch.stack(errors), torch.stack(sent)


def _counts(
    neuron: CountingSpike, arriving: _Value, fired: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return margins, bounds on their errors, and counts, of a neuron that counts.

    A margin is the distance to the nearest membrane with another count; below zero, the given count is wrong.
    """
    membrane = size = current = current_size = count = torch.zeros_like(arriving.value[0])
    shape = tuple(membrane.shape[1:])
    threshold, bias = (
        torch.tensor(np.broadcast_to(per_channel(each, shape), shape).copy())
        for each in (counting_threshold(neuron), neuron.bias)
    )
    margins, errors, sent = [], [], []
    for step, x in enumerate(arriving.value):
        current = neuron.current_leak * current + x
        current_size = neuron.current_leak * current_size + arriving.size[step]
        if neuron.recurrent is not None:
            again = _Value(value=count[None], size=count[None], operations=0)
            looped = again.through(neuron.recurrent, [again])
            current, current_size = current + looped.value[0], current_size + looped.size[0]
        size = neuron.leak * size + membrane.abs() + current_size + bias.abs()
        membrane = neuron.leak * membrane + current + bias
        own = (membrane / threshold).floor().clamp(0, neuron.max_spikes)
        count = own if fired is None else fired[step].double()
        above = torch.where(count > 0, membrane - count * threshold, torch.inf)
        below = torch.where(count < neuron.max_spikes, (count + 1) * threshold - membrane, torch.inf)
        margins.append(torch.minimum(above, below))
        errors.append(epsilon * (arriving.operations + 8 * (step + 1)) * (size + threshold))
        sent.append(count)
        membrane, size = membrane - count * threshold, size + count * threshold
    return torch.stack(margins), torch.stack(errors), torch.stack(sent)


def _loop(neuron: Spike) -> int:
    return 0 if neuron.recurrent is None else _operations(neuron.recurrent, ())


def _absolute(kind: Operation) -> Operation:
    """Return an operation with the magnitudes of its parameters."""
    match kind:
        case Linear(weight=weight, bias=bias):
            return replace(kind, weight=np.abs(weight), bias=np.abs(bias))
        case Convolution(synapse=synapse, bias=bias):
            return replace(kind, synapse=replace(synapse, weight=np.abs(synapse.weight)), bias=np.abs(bias))
        case BatchNorm(gain=gain, offset=offset, mean=mean):  # |gain| * (x + |mean|) / deviation + |offset|
            return replace(kind, gain=np.abs(gain), offset=np.abs(offset), mean=-np.abs(mean))
        case Gate(weights=weights):
            return replace(kind, weights=tuple(map(abs, weights)))
        case _:
            return kind


def _operations(kind: Operation, source: tuple[int, ...]) -> int:
    """Return how many roundings an operation adds to each of its results, at most."""
    match kind:
        case Linear(weight=weight):
            return int(weight.shape[1]) + 1
        case Convolution(synapse=synapse):
            return prod(synapse.weight.shape[1:]) + 1
        case AveragePool(kernel=kernel):
            return prod(kernel) + 1
        case AdaptivePool():
            return prod(source[1:]) + 1
        case _:
            return 8


# ---- operations in float64 -----------------------------------------------------------------------


def apply_operation(operation: Operation, sources: list[Tensor], shape: Shape = ()) -> Tensor:
    """Compute an operation without time as torch does, on [samples, *shape]; `shape`: of the result."""
    x = sources[0]
    match operation:
        case Linear(weight=weight, bias=bias):
            return functional.linear(x, _tensor(weight), _tensor(bias))
        case Convolution(synapse=synapse, bias=bias):
            geometry = (synapse.stride, synapse.padding, synapse.dilation, synapse.groups)
            return functional.conv2d(x, _tensor(synapse.weight), _tensor(bias), *geometry)
        case BatchNorm():
            return _normalize(operation, x)
        case Flatten():
            return x.reshape(len(x), *shape) if shape else x.flatten(1)
        case AveragePool(kernel=kernel, stride=stride, padding=padding):
            kind = (operation.round_up, operation.count_padding, operation.divisor)
            return functional.avg_pool2d(x, kernel, stride, padding, *kind)
        case AdaptivePool(size=size):
            return functional.adaptive_avg_pool2d(x, size)
        case MaxPool(kernel=kernel, stride=stride, padding=padding, dilation=dilation):
            return functional.max_pool2d(x, kernel, stride, padding, dilation)
        case Add():
            return sum(sources[1:], x)
        case Gate(weights=weights, threshold=threshold):
            terms = (weight * source for weight, source in zip(weights, sources, strict=True))
            return (reduce(torch.add, terms) > threshold).to(x.dtype)
        case Spike() | CountingSpike() | Delay():
            raise AssertionError("neurons and delays are computed over time")
        case _:
            assert_never(operation)


def _normalize(norm: BatchNorm, x: Tensor) -> Tensor:
    """Apply a norm per channel, or per element."""
    ones = [1] * (x.dim() - 2) if len(norm.gain) == x.shape[1] else []
    shape = (-1, *ones) if ones or x.dim() == 2 else x.shape[1:]
    gain, offset, mean, variance = (
        _tensor(each).reshape(shape) for each in (norm.gain, norm.offset, norm.mean, norm.variance)
    )
    return gain * (x - mean) / (variance + norm.epsilon).sqrt() + offset


def over_channels(values: float | Array, like: Tensor) -> Tensor:
    """Return one number, or one per channel or neuron, as it multiplies [samples, *shape]."""
    numbers = _tensor(np.asarray(values))
    if numbers.numel() in (1, like.shape[1]):
        return numbers.reshape(-1, *[1] * (like.dim() - 2))
    return numbers.reshape(like.shape[1:])


def _tensor(values: Array) -> Tensor:
    return torch.tensor(np.asarray(values, np.float64))
