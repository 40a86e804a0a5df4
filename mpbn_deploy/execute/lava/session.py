"""Run a network in Lava's CPU simulator: once (`run`), or compiled to run many times (`Session`).

A session is one continuous stream of samples, and each run appends to it. Between two runs, zeros are fed
until the last sample has passed the deepest population, rounded up to a whole sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from math import prod, sqrt
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from ...base import HANG_SECONDS, Array, OptionError, Progress, SimulationError, no_progress
from ...ir import AnyNetwork, Connection, Dense, IntNetwork, Shape, Trace, as_steps, check_input_values
from ..traces import outputs_of
from .compat import load_lava, quiet
from .plans import pipeline_depths, probed_names, stock_obstacle
from .tapes import Tape

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


class Session:
    """`with Session(network) as session: session.run(inputs)`, any number of times.

    `probe` names the populations whose spikes and voltages the trace holds (default: all). `lanes` is the
    number of samples that run in parallel. With `stock`, Lava's own process models run instead of ours, one
    sample at a time. `patience` is the time limit, in seconds, for a block of time steps; exceeding it ends
    the session.
    """

    def __init__(
        self,
        network: AnyNetwork,
        *,
        probe: Iterable[str] | None = None,
        lanes: int | None = None,
        stock: bool = False,
        patience: float = HANG_SECONDS,
    ) -> None:
        if lanes is not None and (stock or lanes < 1):
            raise OptionError(
                f"lanes={lanes}; give at least 1, and leave it out with stock=True, which has no lanes."
            )
        if stock and (obstacle := stock_obstacle(network)) is not None:
            raise SimulationError(f"{obstacle}. Run our process models, without stock.")
        self.network = network
        self.probed = probed_names(network, probe)
        self.depths = pipeline_depths(network)
        self.lanes = None if stock else lanes or best_lanes(network, TYPICAL_RUN)
        self.patience = patience
        self.done = 0  # time steps
        self._graph: LavaGraph | None = None
        self._started = ExitStack()

    def __enter__(self) -> Session:
        load_lava()
        from .execute import started
        from .graph import build

        with quiet():
            graph = build(self.network, self.probed, self.lanes)
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
        if self._graph is None:
            raise SimulationError(
                "the session is not running; use it as `with Session(network) as session:`."
            )
        steps = checked_steps(self.network, inputs)
        try:
            return self._run(self._graph, steps, progress)
        except BaseException:
            self._graph = None  # Lava's processes are in an unknown state after an interrupted run
            raise

    def _run(self, graph: LavaGraph, steps: Array, progress: Progress) -> Trace:
        from .execute import run_steps

        streams = Streams(self.network, graph, self.depths, steps, self.lanes or 1)
        size = min(len(graph.input_tape), max(SMALLEST_BLOCK, -(-streams.total // BLOCKS)))
        starts = range(0, streams.total, size)
        for start in progress(starts):
            count = min(size, streams.total - start)
            rows = graph.input_tape.rows(self.done, count)
            streams.feed(start, rows)
            run_steps(graph.source, count, self.patience)
            self.done += count
            streams.collect(start, rows)
        return streams.trace()


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
        self, network: AnyNetwork, graph: LavaGraph, depths: Mapping[str, int], steps: Array, lanes: int
    ) -> None:
        self.network, self.graph, self.depths, self.steps, self.lanes = network, graph, depths, steps, lanes
        self.per_lane = -(-len(steps) // lanes)
        self.length = self.per_lane * network.timesteps
        # The last sample must pass the deepest population, and the next run must start in phase.
        deepest = max(depths.values())
        self.total = -(-(self.length + deepest) // network.timesteps) * network.timesteps
        wide = np.int64 if isinstance(network, IntNetwork) else np.float64
        self.spikes = {name: self._empty(tape, np.bool_) for name, tape in graph.spike_tapes.items()}
        self.voltages = {name: self._empty(tape, wide) for name, tape in graph.voltage_tapes.items()}

    def _empty(self, tape: Tape, kind: type) -> Array:
        return np.zeros((self.lanes, self.length, *self._neurons(tape)), kind)

    def _neurons(self, tape: Tape) -> Shape:
        """Return the shape of a row of a tape, without lanes."""
        return tape.values.shape[1:] if self.graph.lanes is None else tape.values.shape[2:]

    def feed(self, start: int, rows: Array) -> None:
        """Write the stream, from step `start` on, to rows of the input tape."""
        tape = self.graph.input_tape.values
        for step, row in enumerate(rows, start=start):
            sample, time_step = divmod(step, self.network.timesteps)
            chosen = np.arange(self.lanes) * self.per_lane + sample
            tape[row] = 0
            if step < self.length:
                present = chosen < len(self.steps)
                values = self.steps[chosen[present], time_step]
                fed = values.transpose(0, *range(values.ndim - 1, 0, -1))
                tape[row].reshape(self.lanes, *self._neurons(self.graph.input_tape))[present] = fed

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

    def trace(self) -> Trace:
        spikes = {name: self._by_sample(stream) for name, stream in self.spikes.items()}
        voltages = {name: self._by_sample(stream) for name, stream in self.voltages.items()}
        probed = self.graph.probed
        return Trace(
            spikes={name: values for name, values in spikes.items() if name in probed},
            voltages={name: values for name, values in voltages.items() if name in probed},
            outputs=outputs_of(self.network, spikes, voltages),
        )

    def _by_sample(self, stream: Array) -> Array:
        """[lanes, steps, *Lava's axes] as [samples, timesteps, *our axes]"""
        samples = self.lanes * self.per_lane
        values = stream.reshape(samples, self.network.timesteps, *stream.shape[2:])[: len(self.steps)]
        return values.transpose(0, 1, *range(values.ndim - 1, 1, -1))


def best_lanes(network: AnyNetwork, samples: int) -> int:
    """Return the number of samples to run in parallel.

    n samples of T steps through d layers take (n T / l + d) * (overhead + l * products) seconds in l lanes:
    many lanes share the overhead of a time step, few lanes waste less while the pipeline fills and drains.
    The minimum is at l = sqrt(n T * overhead / (d * products)), within a limit on memory.
    """
    depth = max(pipeline_depths(network).values())
    seconds = sum(_products(network, c) for c in network.connections) / PRODUCTS_PER_SECOND
    overhead = STEP_SECONDS * len(network.populations)
    best = sqrt(samples * network.timesteps * overhead / (depth * seconds))
    neurons = sum(population.size for population in network.populations)
    most = min(MOST_LANES, samples, LANE_BYTES // (neurons * BYTES_PER_NEURON))
    return max(1, min(round(best), most))


def _products(network: AnyNetwork, connection: Connection) -> int:
    """Return the multiply-accumulates of a connection in one time step."""
    synapse = connection.synapse
    if isinstance(synapse, Dense):
        return synapse.weight.size
    return synapse.weight.size * prod(network.layer(connection.target).shape[1:])
