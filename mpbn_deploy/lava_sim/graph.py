"""IntNetwork -> connected Lava processes.

Every synapse of Lava delays by one time step, so a population at depth d (the input: 0) sees step
k of the stream at Lava's time step k + d + 1. A connection that skips layers, or has a delay, would
arrive early; a delay line holds it back by depth(target) - depth(source) - 1 + delay steps. That must
not be negative: depths are the smallest for which it is not. Lava's axes are (x, y, channel).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ..compose import regroup
from ..errors import SimulationError
from ..graph import Connection, Conv2d, Dense, Pair, Shape, incoming
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
from lava.utils.weightutils import SignMode

MOST_GROUPS = 127  # Lava's convolution keeps their number in 8 bits with sign, and wraps in silence
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
    graph = LavaGraph(depths=pipeline_depths(network))
    source = graph.add(TapeInput(shape=lava_shape(network.input.shape), tape=input_tape))
    neurons = {}
    for index, population in enumerate(network.populations[1:]):
        name, shape = population.name, lava_shape(population.shape)
        graph.spike_tapes[name] = new_tape(folder / f"spikes{index}.npy", steps, shape, np.bool_)
        graph.voltage_tapes[name] = new_tape(folder / f"voltages{index}.npy", steps, shape, np.int32)
        neurons[name] = graph.add(_neurons(graph, network, population))
    ports = {network.input.name: source.s_out, **{name: process.s_out for name, process in neurons.items()}}
    for connection in network.connections:
        port = _delayed(graph, network, connection, ports[connection.source])
        _connect(graph, network, connection, port, neurons[connection.target])
    return graph


def pipeline_depths(network: IntNetwork) -> dict[str, int]:
    """The smallest depths with depth(target) >= depth(source) + 1 - delay for every connection."""
    found = dict.fromkeys((population.name for population in network.populations), 0)
    for _ in network.populations:
        late = [c for c in network.connections if found[c.target] < found[c.source] + 1 - c.delay]
        if not late:
            return found
        for connection in late:
            found[connection.target] = max(
                found[connection.target], found[connection.source] + 1 - connection.delay
            )
    raise SimulationError(
        f"{late[0].label}: closes a loop of more connections than its delays have steps; every connection "
        "of Lava takes one, so it cannot run this loop. Use the emulator."
    )


def _neurons(graph: LavaGraph, network: IntNetwork, population: IntPopulation) -> TapedLif:
    name = population.name
    return TapedLif(
        **neuron_parameters(population),
        shift=STATE_EXPONENT + _lowest_exponent(network, name),
        reset_interval=network.timesteps,
        reset_offset=graph.depths[name] + 1,
        spike_tape=graph.spike_tapes[name],
        voltage_tape=graph.voltage_tapes[name],
    )


def _lowest_exponent(network: IntNetwork, target: str) -> int:
    """Of the synapses into a population; its states count in units of it."""
    return min(connection.synapse.exponent for connection in incoming(network.connections, target))


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


def _delayed(graph: LavaGraph, network: IntNetwork, connection: Connection, port: Any) -> Any:
    """The port, or a delay line after it; the line also keeps spikes out of the next sample."""
    depth, delay = graph.depths[connection.source], connection.delay
    early = graph.depths[connection.target] - depth - 1 + delay
    if early == 0 and delay == 0:
        return port
    line = graph.add(
        DelayLine(
            shape=port.shape,
            delay=early,
            silent=min(delay, network.timesteps),
            interval=network.timesteps,
            offset=depth + 1,
        )
    )
    port.connect(line.s_in)
    return line.s_out


def _connect(
    graph: LavaGraph, network: IntNetwork, connection: Connection, port: Any, neurons: AbstractProcess
) -> None:
    """port -> synapse -> neurons; the synapse multiplies by 2**exponent, which is not negative."""
    source = next(p for p in network.populations if p.name == connection.source)
    synapse, bits = connection.synapse, message_bits(source)
    exponent = synapse.exponent - _lowest_exponent(network, connection.target)
    match synapse:
        case Dense():
            flat = port.transpose([2, 1, 0]).flatten() if len(source.shape) == 3 else port
            for digits, shift in _eight_bits(synapse.weight.astype(np.int64)):
                # Lava's Dense keeps even weights of -256..254 where signs are mixed: 2w at one power
                # less is exact. Where all signs agree it would cut -256 off.
                process = graph.add(
                    LavaDense(
                        weights=2 * digits.astype(np.int32),
                        weight_exp=exponent + shift - 1,
                        num_message_bits=bits,
                        sign_mode=SignMode.MIXED,
                    )
                )
                flat.connect(process.s_in)
                _arrive(process.a_out, neurons)
        case Conv2d():
            synapse = _in_few_groups(synapse)
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
            _arrive(process.a_out, neurons)
        case _:
            assert_never(synapse)


def _arrive(port: Any, neurons: AbstractProcess) -> None:
    if len(port.shape) != len(neurons.a_in.shape):  # a dense layer onto a picture
        port = port.reshape(lava_shape(neurons.a_in.shape)).transpose([2, 1, 0])
    port.connect(neurons.a_in)


def _eight_bits(weight: Array, shift: int = 0) -> Iterator[tuple[Array, int]]:
    """weight = sum of digits * 2**shift, with digits of -128..127: as many as it takes, mostly one"""
    while weight.any() and not (weight & 1).any():
        weight, shift = weight >> 1, shift + 1
    if weight.min() >= -128 and weight.max() <= 127:
        yield weight, shift
        return
    low = ((weight + 64) & 127) - 64
    yield low, shift
    yield from _eight_bits((weight - low) >> 7, shift + 7)


def _in_few_groups(synapse: Conv2d) -> Conv2d:
    """The same map in as many groups as Lava can count, with zeros where an old group did not reach."""
    if synapse.groups <= MOST_GROUPS:
        return synapse
    fewer = max(n for n in range(1, MOST_GROUPS + 1) if synapse.groups % n == 0)
    return replace(synapse, weight=regroup(synapse.weight, synapse.groups, fewer), groups=fewer)


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
