"""The fast simulator, in torch: whole batches at once; integers equal those of `simulate` bit by bit.

Neurons are computed in integers. Synapses are computed in float32, which is exact on integers as
long as no partial sum, in whatever order it is taken, reaches 2**24: that is checked for every
connection, and float64 is taken where it is not so. Convolutions must be sums of products and
nothing cleverer, so torch's NNPACK, which would transform them, is switched off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from math import gcd

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import assert_never

from .bounds import bounds, value_range
from .errors import SimulationError
from .float_ir import FloatLif, FloatNeuron, FloatPopulation, FloatReadout, FoldedNetwork
from .graph import Connection, Conv2d, Dense, Synapse, Trace, as_steps, incoming
from .int_ir import DECAY_ONE, STATE_EXPONENT, IntNetwork, IntPopulation, Lif, Neuron, Readout
from .records import Array, record
from .simulate import check_input_values

EXACT_FLOAT32, EXACT_FLOAT64 = 2**24, 2**53  # below these, floats hold every integer
CHUNK = 128  # samples computed at once; bounds the memory whatever the number of samples

State = tuple[Tensor, Tensor]
Update = Callable[[State, Tensor], tuple[State, Tensor]]
Synapses = Mapping[str, tuple["_Current", ...]]


@record
class _Current:
    """One connection, ready to compute."""

    connection: Connection
    weight: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        return _apply(self.connection.synapse, self.weight, values.to(self.weight.dtype))


@record
class _Engine:
    """What is common to integer and float networks: the order of events within a time step."""

    network: IntNetwork | FoldedNetwork
    state_type: torch.dtype
    currents: Synapses
    updates: Mapping[str, Update]


def emulate(
    network: IntNetwork | FoldedNetwork,
    inputs: Array,
    *,
    keep_trace: bool = True,
    watch: Callable[[Iterable[int], int], Iterable[int]] = lambda chunks, total: chunks,
) -> Trace:
    """Run a network on inputs [samples, timesteps, *shape], or [samples, *shape] held for all steps.

    With `keep_trace=False` the trace holds outputs only, and the steps of a chunk are forgotten as they pass.
    `watch` sees the chunks of samples go by, to show progress.
    """
    as_steps(np.asarray(inputs)[:1], network.input.shape, network.timesteps)
    if isinstance(network, IntNetwork):
        check_input_values(network, np.asarray(inputs))
    engine = _engine(network)
    starts = range(0, len(inputs), CHUNK)
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        chunks = watch(starts, len(starts))
        traces = [_run(engine, inputs[start : start + CHUNK], keep_trace) for start in chunks]
    return _join(traces)


def _engine(network: IntNetwork | FoldedNetwork) -> _Engine:
    match network:
        case IntNetwork():
            _refuse_overflow(network)
            return _Engine(
                network=network,
                state_type=torch.int32,
                currents=_currents(network, lambda connection: _sufficient_type(network, connection)),
                updates={p.name: _integer_update(p.neuron) for p in network.populations[1:]},
            )
        case FoldedNetwork():
            return _Engine(
                network=network,
                state_type=torch.float64,
                currents=_currents(network, lambda connection: torch.float64),
                updates={p.name: _float_update(p.neuron, network.timesteps) for p in network.populations[1:]},
            )
        case _:
            assert_never(network)


def _currents(
    network: IntNetwork | FoldedNetwork, kind: Callable[[Connection], torch.dtype]
) -> dict[str, tuple[_Current, ...]]:
    return {
        population.name: tuple(
            _Current(connection=c, weight=torch.tensor(c.synapse.weight).to(kind(c)))
            for c in incoming(network.connections, population.name)
        )
        for population in network.populations[1:]
    }


def _sufficient_type(network: IntNetwork, connection: Connection) -> torch.dtype:
    """float32 where the sum of all |weight * input| of a neuron stays below 2**24, else float64."""
    source = next(p for p in network.populations if p.name == connection.source)
    largest_input = max(map(abs, value_range(source.neuron)))
    weight = np.abs(connection.synapse.weight.astype(np.float64))
    largest = weight.reshape(len(weight), -1).sum(axis=1).max() * largest_input
    if largest >= EXACT_FLOAT64:
        raise SimulationError(f"{connection.label}: sums of up to {largest:.3g} are too large to be exact.")
    return torch.float32 if largest < EXACT_FLOAT32 else torch.float64


def _refuse_overflow(network: IntNetwork) -> None:
    wide = [f"{name} (up to {bound.magnitude})" for name, bound in bounds(network).items() if not bound.fits]
    if wide:
        raise SimulationError(f"states could leave their 24 bits: {', '.join(wide)}; use a smaller scale.")


# ---- one chunk of samples ---------------------------------------------------------------------


def _run(engine: _Engine, inputs: Array, keep_trace: bool) -> Trace:
    network = engine.network
    populations, samples = network.populations, len(inputs)
    values = torch.from_numpy(np.array(inputs, dtype=np.float64))
    static = values.dim() == len(network.input.shape) + 1
    first = _input_currents(engine, values) if static else {}
    longest = max(connection.delay for connection in network.connections)
    history: deque[dict[str, Tensor]] = deque(maxlen=longest + 1)  # what was sent, the latest last
    states = {p.name: (torch.zeros(samples, *p.shape, dtype=engine.state_type),) * 2 for p in populations[1:]}
    tape = _Tape(keep_trace=keep_trace)
    for step in range(network.timesteps):
        history.append({network.input.name: values if static else values[:, step]})
        for population in populations[1:]:
            name = population.name
            total = _gather(engine, population, history, step, first)
            states[name], history[-1][name] = engine.updates[name](states[name], total)
        tape.add(history[-1], states, network.output.name)
    return tape.trace(network)


def _input_currents(engine: _Engine, values: Tensor) -> dict[Connection, Tensor]:
    """What a picture that stands still sends; computed once for all time steps."""
    source = engine.network.input.name
    return {
        current.connection: current(values)
        for currents in engine.currents.values()
        for current in currents
        if current.connection.source == source
    }


def _gather(
    engine: _Engine,
    population: IntPopulation | FloatPopulation,
    history: deque[dict[str, Tensor]],
    step: int,
    first: Mapping[Connection, Tensor],
) -> Tensor:
    """The sum of all synapses into a population, in units of its state."""
    samples = len(history[-1][engine.network.input.name])
    total = torch.zeros(samples, *population.shape, dtype=engine.state_type)
    for current in engine.currents[population.name]:
        connection = current.connection
        if step < connection.delay:
            continue
        sent = history[-1 - connection.delay][connection.source]
        arriving = first[connection] if connection in first else current(sent)
        total += _to_state(arriving.reshape(total.shape), connection.synapse, engine.state_type)
    return total


def _to_state(values: Tensor, synapse: Synapse, state_type: torch.dtype) -> Tensor:
    if state_type.is_floating_point:
        return values * 2.0**synapse.exponent
    return (values * 2.0 ** (STATE_EXPONENT + synapse.exponent)).round().to(state_type)


def _apply(synapse: Synapse, weight: Tensor, values: Tensor) -> Tensor:
    match synapse:
        case Dense():
            return functional.linear(values.flatten(1), weight)
        case Conv2d(stride=stride, padding=padding, dilation=dilation, groups=groups):
            return functional.conv2d(values, weight, None, stride, padding, dilation, groups)
        case _:
            assert_never(synapse)


# ---- neurons ----------------------------------------------------------------------------------


def _integer_update(neuron: Neuron) -> Update:
    match neuron:
        case Lif():
            return _integer_fire(neuron)
        case Readout():
            return _integer_integrate(neuron)
        case _:
            raise TypeError("an input is not updated")


def _integer_fire(neuron: Lif) -> Update:
    bias = _state_units(neuron.bias, neuron.bias_exponent)
    threshold = _state_units(neuron.threshold, STATE_EXPONENT)

    def fire(state: State, synapses: Tensor) -> tuple[State, Tensor]:
        current = _decay(state[0], neuron.decay_current) + synapses
        voltage = _decay(state[1], neuron.decay_voltage) + current + bias
        spikes = voltage > threshold
        return (current, voltage.masked_fill(spikes, 0)), spikes

    return fire


def _integer_integrate(neuron: Readout) -> Update:
    bias = _state_units(neuron.bias, neuron.bias_exponent)

    def integrate(state: State, synapses: Tensor) -> tuple[State, Tensor]:
        voltage = state[1] + synapses + bias
        return (synapses, voltage), torch.zeros(voltage.shape, dtype=torch.bool)

    return integrate


def _state_units(values: Array, exponent: int) -> Tensor:
    return torch.tensor(values.astype(np.int64) << exponent, dtype=torch.int32)


def _decay(state: Tensor, amount: int) -> Tensor:
    """trunc(state * (4096 - amount) / 4096), toward zero; the fraction is reduced to stay in 32 bits"""
    if amount == DECAY_ONE:
        return torch.zeros_like(state)
    divisor = gcd(DECAY_ONE - amount, DECAY_ONE)
    factor, divisor = (DECAY_ONE - amount) // divisor, DECAY_ONE // divisor
    wide = state if factor < 2**8 else state.to(torch.int64)
    return torch.div(wide * factor, divisor, rounding_mode="trunc").to(state.dtype)


def _float_update(neuron: FloatNeuron, timesteps: int) -> Update:
    match neuron:
        case FloatLif():
            return _float_fire(neuron)
        case FloatReadout():
            return _float_integrate(neuron, timesteps)
        case _:
            raise TypeError("an input is not updated")


def _float_fire(neuron: FloatLif) -> Update:
    bias, threshold = torch.tensor(neuron.bias), torch.tensor(neuron.threshold)

    def fire(state: State, synapses: Tensor) -> tuple[State, Tensor]:
        current = neuron.current_leak * state[0] + synapses
        voltage = neuron.leak * state[1] + current + bias
        spikes = voltage > threshold
        return (current, voltage.masked_fill(spikes, 0.0)), spikes

    return fire


def _float_integrate(neuron: FloatReadout, timesteps: int) -> Update:
    bias = torch.tensor(neuron.bias)

    def integrate(state: State, synapses: Tensor) -> tuple[State, Tensor]:
        voltage = state[1] + (synapses + bias) / timesteps
        return (synapses, voltage), torch.zeros(voltage.shape, dtype=torch.bool)

    return integrate


# ---- traces -----------------------------------------------------------------------------------


class _Tape:
    """What a chunk did, step by step; only its outputs unless the trace is kept."""

    def __init__(self, *, keep_trace: bool) -> None:
        self.keep_trace = keep_trace
        self.spikes: dict[str, list[Tensor]] = {}
        self.voltages: dict[str, list[Tensor]] = {}
        self.last_voltage = self.spike_count = torch.zeros(())

    def add(self, sent: Mapping[str, Tensor], states: Mapping[str, State], output: str) -> None:
        self.last_voltage, self.spike_count = states[output][1], self.spike_count + sent[output]
        if self.keep_trace:
            for name, (_, voltage) in states.items():
                self.spikes.setdefault(name, []).append(sent[name])
                self.voltages.setdefault(name, []).append(voltage)

    def trace(self, network: IntNetwork | FoldedNetwork) -> Trace:
        silent = isinstance(network.output.neuron, (Readout, FloatReadout))
        outputs = self.last_voltage if silent else self.spike_count.to(torch.int32)
        return Trace(
            spikes={name: _array(torch.stack(steps, dim=1)) for name, steps in self.spikes.items()},
            voltages={name: _array(torch.stack(steps, dim=1)) for name, steps in self.voltages.items()},
            outputs=_array(outputs),
        )


def _array(values: Tensor) -> Array:
    """Integers leave as int64, as the reference gives them."""
    wide: Array = (values.to(torch.int64) if values.dtype == torch.int32 else values).numpy()
    return wide


def _join(traces: list[Trace]) -> Trace:
    names = traces[0].spikes
    return Trace(
        spikes={name: np.concatenate([trace.spikes[name] for trace in traces]) for name in names},
        voltages={name: np.concatenate([trace.voltages[name] for trace in traces]) for name in names},
        outputs=np.concatenate([trace.outputs for trace in traces]),
    )
