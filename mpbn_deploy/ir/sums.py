"""Bound the sum of synapses that enters a population in one time step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..base import Array
from .graph import Network
from .neurons import AnyNeuron, value_range
from .synapses import Conv2d, Shape, Synapse, apply_synapse

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
