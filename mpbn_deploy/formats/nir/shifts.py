"""Thresholds at or below zero, for the portable dialect: the same spikes with positive thresholds.

Let a neuron with leak b and reset to zero fire at v > threshold. In terms of w = v + shift it fires at
w > threshold + shift, which is positive for a large shift, and

    w <- b w + (1 - b) shift + input,    w <- shift where it fires,    w = shift before the first step.

A neuron that resets to zero, and starts there, lacks b * shift in its first step and after each of its
spikes. A loop carries that back with its own spikes; in the first step it comes from a neuron that fires
only then:

    bias + (1 - b) shift,    b shift from itself, one step later,    b shift in the first step.

docs/mathematics.md proves that no neuron without a loop fires the same spikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ...base import Array
from ...ir import (
    Connection,
    Conv2d,
    Dense,
    FloatFiringNeuron,
    FloatLif,
    FoldedNetwork,
    Population,
    Synapse,
    compact,
    has_current,
    neuron_subtrahend,
    per_channel,
    real_weight,
    with_values,
)
from .constants import main_first

START = "_start"  # appended to the name of a population: the neurons that fire in the first step only
SLOW_LEAK = 63 / 64  # of those neurons
START_BIAS = 2.0  # against a threshold of one


def can_shift(neuron: FloatFiringNeuron) -> bool:
    """Whether a shift expresses the neuron: it resets to zero, and its bias reaches the voltage at once."""
    return neuron_subtrahend(neuron) is None and not has_current(neuron)


def shift_thresholds(
    network: FoldedNetwork, population: Population[FloatFiringNeuron], threshold: Array
) -> FoldedNetwork:
    """Return a network that fires the same spikes, with thresholds of a population above zero."""
    neuron, shape = population.neuron, population.shape
    shift = _shifts(threshold, [real_weight(c.synapse) for c in network.entering(population.name)], shape)
    later = neuron.leak * shift if network.timesteps > 1 else np.zeros(shape)
    bias = compact(neuron.bias + shift - later)
    shifted = population.with_neuron(with_values(neuron, bias, compact(neuron.threshold + shift)))
    populations = [shifted if p is population else p for p in network.populations]
    connections = list(network.connections)
    if later.any():
        started, added = _restored(network, population, later)
        populations.insert(network.order[population.name], started)
        connections += added
    return replace(network, populations=tuple(populations), connections=tuple(connections))


def _shifts(threshold: Array, weights: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return powers of two above weights and -2 * threshold, zero for neurons that need no shift.

    Powers of two keep voltages on a grid.
    """
    rows = [weight.reshape(shape[0], -1) for weight in weights]
    heaviest = np.max([np.abs(row).max(axis=1) for row in rows], axis=0)
    least = np.maximum(per_channel(heaviest, shape), -2 * threshold)
    power = 2.0 ** np.ceil(np.log2(np.where(least > 0, least, 1.0)))
    return np.where(threshold <= 0, power, 0.0)


def _restored(
    network: FoldedNetwork, population: Population[FloatFiringNeuron], later: Array
) -> tuple[Population[FloatLif], list[Connection]]:
    """Return what gives back `later` after each spike, and in the first step."""
    name, start, main = population.name, f"{population.name}{START}", main_first(network, population.name)[0]
    shape = (1, *population.shape[1:])
    ones = np.ones((1, *(1 for _ in shape[1:])))
    once = FloatLif(threshold=ones, bias=START_BIAS * ones, leak=SLOW_LEAK)
    # After its spike, the voltage must not return to the threshold within the time steps.
    silence = 2 * START_BIAS / (1 - SLOW_LEAK) / SLOW_LEAK**network.timesteps
    return Population(name=start, shape=shape, neuron=once), [
        Connection(source=main.source, target=start, synapse=_silent(main.synapse)),
        Connection(source=start, target=start, synapse=_diagonal(-silence * ones), delay=1),
        Connection(source=start, target=name, synapse=_from_one_channel(later)),
        Connection(source=name, target=name, synapse=_diagonal(later), delay=1),
    ]


def _silent(synapse: Synapse) -> Synapse:
    """Return a synapse of weight zero onto one channel of the same size: every population has an input."""
    match synapse:
        case Dense():
            return Dense(weight=np.zeros((1, synapse.weight.shape[1])))
        case Conv2d(groups=groups):
            _, inputs, *kernel = synapse.weight.shape
            return replace(synapse, weight=np.zeros((1, groups * inputs, *kernel)), groups=1)
        case _:
            assert_never(synapse)


def _from_one_channel(values: Array) -> Synapse:
    """Return the synapse that sends `values` for every spike; a picture has one value per channel."""
    if values.ndim == 1:
        return Dense(weight=values[:, None])
    return Conv2d(weight=values[:, :1, :1, None])


def _diagonal(values: Array) -> Synapse:
    """Return the synapse of each neuron onto itself; a picture has one value per channel."""
    if values.ndim == 1:
        return Dense(weight=np.diag(values))
    return Conv2d(weight=np.diag(values[:, 0, 0])[:, :, None, None])
