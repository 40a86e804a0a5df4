"""Run a network in Lava's CPU simulator: once (`run`), or compiled to run many times (`Session`).

A session is one continuous stream of samples, and each run appends to it. Between two runs, zeros are fed
until the last sample has passed the deepest population, rounded up to a whole sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import metadata
from math import prod, sqrt
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base import (
    HANG_SECONDS,
    Array,
    OptionError,
    Progress,
    SimulationError,
    no_progress,
    record,
    temporary_folder,
)
from ...formats.netx import stock_reader_obstacle, write_netx
from ...ir import (
    AnyNetwork,
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    Shape,
    Trace,
    as_steps,
    check_input_values,
)
from .. import lava
from ..reference import ExecutionOptions, check_one_neuron, outputs_of
from .compat import load_lava, load_stock, quiet
from .plans import Tape, pipeline_depths, probed_names, stock_obstacle

if TYPE_CHECKING:
    from .graph import LavaGraph


MOST_LANES = 64  # samples run in parallel
TYPICAL_RUN = 64  # samples of a run, if unknown
STEP_SECONDS = 2e-4  # overhead of Lava per process and time step
PRODUCTS_PER_SECOND = 2e10  # multiply-accumulates on a busy processor
LANE_BYTES = 2**29  # memory limit for the states of all lanes
BYTES_PER_NEURON = 16  # state, synaptic current, and messages in flight
BLOCKS = 100  # of a run; progress is shown after each
SMALLEST_BLOCK = 8  # time steps


def run(
    network: AnyNetwork,
    inputs: Array,
    *,
    probe: Iterable[str] | None = None,
    lanes: int | None = None,
    stock: bool = False,
    patience: float = HANG_SECONDS,
    progress: Progress = no_progress,
) -> Trace:
    """Run a network in Lava's simulator; inputs as for `simulate`, options as for `Session`.

    An IntNetwork runs in fixed-point models, a FoldedNetwork in floating-point models.
    """
    steps = checked_steps(network, inputs)  # before any process is started
    if lanes is None and not stock:
        lanes = best_lanes(network, len(steps))
    with Session(network, probe=probe, lanes=lanes, stock=stock, patience=patience) as session:
        return session.run(steps, progress=progress)


@contextmanager
def opened(
    network: AnyNetwork, samples: int, options: ExecutionOptions, *, stock: bool = False
) -> Iterator[Callable[[Array], Trace]]:
    """Start Lava once, to run on several parts of the samples, so many at once."""
    probe = None if options.keep_trace else ()
    lanes = None if stock else best_lanes(network, samples)
    with Session(network, probe=probe, lanes=lanes, stock=stock, patience=options.patience) as session:
        yield partial(session.run, progress=options.progress)


class Session:
    """`with Session(network) as session: session.run(inputs)`, any number of times.

    `probe` names the populations whose spikes and voltages the trace holds (default: all). `lanes` is the
    number of samples that run in parallel. With `stock`, Lava's own process models run instead of ours, one
    sample at a time. With `alone`, only this population runs, by `replay`. `patience` is the time limit, in
    seconds, for a block of time steps; exceeding it ends the session.
    """

    def __init__(
        self,
        network: AnyNetwork,
        *,
        probe: Iterable[str] | None = None,
        lanes: int | None = None,
        stock: bool = False,
        alone: str | None = None,
        patience: float = HANG_SECONDS,
    ) -> None:
        if lanes is not None and (stock or lanes < 1):
            raise OptionError(
                f"lanes={lanes}; give at least 1, and leave it out with stock=True, which has no lanes."
            )
        if stock and (obstacle := stock_obstacle(network)) is not None:
            raise SimulationError(f"{obstacle}. Run our process models, without stock.")
        self.network = network
        self.probed = probed_names(network, probe if alone is None else alone)
        self.alone = alone
        self.depths = pipeline_depths(network, alone)
        self.lanes = None if stock else lanes or best_lanes(network, TYPICAL_RUN)
        self.patience = patience
        self.done = 0  # time steps
        self._graph: LavaGraph | None = None
        self._started = ExitStack()

    def __enter__(self) -> Session:
        load_stock() if self.lanes is None else load_lava()
        from .graph import build, started

        with quiet():
            graph = build(self.network, self.probed, self.lanes, self.alone)
        self._started.enter_context(started(graph.source, graph.configuration))
        self._graph = graph
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._graph = None
        self._started.__exit__(kind, error, traceback)

    def run(self, inputs: Array, *, progress: Progress = no_progress) -> Trace:
        """Stream samples through the network; inputs as for `simulate`.

        `progress` counts blocks of time steps.
        """
        steps = checked_steps(self.network, inputs)
        streams = self._stream({self.network.input.name: steps}, progress)
        return Trace(
            spikes=streams.probed(streams.spikes),
            voltages=streams.probed(streams.voltages),
            outputs=outputs_of(
                self.network, streams.by_sample(streams.spikes), streams.by_sample(streams.voltages)
            ),
        )

    def replay(self, recorded: Mapping[str, Array], *, progress: Progress = no_progress) -> Replay:
        """Run the population that is `alone` on recorded spikes of its sources, [samples, steps, *shape]."""
        assert self.alone is not None
        streams = self._stream(recorded, progress)
        (spikes,), (voltages,) = (
            streams.probed(values).values() for values in (streams.spikes, streams.voltages)
        )
        return Replay(spikes=spikes, voltages=voltages)

    def _stream(self, fed: Mapping[str, Array], progress: Progress) -> Streams:
        if self._graph is None:
            raise SimulationError(
                "the session is not running; use it as `with Session(network) as session:`."
            )
        streams = Streams(self.network, self._graph, self.depths, fed, self.lanes or 1)
        try:
            self._run(self._graph, streams, progress)
        except BaseException:
            self._graph = None  # Lava's processes are in an unknown state after an interrupted run
            raise
        return streams

    def _run(self, graph: LavaGraph, streams: Streams, progress: Progress) -> None:
        from .graph import run_steps

        tape = next(iter(graph.input_tapes.values()))
        size = min(len(tape), max(SMALLEST_BLOCK, -(-streams.total // BLOCKS)))
        for start in progress(range(0, streams.total, size)):
            count = min(size, streams.total - start)
            rows = tape.rows(self.done, count)
            streams.feed(start, rows)
            run_steps(graph.source, count, self.patience)
            self.done += count
            streams.collect(start, rows)


@record
class Replay:
    """What one population did, [samples, timesteps, *shape]."""

    spikes: Array
    voltages: Array


def checked_steps(network: AnyNetwork, inputs: Array) -> Array:
    """Return inputs as [samples, timesteps, *shape]; raise if shape or values do not suit the network."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    check_input_values(network, np.asarray(inputs))
    return steps


class Streams:
    """The samples of a run as one stream per lane, and the traces collected from them.

    With n samples per lane, lane l is fed samples l * n to l * n + n - 1, and zeros when samples run out.
    """

    def __init__(
        self,
        network: AnyNetwork,
        graph: LavaGraph,
        depths: Mapping[str, int],
        fed: Mapping[str, Array],
        lanes: int,
    ) -> None:
        self.network, self.graph, self.depths, self.fed, self.lanes = network, graph, depths, fed, lanes
        (self.samples,) = {len(steps) for steps in fed.values()}
        self.per_lane = -(-self.samples // lanes)
        self.length = self.per_lane * network.timesteps
        # The last sample must pass the deepest population, and the next run must start in phase.
        deepest = max(depths.values())
        self.total = -(-(self.length + deepest) // network.timesteps) * network.timesteps
        wide = np.int64 if isinstance(network, IntNetwork) else np.float64
        self.spikes = {name: self._empty(tape, tape.values.dtype) for name, tape in graph.spike_tapes.items()}
        self.voltages = {name: self._empty(tape, wide) for name, tape in graph.voltage_tapes.items()}

    def _empty(self, tape: Tape, kind: Any) -> Array:
        return np.zeros((self.lanes, self.length, *self._neurons(tape)), kind)

    def _neurons(self, tape: Tape) -> Shape:
        """Return the shape of a row of a tape, without lanes."""
        return tape.values.shape[1:] if self.graph.lanes is None else tape.values.shape[2:]

    def feed(self, start: int, rows: Array) -> None:
        """Write the streams, from step `start` on, to rows of the input tapes."""
        for name, tape in self.graph.input_tapes.items():
            for step, row in enumerate(rows, start=start - self.depths[name]):
                tape.values[row] = 0
                if 0 <= step < self.length:
                    self._feed_step(tape, self.fed[name], step, row)

    def _feed_step(self, tape: Tape, steps: Array, step: int, row: int) -> None:
        sample, time_step = divmod(step, self.network.timesteps)
        chosen = np.arange(self.lanes) * self.per_lane + sample
        present = chosen < self.samples
        values = steps[chosen[present], time_step]
        fed = values.transpose(0, *range(values.ndim - 1, 0, -1))
        tape.values[row].reshape(self.lanes, *self._neurons(tape))[present] = fed

    def collect(self, start: int, rows: Array) -> None:
        """Read the traces of the stream, from step `start` on, from rows of the tapes."""
        for streams, tapes in (
            (self.spikes, self.graph.spike_tapes),
            (self.voltages, self.graph.voltage_tapes),
        ):
            for name, tape in tapes.items():
                first = start - self.depths[name]
                steps = np.arange(first, first + len(rows))
                inside = (steps >= 0) & (steps < self.length)
                if inside.any():
                    values = tape.values[rows[inside]].reshape(-1, self.lanes, *self._neurons(tape))
                    streams[name][:, steps[inside][0] : steps[inside][-1] + 1] = values.swapaxes(0, 1)

    def probed(self, streams: Mapping[str, Array]) -> dict[str, Array]:
        """Return the streams of probed populations as [samples, timesteps, *our axes]."""
        return {name: values for name, values in self.by_sample(streams).items() if name in self.graph.probed}

    def by_sample(self, streams: Mapping[str, Array]) -> dict[str, Array]:
        return {name: self._sample_axes(stream) for name, stream in streams.items()}

    def _sample_axes(self, stream: Array) -> Array:
        """[lanes, steps, *Lava's axes] as [samples, timesteps, *our axes]"""
        samples = self.lanes * self.per_lane
        values = stream.reshape(samples, self.network.timesteps, *stream.shape[2:])[: self.samples]
        return values.transpose(0, 1, *range(values.ndim - 1, 1, -1))


def best_lanes(network: AnyNetwork, samples: int) -> int:
    """Return the number of samples to run in parallel.

    n samples of T steps through d layers take (n T / l + d) * (overhead + l * products) seconds in l lanes:
    many lanes share the overhead of a time step, few lanes waste less while the pipeline fills and drains.
    The minimum is at l = sqrt(n T * overhead / (d * products)), within a limit on memory.
    """
    depth = max(pipeline_depths(network).values())
    seconds = sum(products(network, c) for c in network.connections) / PRODUCTS_PER_SECOND
    overhead = STEP_SECONDS * len(network.populations)
    best = sqrt(samples * network.timesteps * overhead / (depth * seconds))
    neurons = sum(population.size for population in network.populations)
    most = min(MOST_LANES, samples, LANE_BYTES // (neurons * BYTES_PER_NEURON))
    return max(1, min(round(best), most))


def products(network: AnyNetwork, connection: Connection) -> int:
    """Return the multiply-accumulates of a connection in one time step."""
    synapse = connection.synapse
    if isinstance(synapse, Dense):
        return synapse.weight.size
    return synapse.weight.size * prod(network.layer(connection.target).shape[1:])


# How much of a verification Lava's own process models can do in a given time.
#
# They take about a thousand times longer than ours: a convolution calls SciPy for each pair of an input and
# an output channel. Run as a whole, n samples of T steps take n T + depth steps of every population, because
# samples pass the populations one after the other; alone, a population that is fed recorded spikes takes n T
# + 1 steps, but Lava must be started for each. lava-dl's reader builds Lava's own processes from a file, and
# only as a whole.
#
# The estimate counts work, not the seconds of this machine, so that a verification that is repeated elsewhere
# compares as much.


START_SECONDS = 1.5  # to start Lava's processes, and to stop them
PROCESS_SECONDS = 1.5e-3  # of a population in a time step, whatever its size
STOCK_PRODUCTS_PER_SECOND = 1.3e8  # of Lava's own synapses
PAIR_SECONDS = 9e-6  # of a call for a pair of channels, besides its products
READER_SHARE = 0.25  # of the budget, for lava-dl's reader


@record
class BudgetShare:
    """What fits the budget: some samples, of the whole network or of populations that run alone."""

    samples: int
    alone: tuple[str, ...] = ()


def stock_share(network: IntNetwork, samples: int, seconds: float) -> BudgetShare:
    """Return the most samples, at most `samples`, that Lava's own models run in about so many seconds.

    If not even one sample of all populations fits, it is one sample of the cheapest ones.
    """
    steps = _step_seconds(network)
    whole = sum(steps.values())
    depth = max(pipeline_depths(network).values())
    together = (seconds - START_SECONDS - depth * whole) / (network.timesteps * whole)
    one_by_one = (seconds - START_SECONDS * len(steps) - whole) / (network.timesteps * whole)
    if together >= min(samples, one_by_one) and together >= 1:
        return BudgetShare(samples=min(samples, int(together)))
    if one_by_one >= 1:
        return BudgetShare(samples=min(samples, int(one_by_one)), alone=tuple(steps))
    alone, left = set(), seconds
    for name in sorted(steps, key=steps.__getitem__):
        left -= START_SECONDS + (network.timesteps + 1) * steps[name]
        alone |= {name} if left >= 0 else set()
    return BudgetShare(samples=min(1, len(alone)), alone=tuple(name for name in steps if name in alone))


def reader_samples(network: IntNetwork, samples: int, seconds: float) -> int:
    """Return how many samples, at most `samples`, lava-dl's reader runs in its share of so many seconds."""
    whole = sum(_step_seconds(network).values())
    left = READER_SHARE * seconds - START_SECONDS - (len(network.layers) + 1) * whole
    return max(0, min(samples, int(left / (network.timesteps * whole))))


def _step_seconds(network: IntNetwork) -> Mapping[str, float]:
    """Return the seconds of a time step of each population."""
    return {
        population.name: PROCESS_SECONDS
        + sum(_synapse_seconds(network, connection) for connection in network.entering(population.name))
        for population in network.layers
    }


def _synapse_seconds(network: IntNetwork, connection: Connection) -> float:
    synapse = connection.synapse
    seconds = products(network, connection) / STOCK_PRODUCTS_PER_SECOND
    if isinstance(synapse, Conv2d):  # strides are applied after all products
        seconds *= prod(synapse.stride)
        seconds += prod(synapse.weight.shape[:2]) * PAIR_SECONDS
    return seconds


# Executors that run in Lava: our process models, Lava's own models, and lava-dl's reader of network.net.
#
# `run_alone` runs one population in Lava's own models, fed with recorded spikes of its sources.


@record
class InLava:
    """Lava's simulator, with our process models or with Lava's own, one sample at a time."""

    stock: bool

    def obstacle(self, network: IntNetwork) -> str | None:
        return lava.stock_obstacle(network) if self.stock else None

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        probe, patience = None if options.keep_trace else (), options.patience
        return lava.run(
            network, inputs, probe=probe, stock=self.stock, patience=patience, progress=options.progress
        )

    def opened(
        self, network: IntNetwork, samples: int, options: ExecutionOptions
    ) -> AbstractContextManager[Callable[[Array], Trace]]:
        return lava.opened(network, samples, options, stock=self.stock)

    def check(self) -> str:
        return f"{metadata.version('lava-nc')}, {check_one_neuron('Lava', self.run)}"


class InReader:
    """The file network.net in lava-dl's own reader; the trace has no voltages."""

    def obstacle(self, network: IntNetwork) -> str | None:
        return stock_reader_obstacle(network)

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        with _file(network, options.netx) as path:
            return lava.run_stock_netx(
                path, network, inputs, patience=options.patience, progress=options.progress
            )

    def check(self) -> str:
        reader = lava.load_netx().Network
        return f"{metadata.version('lava-dl')}, {reader.__module__}.{reader.__name__}"


OURS, STOCK, NETX = InLava(stock=False), InLava(stock=True), InReader()


def run_alone(
    network: IntNetwork, name: str, recorded: Mapping[str, Array], options: ExecutionOptions
) -> lava.Replay:
    """Run one population on recorded spikes of its sources, [samples, timesteps, *shape]."""
    with lava.Session(network, alone=name, stock=True, patience=options.patience) as session:
        return session.replay(recorded, progress=options.progress)


@contextmanager
def _file(network: IntNetwork, given: Path | bytes | None) -> Iterator[Path]:
    """Yield the given path, or a temporary file with the given content or the network."""
    if isinstance(given, Path):
        yield given
        return
    with temporary_folder() as folder:
        path = Path(folder) / "network.net"
        if given is None:
            write_netx(network, path)
        else:
            path.write_bytes(given)
        yield path
