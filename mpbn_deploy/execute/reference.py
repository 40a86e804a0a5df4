"""The reference simulator: the living definition of a network, written to be read.

`simulate` of an IntNetwork is what every other execution (emulator, Lava, a file read back) is
held against, with equality. Of a FoldedNetwork it is the same in float64. What neurons do in a time step is
`ir.Membrane`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ..base import Array, SimulationError
from ..ir import (
    AnyNetwork,
    Connection,
    FoldedNetwork,
    IntNetwork,
    Population,
    State,
    Trace,
    apply_synapse,
    as_steps,
    check_input_values,
    fires,
    firing,
    incoming,
    membrane,
)
from .options import ExecutionOptions

ROUNDING = 64 * np.finfo(np.float64).eps  # of a sum of many terms, relative to it


def simulate(network: AnyNetwork, inputs: Array) -> Trace:
    """Run a network on inputs [samples, timesteps, *shape], or [samples, *shape] held for all steps."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    match network:
        case IntNetwork():
            check_input_values(network, steps)
            return _run(network, steps.astype(np.int64))
        case FoldedNetwork():
            return _run(network, steps.astype(np.float64))
        case _:
            assert_never(network)


def _run(network: AnyNetwork, steps: Array) -> Trace:
    layers, (samples, timesteps) = network.layers, steps.shape[:2]
    rules = {p.name: membrane(p.neuron, timesteps) for p in layers}
    states: dict[str, State] = {p.name: (np.zeros((samples, *p.shape), steps.dtype),) * 2 for p in layers}
    voltages = {p.name: np.zeros((samples, timesteps, *p.shape), steps.dtype) for p in layers}
    spikes = {p.name: np.zeros((samples, timesteps, *p.shape), bool) for p in layers}
    sent = {network.input.name: steps, **spikes}
    for step in range(timesteps):
        for population in layers:
            name, rule = population.name, rules[population.name]
            # Weight exponents down to -6 give whole numbers in units of the state.
            arriving = (rule.unit * gather(network.connections, population, sent, step)).astype(steps.dtype)
            charged = rule.integrate(states[name], arriving)
            _check_width(name, charged, rule.limit)
            states[name], spikes[name][:, step] = rule.fire(charged)
            voltages[name][:, step] = states[name][1]
    last = network.output
    outputs = spikes[last.name].sum(axis=1) if fires(last.neuron) else voltages[last.name][:, -1]
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs)


def gather(
    connections: Sequence[Connection], population: Population[Any], sent: Mapping[str, Array], step: int
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
    for population in firing(network):
        name, rule = population.name, membrane(population.neuron, network.timesteps)
        close[name] = np.zeros_like(trace.spikes[name])
        current = left = np.zeros((len(steps), *population.shape))
        for step in range(network.timesteps):
            arriving = gather(network.connections, population, sent, step)
            current, voltage = rule.integrate((current, left), arriving)
            distance = np.abs(voltage - population.neuron.threshold)
            close[name][:, step] = distance < ROUNDING * (1 + np.abs(voltage))
            left = trace.voltages[name][:, step]
    return close


def _check_width(name: str, state: State, limit: float) -> None:
    for label, values in zip(("current", "voltage"), state, strict=True):
        if limit < np.inf and (largest := int(np.abs(values).max())) > limit:
            raise SimulationError(
                f"{name}: a {label} of magnitude {largest} leaves the 24-bit state (at most {limit}); "
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
