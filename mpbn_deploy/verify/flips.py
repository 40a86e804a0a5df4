"""One population in both networks, as one equation with other numbers in it; and which number flips a spike.

Real numbers are brought into units of the integer state: times 2**6 * scale of their channel. Then the
float and the integer neuron are the same equation (`Side`), and one kind of number can be exchanged at a
time for what it was before it was rounded (`recoveries`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..base import Array, record
from ..execute.reference import decay, gather
from ..ir import (
    STATE_EXPONENT,
    Connection,
    FloatLif,
    FoldedNetwork,
    Input,
    IntNetwork,
    IntPopulation,
    Lif,
    NeuronT,
    Population,
)

CAUSES = {  # a kind of rounding, and the parts of a `Side` that it changed
    "weight": ("synapses",),
    "bias": ("bias",),
    "threshold": ("threshold",),
    "leak": ("keep_current", "keep_voltage"),  # the register's rounding, and truncation in every step
}
ONE_WEIGHT = 2**STATE_EXPONENT  # one unit of weight or threshold, in units of the state

Sent = Mapping[str, Array]  # what populations send: [samples, timesteps, *shape]
Places = tuple[Array, ...]  # (sample, step, *index) of some neurons, as np.nonzero gives them


@record
class Side:
    """A population as one network has it, and what arrives there, all in units of the integer state.

    current_t = keep_current(current_(t-1)) + synapses_t
    voltage_t = keep_voltage(voltage_(t-1), or 0 if it fired) + current_t + bias
    spike_t   = voltage_t > threshold
    """

    synapses: Array  # [samples, timesteps, *shape]
    bias: Array
    threshold: Array
    keep_current: Callable[[Array], Array]
    keep_voltage: Callable[[Array], Array]

    def voltages(self, spikes: Array) -> Array:
        """Before the reset, which follows these spikes and not the threshold."""
        found = np.empty(self.synapses.shape)
        current = voltage = np.zeros_like(found[:, 0])
        for step in range(found.shape[1]):
            current = self.keep_current(current) + self.synapses[:, step]
            found[:, step] = self.keep_voltage(voltage) + current + self.bias
            voltage = np.where(spikes[:, step], 0.0, found[:, step])
        return found

    def at(self, places: Places) -> Side:
        """Some of its neurons alone, in all time steps: [places, timesteps]."""
        shape, index = self.synapses.shape[2:], places[2:]
        bias, threshold = (np.broadcast_to(values, shape)[index] for values in (self.bias, self.threshold))
        return replace(self, synapses=in_all_steps(self.synapses, places), bias=bias, threshold=threshold)


def in_all_steps(values: Array, places: Places) -> Array:
    """[places, timesteps] of values [samples, timesteps, *shape]"""
    sample, _, *index = places
    chosen: tuple[Any, ...] = (sample, slice(None), *index)
    taken: Array = values[chosen]
    return taken


def arriving(connections: Sequence[Connection], population: Population[NeuronT], sent: Sent) -> Array:
    """[samples, timesteps, *shape]: the sum of all synapses into a population"""
    steps = range(sent[population.name].shape[1])
    return np.stack([gather(connections, population, sent, step) for step in steps], axis=1)


def real_side(folded: FoldedNetwork, name: str, sent: Sent, unit: Array) -> Side:
    """Real numbers times `unit`, 2**6 * scale."""
    population = next(p for p in folded.populations if p.name == name)
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    return Side(
        synapses=unit * arriving(folded.connections, population, sent),
        bias=unit * neuron.bias,
        threshold=unit * neuron.threshold if isinstance(neuron, FloatLif) else np.array(np.inf),
        keep_current=partial(np.multiply, neuron.current_leak),
        keep_voltage=partial(np.multiply, neuron.leak),
    )


def integer_side(network: IntNetwork, population: IntPopulation, sent: Sent) -> Side:
    """In float64, which holds these integers exactly, and fractions where real numbers come among them."""
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    return Side(
        synapses=ONE_WEIGHT * arriving(network.connections, population, sent),
        bias=neuron.bias * 2.0**neuron.bias_exponent,
        threshold=float(ONE_WEIGHT) * neuron.threshold if isinstance(neuron, Lif) else np.array(np.inf),
        keep_current=partial(decay, amount=neuron.decay_current),
        keep_voltage=partial(decay, amount=neuron.decay_voltage),
    )


def recoveries(integer: Side, real: Side, spikes: Array, places: Places, wanted: Array) -> Array:
    """[causes, places]: with one rounding turned off, by how much a neuron decides as is wanted.

    |voltage - threshold| where it does, and -1 where it does not. Until then it was reset by `spikes`,
    which both networks have in common.
    """
    integer, real, common = integer.at(places), real.at(places), in_all_steps(spikes, places)
    found = np.empty((len(CAUSES), len(wanted)))
    for row, parts in zip(found, CAUSES.values(), strict=True):
        mixed = replace(integer, **{part: getattr(real, part) for part in parts})
        voltage = mixed.voltages(common)[np.arange(len(wanted)), places[1]]
        row[:] = np.where((voltage > mixed.threshold) == wanted, np.abs(voltage - mixed.threshold), -1.0)
    return found
