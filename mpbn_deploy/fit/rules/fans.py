"""How many synapses enter and leave each neuron, counted from the weights; a weight of zero is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ...base import Array
from ...ir import (
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    IntPopulation,
    Shape,
    Synapse,
    apply_synapse,
    incoming,
    window,
)


def fan_in(network: IntNetwork, population: IntPopulation) -> Array:
    """Per neuron of a population, the synapses that end at it, over all connections."""
    entering = incoming(network.connections, population.name)
    return sum((connection_fan_in(network, c) for c in entering), np.zeros(population.shape, int))


def fan_out(network: IntNetwork, population: IntPopulation) -> Array:
    """Per neuron of a population, the synapses that begin at it, over all connections."""
    leaving = [c for c in network.connections if c.source == population.name]
    return sum((connection_fan_out(network, c) for c in leaving), np.zeros(population.shape, int))


def connection_fan_in(network: IntNetwork, connection: Connection) -> Array:
    """Per target neuron of one connection: what arrives when all synapses weigh one and all sources fire."""
    source, target = _shapes(network, connection)
    ones = _ones(connection.synapse)
    if isinstance(ones, Conv2d):  # all channels see the same picture of ones, so they may be summed first
        together = ones.weight.sum(axis=1, keepdims=True)
        ones, source = replace(ones, weight=together, groups=1), (1, *source[1:])
    counts: Array = apply_synapse(ones, np.ones((1, *source)))[0].astype(int).reshape(target)
    return counts


def connection_fan_out(network: IntNetwork, connection: Connection) -> Array:
    """Per source neuron of one connection: how many target neurons it has a synapse to."""
    source, target = _shapes(network, connection)
    ones = _ones(connection.synapse)
    match ones:
        case Dense():
            counts: Array = ones.weight.sum(axis=0).reshape(source)
            return counts
        case Conv2d():
            return _scattered(ones, source, target)
        case _:
            assert_never(ones)


def _scattered(ones: Conv2d, source: Shape, target: Shape) -> Array:
    """Kernel position by kernel position, the synapses that it puts on each pixel that it meets."""
    counts = np.zeros(source, int)
    groups = np.split(ones.weight, ones.groups, axis=0)
    per_channel = np.concatenate([group.sum(axis=0) for group in groups])  # [source channels, height, width]
    rows, columns = window(ones, target)
    for y, x in np.ndindex(*ones.weight.shape[2:]):
        down, right = _met(ones, 0, rows, y, source[1]), _met(ones, 1, columns, x, source[2])
        counts[:, down[:, None], right] += per_channel[:, y, x, None, None]
    return counts


def _met(ones: Conv2d, axis: int, outputs: slice, position: int, size: int) -> Array:
    """The pixels of one axis that a kernel position meets, one per output, without those in the padding."""
    places: Array = np.arange(outputs.start, outputs.stop) * ones.stride[axis]
    places = places - ones.padding[axis] + ones.dilation[axis] * position
    inside: Array = places[(places >= 0) & (places < size)]
    return inside


def _ones(synapse: Synapse) -> Synapse:
    return replace(synapse, weight=(synapse.weight != 0).astype(int), exponent=0)


def _shapes(network: IntNetwork, connection: Connection) -> tuple[Shape, Shape]:
    shapes = {population.name: population.shape for population in network.populations}
    return shapes[connection.source], shapes[connection.target]
