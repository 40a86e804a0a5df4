"""Find the rounding error that flipped a spike.

Multiplied by 2**6 * scale of their channel, the real numbers of a float neuron are in units of the integer
state. Float and integer neurons then obey the same equation (`ir.Membrane`), and one kind of rounded number
at a time can be replaced by its exact value (`recovery_margins`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Array, record
from ..execute.reference import gather
from ..ir import STATE_EXPONENT, AnyNetwork, Connection, Membrane, Population, membrane

CAUSES = {  # a kind of rounding, and the parts of a `DrivenPopulation` that it changes
    "weight": ("synapses",),
    "bias": ("bias",),
    "threshold": ("threshold",),
    "leak": ("decay_current", "decay_voltage"),  # rounding of the register, and truncation in every step
}
ONE_WEIGHT = 2**STATE_EXPONENT  # one unit of weight or threshold, in units of the state

Sent = Mapping[str, Array]  # by population, the values it sends: [samples, timesteps, *shape]
Places = tuple[Array, ...]  # (sample, step, *index) of some neurons, as returned by np.nonzero


@record
class DrivenPopulation:
    """The membranes of a population and their synaptic input, in units of the integer state."""

    synapses: Array  # [samples, timesteps, *shape]
    membrane: Membrane

    @property
    def threshold(self) -> Array:
        """The threshold; infinity for a population that does not fire."""
        return np.array(np.inf) if self.membrane.threshold is None else self.membrane.threshold

    def voltages(self, spikes: Array) -> Array:
        """Return the voltages before the reset, if the neurons are reset by the given spikes."""
        found = np.empty(self.synapses.shape)
        current = voltage = np.zeros_like(found[:, 0])
        for step in range(found.shape[1]):
            current, found[:, step] = self.membrane.integrate((current, voltage), self.synapses[:, step])
            voltage = self.membrane.reset(found[:, step], spikes[:, step])
        return found

    def at(self, places: Places) -> DrivenPopulation:
        """Select some neurons, with all their time steps: [places, timesteps]."""
        shape, index = self.synapses.shape[2:], places[2:]
        values = (self.membrane.bias, self.threshold)
        bias, threshold = (np.broadcast_to(value, shape)[index] for value in values)
        return DrivenPopulation(
            synapses=in_all_steps(self.synapses, places),
            membrane=replace(self.membrane, bias=bias, threshold=threshold),
        )

    def exchanged(self, other: DrivenPopulation, parts: Sequence[str]) -> DrivenPopulation:
        """Replace some parts by those of `other`."""
        taken = {part: getattr(other.membrane, part) for part in parts if part != "synapses"}
        synapses = other.synapses if "synapses" in parts else self.synapses
        return DrivenPopulation(synapses=synapses, membrane=replace(self.membrane, **taken))


def in_all_steps(values: Array, places: Places) -> Array:
    """Select [places, timesteps] from values [samples, timesteps, *shape]."""
    sample, _, *index = places
    chosen: tuple[Any, ...] = (sample, slice(None), *index)
    taken: Array = values[chosen]
    return taken


def synaptic_input(entering: Sequence[Connection], population: Population[Any], sent: Sent) -> Array:
    """Return the sum over all synapses into a population, [samples, timesteps, *shape]."""
    steps = range(sent[population.name].shape[1])
    return np.stack([gather(entering, population, sent, step) for step in steps], axis=1)


def driven_population(
    network: AnyNetwork, name: str, sent: Sent, factor: Array | int = 1
) -> DrivenPopulation:
    """Return a population of a network with its input; for real numbers, `factor` is 2**6 * scale.

    All arithmetic is in float64, which represents both the integers and the scaled real numbers.
    """
    population = network.layer(name)
    rule = membrane(population.neuron, 1)
    synapses = factor * rule.unit * synaptic_input(network.entering(name), population, sent)
    return DrivenPopulation(synapses=synapses, membrane=rule.scaled(factor))


def recovery_margins(
    integer: DrivenPopulation, real: DrivenPopulation, spikes: Array, places: Places, wanted: Array
) -> Array:
    """Return [causes, places]: the margin by which undoing one kind of rounding gives the wanted spike.

    The margin is |voltage - threshold|, or -1 if the spike is still not the wanted one. Earlier resets
    follow `spikes`, which are the same in both networks.
    """
    integer, real, common = integer.at(places), real.at(places), in_all_steps(spikes, places)
    found = np.empty((len(CAUSES), len(wanted)))
    for row, parts in zip(found, CAUSES.values(), strict=True):
        mixed = integer.exchanged(real, parts)
        voltage = mixed.voltages(common)[np.arange(len(wanted)), places[1]]
        row[:] = np.where((voltage > mixed.threshold) == wanted, np.abs(voltage - mixed.threshold), -1.0)
    return found
