"""Run an IntNetwork in Lava's simulator and gather a Trace."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from ..graph import Population, Trace, as_steps
from ..int_ir import IntNetwork, Neuron, Readout
from ..records import Array
from ..simulate import check_input_values
from .graph import LavaGraph, build

# isort: split
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg


def execute(network: IntNetwork, inputs: Array) -> Trace:
    """Stream the samples back to back through Lava's fixed-point models."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    check_input_values(network, steps)
    samples = len(steps)
    stream = steps.reshape(samples * network.timesteps, *network.input.shape).astype(np.int32)
    with tempfile.TemporaryDirectory(prefix="mpbn_lava_") as folder:
        tape = Path(folder) / "input.npy"
        np.save(tape, stream.transpose(0, *range(stream.ndim - 1, 0, -1)))
        total = len(stream) + len(network.populations)  # the last sample must reach the deepest population
        graph = build(network, str(tape), total, Path(folder))
        _run(graph, total)
        return _gather(network, graph, samples)


def _run(graph: LavaGraph, steps: int) -> None:
    configuration = Loihi2SimCfg(select_tag="fixed_pt", exception_proc_model_map=graph.models)
    any_process = graph.processes[0]  # running one runs all that are connected to it
    try:
        any_process.run(condition=RunSteps(num_steps=steps), run_cfg=configuration)
    finally:
        any_process.stop()


def _gather(network: IntNetwork, graph: LavaGraph, samples: int) -> Trace:
    populations = network.populations[1:]
    spikes = {
        p.name: _read(graph.spike_tapes, p, graph.depths, samples, network.timesteps) for p in populations
    }
    voltages = {
        p.name: _read(graph.voltage_tapes, p, graph.depths, samples, network.timesteps).astype(np.int64)
        for p in populations
    }
    last = network.output
    silent = isinstance(last.neuron, Readout)
    outputs = voltages[last.name][:, -1] if silent else spikes[last.name].sum(axis=1)
    return Trace(spikes=spikes, voltages=voltages, outputs=outputs)


def _read(
    tapes: dict[str, str],
    population: Population[Neuron],
    depths: dict[str, int],
    samples: int,
    timesteps: int,
) -> Array:
    """A tape's entries as [samples, timesteps, *shape]: depth d sees the stream d steps late."""
    tape = np.load(tapes[population.name])
    late = depths[population.name]
    stream = tape[late : late + samples * timesteps]
    stream = stream.transpose(0, *range(stream.ndim - 1, 0, -1))
    values: Array = stream.reshape(samples, timesteps, *population.shape)
    return values
