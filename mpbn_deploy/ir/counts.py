"""Count synapses: per connection, into each neuron (fan-in) and out of each neuron (fan-out).

A weight of zero is not a synapse. With `zeros`, zeros count if a chip stores them along with others: all
weights of a row (those of one source neuron, or of one input of a kernel, onto the targets of its group) in
which at least one weight is not zero. A kernel weight counts once per position at which it is used, so
borders, strides, dilations, groups and silent borders are accounted for; `weight.size` counts it once.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from typing_extensions import assert_never

from ..base import Array
from .graph import Connection
from .integer import IntNetwork, IntPopulation
from .receptive import axes
from .sums import sum_of_weights
from .synapses import Conv2d, Dense, Shape, Synapse

# ---- of a network -----------------------------------------------------------------------------


def fan_in(network: IntNetwork, population: IntPopulation) -> Array:
    """Return the fan-in of each neuron of a population, over all connections."""
    entering = network.entering(population.name)
    return sum((connection_fan_in(network, c) for c in entering), np.zeros(population.shape, int))


def fan_out(network: IntNetwork, population: IntPopulation) -> Array:
    """Return the fan-out of each neuron of a population, over all connections."""
    leaving = [c for c in network.connections if c.source == population.name]
    return sum((connection_fan_out(network, c) for c in leaving), np.zeros(population.shape, int))


def connection_fan_in(network: IntNetwork, connection: Connection) -> Array:
    """Return the fan-in of each target neuron from one connection."""
    return synapses_into(connection.synapse, *_shapes(network, connection))


def connection_fan_out(network: IntNetwork, connection: Connection) -> Array:
    """Return the fan-out of each source neuron into one connection."""
    return synapses_out_of(connection.synapse, *_shapes(network, connection))


def connection_synapses(network: IntNetwork, connection: Connection) -> int:
    """Return the number of synapses of one connection."""
    return count_synapses(connection.synapse, *_shapes(network, connection))


def _shapes(network: IntNetwork, connection: Connection) -> tuple[Shape, Shape]:
    return network.shapes[connection.source], network.shapes[connection.target]


# ---- of a synapse -----------------------------------------------------------------------------


def unit_weights(synapse: Synapse, *, zeros: bool = False) -> Synapse:
    """Replace every weight by one where there is a synapse, and by zero elsewhere."""
    groups = synapse.groups if isinstance(synapse, Conv2d) else 1
    return replace(synapse, weight=counted(synapse.weight != 0, groups, zeros=zeros), exponent=0)


def counted(there: Array, groups: int = 1, *, zeros: bool = False) -> Array:
    """Return numbers of synapses [target, ...]; with `zeros`, at least one per target of a non-empty row."""
    if zeros:
        rows = there.reshape(groups, -1, *there.shape[1:])
        there = np.maximum(rows, rows.any(axis=1, keepdims=True)).reshape(there.shape)
    return there.astype(np.int16)


def count_synapses(synapse: Synapse, source: Shape, target: Shape, *, products: bool = False) -> int:
    """Count the synapses of a connection; with `products`, count zeros and reads of the padding too."""
    match synapse:
        case Dense(weight=weight):
            return weight.size if products else int(np.count_nonzero(weight))
        case Conv2d(weight=weight):
            directions = axes(synapse, source, target)
            if products:
                return weight.size * prod(axis.end - axis.first for axis in directions)
            rows, columns = (axis.uses() for axis in directions)
            return int((np.count_nonzero(weight, axis=(0, 1)) * np.outer(rows, columns)).sum())
        case _:
            assert_never(synapse)


def synapses_into(synapse: Synapse, source: Shape, target: Shape) -> Array:
    """Return the fan-in of each target neuron."""
    counts: Array = sum_of_weights(unit_weights(synapse), source).astype(int).reshape(target)
    return counts


def synapses_out_of(synapse: Synapse, source: Shape, target: Shape) -> Array:
    """Return the fan-out of each source neuron."""
    match synapse:
        case Dense(weight=weight):
            leaving: Array = np.count_nonzero(weight, axis=0)
            return leaving.reshape(source)
        case Conv2d(weight=weight, groups=groups):
            kernels = (weight != 0).reshape(groups, -1, *weight.shape[1:])
            used = kernels.sum(axis=1).reshape(source[0], *weight.shape[2:])  # per source channel and tap
            counts: Array = np.zeros(source, int)
            rows, columns = axes(synapse, source, target)
            for down, right in np.ndindex(*weight.shape[2:]):
                (_, row), (_, column) = rows.through(down), columns.through(right)
                counts[:, row, column] += used[:, down, right, None, None]
            return counts
        case _:
            assert_never(synapse)
