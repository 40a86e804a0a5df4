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

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..base import record
from .graph import Connection
from .integer import IntNetwork
from .membranes import AnyNetwork, AnyPopulation, Membrane, update_rule
from .modulators import Modulator
from .neurons import STATE_LIMIT, XYLO_HIGH, XYLO_LOW, value_range
from .shifting import shifting
from .sums import Interval, synapse_interval
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
