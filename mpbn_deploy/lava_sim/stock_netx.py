"""Run network.net in lava-dl's own netx reader, with Lava's own processes and models."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SimulationError
from ..graph import Trace, as_steps, depths
from ..int_ir import IntNetwork, Readout
from ..records import Array
from ..simulate import check_input_values
from .compat import load_netx, quiet
from .execute import input_tape, read_tape, started
from .graph import lava_shape, message_bits
from .models import TapeInputModel, TapeOutputModel
from .processes import TapeInput, TapeOutput, new_tape

# isort: split
from lava.magma.core.run_conditions import RunSteps
from lava.magma.core.run_configs import Loihi2SimCfg


def execute_stock_netx(path: Path, network: IntNetwork, inputs: Array) -> Trace:
    """Spikes of every population and outputs of the readout, as lava-dl's reader makes them of the file.

    `network` is the one that the file holds; of it only names, shapes and time steps are used.
    """
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    check_input_values(network, steps)
    with tempfile.TemporaryDirectory(prefix="mpbn_netx_") as folder, quiet():
        try:
            return _run(path, network, steps, Path(folder))
        except (ValueError, RuntimeError, ArithmeticError) as error:  # its reader checks little beforehand
            raise SimulationError(f"lava-dl's netx reader cannot run the network: {error}") from error


def _run(path: Path, network: IntNetwork, steps: Array, folder: Path) -> Trace:
    timesteps, samples = network.timesteps, len(steps)
    populations = network.populations[1:]
    depth = depths(network.populations, network.connections)
    total = samples * timesteps + len(populations) + 1
    stock = load_netx().Network(
        net_config=str(path),
        input_message_bits=message_bits(network.input),
        reset_interval=timesteps,
        reset_offset=1,  # of the first layer, which sees the stream one step late; later ones follow
    )
    source = TapeInput(shape=lava_shape(network.input.shape), tape=input_tape(network, steps, folder))
    _connect_input(source, network, stock)
    models: dict[Any, type] = {source: TapeInputModel}
    tapes = {}
    for index, (population, layer) in enumerate(zip(populations, stock.layers, strict=True)):
        tapes[population.name] = new_tape(
            folder / f"spikes{index}.npy", total, lava_shape(population.shape), np.bool_
        )
        sink = TapeOutput(shape=layer.out.shape, tape=tapes[population.name])
        layer.out.connect(sink.s_in)
        models[sink] = TapeOutputModel
    configuration = Loihi2SimCfg(select_tag="fixed_pt", exception_proc_model_map=models)
    outputs = _run_samples(
        source, stock.layers[-1], configuration, samples, timesteps, depth[populations[-1].name]
    )
    spikes = {p.name: read_tape(tapes[p.name], p, depth[p.name], samples, timesteps) for p in populations}
    if not isinstance(network.output.neuron, Readout):
        outputs = spikes[network.output.name].sum(axis=1)
    return Trace(spikes=spikes, voltages={}, outputs=outputs)


def _connect_input(source: TapeInput, network: IntNetwork, stock: Any) -> None:
    flat = len(network.input.shape) == 3 and len(stock.inp.shape) == 1
    port = source.s_out.transpose([2, 1, 0]).flatten() if flat else source.s_out
    port.connect(stock.inp)


def _run_samples(
    source: TapeInput, last: Any, configuration: Loihi2SimCfg, samples: int, timesteps: int, late: int
) -> Array:
    """Run sample after sample; after each, the voltage of the last layer is its output."""
    outputs = []
    with started(source, configuration):
        for sample in range(samples):
            steps = timesteps + (late if sample == 0 else 0)
            source.run(condition=RunSteps(num_steps=steps))
            outputs.append(np.asarray(last.neuron.v.get()).T)
    stacked: Array = np.stack(outputs).astype(np.int64)
    return stacked
