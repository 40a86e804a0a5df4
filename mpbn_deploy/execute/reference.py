"""The reference simulator: the living definition of a network, written to be read.

`simulate` of an IntNetwork is what every other execution (emulator, Lava, a file read back) is
held against, with equality. Of a FoldedNetwork it is the same in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from typing_extensions import assert_never

from ..base import Array, SimulationError
from ..ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    STATE_LIMIT,
    Connection,
    FloatLif,
    FloatNeuron,
    FloatReadout,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Lif,
    Population,
    Readout,
    Trace,
    apply_synapse,
    as_steps,
    check_input_values,
    incoming,
)
from .options import ExecutionOptions

NeuronT = TypeVar("NeuronT")
ROUNDING = 64 * np.finfo(np.float64).eps  # of a sum of many terms, relative to it
# (current, voltage) before the step and the sum of the synapses -> (current, voltage), spikes
State = tuple[Array, Array]
Update = Callable[[State, Array], tuple[State, Array]]


def simulate(network: IntNetwork | FoldedNetwork, inputs: Array) -> Trace:
    """Run a network on inputs [samples, timesteps, *shape], or [samples, *shape] held for all steps."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    match network:
        case IntNetwork():
            check_input_values(network, steps)
            updates = [_integer_update(p) for p in network.populations[1:]]
            return _run(network.populations, network.connections, updates, steps.astype(np.int64))
        case FoldedNetwork():
            updates = [_float_update(p.neuron, network.timesteps) for p in network.populations[1:]]
            return _run(network.populations, network.connections, updates, steps.astype(np.float64))
        case _:
            assert_never(network)


def _integer_update(population: IntPopulation) -> Update:
    match population.neuron:
        case Lif():
            return _integer_fire(population.name, population.neuron)
        case Readout():
            return _integer_integrate(population.name, population.neuron)
        case _:
            raise TypeError("an input is not updated")


def _integer_fire(name: str, neuron: Lif) -> Update:
    bias = _shift(neuron.bias, neuron.bias_exponent)
    threshold = _shift(neuron.threshold, STATE_EXPONENT)

    def fire(state: State, synapses: Array) -> tuple[State, Array]:
        current, voltage = state
        current = decay(current, neuron.decay_current) + _to_state(synapses)
        voltage = decay(voltage, neuron.decay_voltage) + current + bias
        _check_width(name, current, voltage)
        spikes = voltage > threshold
        voltage = np.where(spikes, 0, voltage)
        return (current, voltage), spikes

    return fire


def _integer_integrate(name: str, neuron: Readout) -> Update:
    bias = _shift(neuron.bias, neuron.bias_exponent)

    def integrate(state: State, synapses: Array) -> tuple[State, Array]:
        current = decay(state[0], neuron.decay_current) + _to_state(synapses)
        voltage = decay(state[1], neuron.decay_voltage) + current + bias
        _check_width(name, current, voltage)
        return (current, voltage), np.zeros(voltage.shape, dtype=bool)

    return integrate


def _float_update(neuron: FloatNeuron, timesteps: int) -> Update:
    match neuron:
        case FloatLif():
            return _float_fire(neuron)
        case FloatReadout():
            return _float_integrate(neuron, timesteps)
        case _:
            raise TypeError("an input is not updated")


def _float_fire(neuron: FloatLif) -> Update:
    def fire(state: State, synapses: Array) -> tuple[State, Array]:
        current = neuron.current_leak * state[0] + synapses
        voltage = neuron.leak * state[1] + current + neuron.bias
        spikes = voltage > neuron.threshold
        voltage = np.where(spikes, 0.0, voltage)
        return (current, voltage), spikes

    return fire


def _float_integrate(neuron: FloatReadout, timesteps: int) -> Update:
    def integrate(state: State, synapses: Array) -> tuple[State, Array]:
        current = neuron.current_leak * state[0] + synapses
        voltage = neuron.leak * state[1] + (current + neuron.bias) / timesteps
        return (current, voltage), np.zeros(voltage.shape, dtype=bool)

    return integrate


def decay(state: Array, amount: int) -> Array:
    """trunc(state * (4096 - amount) / 4096), toward zero"""
    product = state * (DECAY_ONE - amount)
    decayed: Array = np.sign(product) * (np.abs(product) // DECAY_ONE)
    return decayed


def _run(
    populations: Sequence[Population[NeuronT]],
    connections: Sequence[Connection],
    updates: Sequence[Update],
    steps: Array,
) -> Trace:
    samples, timesteps = steps.shape[:2]
    sent = {p.name: np.zeros((samples, timesteps, *p.shape), steps.dtype) for p in populations}
    sent[populations[0].name] = steps
    states = {p.name: (np.zeros((samples, *p.shape), steps.dtype),) * 2 for p in populations[1:]}
    voltages = {p.name: np.zeros((samples, timesteps, *p.shape), steps.dtype) for p in populations[1:]}
    for step in range(timesteps):
        for population, update in zip(populations[1:], updates, strict=True):
            name = population.name
            synapses = gather(connections, population, sent, step)
            states[name], sent[name][:, step] = update(states[name], synapses)
            voltages[name][:, step] = states[name][1]
    spikes = {p.name: sent[p.name].astype(bool) for p in populations[1:]}
    last = populations[-1].name
    silent = isinstance(populations[-1].neuron, (Readout, FloatReadout))
    outputs = voltages[last][:, -1] if silent else spikes[last].sum(axis=1)
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs)


def gather(
    connections: Sequence[Connection], population: Population[NeuronT], sent: Mapping[str, Array], step: int
) -> Array:
    """The sum of all synapses into a population at one step; nothing arrives from before the sample."""
    samples = len(sent[population.name])
    total: Array = np.zeros((samples, *population.shape))
    for connection in incoming(connections, population.name):
        if step >= connection.delay:
            values = sent[connection.source][:, step - connection.delay]
            total += apply_synapse(connection.synapse, values).reshape(total.shape)
    return total


def close_calls(network: FoldedNetwork, inputs: Array, trace: Trace) -> dict[str, Array]:
    """Which decisions of a run lie closer to their threshold than float64 can tell apart from it.

    Of each population that fires, [samples, timesteps, *shape]: whether a voltage, before its reset, is
    within the rounding of its own sum. There, and only there, two orders of adding may decide otherwise.
    """
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    sent = {network.input.name: steps.astype(np.float64), **trace.spikes}
    close = {}
    for population in network.populations[1:]:
        name, neuron = population.name, population.neuron
        if not isinstance(neuron, FloatLif):
            continue
        close[name] = np.zeros_like(trace.spikes[name])
        current = left = np.zeros((len(steps), *population.shape))
        for step in range(network.timesteps):
            current = neuron.current_leak * current + gather(network.connections, population, sent, step)
            voltage = neuron.leak * left + current + neuron.bias
            distance = np.abs(voltage - neuron.threshold)
            close[name][:, step] = distance < ROUNDING * (1 + np.abs(voltage))
            left = trace.voltages[name][:, step]
    return close


def _shift(values: Array, exponent: int) -> Array:
    return values.astype(np.int64) << exponent


def _to_state(synapses: Array) -> Array:
    """Weights times spikes, in state units. Exponents down to -6 give whole numbers."""
    state: Array = np.rint(synapses * 2**STATE_EXPONENT).astype(np.int64)
    return state


def _check_width(name: str, current: Array, voltage: Array) -> None:
    for label, values in (("current", current), ("voltage", voltage)):
        largest = int(np.abs(values).max())
        if largest > STATE_LIMIT:
            raise SimulationError(
                f"{name}: a {label} of magnitude {largest} leaves the 24-bit state (at most {STATE_LIMIT}); "
                "quantize it for inputs and steps like these."
            )


# ---- as an executor ---------------------------------------------------------------------------

CHUNK = 16  # samples of which outputs alone are wanted, simulated at once


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """As `simulate`; where outputs alone are wanted, chunk by chunk, which bounds the memory."""
    if options.keep_trace:
        return simulate(network, inputs)
    as_steps(inputs[:1], network.input.shape, network.timesteps)
    starts = range(0, len(inputs), CHUNK)
    chunks = options.watch(starts, len(starts))
    outputs = [simulate(network, inputs[start : start + CHUNK]).outputs for start in chunks]
    return Trace(spikes={}, voltages={}, outputs=np.concatenate(outputs))
