"""Prove intervals of every current and voltage of a network, for all inputs in range.

For each neuron, with source values between `low` and `high` and weights w,

    current_high = 2**6 * (sum of w*high over w > 0  +  sum of w*low over w < 0)
    voltage_high = keep * min(voltage_high, threshold) + current_high + bias     (per time step)

because a neuron whose voltage exceeds its threshold is reset to zero; the lower bounds are analogous. A soft
reset subtracts instead, so that voltages may climb from step to step, and the minimum is replaced by

    max(min(voltage_high, threshold), voltage_high - subtrahend)

The bounds hold for every input in range and every time step of a sample.

A sigma-delta neuron sums changes, which telescope: all messages of a neuron add up to what it has encoded,
divided by 2**shift and less than one lower for each message that was rounded. So its sum depends on the
activations of its sources, and not on the number of their messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ..base import Array, record
from .composition import as_dense
from .graph import Connection, Interval, Network, Population, synapse_interval
from .membranes import AnyNetwork, AnyPopulation, Membrane, Modulator, update_rule
from .networks import IntNetwork
from .neurons import STATE_LIMIT, XYLO_HIGH, XYLO_LOW, AnyNeuron, FloatXylo, Xylo, counting, value_range
from .synapses import apply_synapse


@record
class Bound:
    """Intervals that contain all currents and voltages of one population."""

    current: tuple[int, int]
    voltage: tuple[int, int]

    @property
    def magnitude(self) -> int:
        return max(map(abs, (*self.current, *self.voltage)))

    @property
    def fits(self) -> bool:
        """Whether all states are proved to fit their width."""
        return self.magnitude <= STATE_LIMIT


def bounds(network: IntNetwork, names: Iterable[str] | None = None) -> dict[str, Bound]:
    """Return the bound of each layer, or only of those in `names`."""
    wanted = None if names is None else set(names)
    found = {}
    for population in network.layers:
        if wanted is None or population.name in wanted:
            current, voltage = state_intervals(network, population)
            found[population.name] = Bound(current=_outward(current), voltage=_outward(voltage))
    return found


def state_intervals(network: AnyNetwork, population: AnyPopulation) -> tuple[Interval, Interval]:
    """Return the intervals of the current and of the voltage of every neuron, over all time steps.

    They are in units of the state. A readout of real numbers is treated as a sum over time, as in integers.
    """
    if shifting(population) is not None:  # its sums saturate
        limits = np.full(population.shape, float(XYLO_LOW)), np.full(population.shape, float(XYLO_HIGH))
        return limits, limits
    rule = update_rule(population.neuron, 1)
    if isinstance(rule, Modulator):
        return modulated_intervals(network, population, rule)
    low, high = (rule.unit * side for side in synapse_interval(network, population.name))
    return _over_time((low, high), rule, network.timesteps)


def modulated_intervals(
    network: AnyNetwork, population: AnyPopulation, rule: Modulator
) -> tuple[Interval, Interval]:
    """Return the intervals of what is encoded, and of sigma, of every sigma-delta neuron."""
    zero = np.zeros(population.shape)
    if rule.accumulates:
        low, high = _summed(network, population)
    else:
        low, high = (rule.unit * side for side in synapse_interval(network, population.name))
    sigma = _union((zero, zero), (low, high))
    if rule.threshold is None:
        return (zero, zero), sigma
    activation = sigma[0] + rule.bias, sigma[1] + rule.bias
    if rule.rectified:
        activation = np.maximum(activation[0], 0), np.maximum(activation[1], 0)
    return _union((zero, zero), activation), sigma


def _summed(network: AnyNetwork, population: AnyPopulation) -> Interval:
    """Return the interval of the sum of all synapses up to any time step."""
    low, high = np.zeros(population.shape), np.zeros(population.shape)
    for connection in network.entering(population.name):
        least, most = _sent_in_all(network, connection, population)
        plus, minus = (
            replace(connection.synapse, weight=part)
            for part in (np.maximum(connection.synapse.weight, 0), np.minimum(connection.synapse.weight, 0))
        )
        low += (apply_synapse(plus, least) + apply_synapse(minus, most)).reshape(low.shape)
        high += (apply_synapse(plus, most) + apply_synapse(minus, least)).reshape(low.shape)
    return low, high


def _sent_in_all(network: AnyNetwork, connection: Connection, population: AnyPopulation) -> Interval:
    """Return the interval of the sum of all that a source sends up to any time step, [1, *shape]."""
    source, order = network.population(connection.source), network.order
    shape = (1, *source.shape)
    if 0 < order[source.name] < order[population.name]:
        layer = network.layer(source.name)
        rule = update_rule(layer.neuron, 1)
        if isinstance(rule, Modulator):
            (low, high), _ = modulated_intervals(network, layer, rule)
            rounded = network.timesteps if rule.shift else 0
            unit = 2**rule.shift
            return (np.floor(low / unit) - rounded).reshape(shape), np.floor(high / unit).reshape(shape)
    least, most = (network.timesteps * value for value in value_range(source.neuron))
    return np.full(shape, min(least, 0)), np.full(shape, max(most, 0))


def _over_time(arriving: Interval, rule: Membrane, timesteps: int) -> tuple[Interval, Interval]:
    """Propagate intervals through time; `arriving` bounds the input of each step."""
    low, high = arriving
    whole = rule
    current = left = (np.zeros(low.shape), np.zeros(low.shape))
    all_currents, all_voltages = current, left
    for step in range(timesteps):
        rule = whole.at(step)
        keep_current, keep_voltage = rule.decay_current.kept, rule.decay_voltage.kept
        current = (
            keep_current * np.minimum(current[0], 0) + low,
            keep_current * np.maximum(current[1], 0) + high,
        )
        low_voltage, high_voltage = (keep_voltage * left[side] + current[side] + rule.bias for side in (0, 1))
        voltage = low_voltage, high_voltage
        left = _after_firing(voltage, rule)
        all_currents, all_voltages = _union(all_currents, current), _union(all_voltages, voltage)
        if rule.subtrahend is not None:  # a subtraction may lead beyond the voltages before it
            all_voltages = _union(all_voltages, left)
    return all_currents, all_voltages


def _after_firing(voltage: Interval, rule: Membrane) -> Interval:
    """Return an interval that contains zero, which truncation leads to, and all voltages after the reset."""
    low, high = voltage
    if rule.threshold is None:
        return np.minimum(low, 0), np.maximum(high, 0)
    quiet = np.minimum(low, 0), np.maximum(np.minimum(high, rule.threshold), 0)
    if rule.subtrahend is None:
        return quiet
    fired = np.maximum(low, rule.threshold) - rule.subtrahend, high - rule.subtrahend
    least, most = (np.where(high > rule.threshold, edge, 0) for edge in fired)
    return _union(quiet, (least, most))


def _union(first: Interval, second: Interval) -> Interval:
    return np.minimum(first[0], second[0]), np.maximum(first[1], second[1])


def _outward(interval: Interval) -> tuple[int, int]:
    """Return the smallest integer interval that contains those of all neurons."""
    return int(np.floor(interval[0].min())), int(np.ceil(interval[1].max()))


# The update of Xylo's neurons: 16-bit states that decay by bit shifts, saturate, and fire several times.
#
# Read from xylosim 0.1.3 (`src/v2/cpp`), SynSense's simulator of Xylo Audio 2.


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
