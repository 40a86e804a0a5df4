"""The reference simulator: the definition of what a network computes, written for readability.

`simulate` of an IntNetwork is compared with every other execution (emulator, Lava, a file read back), and
all integers must be equal. A FoldedNetwork is simulated in float64. `ir.Membrane` defines the neuron update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ..base import HANG_SECONDS, Array, Progress, SimulationError, layer_name, no_progress, record
from ..ir import (
    AnyNetwork,
    Connection,
    Dense,
    FoldedNetwork,
    Input,
    IntNetwork,
    Lif,
    Membrane,
    Modulator,
    Population,
    Rule,
    Shape,
    Shifting,
    State,
    Trace,
    apply_synapse,
    as_steps,
    check_input_values,
    clipped_voltage,
    delivered_counts,
    delivered_weights,
    firing,
    join_overflows,
    membrane,
    sends,
    shift_rules,
    update_rule,
    wide_sums,
    wrapped,
)

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


# Options of an execution.


@record
class ExecutionOptions:
    """Options of one execution; executors ignore options that do not apply to them.

    Without `keep_trace`, the trace need only hold outputs. `netx` is the path or the content of the network's
    network.net. `patience` is the time limit, in seconds, for one block of Lava's time steps, after which it
    counts as hanging. `port` is the serial port of a board.
    """

    keep_trace: bool = True
    netx: Path | bytes | None = None
    patience: float = HANG_SECONDS
    progress: Progress = no_progress
    port: str | None = None

    def portable(self) -> ExecutionOptions:
        """Return options for another machine: the content of the netx file replaces its path."""
        return replace(self, netx=self.netx.read_bytes()) if isinstance(self.netx, Path) else self


# Operations on traces that several executors share.


VALUES_AT_ONCE = 2**23  # neurons * time steps * samples whose traces are in memory: some 30 bytes each


def chunks(network: AnyNetwork, samples: int) -> list[slice]:
    """Divide samples into chunks of at least one, whose traces fit in memory."""
    neurons = sum(population.size for population in network.populations)
    size = max(1, VALUES_AT_ONCE // (neurons * network.timesteps))
    return [slice(start, min(start + size, samples)) for start in range(0, samples, size)]


def outputs_of(network: AnyNetwork, spikes: Mapping[str, Array], voltages: Mapping[str, Array]) -> Array:
    """Return the sums of what the last population sent, its spike counts; else its last voltages."""
    last = network.output
    return spikes[last.name].sum(axis=1) if sends(last.neuron) else voltages[last.name][:, -1]


def join_traces(traces: Sequence[Trace]) -> Trace:
    """Concatenate traces of consecutive samples."""

    def joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return Trace(
        spikes=joined([trace.spikes for trace in traces]),
        voltages=joined([trace.voltages for trace in traces]),
        outputs=np.concatenate([trace.outputs for trace in traces]),
        overflows=join_overflows([trace.overflows for trace in traces]),
    )


# Neurons of networks that we did not quantize: states that leave their width continue as in Lava.


def may_narrow(network: AnyNetwork, rule: Rule) -> bool:
    """Whether states may leave their width: not in networks of ours, and relays are proved not to.

    Sigma-delta neurons, which have no membrane, stop the execution instead.
    """
    foreign = isinstance(network, IntNetwork) and network.foreign
    return foreign and isinstance(rule, Membrane) and not rule.graded


class NarrowNeurons:
    """One population; `overflows` counts, per neuron, the steps of all samples in which a number changed."""

    def __init__(self, rule: Membrane, shape: Shape) -> None:
        self.rule = rule
        self.overflows: Array = np.zeros(shape, np.int64)

    def step(self, state: State, sums: Array, kept: Array, step: int) -> tuple[State, Array]:
        """Return the state after firing, and the spikes, given sums of synapses and what is kept of them."""
        rule = self.rule.at(step)
        charged = rule.integrate(state, (rule.unit * kept).astype(np.int64))
        narrowed = rule.narrow(charged)
        (current, voltage), spikes = rule.fire(narrowed)
        clipped = clipped_voltage(voltage)  # a subtraction can overflow too
        changed = (sums != kept) | (voltage != clipped)
        for before, after in zip(charged, narrowed, strict=True):
            changed |= before != after
        self.overflows += changed.sum(axis=0)
        return (current, clipped), spikes


# A one-neuron network that tests whether an executor works on this machine.


TrialRun = Callable[[IntNetwork, Array, ExecutionOptions], Trace]


def one_neuron(decay_voltage: int = 3072) -> IntNetwork:
    """Return a network of one leaky neuron: weight 2, threshold 9, inputs 0..7, two time steps."""
    neuron = Lif(threshold=np.array([9]), bias=np.array([0]), decay_voltage=decay_voltage)
    return IntNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=0, maximum=7)),
            Population(name="neuron", shape=(1,), neuron=neuron),
        ),
        connections=(Connection(source="input", target="neuron", synapse=Dense(weight=np.array([[2]]))),),
        timesteps=2,
        scales={"neuron": np.ones(1)},
    )


def check_one_neuron(name: str, run: TrialRun) -> str:
    """Compare `run` with the reference on three samples.

    The second fires in its first step (2 * 5 > 9), the third in its second step (2 * 4 + 8 // 4 > 9).
    """
    inputs = np.array([[[1], [1]], [[5], [0]], [[4], [4]]])
    expected = simulate(one_neuron(), inputs).spikes["neuron"]
    got = run(one_neuron(), inputs, ExecutionOptions()).spikes["neuron"]
    if not np.array_equal(expected, got):
        raise RuntimeError(f"{name}: spikes of a one-neuron network differ from the reference")
    return f"one neuron fired {int(got.sum())} spikes as expected"
