"""How many synapses enter and leave each neuron of a network; a weight of zero is none."""

from __future__ import annotations

import numpy as np

from ...base import Array
from ...ir import Connection, IntNetwork, IntPopulation, Shape, incoming, synapses_into, synapses_out_of


def fan_in(network: IntNetwork, population: IntPopulation) -> Array:
    """Per neuron of a population, the synapses that end at it, over all connections."""
    entering = incoming(network.connections, population.name)
    return sum((connection_fan_in(network, c) for c in entering), np.zeros(population.shape, int))


def fan_out(network: IntNetwork, population: IntPopulation) -> Array:
    """Per neuron of a population, the synapses that begin at it, over all connections."""
    leaving = [c for c in network.connections if c.source == population.name]
    return sum((connection_fan_out(network, c) for c in leaving), np.zeros(population.shape, int))


def connection_fan_in(network: IntNetwork, connection: Connection) -> Array:
    """Per target neuron, the synapses of one connection."""
    return synapses_into(connection.synapse, *connection_shapes(network, connection))


def connection_fan_out(network: IntNetwork, connection: Connection) -> Array:
    """Per source neuron, the synapses of one connection."""
    return synapses_out_of(connection.synapse, *connection_shapes(network, connection))


def connection_shapes(network: IntNetwork, connection: Connection) -> tuple[Shape, Shape]:
    shapes = {population.name: population.shape for population in network.populations}
    return shapes[connection.source], shapes[connection.target]
