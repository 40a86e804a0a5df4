"""The fast simulator, in torch: whole batches at once, equal to `simulate` bit by bit.

Neurons are computed in integers, synapses in float32, which is exact on integers below 2**24. That
suffices for every network whose states are proved to stay in their 24 bits: the positive and the
negative terms of a sum are each bounded by 2**23 - 1 (they can occur alone), so no partial sum, in
whatever order it is taken, reaches 2**24.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import assert_never

from .bounds import bounds
from .errors import SimulationError
from .float_ir import FloatLif, FloatNeuron, FloatPopulation, FloatReadout, FoldedNetwork
from .graph import Connection, Conv2d, Dense, Synapse, Trace, as_steps, incoming
from .int_ir import DECAY_ONE, STATE_EXPONENT, IntNetwork, IntPopulation, Lif, Neuron, Readout
from .records import Array, record
from .simulate import check_input_values

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
    record: bool = True,
    watch: Callable[[Iterable[int], int], Iterable[int]] = lambda chunks, total: chunks,
) -> Trace:
    """Run a network on inputs [samples, timesteps, *shape], or [samples, *shape] held for all steps.

    With `record=False` the trace holds outputs only, so memory does not grow with the network.
    `watch` sees the chunks of samples go by, to show progress.
    """
    as_steps(np.asarray(inputs)[:1], network.input.shape, network.timesteps)
    if isinstance(network, IntNetwork):
        check_input_values(network, np.asarray(inputs))
    engine = _engine(network)
    starts = range(0, len(inputs), CHUNK)
    with torch.no_grad():
        traces = [_run(engine, inputs[start : start + CHUNK], record) for start in watch(starts, len(starts))]
    return _join(traces)


def _engine(network: IntNetwork | FoldedNetwork) -> _Engine:
    match network:
        case IntNetwork():
            _refuse_overflow(network)
            return _Engine(
                network=network,
                state_type=torch.int32,
                currents=_currents(network, torch.float32),
                updates={p.name: _integer_update(p.neuron) for p in network.populations[1:]},
            )
        case FoldedNetwork():
            return _Engine(
                network=network,
                state_type=torch.float64,
                currents=_currents(network, torch.float64),
                updates={p.name: _float_update(p.neuron, network.timesteps) for p in network.populations[1:]},
            )
        case _:
            assert_never(network)


def _currents(network: IntNetwork | FoldedNetwork, kind: torch.dtype) -> dict[str, tuple[_Current, ...]]:
    return {
        population.name: tuple(
            _Current(connection=c, weight=torch.tensor(c.synapse.weight).to(kind))
            for c in incoming(network.connections, population.name)
        )
        for population in network.populations[1:]
    }


def _refuse_overflow(network: IntNetwork) -> None:
    wide = [f"{name} (up to {bound.magnitude})" for name, bound in bounds(network).items() if not bound.fits]
    if wide:
        raise SimulationError(f"states could leave their 24 bits: {', '.join(wide)}; use a smaller scale.")


# ---- one chunk of samples ---------------------------------------------------------------------


def _run(engine: _Engine, inputs: Array, record: bool) -> Trace:
    network = engine.network
    populations, samples = network.populations, len(inputs)
    values = torch.from_numpy(np.array(inputs, dtype=np.float64))
    static = values.dim() == len(network.input.shape) + 1
    first = {} if not static else _input_currents(engine, values)
    history: list[dict[str, Tensor]] = []
    states = {p.name: (torch.zeros(samples, *p.shape, dtype=engine.state_type),) * 2 for p in populations[1:]}
    voltages: dict[str, list[Tensor]] = {p.name: [] for p in populations[1:]}
    for step in range(network.timesteps):
        history.append({network.input.name: values if static else values[:, step]})
        for population in populations[1:]:
            name = population.name
            total = _gather(engine, population, history, first)
            states[name], history[-1][name] = engine.updates[name](states[name], total)
            if record:
                voltages[name].append(states[name][1])
    return _trace(network, history, voltages, states, record)


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
    history: list[dict[str, Tensor]],
    first: Mapping[Connection, Tensor],
) -> Tensor:
    """The sum of all synapses into a population, in units of its state."""
    samples = len(history[-1][engine.network.input.name])
    total = torch.zeros(samples, *population.shape, dtype=engine.state_type)
    for current in engine.currents[population.name]:
        connection = current.connection
        if len(history) <= connection.delay:
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
        voltage = neuron.leak * state[1] + synapses + bias
        spikes = voltage > threshold
        return (synapses, voltage.masked_fill(spikes, 0.0)), spikes

    return fire


def _float_integrate(neuron: FloatReadout, timesteps: int) -> Update:
    bias = torch.tensor(neuron.bias)

    def integrate(state: State, synapses: Tensor) -> tuple[State, Tensor]:
        voltage = state[1] + (synapses + bias) / timesteps
        return (synapses, voltage), torch.zeros(voltage.shape, dtype=torch.bool)

    return integrate


# ---- traces -----------------------------------------------------------------------------------


def _trace(
    network: IntNetwork | FoldedNetwork,
    history: list[dict[str, Tensor]],
    voltages: Mapping[str, list[Tensor]],
    states: Mapping[str, State],
    record: bool,
) -> Trace:
    last = network.output
    if isinstance(last.neuron, (Readout, FloatReadout)):
        outputs = states[last.name][1]
    else:
        outputs = torch.stack([sent[last.name] for sent in history]).sum(0)
    names = [population.name for population in network.populations[1:]] if record else []
    return Trace(
        spikes={name: _stack([sent[name] for sent in history]) for name in names},
        voltages={name: _stack(voltages[name]) for name in names},
        outputs=outputs.to(_wide(outputs)).numpy(),
    )


def _stack(steps: list[Tensor]) -> Array:
    stacked = torch.stack(steps, dim=1)
    values: Array = stacked.to(_wide(stacked)).numpy()
    return values


def _wide(values: Tensor) -> torch.dtype:
    """Integers leave as int64, as the reference gives them."""
    return torch.int64 if values.dtype == torch.int32 else values.dtype


def _join(traces: list[Trace]) -> Trace:
    names = traces[0].spikes
    return Trace(
        spikes={name: np.concatenate([trace.spikes[name] for trace in traces]) for name in names},
        voltages={name: np.concatenate([trace.voltages[name] for trace in traces]) for name in names},
        outputs=np.concatenate([trace.outputs for trace in traces]),
    )
