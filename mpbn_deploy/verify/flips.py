"""One population in both networks, as one equation with other numbers in it; and which number flips a spike.

Real numbers are brought into units of the integer state: times 2**6 * scale of their channel. Then the
float and the integer neuron are the same equation (`ir.Membrane`), and one kind of number can be exchanged at
a time for what it was before it was rounded (`recoveries`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Array, record
from ..execute.reference import gather
from ..ir import STATE_EXPONENT, AnyNetwork, Connection, Membrane, Population, membrane

CAUSES = {  # a kind of rounding, and the parts of a `Side` that it changed
    "weight": ("synapses",),
    "bias": ("bias",),
    "threshold": ("threshold",),
    "leak": ("decay_current", "decay_voltage"),  # the register's rounding, and truncation in every step
}
ONE_WEIGHT = 2**STATE_EXPONENT  # one unit of weight or threshold, in units of the state

Sent = Mapping[str, Array]  # what populations send: [samples, timesteps, *shape]
Places = tuple[Array, ...]  # (sample, step, *index) of some neurons, as np.nonzero gives them


@record
class Side:
    """A population as one network has it, and what arrives there, all in units of the integer state."""

    synapses: Array  # [samples, timesteps, *shape]
    membrane: Membrane

    @property
    def threshold(self) -> Array:
        """Infinite where it never fires."""
        return np.array(np.inf) if self.membrane.threshold is None else self.membrane.threshold

    def voltages(self, spikes: Array) -> Array:
        """Before the reset, which follows these spikes and not the threshold."""
        found = np.empty(self.synapses.shape)
        current = voltage = np.zeros_like(found[:, 0])
        for step in range(found.shape[1]):
            current, found[:, step] = self.membrane.integrate((current, voltage), self.synapses[:, step])
            voltage = self.membrane.reset(found[:, step], spikes[:, step])
        return found

    def at(self, places: Places) -> Side:
        """Some of its neurons alone, in all time steps: [places, timesteps]."""
        shape, index = self.synapses.shape[2:], places[2:]
        values = (self.membrane.bias, self.threshold)
        bias, threshold = (np.broadcast_to(value, shape)[index] for value in values)
        return Side(
            synapses=in_all_steps(self.synapses, places),
            membrane=replace(self.membrane, bias=bias, threshold=threshold),
        )

    def exchanged(self, other: Side, parts: Sequence[str]) -> Side:
        """With some parts of another side."""
        taken = {part: getattr(other.membrane, part) for part in parts if part != "synapses"}
        synapses = other.synapses if "synapses" in parts else self.synapses
        return Side(synapses=synapses, membrane=replace(self.membrane, **taken))


def in_all_steps(values: Array, places: Places) -> Array:
    """[places, timesteps] of values [samples, timesteps, *shape]"""
    sample, _, *index = places
    chosen: tuple[Any, ...] = (sample, slice(None), *index)
    taken: Array = values[chosen]
    return taken


def arriving(connections: Sequence[Connection], population: Population[Any], sent: Sent) -> Array:
    """[samples, timesteps, *shape]: the sum of all synapses into a population"""
    steps = range(sent[population.name].shape[1])
    return np.stack([gather(connections, population, sent, step) for step in steps], axis=1)


def side(network: AnyNetwork, name: str, sent: Sent, factor: Array | int = 1) -> Side:
    """A population in one network; real numbers are multiplied by a factor, 2**6 * scale.

    Computed in float64, which holds the integers exactly, and fractions where real numbers come among them.
    """
    population = network.layer(name)
    rule = membrane(population.neuron, 1)
    synapses = factor * rule.unit * arriving(network.connections, population, sent)
    return Side(synapses=synapses, membrane=rule.scaled(factor))


def recoveries(integer: Side, real: Side, spikes: Array, places: Places, wanted: Array) -> Array:
    """[causes, places]: with one rounding turned off, by how much a neuron decides as is wanted.

    |voltage - threshold| where it does, and -1 where it does not. Until then it was reset by `spikes`,
    which both networks have in common.
    """
    integer, real, common = integer.at(places), real.at(places), in_all_steps(spikes, places)
    found = np.empty((len(CAUSES), len(wanted)))
    for row, parts in zip(found, CAUSES.values(), strict=True):
        mixed = integer.exchanged(real, parts)
        voltage = mixed.voltages(common)[np.arange(len(wanted)), places[1]]
        row[:] = np.where((voltage > mixed.threshold) == wanted, np.abs(voltage - mixed.threshold), -1.0)
    return found
