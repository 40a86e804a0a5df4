"""What no input can exceed: intervals of every current and voltage of an integer network.

For each neuron, with source values between `low` and `high` and weights w,

    current_high = 2**6 * (sum of w*high over w > 0  +  sum of w*low over w < 0)
    voltage_high = keep * min(voltage_high, threshold) + current_high + bias     (per time step)

because a neuron whose voltage passed its threshold was reset. Likewise below, with zero as the
reset value. The bound holds for every input in range and every time step of a sample.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from .float_ir import FloatLif, FloatNeuron, FloatReadout, FoldedNetwork
from .graph import apply_synapse, incoming
from .int_ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    STATE_LIMIT,
    Input,
    IntNetwork,
    IntPopulation,
    Lif,
    Neuron,
    Readout,
)
from .records import Array, record

Interval = tuple[Array, Array]


@record
class Bound:
    """The intervals that hold all currents and voltages of one population."""

    current: tuple[int, int]
    voltage: tuple[int, int]

    @property
    def magnitude(self) -> int:
        return max(map(abs, (*self.current, *self.voltage)))

    @property
    def fits(self) -> bool:
        """Whether no state can leave its width."""
        return self.magnitude <= STATE_LIMIT


def bounds(network: IntNetwork) -> dict[str, Bound]:
    """The bound of every population but the input."""
    found = {}
    for population in network.populations[1:]:
        low, high = synapse_interval(network, population.name)
        unit = 2**STATE_EXPONENT
        found[population.name] = _population_bound(population, (unit * low, unit * high), network.timesteps)
    return found


def synapse_interval(network: IntNetwork | FoldedNetwork, target: str) -> Interval:
    """The interval of the sum of all synapses in one step, per neuron of `target`."""
    populations = {population.name: population for population in network.populations}
    shape = populations[target].shape
    low, high = np.zeros(shape), np.zeros(shape)
    for connection in incoming(network.connections, target):
        synapse, source = connection.synapse, populations[connection.source]
        smallest, largest = value_range(source.neuron)
        ones = np.ones((1, *source.shape))
        # Zero padding sends nothing, so a border neuron simply has fewer terms.
        plus, minus = (
            apply_synapse(replace(synapse, weight=part), ones)[0].reshape(shape)
            for part in (np.maximum(synapse.weight, 0), np.minimum(synapse.weight, 0))
        )
        low += plus * smallest + minus * largest
        high += plus * largest + minus * smallest
    return low, high


def value_range(neuron: Neuron | FloatNeuron) -> tuple[int, int]:
    """The smallest and largest value that neurons can send."""
    match neuron:
        case Input(minimum=minimum, maximum=maximum):
            return minimum, maximum
        case Lif() | FloatLif():
            return 0, 1
        case Readout() | FloatReadout():
            return 0, 0
        case _:
            assert_never(neuron)


def _population_bound(population: IntPopulation, added: Interval, timesteps: int) -> Bound:
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    low, high = added
    bias = neuron.bias * 2.0**neuron.bias_exponent
    keep_current = 1 - neuron.decay_current / DECAY_ONE if isinstance(neuron, Lif) else 0.0
    keep_voltage = 1 - neuron.decay_voltage / DECAY_ONE if isinstance(neuron, Lif) else 1.0
    ceiling = neuron.threshold * 2.0**STATE_EXPONENT if isinstance(neuron, Lif) else np.inf
    current_low = current_high = voltage_low = voltage_high = np.zeros(population.shape)
    lowest = highest = np.zeros(population.shape)
    widest = (0.0, 0.0)
    for _ in range(timesteps):
        current_low = keep_current * np.minimum(current_low, 0) + low
        current_high = keep_current * np.maximum(current_high, 0) + high
        left_low = np.minimum(voltage_low, 0)
        left_high = np.maximum(np.minimum(voltage_high, ceiling), 0)
        voltage_low = keep_voltage * left_low + current_low + bias
        voltage_high = keep_voltage * left_high + current_high + bias
        lowest, highest = np.minimum(lowest, voltage_low), np.maximum(highest, voltage_high)
        widest = (min(widest[0], float(current_low.min())), max(widest[1], float(current_high.max())))
    return Bound(current=_outward(*widest), voltage=_outward(float(lowest.min()), float(highest.max())))


def _outward(low: float, high: float) -> tuple[int, int]:
    """The smallest interval of integers that holds [low, high]."""
    return int(np.floor(low)), int(np.ceil(high))
