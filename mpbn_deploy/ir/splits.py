"""Split sums that are too long for a core: relays add parts of them, and pass the parts on.

    sum over all channels of w * x  =  sum over groups of (sum over the channels of a group of w * x)

The parts of a convolution, or of a matrix that reads a picture, are a convolution in groups, whose neurons
read a fraction of the source each. Every other neuron receives the same integers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base import Array
from .graph import Connection, Population
from .integer import IntNetwork, IntPopulation
from .neurons import Relay, value_range
from .relays import is_message, unused_name, with_population
from .synapses import Conv2d, Dense, Shape, Synapse, output_shape


def can_split(network: IntNetwork, connection: Connection, groups: int) -> bool:
    """Whether one kernel reads so many groups of channels, and the sums over a group fit a message."""
    synapse, source = connection.synapse, network.population(connection.source)
    shape, whole = source.shape, isinstance(synapse, Dense) or synapse.groups == 1
    if not whole or len(shape) != 3 or not 1 < groups <= shape[0] or shape[0] % groups:
        return False
    return is_message(*_sums(_in_groups(synapse, shape, groups).weight, *value_range(source.neuron)))


def split_sum(network: IntNetwork, connection: Connection, groups: int) -> IntNetwork:
    """Return the network with relays that sum over one group of source channels each."""
    source = network.population(connection.source)
    parts = _in_groups(connection.synapse, source.shape, groups)
    shape = output_shape(parts, source.shape)
    least, most = _sums(parts.weight, *value_range(source.neuron))
    relay: IntPopulation = Population(
        name=unused_name(f"{connection.target}_parts", network),
        shape=shape,
        neuron=Relay(minimum=least, maximum=most),
    )
    rest = _sum_of_groups(connection.synapse, groups)
    first = Connection(source=source.name, target=relay.name, synapse=parts)
    second = replace(connection, source=relay.name, synapse=rest)
    before = network.populations[network.order[connection.target] - 1].name
    return with_population(network, relay, after=before, connections=(first,), replaced={connection: second})


def _in_groups(synapse: Synapse, source: Shape, groups: int) -> Conv2d:
    """[groups * outputs, channels / groups, ...]: the same kernel, one group of its inputs after the other"""
    kernel = synapse.weight.reshape(-1, *source) if isinstance(synapse, Dense) else synapse.weight
    weight = np.concatenate(np.split(kernel, groups, axis=1))
    if isinstance(synapse, Dense):
        return Conv2d(weight=weight, groups=groups)
    return replace(synapse, weight=weight, groups=groups, exponent=0)


def _sum_of_groups(synapse: Synapse, groups: int) -> Synapse:
    ones = np.tile(np.eye(len(synapse.weight), dtype=np.int32), groups)
    if isinstance(synapse, Dense):
        return Dense(weight=ones, exponent=synapse.exponent)
    return Conv2d(weight=ones[:, :, None, None], exponent=synapse.exponent)


def _sums(weight: Array, low: int, high: int) -> tuple[int, int]:
    """Return the smallest and the largest sum of a kernel over values from low to high, or zero."""
    rows = weight.reshape(len(weight), -1).astype(np.int64)
    plus, minus = np.maximum(rows, 0).sum(axis=1), np.minimum(rows, 0).sum(axis=1)
    low, high = min(low, 0), max(high, 0)  # padding and delays send zeros
    least, most = (plus * low + minus * high).min(), (plus * high + minus * low).max()
    return int(least), int(most)
