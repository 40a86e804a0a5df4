"""What each Lava process of a network computes, and when. Planning needs no Lava.

Every synapse of Lava delays spikes by one time step, so a population at depth d (the input has depth 0) sees
step k of the stream at Lava's time step k + d + 1. A connection that skips layers, or has a delay, waits
another depth(target) - depth(source) - 1 + delay steps. Depths are the smallest that make no wait negative.

Samples are streamed back to back. Each population is reset when the first step of a sample reaches it, and
spikes that would arrive after the end of their sample are dropped.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, OptionError, SimulationError, did_you_mean, layer_name, record
from ...ir import (
    STATE_LIMIT,
    AnyNetwork,
    AnyNeuron,
    AnyPopulation,
    Connection,
    Decay,
    Delta,
    FloatLif,
    FloatReadout,
    FloatSoftLif,
    FloatXylo,
    FoldedNetwork,
    Input,
    Lif,
    Membrane,
    Modulator,
    Population,
    Readout,
    Relay,
    Rule,
    Shape,
    Sigma,
    SigmaDelta,
    SoftLif,
    Xylo,
    exact_float,
    is_graded,
    largest_sum,
    membrane,
    state_intervals,
    update_rule,
    value_range,
    varies,
)

LARGEST_SUM = 2**30  # Lava adds in signed 32 bits and doubles dense weights; float64 holds far larger sums
Source = Population[Input | AnyNeuron]


@record
class Arrival:
    """One connection into a population: spikes of port `port`, delayed by `wait` steps.

    Spikes of the last `delay` steps of a sample would arrive in the next sample, and are dropped.
    """

    connection: Connection
    source: Source
    source_depth: int
    port: int
    wait: int
    kind: type[np.floating[Any]]  # a float type that is exact on all its sums


@record
class Plan:
    """What the process of one population computes.

    `lanes` is empty, or holds the number of samples that run in parallel. `proven` says whether it is proved
    that no input can overflow the 24-bit state, or whether the neurons check that in every step.
    """

    population: AnyPopulation
    depth: int
    timesteps: int
    sources: tuple[Source, ...]
    arrivals: tuple[Arrival, ...]
    lanes: Shape
    proven: bool
    spike_tape: Tape | None
    voltage_tape: Tape | None

    @property
    def rule(self) -> Rule:
        return update_rule(self.population.neuron, self.timesteps)

    @property
    def membrane(self) -> Membrane:
        return membrane(self.population.neuron, self.timesteps)

    @property
    def lowest_exponent(self) -> int:
        """The lowest weight exponent of all synapses, which is the unit of Lava's fixed-point currents.

        Relays and sigma-delta neurons take sums without a shift, so theirs is zero.
        """
        if isinstance(self.rule, Modulator) or self.rule.graded:
            return 0
        return min(arrival.connection.synapse.exponent for arrival in self.arrivals)

    @property
    def exponents(self) -> tuple[int, int]:
        """The exponents of messages and of the state of sigma-delta neurons; zeros for others."""
        match neuron := self.population.neuron:
            case Delta() | SigmaDelta():
                return neuron.message_exponent, neuron.state_exponent
            case Lif() | SoftLif() | Readout() | Relay() | Sigma():
                return 0, 0
            case FloatLif() | FloatSoftLif() | FloatReadout() | Xylo() | FloatXylo():
                return 0, 0
            case _:
                assert_never(neuron)

    def resets_at(self, time_step: int) -> bool:
        return (time_step - self.depth - 1) % self.timesteps == 0

    def write_tapes(self, time_step: int, spikes: Array, voltages: Array) -> None:
        self.write_spikes(time_step, spikes)
        self.write_voltages(time_step, voltages)

    def write_spikes(self, time_step: int, spikes: Array) -> None:
        if self.spike_tape is not None:
            self.spike_tape.write(time_step, spikes)

    def write_voltages(self, time_step: int, voltages: Array) -> None:
        if self.voltage_tape is not None:
            self.voltage_tape.write(time_step, voltages)


def plan_layer(
    network: AnyNetwork,
    population: AnyPopulation,
    depths: Mapping[str, int],
    lanes: Shape,
    probes: tuple[Tape | None, Tape | None],
) -> Plan:
    """Plan one population; `probes` are the tapes of its spikes and of its voltages."""
    named: dict[str, Source] = {p.name: p for p in network.populations}
    entering = network.entering(population.name)
    sources = list(dict.fromkeys(connection.source for connection in entering))
    depth = depths[population.name]
    real = isinstance(network, FoldedNetwork)
    sums = [largest_sum(connection, named[connection.source]) for connection in entering]
    return Plan(
        population=population,
        depth=depth,
        timesteps=network.timesteps,
        sources=tuple(named[source] for source in sources),
        arrivals=tuple(
            Arrival(
                connection=connection,
                source=named[connection.source],
                source_depth=depths[connection.source],
                port=sources.index(connection.source),
                wait=depth - depths[connection.source] - 1 + connection.delay,
                kind=np.float64 if real else exact_float(total),
            )
            for connection, total in zip(entering, sums, strict=True)
        ),
        lanes=lanes,
        proven=real or _proven(network, population, entering, sums),
        spike_tape=probes[0],
        voltage_tape=probes[1],
    )


def _proven(
    network: AnyNetwork, population: AnyPopulation, entering: Sequence[Connection], sums: Sequence[float]
) -> bool:
    """Return whether it is proved that no sum and no state of an integer population overflows 24 bits.

    The sum of all |weight * input|, |bias| and |subtrahend| is usually small enough; if not, use
    `state_intervals`.
    """
    rule = update_rule(population.neuron, network.timesteps)
    if isinstance(rule, Modulator):
        return True
    lowest = min(connection.synapse.exponent for connection in entering)
    shifted = [total * 2.0 ** (c.synapse.exponent - lowest) for c, total in zip(entering, sums, strict=True)]
    for connection, total in zip(entering, shifted, strict=True):
        if total >= LARGEST_SUM:
            raise SimulationError(
                f"{connection.label}: sums of up to {total:.3g}; Lava adds in 32 bits, which are exact below "
                f"{LARGEST_SUM}. Quantize with a smaller scale."
            )
    if rule.graded:  # `IntNetwork` has checked it
        return True
    if max(shifted) > STATE_LIMIT and not rule.per_step:
        return False
    current = sum(shifted) * rule.unit * 2.0**lowest * _accumulated(rule.decay_current, network.timesteps)
    constant = sum(float(np.abs(v).max()) for v in (rule.bias, rule.subtrahend) if v is not None)
    if (current + constant) * _accumulated(rule.decay_voltage, network.timesteps) <= STATE_LIMIT:
        return True
    intervals = state_intervals(network, population)
    fits = max(float(np.abs(side).max()) for interval in intervals for side in interval) <= STATE_LIMIT
    if rule.per_step and not fits:
        raise SimulationError(
            f"{layer_name(population.name)}: numbers that depend on the time step, and states that could "
            "overflow; Lava's arithmetic has none such. Quantize with --overflow proved, or use the emulator."
        )
    return fits


def _accumulated(decay: Decay, timesteps: int) -> float:
    """Return the sum of kept**k over the time steps k: the state reached by an input of 1 per step."""
    return float(np.sum(np.max(decay.kept) ** np.arange(timesteps)))


def fed_populations(network: AnyNetwork, alone: str | None) -> tuple[Source, ...]:
    """Return the populations that are fed: the input, or the sources of the one that runs alone."""
    if alone is None:
        return (network.input,)
    names = dict.fromkeys(connection.source for connection in network.entering(alone))
    return tuple(population for population in network.populations if population.name in names)


def pipeline_depths(network: AnyNetwork, alone: str | None = None) -> dict[str, int]:
    """Return the smallest depths with depth(target) >= depth(source) + 1 - delay for every connection.

    If a population runs alone, its sources are fed as if they were inputs.
    """
    found = dict.fromkeys((population.name for population in network.populations), 0)
    if alone is not None:
        return {**found, alone: max(max(0, 1 - c.delay) for c in network.entering(alone))}
    for _ in network.populations:
        late = [c for c in network.connections if found[c.target] < found[c.source] + 1 - c.delay]
        if not late:
            return found
        for connection in late:
            found[connection.target] = max(
                found[connection.target], found[connection.source] + 1 - connection.delay
            )
    raise SimulationError(
        f"{late[0].label}: closes a loop with more connections than steps of delay; every connection "
        "takes one step in Lava, so it cannot run this loop. Use the emulator."
    )


def probed_names(network: AnyNetwork, probe: Iterable[str] | None) -> list[str]:
    """Return the names of populations to probe; by default all but the input."""
    names = [population.name for population in network.layers]
    if probe is None:
        return names
    wanted = [probe] if isinstance(probe, str) else list(probe)
    for name in wanted:
        if name not in names:
            raise OptionError(f"no population named {name!r} to probe. {did_you_mean(name, names)}")
    return [name for name in names if name in wanted]


def stock_obstacle(network: AnyNetwork) -> str | None:
    """Return a feature of the network that Lava's own process models do not have; None if there is none."""
    for population in network.layers:
        if varies(population.neuron):
            return f"{population.name}: numbers that depend on the time step; those of Lava's own LIF do not"
        match neuron := population.neuron:
            case SoftLif() | FloatSoftLif():
                return f"{population.name}: neurons with a soft reset; Lava's own LIF resets to zero"
            case Xylo() | FloatXylo():
                return f"{population.name}: neurons of Xylo; Lava has none"
            case Lif() | Readout() | Relay() | FloatLif() | FloatReadout():
                pass
            case Delta() | SigmaDelta() | Sigma():
                pass
            case _:
                assert_never(neuron)
    return None


def message_bits(source: Source) -> int:
    """Return the bits of a graded spike; 0 for a binary one."""
    if not is_graded(source.neuron):
        return 0
    return max(1, max(map(abs, value_range(source.neuron))).bit_length())


def lava_shape(shape: Shape) -> Shape:
    """Return a shape in Lava's axes: (x, y, channel)."""
    return shape[::-1]


def to_lava(values: Array, shape: Shape) -> Array:
    """Return one value per neuron, in Lava's axes."""
    return np.broadcast_to(values, shape).T.copy()


# Tapes: memory shared with Lava's processes, one row per time step.
#
# Lava moves variables between processes one number at a time, which takes minutes for a trace. A tape is
# mapped before Lava's processes are forked, so they inherit it. It has no name and no file, so the operating
# system frees it when the last process exits, even after a crash.


class Tape:
    """A ring of rows: Lava's time step t uses row (t - 1) mod rows."""

    def __init__(self, rows: int, shape: Shape, kind: Any) -> None:
        size = rows * prod(shape) * np.dtype(kind).itemsize
        self.values: Array = np.frombuffer(mmap.mmap(-1, size), kind).reshape(rows, *shape)

    def __len__(self) -> int:
        return len(self.values)

    def write(self, time_step: int, values: Array) -> None:
        self.values[(time_step - 1) % len(self)] = values

    def read(self, time_step: int) -> Array:
        row: Array = self.values[(time_step - 1) % len(self)]
        return row

    def rows(self, done: int, count: int) -> Array:
        """Return the rows of the `count` time steps after the first `done`; count <= len(self)."""
        return (done + np.arange(count)) % len(self)
