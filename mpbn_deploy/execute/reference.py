"""The reference simulator: the definition of what a network computes, written for readability.

`simulate` of an IntNetwork is compared with every other execution (emulator, Lava, a file read back), and
all integers must be equal. A FoldedNetwork is simulated in float64. `ir.Membrane` defines the neuron update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ..base import Array, SimulationError, layer_name
from ..ir import (
    AnyNetwork,
    Connection,
    FoldedNetwork,
    IntNetwork,
    Membrane,
    Modulator,
    Population,
    Rule,
    Shifting,
    State,
    Trace,
    apply_synapse,
    as_steps,
    check_input_values,
    delivered_counts,
    delivered_weights,
    firing,
    membrane,
    shift_rules,
    update_rule,
    wide_sums,
    wrapped,
)
from .narrow import NarrowNeurons, may_narrow
from .options import ExecutionOptions
from .traces import join_traces, outputs_of

NO_MODULI: Mapping[Connection, float] = {}
ROUNDING = 64 * np.finfo(np.float64).eps  # relative rounding error of a sum of many terms


def simulate(network: AnyNetwork, inputs: Array) -> Trace:
    """Run a network on inputs [samples, timesteps, *shape], or [samples, *shape] repeated in every step."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    check_input_values(network, np.asarray(inputs), fractions=isinstance(network, FoldedNetwork))
    match network:
        case IntNetwork() if (rules := shift_rules(network)) is not None:
            return _run_shifts(network, rules, steps.astype(np.int64))
        case IntNetwork():
            return _run(network, steps.astype(np.int64))
        case FoldedNetwork():
            return _run(network, steps.astype(np.float64))
        case _:
            assert_never(network)


def _run(network: AnyNetwork, steps: Array) -> Trace:
    layers, (samples, timesteps) = network.layers, steps.shape[:2]
    rules = {p.name: update_rule(p.neuron, timesteps) for p in layers}
    states: dict[str, State] = {p.name: (np.zeros((samples, *p.shape), steps.dtype),) * 2 for p in layers}
    voltages = {p.name: np.zeros((samples, timesteps, *p.shape), steps.dtype) for p in layers}
    kinds = {p.name: np.int64 if rules[p.name].graded else np.bool_ for p in layers}
    spikes = {p.name: np.zeros((samples, timesteps, *p.shape), kinds[p.name]) for p in layers}
    sent = {network.input.name: steps, **spikes}
    narrow = {
        p.name: NarrowNeurons(rule, p.shape)
        for p in layers
        if isinstance(rule := rules[p.name], Membrane) and may_narrow(network, rule)
    }
    moduli = {name: wide_sums(network, name) for name in narrow} if isinstance(network, IntNetwork) else {}
    for step in range(timesteps):
        for population in layers:
            name, entering = population.name, network.entering(population.name)
            sums = gather(entering, population, sent, step)
            if name in narrow:
                wrap = moduli[name]
                kept = gather(entering, population, sent, step, wrap) if wrap else sums
                states[name], spikes[name][:, step] = narrow[name].step(states[name], sums, kept, step)
            else:
                states[name], spikes[name][:, step] = _update(name, rules[name].at(step), states[name], sums)
            voltages[name][:, step] = states[name][1]
    return Trace(
        spikes=spikes,
        voltages=voltages,
        outputs=outputs_of(network, spikes, voltages),
        overflows={name: each.overflows for name, each in narrow.items() if each.overflows.any()},
    )


def _run_shifts(network: IntNetwork, rules: Mapping[str, Shifting], steps: Array) -> Trace:
    """Run a network of `Xylo` neurons, which take spikes one synapse after the other."""
    samples, timesteps = steps.shape[:2]
    states: dict[str, State] = {p.name: (np.zeros((samples, p.size), np.int64),) * 2 for p in network.layers}
    spikes = {p.name: np.zeros((samples, timesteps, *p.shape), np.int64) for p in network.layers}
    voltages = {name: np.zeros_like(counts) for name, counts in spikes.items()}
    saturations = {p.name: np.zeros(p.size, np.int64) for p in network.layers}
    weights = {p.name: delivered_weights(network, p.name) for p in network.layers}
    sent = {network.input.name: steps, **spikes}
    for step in range(timesteps):
        for name, rule in rules.items():
            counts, shape = delivered_counts(network, name, sent, step), (samples, *network.shapes[name])
            synapses = zip(counts.T, weights[name].T, strict=True)
            arrivals = (count[:, None] * weight for count, weight in synapses)
            current, early = rule.deliver(states[name][0], arrivals)
            charged, late = rule.integrate((current, states[name][1]))
            states[name], fired = rule.fire(charged)
            spikes[name][:, step] = fired.reshape(shape)
            voltages[name][:, step] = states[name][1].reshape(shape)
            saturations[name] += (early | late).sum(axis=0)
    return Trace(
        spikes=spikes,
        voltages=voltages,
        outputs=outputs_of(network, spikes, voltages),
        overflows={p.name: n.reshape(p.shape) for p in network.layers if (n := saturations[p.name]).any()},
    )


def _update(name: str, rule: Rule, state: State, sums: Array) -> tuple[State, Array]:
    """Return the state after one step, and the messages sent in it; raise if a value overflows."""
    # In units of the state, currents are integers for weight exponents of -6 and above.
    arriving = (rule.unit * sums).astype(state[0].dtype)
    if isinstance(rule, Modulator):  # Lava's convolutions wrap sums beyond the state
        _check_width(name, (arriving, arriving), rule)
    charged = rule.integrate(state, arriving)
    _check_width(name, charged, rule)
    after, messages = rule.fire(charged)
    _check_width(name, after, rule)  # a subtraction can overflow too
    return after, messages


def gather(
    entering: Sequence[Connection],
    population: Population[Any],
    sent: Mapping[str, Array],
    step: int,
    moduli: Mapping[Connection, float] = NO_MODULI,
) -> Array:
    """Sum the currents into a population at one step; delayed spikes from before the sample are zero.

    Sums of connections in `moduli` wrap.
    """
    samples = len(sent[population.name])
    total: Array = np.zeros((samples, *population.shape))
    for connection in entering:
        if step >= connection.delay:
            values = sent[connection.source][:, step - connection.delay]
            arriving = apply_synapse(connection.synapse, values).reshape(total.shape)
            total += wrapped(arriving, moduli[connection]) if connection in moduli else arriving
    return total


def close_calls(network: FoldedNetwork, inputs: Array, trace: Trace) -> dict[str, Array]:
    """Return where a voltage is closer to its threshold than float64 resolves.

    For each population that fires, [samples, timesteps, *shape]: whether the voltage before the reset is
    within its own rounding error of the threshold. Only there can another order of summation give another
    spike.
    """
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    sent = {network.input.name: steps.astype(np.float64), **trace.spikes}
    close = {}
    for population in firing(network):
        name, rule = population.name, membrane(population.neuron, network.timesteps)
        close[name] = np.zeros_like(trace.spikes[name])
        current = remaining = np.zeros((len(steps), *population.shape))
        for step in range(network.timesteps):
            arriving = gather(network.entering(name), population, sent, step)
            now = rule.at(step)
            current, voltage = now.integrate((current, remaining), arriving)
            distance = np.abs(voltage - now.threshold)
            close[name][:, step] = distance < ROUNDING * (1 + np.abs(voltage))
            remaining = trace.voltages[name][:, step]
    return close


def _check_width(name: str, state: State, rule: Rule) -> None:
    labels, advice = ("current", "voltage"), "Quantize with --overflow proved, or calibrate on such inputs."
    if isinstance(rule, Modulator):
        labels, advice = ("activation", "sum"), "Give inputs of a smaller range."
    for label, values in zip(labels, state, strict=True):
        if rule.limit < np.inf and (largest := int(np.abs(values).max())) > rule.limit:
            raise SimulationError(
                f"{layer_name(name)}: a {label} of magnitude {largest} overflows the 24-bit state (at most "
                f"{rule.limit}). {advice}"
            )


# ---- as an executor ---------------------------------------------------------------------------

CHUNK = 16  # samples simulated at once without a trace


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """Simulate a network; without a trace, in chunks of samples to bound memory."""
    if options.keep_trace:
        return simulate(network, inputs)
    as_steps(inputs[:1], network.input.shape, network.timesteps)
    starts = range(0, len(inputs), CHUNK)
    parts = (inputs[start : start + CHUNK] for start in options.progress(starts))
    return join_traces([replace(simulate(network, part), spikes={}, voltages={}) for part in parts])
