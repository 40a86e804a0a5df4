"""The graph that folded and integer networks share: populations and the connections between them.

A network is a list of *populations* (neurons that share a shape and an update rule) and *connections* (a
linear map from the spikes of a source to the current of a target). The currents of several connections
into one population add, which is how residual blocks are expressed.

`Network` is the base class of `FoldedNetwork` and `IntNetwork`: the input first, then `layers` of neurons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any, Generic, TypeVar, cast

import numpy as np
from typing_extensions import assert_never

from ..base import LONGEST_NAME, Array, one_line, record, remembered
from .neurons import AnyNeuron, Input, value_range
from .synapses import Border, Conv2d, Dense, Shape, Synapse, apply_synapse, output_shape

NeuronT = TypeVar("NeuronT", covariant=True)  # a population of LIF neurons is one of neurons
OtherT = TypeVar("OtherT")
MOST_NEURONS = 2**24  # of a population in a file; more than sixteen Loihi 2 chips hold
MOST_TIMESTEPS = 10_000  # far more than any network is trained for; bounds the run time of a damaged file


@record
class Population(Generic[NeuronT]):
    """Neurons that share a shape, (channels, height, width) or (features,), and an update rule."""

    name: str
    shape: Shape
    neuron: NeuronT

    @property
    def size(self) -> int:
        return prod(self.shape)

    def with_neuron(self, neuron: OtherT) -> Population[OtherT]:
        """Return the population with another neuron; itself if it is the same one, with a narrower type."""
        if neuron is self.neuron:
            return cast(Population[OtherT], self)
        return Population(name=self.name, shape=self.shape, neuron=neuron)


@record
class Connection:
    """Spikes of `source` at step k become current of `target` at step k + delay.

    A delay of zero is an ordinary feed-forward connection: spikes travel through the whole network within
    one time step. Pipeline delays of a simulator or chip are not included.
    """

    source: str
    target: str
    synapse: Synapse
    delay: int = 0

    @property
    def label(self) -> str:
        return f"{self.source}->{self.target}"


@record
class Network(Generic[NeuronT]):
    """Populations in the order in which spikes reach them, the input first and the output last."""

    populations: tuple[Population[Input | NeuronT], ...]
    connections: tuple[Connection, ...]
    timesteps: int
    _index: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # Subclasses check in __post_init__ that the first population, and no other, is the input.

    @property
    def input(self) -> Population[Input]:
        return cast(Population[Input], self.populations[0])

    @property
    def input_range(self) -> Input:
        return self.input.neuron

    @property
    def layers(self) -> tuple[Population[NeuronT], ...]:
        """All populations except the input."""
        return cast(tuple[Population[NeuronT], ...], self.populations[1:])

    @property
    def output(self) -> Population[NeuronT]:
        return cast(Population[NeuronT], self.populations[-1])

    @property
    def shapes(self) -> Mapping[str, Shape]:
        shapes: Mapping[str, Shape] = self.indexed(
            "shapes", lambda: {p.name: p.shape for p in self.populations}
        )
        return shapes

    @property
    def order(self) -> Mapping[str, int]:
        """The place of each population: 0 for the input."""
        order: Mapping[str, int] = self.indexed(
            "order", lambda: {population.name: place for place, population in enumerate(self.populations)}
        )
        return order

    @property
    def feedback(self) -> list[Connection]:
        """The connections from a population to itself or to an earlier one."""
        order = self.order
        return [c for c in self.connections if order[c.source] >= order[c.target]]

    def sources_after(self, name: str) -> set[str]:
        """Return the populations whose spikes some population after this one reads."""
        order = self.order
        return {c.source for c in self.connections if order[c.target] > order[name]}

    def population(self, name: str) -> Population[Input | NeuronT]:
        by_name: dict[str, Population[Input | NeuronT]] = self.indexed("populations", self._by_name)
        return by_name[name]

    def layer(self, name: str) -> Population[NeuronT]:
        assert name != self.input.name
        return cast(Population[NeuronT], self.population(name))

    def entering(self, name: str) -> list[Connection]:
        """Return the connections into one population, in the order of the network."""
        by_target: dict[str, list[Connection]] = self.indexed("targets", self._by_target)
        return list(by_target.get(name, ()))

    def indexed(self, name: str, find: Callable[[], Any]) -> Any:
        """Return what `find` returns, which is called once: networks may have thousands of populations."""
        if name not in self._index:
            self._index[name] = find()
        return self._index[name]

    def _by_name(self) -> dict[str, Population[Input | NeuronT]]:
        return {population.name: population for population in self.populations}

    def _by_target(self) -> dict[str, list[Connection]]:
        found: dict[str, list[Connection]] = {}
        for connection in self.connections:
            found.setdefault(connection.target, []).append(connection)
        return found


def input_problems(populations: Sequence[Population[Any]]) -> list[str]:
    """Check that the first population, and no other, is the input."""
    if len(populations) < 2 or not isinstance(populations[0].neuron, Input):
        return ["the first population must be the input, and at least one must follow it"]
    return [f"{p.name}: a second input" for p in populations[1:] if isinstance(p.neuron, Input)]


def graph_problems(populations: Sequence[Population[Any]], connections: Sequence[Connection]) -> list[str]:
    """List the structural problems of a network; empty if there are none."""
    names = [population.name for population in populations]
    shapes = {population.name: population.shape for population in populations}
    counts = Counter(names)
    problems = [
        f"{name}: {count} populations have this name" for name, count in sorted(counts.items()) if count > 1
    ]
    problems += [
        f'population "{one_line(name)}": allowed are names of up to {LONGEST_NAME} characters, without line '
        "breaks, control characters and marks of direction"
        for name in names
        if one_line(name) != name
    ]
    problems += [
        f"{p.name}: shape {p.shape}; allowed are (features,) and (channels, height, width), all above zero"
        for p in populations
        if len(p.shape) not in (1, 3) or min(p.shape) < 1
    ]
    if problems:
        return problems
    for connection in connections:
        problems += _connection_problems(connection, shapes)
    targets = {connection.target for connection in connections}
    problems += [f"{name}: nothing connects to it" for name in names[1:] if name not in targets]
    problems += [f"{c.label}: enters the input, which presents samples only" for c in connections
                 if c.target == names[0]]  # fmt: skip
    return problems or _order_problems(names, connections)


def broadcast_problems(label: str, values: Array, shape: Shape, steps: int = 0) -> list[str]:
    """Check that a parameter has one value per neuron, or one per channel as (channels, 1, 1).

    With numbers per time step, it has that in each of so many `steps`.
    """
    first = (steps,) if steps else ()
    if values.shape in ((*first, *shape), (*first, shape[0], *(1 for _ in shape[1:]))):
        return []
    each = f" and {steps} time steps" if steps else ""
    return [f"{label} has shape {values.shape}; the population has {shape}{each}"]


def timestep_problems(timesteps: int) -> list[str]:
    """Check that the number of time steps is in range."""
    if 1 <= timesteps <= MOST_TIMESTEPS:
        return []
    return [f"timesteps {timesteps}; allowed are 1..{MOST_TIMESTEPS}"]


def _connection_problems(connection: Connection, shapes: Mapping[str, Shape]) -> list[str]:
    label, synapse = connection.label, connection.synapse
    unknown = [name for name in (connection.source, connection.target) if name not in shapes]
    if unknown:
        return [f"{label}: no population named {name!r}" for name in unknown]
    if connection.delay < 0:
        return [f"{label}: delay {connection.delay}; a spike cannot arrive before it was sent"]
    if connection.delay > MOST_TIMESTEPS:
        return [f"{label}: delay beyond {MOST_TIMESTEPS} time steps, which no sample has"]
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
                return [
                    f"{label}: convolution weights of shape {weight.shape} on a source of shape {source}; "
                    "(channels out, channels in, height, width) on (channels, height, width) are needed"
                ]
            if groups < 1 or channels != groups * weight.shape[1] or weight.shape[0] % groups:
                return [f"{label}: weight {weight.shape} in {groups} groups on {channels} channels"]
            if min(*synapse.stride, *synapse.dilation) < 1 or min(synapse.padding) < 0:
                return [f"{label}: stride and dilation must be above zero, padding not negative"]
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
        f"{label}: silent border {silent} of {target}; it must not be negative, nor cover the whole target"
    ]


def _order_problems(names: Sequence[str], connections: Sequence[Connection]) -> list[str]:
    """Check that undelayed connections have no cycles and lead from earlier to later populations."""
    instant = [c for c in connections if c.delay == 0]
    sources: dict[str, list[str]] = {name: [] for name in names}
    for connection in instant:
        sources[connection.target].append(connection.source)
    sorter = TopologicalSorter(sources)
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


# Choose the narrowest float type that computes every sum of a connection, or of a population, exactly.


EXACT_FLOAT32, EXACT_FLOAT64 = 2**24, 2**53  # below these, floats hold every integer

Source = Population[Input | AnyNeuron]


@remembered
def ends(values: Array) -> tuple[Any, Any]:
    """Return the smallest and the largest of some numbers and zero."""
    return values.min(initial=0), values.max(initial=0)


def magnitude(values: Array) -> int:
    """Return the largest magnitude of integers; `np.abs` would leave the lowest one negative."""
    least, most = ends(values)
    return max(int(most), -int(least))


def largest_sum(connection: Connection, source: Source) -> float:
    """Return the largest sum of |weight * value| over the inputs of any neuron.

    It bounds every partial sum, in any order of summation.
    """
    largest_value = max(map(abs, value_range(source.neuron)))
    return largest_row(connection.synapse.weight) * largest_value


@remembered
def largest_row(weight: Array) -> float:
    """Return the largest sum of |weight| over the inputs of any neuron."""
    return float(np.abs(weight.astype(np.float64)).reshape(len(weight), -1).sum(axis=1).max())


def largest_total(arrivals: Iterable[tuple[Connection, Source]]) -> float:
    """Return the sum of the largest sums of all connections into a population, in the finest unit of them.

    It bounds every partial sum of their currents too. Bounds of the state do not: currents of two connections
    may be large and cancel each other, if no input is zero.
    """
    sums = [(connection.synapse.exponent, largest_sum(connection, source)) for connection, source in arrivals]
    finest = min(exponent for exponent, _ in sums)
    return sum(total * 2.0 ** (exponent - finest) for exponent, total in sums)


def exact_float(largest: float) -> type[np.floating[Any]]:
    """Return the narrowest float type that holds every integer up to a sum; `IntNetwork` has none beyond."""
    return np.float32 if largest < EXACT_FLOAT32 else np.float64


# Bound the sum of synapses that enters a population in one time step.


Interval = tuple[Array, Array]


def synapse_interval(network: Network[AnyNeuron], target: str) -> Interval:
    """Return the interval of the sum of synapses in one step, per neuron of `target`."""
    shape = network.layer(target).shape
    low, high = np.zeros(shape), np.zeros(shape)
    for connection in network.entering(target):
        synapse, source = connection.synapse, network.population(connection.source)
        smallest, largest = value_range(source.neuron)
        if connection.delay:  # nothing arrives before the delay has passed
            smallest, largest = min(smallest, 0), max(largest, 0)
        plus, minus = (
            sum_of_weights(replace(synapse, weight=part), source.shape).reshape(shape)
            for part in (np.maximum(synapse.weight, 0), np.minimum(synapse.weight, 0))
        )
        low += plus * smallest + minus * largest
        high += plus * largest + minus * smallest
    return low, high


def sum_of_weights(synapse: Synapse, source: Shape) -> Array:
    """Return the input of each neuron when every source sends a one.

    Zero padding sends nothing, so neurons at a border have fewer terms. The input channels of a kernel can
    be summed first, because all of them read the same picture of ones.
    """
    if isinstance(synapse, Conv2d):
        together = synapse.weight.sum(axis=1, keepdims=True, dtype=np.float64)
        synapse, source = replace(synapse, weight=together, groups=1), (1, *source[1:])
    total: Array = apply_synapse(synapse, np.ones((1, *source)))[0]
    return total
