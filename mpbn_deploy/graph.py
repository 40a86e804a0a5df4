"""What float and integer networks share: populations, the connections between them, and order.

A network is a set of *populations* (neurons that share a shape) and *connections* (one linear
map from the spikes of a source to the current of a target). Several connections may enter one
population, and then their currents add: that is all a residual block is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from typing_extensions import assert_never

from .errors import SimulationError
from .records import Array, freeze_arrays, record

Shape = tuple[int, ...]
Pair = tuple[int, int]
Border = tuple[Pair, Pair]  # rows at the top and at the bottom, columns at the left and at the right
NeuronT = TypeVar("NeuronT")

NO_BORDER: Border = ((0, 0), (0, 0))
MOST_TIMESTEPS = 10_000  # far more than any network is trained for; a file must not keep us busy for ever


@record
class Dense:
    """target[i] = 2**exponent * sum_j weight[i, j] * source.ravel()[j]"""

    weight: Array  # [target size, source size]
    exponent: int = 0

    def __post_init__(self) -> None:
        freeze_arrays(self)


@record
class Conv2d:
    """target[o, y, x] = 2**exponent * sum_{i,a,b} weight[o, i, a, b]
                         * source[first(o) + i, stride*y - padding + dilation*a, (likewise) b]

    A cross-correlation with zero padding, as in torch. `first(o)` is the first input channel of
    the group that output channel `o` belongs to. Pairs are (vertical, horizontal).

    In the `silent` border of the target, so many rows and columns at its ends, it gives zero. Then
    other synapses serve the neurons there: windows of one target may have kernels of their own.
    """

    weight: Array  # [target channels, source channels / groups, kernel height, kernel width]
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    exponent: int = 0
    silent: Border = NO_BORDER

    def __post_init__(self) -> None:
        freeze_arrays(self)


Synapse = Dense | Conv2d


@record
class Input:
    """Presents the sample itself: integers from minimum to maximum, as graded spikes."""

    minimum: int
    maximum: int


@record
class Population(Generic[NeuronT]):
    """Neurons that share a shape, (channels, height, width) or (features,), and a rule."""

    name: str
    shape: Shape
    neuron: NeuronT

    @property
    def size(self) -> int:
        return prod(self.shape)


@record
class Connection:
    """Spikes of `source` at step k become current of `target` at step k + delay.

    A delay of zero is the ordinary feed-forward connection: within one time step, spikes travel
    through the whole network. Pipelines of a simulator or a chip are not counted here.
    """

    source: str
    target: str
    synapse: Synapse
    delay: int = 0

    @property
    def label(self) -> str:
        return f"{self.source}->{self.target}"


def output_shape(synapse: Synapse, source_shape: Shape) -> Shape:
    """The shape of a synapse's result, given the shape of its source."""
    match synapse:
        case Dense():
            return (synapse.weight.shape[0],)
        case Conv2d():
            sizes = zip(source_shape[1:], span(synapse), synapse.padding, synapse.stride, strict=True)
            height, width = ((size + 2 * pad - reach) // step + 1 for size, reach, pad, step in sizes)
            return (synapse.weight.shape[0], height, width)
        case _:
            assert_never(synapse)


def window(synapse: Conv2d, target: Shape) -> tuple[slice, slice]:
    """The rows and columns of a target of that shape that a convolution acts on: all but its border."""
    rows, columns = (
        slice(near, size - far) for (near, far), size in zip(synapse.silent, target[1:], strict=True)
    )
    return rows, columns


def apply_synapse(synapse: Synapse, values: Array) -> Array:
    """The synapse applied to values [batch, *source shape], in float64.

    Exact on integers as long as no partial sum reaches 2**53.
    """
    weight = synapse.weight.astype(np.float64) * 2.0**synapse.exponent
    values = values.astype(np.float64)
    match synapse:
        case Dense():
            product: Array = values.reshape(len(values), -1) @ weight.T
            return product
        case Conv2d():
            return _correlate(synapse, weight, values)
        case _:
            assert_never(synapse)


def per_channel(values: Array, shape: Shape) -> Array:
    """One value per channel, shaped (channels, 1, 1) or (features,) to broadcast over `shape`."""
    return np.asarray(values).reshape(-1, *(1 for _ in shape[1:]))


def scale_channels(values: Array, factor: Array) -> Array:
    """Multiply what belongs to each target channel (weights, biases or thresholds) by its factor.

    The one idea: a hard-reset neuron does not change when its weights, bias and threshold are
    multiplied by the same non-zero number, because its voltage is multiplied too. A negative
    factor turns v < threshold into -v > -threshold. The sign of an MPBN gain is folded with it, and
    the scale of a quantization is chosen with it.
    """
    scaled: Array = values * per_channel(factor, values.shape)
    return scaled


def largest_per_channel(values: Array) -> Array:
    """The largest magnitude in each channel."""
    largest: Array = np.abs(values).reshape(len(values), -1).max(axis=1)
    return largest


def compact(values: Array) -> Array:
    """One value per channel as (channels, 1, 1) where all neurons of each channel agree."""
    first = values.reshape(len(values), -1)[:, :1]
    channel = first.reshape(len(values), *(1 for _ in values.shape[1:]))
    return channel if np.array_equal(np.broadcast_to(channel, values.shape), values) else values


def span(synapse: Conv2d) -> Pair:
    """How many source pixels a kernel spans, dilation included."""
    (height, width), (down, right) = synapse.weight.shape[2:], synapse.dilation
    return down * (height - 1) + 1, right * (width - 1) + 1


def _correlate(synapse: Conv2d, weight: Array, values: Array) -> Array:
    (pad_y, pad_x), (step_y, step_x) = synapse.padding, synapse.stride
    padded = np.pad(values, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
    windows = sliding_window_view(padded, span(synapse), axis=(2, 3))  # type: ignore[call-overload]
    windows = windows[:, :, ::step_y, ::step_x, :: synapse.dilation[0], :: synapse.dilation[1]]
    rows, columns = window(synapse, windows.shape[1:4])
    windows = windows[:, :, rows, columns]
    sources = np.split(windows, synapse.groups, axis=1)
    kernels = np.split(weight, synapse.groups, axis=0)
    results = [
        np.tensordot(source, kernel, axes=((1, 4, 5), (1, 2, 3)))  # [batch, y, x, channel]
        for source, kernel in zip(sources, kernels, strict=True)
    ]
    inner = np.moveaxis(np.concatenate(results, axis=3), 3, 1)
    return inner if synapse.silent == NO_BORDER else np.pad(inner, ((0, 0), (0, 0), *synapse.silent))


def incoming(connections: Iterable[Connection], target: str) -> list[Connection]:
    """The connections into one population, in the order in which they are listed."""
    return [connection for connection in connections if connection.target == target]


def is_chain(populations: Sequence[Population[Any]], connections: Sequence[Connection]) -> bool:
    """Whether each population feeds just the next one, at once."""
    hops = [(c.source, c.target, c.delay) for c in connections]
    names = [population.name for population in populations]
    return hops == [(a, b, 0) for a, b in pairwise(names)]


def depths(populations: Sequence[Population[Any]], connections: Sequence[Connection]) -> dict[str, int]:
    """How many connections lie between the input and each population, on the longest path."""
    found: dict[str, int] = {}
    for population in populations:
        sources = [c.source for c in incoming(connections, population.name) if c.delay == 0]
        found[population.name] = max((found[source] + 1 for source in sources), default=0)
    return found


def graph_problems(populations: Sequence[Population[Any]], connections: Sequence[Connection]) -> list[str]:
    """All that is wrong with the structure of a network; empty when nothing is."""
    names = [population.name for population in populations]
    shapes = {population.name: population.shape for population in populations}
    problems = [f"{name}: {names.count(name)} populations bear this name" for name in _repeated(names)]
    problems += [
        f"{p.name}: shape {p.shape}; allowed are (features,) and (channels, height, width), all above zero"
        for p in populations
        if len(p.shape) not in (1, 3) or min(p.shape) < 1
    ]
    if problems:
        return problems
    for connection in connections:
        problems += _connection_problems(connection, shapes)
    problems += [
        f"{name}: nothing connects to it"
        for name in names[1:]
        if not any(connection.target == name for connection in connections)
    ]
    problems += [f"{c.label}: enters the input, which presents samples only" for c in connections
                 if c.target == names[0]]  # fmt: skip
    return problems or _order_problems(names, connections)


def broadcast_problems(label: str, values: Array, shape: Shape) -> list[str]:
    """A parameter holds one value per neuron, or one per channel with ones after it."""
    if values.shape in (shape, (shape[0], *(1 for _ in shape[1:]))):
        return []
    return [f"{label} has shape {values.shape}; the population has {shape}"]


def timestep_problems(timesteps: int) -> list[str]:
    """Networks run for a number of time steps that somebody might wait for."""
    if 1 <= timesteps <= MOST_TIMESTEPS:
        return []
    return [f"timesteps {timesteps}; allowed are 1..{MOST_TIMESTEPS}"]


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _connection_problems(connection: Connection, shapes: Mapping[str, Shape]) -> list[str]:
    label, synapse = connection.label, connection.synapse
    unknown = [name for name in (connection.source, connection.target) if name not in shapes]
    if unknown:
        return [f"{label}: no population named {name!r}" for name in unknown]
    if connection.delay < 0:
        return [f"{label}: delay {connection.delay}; a spike cannot arrive before it was sent"]
    source, target = shapes[connection.source], shapes[connection.target]
    return _synapse_problems(label, synapse, source, target)


def _synapse_problems(label: str, synapse: Synapse, source: Shape, target: Shape) -> list[str]:
    weight = synapse.weight
    match synapse:
        case Dense():
            if weight.shape != (prod(target), prod(source)):
                return [f"{label}: weight {weight.shape} between {source} and {target}"]
        case Conv2d():
            groups, channels = synapse.groups, source[0]
            if len(source) != 3 or weight.ndim != 4:
                return [f"{label}: a convolution of weight {weight.shape} on a source of shape {source}"]
            if groups < 1 or channels != groups * weight.shape[1] or weight.shape[0] % groups:
                return [f"{label}: weight {weight.shape} in {groups} groups on {channels} channels"]
            if min(*synapse.stride, *synapse.dilation) < 1 or min(synapse.padding) < 0:
                return [f"{label}: stride and dilation must be above zero, padding not below"]
            if (shape := output_shape(synapse, source)) != target:
                return [f"{label}: gives shape {shape}, but the target has {target}"]
            return _border_problems(label, synapse.silent, target)
        case _:
            assert_never(synapse)
    return []


def _border_problems(label: str, silent: Border, target: Shape) -> list[str]:
    inner = [size - sum(ends) for size, ends in zip(target[1:], silent, strict=True)]
    if min(min(ends) for ends in silent) >= 0 and min(inner) > 0:
        return []
    return [
        f"{label}: silent border {silent} of a target {target}; some of it must be left, none is negative"
    ]


def _order_problems(names: Sequence[str], connections: Sequence[Connection]) -> list[str]:
    """Populations must be listed so that spikes of one time step flow from first to last."""
    instant = [c for c in connections if c.delay == 0]
    sorter = TopologicalSorter({n: [c.source for c in instant if c.target == n] for n in names})
    try:
        sorter.prepare()
    except CycleError as error:
        return [f"a cycle without delay: {' -> '.join(error.args[1])}"]
    place = {name: index for index, name in enumerate(names)}
    return [
        f"{c.label}: the source is listed after the target"
        for c in instant
        if place[c.source] > place[c.target]
    ]


@record
class Trace:
    """What a network did on some samples.

    `spikes` and `voltages` hold, for each population but the input, [samples, timesteps, *shape];
    a voltage is the one at the end of the step, after the reset of those that fired. `outputs`
    hold [samples, *shape] of the last population: the readout's voltage after the last step, or,
    where the last population fires, its spike counts.
    """

    spikes: Mapping[str, Array]
    voltages: Mapping[str, Array]
    outputs: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)

    @property
    def predictions(self) -> Array:
        """The index of the largest output of each sample; the first one where several are largest."""
        predictions: Array = self.outputs.reshape(len(self.outputs), -1).argmax(axis=1)
        return predictions


def as_steps(inputs: Array, shape: Shape, timesteps: int) -> Array:
    """Inputs as [samples, timesteps, *shape]; a sample without a time axis is held for all steps."""
    inputs = np.asarray(inputs)
    if inputs.shape[1:] == shape:
        inputs = np.broadcast_to(inputs[:, None], (len(inputs), timesteps, *shape))
    if inputs.shape[1:] != (timesteps, *shape):
        raise SimulationError(
            f"inputs of shape {inputs.shape}; the network takes [samples, {', '.join(map(str, shape))}], "
            f"or the same with {timesteps} time steps after the samples."
        )
    if len(inputs) == 0:
        raise SimulationError("no samples: inputs are empty; give at least one sample.")
    return inputs
