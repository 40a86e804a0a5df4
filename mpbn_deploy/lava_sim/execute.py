"""Run an IntNetwork in Lava's simulator and gather a Trace."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..graph import Trace, as_steps
from ..int_ir import IntNetwork, IntPopulation, Readout
from ..records import Array
from ..simulate import check_input_values
from .compat import quiet, signals_kept_for_later
from .graph import LavaGraph, build, pipeline_depths

# isort: split
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg

PATIENCE = 5.0  # seconds for Lava's processes to end


def execute(network: IntNetwork, inputs: Array) -> Trace:
    """Stream the samples back to back through Lava's fixed-point models."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    check_input_values(network, steps)
    samples = len(steps)
    with tempfile.TemporaryDirectory(prefix="mpbn_lava_") as folder, quiet():
        tape = input_tape(network.input, steps, Path(folder))
        # The last sample must reach the deepest population.
        total = samples * network.timesteps + max(pipeline_depths(network).values())
        graph = build(network, tape, total, Path(folder))
        _run(graph, total)
        return _gather(network, graph, samples)


def input_tape(source: IntPopulation, steps: Array, folder: Path) -> str:
    """Samples back to back, in Lava's axes, in a file."""
    stream = steps.reshape(-1, *source.shape).astype(np.int32)
    path = folder / "input.npy"
    np.save(path, stream.transpose(0, *range(stream.ndim - 1, 0, -1)))
    return str(path)


def _run(graph: LavaGraph, steps: int) -> None:
    configuration = Loihi2SimCfg(select_tag="fixed_pt", exception_proc_model_map=graph.models)
    with started(graph.processes[0], configuration) as network:  # running one runs all connected to it
        network.run(condition=RunSteps(num_steps=steps))


@contextmanager
def started(process: AbstractProcess, configuration: Loihi2SimCfg) -> Iterator[AbstractProcess]:
    """Start Lava's processes; stop them at the end, also after an error or an interrupt.

    Interrupts of the keyboard, and mostly requests to end, reach all processes of a command at once.
    Lava's would die in the middle of a message, and the stop would wait for them for ever; so they
    are born deaf to both, and are stopped from here.
    """
    try:
        with signals_kept_for_later():
            process.create_runtime(run_cfg=configuration)
        yield process
    finally:
        _stop(process)


def _stop(process: AbstractProcess) -> None:
    """Ask Lava's processes to end; kill those that do not, as when an interrupt came between two messages."""
    stopping = threading.Thread(target=process.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE)
    if stopping.is_alive():
        for actor in process.runtime._messaging_infrastructure.actors:
            if not actor._is_done:
                actor.kill()
        stopping.join(PATIENCE)


def _gather(network: IntNetwork, graph: LavaGraph, samples: int) -> Trace:
    populations = network.populations[1:]

    def read(tapes: dict[str, str], population: IntPopulation) -> Array:
        late = graph.depths[population.name]
        return read_tape(tapes[population.name], population, late, samples, network.timesteps)

    spikes = {p.name: read(graph.spike_tapes, p) for p in populations}
    voltages = {p.name: read(graph.voltage_tapes, p).astype(np.int64) for p in populations}
    last = network.output
    silent = isinstance(last.neuron, Readout)
    outputs = voltages[last.name][:, -1] if silent else spikes[last.name].sum(axis=1)
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs)


def read_tape(path: str, population: IntPopulation, late: int, samples: int, timesteps: int) -> Array:
    """A tape as [samples, timesteps, *shape], of a population that sees the stream `late` steps late."""
    stream = np.load(path)[late : late + samples * timesteps]
    stream = stream.transpose(0, *range(stream.ndim - 1, 0, -1))
    values: Array = stream.reshape(samples, timesteps, *population.shape)
    return values
