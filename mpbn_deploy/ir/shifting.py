"""The update of Xylo's neurons: 16-bit states that decay by bit shifts, saturate, and fire several times.

Read from xylosim 0.1.3 (`src/v2/cpp`), SynSense's simulator of Xylo Audio 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from typing_extensions import assert_never

from ..base import Array, record
from .composition import as_dense
from .graph import Connection, Network, Population
from .integer import IntNetwork
from .neurons import XYLO_HIGH, XYLO_LOW, AnyNeuron, FloatXylo, Xylo, counting

State = tuple[Array, Array]


def saturated(values: Array) -> Array:
    """Return values limited to 16 bits."""
    limited: Array = np.clip(values, XYLO_LOW, XYLO_HIGH)
    return limited


def shift_decay(values: Array, shift: Array) -> Array:
    """values >> shift, but at least one for what is positive; a negative value never shifts to zero"""
    decayed: Array = np.where(values > 0, np.maximum(values >> shift, 1), values >> shift)
    return decayed


@record
class Shifting:
    """The parameters of a population of `Xylo` neurons, whose docstring is the update."""

    threshold: Array
    bias: Array
    shift_current: Array
    shift_voltage: Array
    max_spikes: int

    def deliver(self, current: Array, arrivals: Iterable[Array]) -> tuple[Array, Array]:
        """Return the current after all arrivals, each limited to 16 bits, and where the limit was reached."""
        limited = np.zeros(current.shape, bool)
        for arriving in arrivals:
            total = current + arriving
            current = saturated(total)
            limited |= current != total
        return current, limited

    def integrate(self, state: State) -> tuple[State, Array]:
        """Return the state before it fires, given the delivered current, and where a sum was limited."""
        current, voltage = state
        current = current - shift_decay(current, self.shift_current)
        fallen = -shift_decay(voltage, self.shift_voltage)
        fallen = np.where(fallen > XYLO_HIGH, XYLO_LOW, fallen)  # 16 bits hold no +32768
        sums, limited = fallen, np.zeros(voltage.shape, bool)
        for term in (current, self.bias, voltage):
            total = sums + term
            sums = saturated(total)
            limited |= sums != total
        return (current, sums), limited

    def fire(self, state: State) -> tuple[State, Array]:
        """Return the state after its resets, and the number of spikes."""
        current, voltage = state
        counts: Array = np.clip(voltage // self.threshold, 0, self.max_spikes)
        return (current, voltage - counts * self.threshold), counts


def shifting(population: Population[AnyNeuron]) -> Shifting | None:
    """Return the update of integer neurons of Xylo, with one number per neuron, flat; None for others."""

    def each(values: int | Array) -> Array:
        return np.broadcast_to(np.asarray(values, np.int64), population.shape).ravel()

    match neuron := counting(population.neuron):
        case Xylo():
            return Shifting(
                threshold=each(neuron.threshold),
                bias=each(neuron.bias),
                shift_current=each(neuron.shift_current),
                shift_voltage=each(neuron.shift_voltage),
                max_spikes=neuron.max_spikes,
            )
        case FloatXylo() | None:
            return None
        case _:
            assert_never(neuron)


def shift_rules(network: Network[AnyNeuron]) -> dict[str, Shifting] | None:
    """Return the updates of a network of Xylo neurons, by population; None for any other network."""
    rules = {p.name: rule for p in network.layers if (rule := shifting(p)) is not None}
    return rules or None


def ordered(network: Network[AnyNeuron], name: str) -> list[Connection]:
    """Return the connections into a population, in the order in which Xylo delivers their spikes."""
    return sorted(network.entering(name), key=lambda connection: network.order[connection.source])


def delivered_weights(network: IntNetwork, name: str) -> Array:
    """Return the weights into a population [neurons, sources], of all `ordered` connections side by side."""
    shapes = network.shapes
    parts = [as_dense(c.synapse, shapes[c.source]).weight for c in ordered(network, name)]
    return np.concatenate(parts, axis=1).astype(np.int64)


def delivered_counts(network: IntNetwork, name: str, sent: Mapping[str, Array], step: int) -> Array:
    """Return what those sources sent [samples, sources], as it arrives in one step."""
    parts = []
    for connection in ordered(network, name):
        values = sent[connection.source]
        known = step >= connection.delay
        now = values[:, step - connection.delay] if known else np.zeros_like(values[:, 0])
        parts.append(now.reshape(len(values), -1))
    return np.concatenate(parts, axis=1)
