"""IntNetwork -> connected Lava processes.

Every synapse of Lava delays by one time step, so a population at depth d (the input: 0) sees step
k of the stream at Lava's time step k + d + 1. A connection that skips layers would arrive early; a
delay line holds it back by depth(target) - depth(source) - 1 steps. Lava's axes are (x, y, channel).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ..errors import SimulationError
from ..graph import Connection, Conv2d, Dense, Pair, Shape, depths, incoming
from ..int_ir import DECAY_ONE, STATE_EXPONENT, Input, IntNetwork, IntPopulation, Lif, Readout
from ..records import Array
from .models import DelayLineModel, TapedLifModel, TapeInputModel
from .processes import DelayLine, TapedLif, TapeInput, new_tape

# isort: split
from lava.magma.core.process.process import AbstractProcess
from lava.proc.conv.models import PyConvModelFixed
from lava.proc.conv.process import Conv as LavaConv
from lava.proc.dense.models import PyDenseModelBitAcc
from lava.proc.dense.process import Dense as LavaDense

NEVER = 2**17  # shifted by 6 this is above every voltage, because voltages clip at 2**23 - 1

# Which model runs which process. Lava would search for them by executing every file of our package
# as a module of its own; naming them for each process spares that.
MODELS = {
    TapeInput: TapeInputModel,
    DelayLine: DelayLineModel,
    TapedLif: TapedLifModel,
    LavaConv: PyConvModelFixed,
    LavaDense: PyDenseModelBitAcc,
}


@dataclass
class LavaGraph:
    """Connected processes, and the tapes on which they leave their trace."""

    processes: list[AbstractProcess] = field(default_factory=list)
    spike_tapes: dict[str, str] = field(default_factory=dict)
    voltage_tapes: dict[str, str] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)

    def add(self, process: AbstractProcess) -> Any:
        self.processes.append(process)
        return process

    @property
    def models(self) -> dict[AbstractProcess, type]:
        return {process: MODELS[type(process)] for process in self.processes}


def build(network: IntNetwork, input_tape: str, steps: int, folder: Path) -> LavaGraph:
    """Make a process per population and per connection, and connect them."""
    _refuse_delays(network)
    graph = LavaGraph(depths=depths(network.populations, network.connections))
    source = graph.add(TapeInput(shape=lava_shape(network.input.shape), tape=input_tape))
    ports = {network.input.name: source.s_out}
    for index, population in enumerate(network.populations[1:]):
        name, shape = population.name, lava_shape(population.shape)
        graph.spike_tapes[name] = new_tape(folder / f"spikes{index}.npy", steps, shape, np.bool_)
        graph.voltage_tapes[name] = new_tape(folder / f"voltages{index}.npy", steps, shape, np.int32)
        ports[name] = _add_population(graph, network, population, ports)
    return graph


def _add_population(
    graph: LavaGraph, network: IntNetwork, population: IntPopulation, ports: dict[str, Any]
) -> Any:
    """The neurons of a population with all that enters them; returns the port they send on."""
    name = population.name
    entering = incoming(network.connections, name)
    lowest = min(connection.synapse.exponent for connection in entering)
    neurons = TapedLif(
        **neuron_parameters(population),
        shift=STATE_EXPONENT + lowest,
        reset_interval=network.timesteps,
        reset_offset=graph.depths[name] + 1,
        spike_tape=graph.spike_tapes[name],
        voltage_tape=graph.voltage_tapes[name],
    )
    for connection in entering:
        early = graph.depths[name] - graph.depths[connection.source] - 1
        port = _delayed(graph, ports[connection.source], early)
        source = next(p for p in network.populations if p.name == connection.source)
        _connect(graph, connection, source, port, neurons, connection.synapse.exponent - lowest)
    return graph.add(neurons).s_out


def neuron_parameters(population: IntPopulation) -> dict[str, Any]:
    """Parameters of a population under Lava's names and in Lava's axes; Lava adds one to `du`."""
    neuron, shape = population.neuron, population.shape
    match neuron:
        case Lif(threshold=threshold, decay_current=current, decay_voltage=voltage):
            rule = {"vth": to_lava(threshold, shape), "du": current - 1, "dv": voltage}
        case Readout():
            rule = {"vth": np.full(lava_shape(shape), NEVER), "du": DECAY_ONE - 1, "dv": 0}
        case _:
            raise TypeError("an input has no neuron parameters")
    bias = {"bias_mant": to_lava(neuron.bias, shape), "bias_exp": neuron.bias_exponent}
    return {"shape": lava_shape(shape), **rule, **bias}


def lava_shape(shape: Shape) -> Shape:
    return shape[::-1]


def to_lava(values: Array, shape: Shape) -> Array:
    """One value per neuron, in Lava's axes (x, y, channel)."""
    return np.broadcast_to(values, shape).T.copy()


def _refuse_delays(network: IntNetwork) -> None:
    delayed = [connection.label for connection in network.connections if connection.delay]
    if delayed:
        raise SimulationError(
            f"{', '.join(delayed)}: connections with a delay are not run in Lava; use the emulator."
        )


def _delayed(graph: LavaGraph, port: Any, steps: int) -> Any:
    if steps == 0:
        return port
    line = graph.add(DelayLine(shape=port.shape, delay=steps))
    port.connect(line.s_in)
    return line.s_out


def _connect(
    graph: LavaGraph,
    connection: Connection,
    source: IntPopulation,
    port: Any,
    neurons: AbstractProcess,
    exponent: int,
) -> None:
    """port -> synapse -> neurons; the synapse multiplies by 2**exponent, which is not negative."""
    synapse, bits = connection.synapse, message_bits(source)
    match synapse:
        case Dense():
            process = graph.add(
                # Lava's Dense keeps even weights of -256..254 where signs are mixed: 2w at one power
                # less is exact.
                LavaDense(
                    weights=2 * synapse.weight.astype(np.int32),
                    weight_exp=exponent - 1,
                    num_message_bits=bits,
                )
            )
            flat = port.transpose([2, 1, 0]).flatten() if len(source.shape) == 3 else port
            flat.connect(process.s_in)
        case Conv2d():
            process = graph.add(
                LavaConv(
                    weight=_kernel(synapse.weight) * 2**exponent,
                    input_shape=lava_shape(source.shape),
                    stride=_swap(synapse.stride),
                    padding=_swap(synapse.padding),
                    dilation=_swap(synapse.dilation),
                    groups=synapse.groups,
                    num_message_bits=bits,
                )
            )
            port.connect(process.s_in)
        case _:
            assert_never(synapse)
    arriving = process.a_out
    if len(arriving.shape) != len(neurons.a_in.shape):  # a dense layer onto a picture
        arriving = arriving.reshape(lava_shape(neurons.a_in.shape)).transpose([2, 1, 0])
    arriving.connect(neurons.a_in)


def _kernel(weight: Array) -> Array:
    """[out, in, y, x] of a correlation -> [out, x, y, in] of a convolution, which flips its kernel."""
    return weight[:, :, ::-1, ::-1].transpose(0, 3, 2, 1).astype(np.int32)


def _swap(pair: Pair) -> Pair:
    return pair[1], pair[0]


def message_bits(source: IntPopulation) -> int:
    """Bits of a graded spike; none for a plain one."""
    if isinstance(source.neuron, Input):
        return max(1, max(abs(source.neuron.minimum), source.neuron.maximum).bit_length())
    return 0
