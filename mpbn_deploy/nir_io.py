"""NIR files (network.nir): FoldedNetwork <-> NIR graph. The only file that imports nir.

NIR's LIF is an equation in continuous time, tau * dv/dt = (v_leak - v) + r * I. One Euler step of
length dt is ours,

    v <- leak * v + I + bias         with  tau = dt / (1 - leak),  r = 1,  v_leak = bias

if v is counted in units of (1 - leak): so v_threshold = (1 - leak) * threshold. Without a leak it is
NIR's IF, dv/dt = r * I, with r = 1 / dt. A bias that is the same in all neurons of a channel goes into
the synapse; only one that differs (a first layer with zero padding and normalized input) goes into
v_leak. Numbers are float32, as readers want them.

A NIR file says nothing of dt, time steps, the comparison or the readout: that stands in the
graph's metadata. The readout is an Affine node before the output, averaged over the time steps.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import nir
import numpy as np
from typing_extensions import assert_never

from .errors import FormatError, NetworkError
from .files import write_atomically
from .float_ir import FloatLif, FloatPopulation, FloatReadout, FoldedNetwork
from .graph import (
    Connection,
    Conv2d,
    Dense,
    Input,
    Pair,
    Population,
    Shape,
    Synapse,
    compact,
    incoming,
    per_channel,
)
from .hdf5 import read_tree
from .records import Array, record

DT = 1e-4
VERSION = 1
NEURONS = (nir.LIF, nir.IF)


def write_nir(network: FoldedNetwork, path: str | Path) -> None:
    """Write a folded network; thresholds stay one per neuron."""
    buffer = io.BytesIO()
    nir.write(buffer, to_nir(network))
    write_atomically(Path(path), buffer.getvalue())


def read_nir(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    dt: float | None = None,
) -> FoldedNetwork:
    """Read a network. Files of other writers do not say time steps, input range or dt: give them."""
    graph = _read_graph(Path(path))
    told = _read_told(Path(path), graph)
    timesteps = told.timesteps if timesteps is None else timesteps
    if timesteps is None or timesteps < 1:
        raise FormatError(f"{path}: time steps {timesteps}; give timesteps of at least 1.")
    reader = _Reader(
        path=Path(path),
        graph=graph,
        timesteps=timesteps,
        input_range=input_range or told.input_range or (0, 1),
        dt=dt or told.dt or DT,
        told=told,
    )
    try:
        return reader.network()
    except (NetworkError, ValueError, TypeError, IndexError) as error:
        raise FormatError(f"{path}: {error}") from error


def _read_graph(path: Path) -> nir.NIRGraph:
    tree = read_tree(path)
    node = tree.get("node")
    if not isinstance(node, dict) or node.get("type") != "NIRGraph":
        raise FormatError(f"{path}: holds no NIRGraph.")
    try:
        return nir.dict2NIRNode({**node, "type_check": False})
    except Exception as error:  # nir raises whatever its constructors meet in a wrong file
        raise FormatError(f"{path}: not a NIR graph ({error!r}).") from error


# ---- writing ----------------------------------------------------------------------------------


def to_nir(network: FoldedNetwork) -> nir.NIRGraph:
    """The NIR graph of a folded network."""
    _refuse_colliding_names(network)
    shapes = {population.name: population.shape for population in network.populations}
    nodes: dict[str, Any] = {_safe(network.input.name): nir.Input({"input": np.array(network.input.shape)})}
    edges: list[tuple[str, str]] = []
    for population in network.populations[1:]:
        bias, leftover = _split_bias(population)
        for number, connection in enumerate(incoming(network.connections, population.name)):
            if connection.delay:
                raise FormatError(f"{connection.label}: NIR files with delays are not written.")
            synapse_name = f"{_safe(population.name)}_synapse{number or ''}"
            source, shape = _safe(connection.source), shapes[connection.source]
            if isinstance(connection.synapse, Dense) and len(shape) == 3:
                flatten = f"{_safe(population.name)}_flatten{number or ''}"
                nodes[flatten] = nir.Flatten({"input": np.array(shape)}, start_dim=0)
                edges.append((source, flatten))
                source = flatten
            # The bias enters once, with the first connection.
            nodes[synapse_name] = _synapse_node(connection.synapse, bias * (number == 0), shape)
            edges += [(source, synapse_name), (synapse_name, _safe(population.name))]
        nodes[_safe(population.name)] = _neuron_node(population, leftover)
    _end_with_output(network, nodes, edges)
    return nir.NIRGraph(nodes, edges, metadata={"mpbn_deploy": _metadata(network)}, type_check=False)


def _refuse_colliding_names(network: FoldedNetwork) -> None:
    names: dict[str, str] = {}
    for population in network.populations:
        other = names.setdefault(_safe(population.name), population.name)
        if other != population.name:
            raise FormatError(
                f"{other} and {population.name}: one name in NIR, {_safe(other)}; rename a module."
            )


def _end_with_output(network: FoldedNetwork, nodes: dict[str, Any], edges: list[tuple[str, str]]) -> None:
    """A readout is the output node itself; neurons that fire get one behind them."""
    last = _safe(network.output.name)
    if not isinstance(network.output.neuron, FloatReadout):
        nodes["output"] = nir.Output({"output": np.array(network.output.shape)})
        edges.append((last, "output"))


def _safe(name: str) -> str:
    """Readers make attributes of node names, so no dots."""
    return name.replace(".", "_").replace("/", "_")


def _split_bias(population: FloatPopulation) -> tuple[Array, Array]:
    """The part of the bias that a channel's neurons share, and what is left of it per neuron."""
    neuron, shape = population.neuron, population.shape
    assert not isinstance(neuron, Input)
    full = np.broadcast_to(neuron.bias, shape)
    # The neuron in the middle has the bias of most: what is left over is that of the border.
    middle = np.ravel_multi_index([size // 2 for size in shape[1:]], shape[1:]) if shape[1:] else 0
    shared = full.reshape(len(full), -1)[:, middle]
    rounded = shared.astype(np.float32).astype(np.float64)
    alike = full.astype(np.float32) == per_channel(rounded, shape)
    return rounded, np.where(alike, 0.0, full - per_channel(rounded, shape))


def _synapse_node(synapse: Synapse, bias: Array, source: Shape) -> Any:
    weight = (synapse.weight * 2.0**synapse.exponent).astype(np.float32)
    match synapse:
        case Dense():
            return nir.Affine(weight=weight, bias=bias.astype(np.float32))
        case Conv2d():
            return nir.Conv2d(
                input_shape=(source[1], source[2]),
                weight=_without_groups(weight, synapse.groups),
                stride=synapse.stride,
                padding=synapse.padding,
                dilation=synapse.dilation,
                groups=1,
                bias=bias.astype(np.float32),
            )
        case _:
            assert_never(synapse)


def _without_groups(weight: Array, groups: int) -> Array:
    """The kernel over all input channels, zero outside of each group: nir cannot type grouped ones."""
    outputs, inputs = weight.shape[0] // groups, weight.shape[1]
    whole = np.zeros((weight.shape[0], groups * inputs, *weight.shape[2:]), weight.dtype)
    for group in range(groups):
        rows = slice(group * outputs, (group + 1) * outputs)
        whole[rows, group * inputs : (group + 1) * inputs] = weight[rows]
    return whole


def _with_groups(whole: Array, groups: int) -> Array:
    """The kernels of the groups back, from what `_without_groups` made of them."""
    rows, columns = np.split(whole, groups, axis=0), whole.shape[1] // groups
    return np.concatenate([row[:, g * columns : (g + 1) * columns] for g, row in enumerate(rows)])


def _neuron_node(population: FloatPopulation, leftover: Array) -> Any:
    neuron, shape = population.neuron, population.shape
    match neuron:
        case FloatReadout():
            return nir.Output({"output": np.array(shape)})
        case FloatLif(leak=leak, threshold=threshold) if leak < 1:
            return nir.LIF(
                tau=np.full(shape, DT / (1 - leak), np.float32),
                r=np.ones(shape, np.float32),
                v_leak=leftover.astype(np.float32),
                v_threshold=np.broadcast_to((1 - leak) * threshold, shape).astype(np.float32),
                v_reset=np.zeros(shape, np.float32),
            )
        case FloatLif(threshold=threshold):
            if leftover.any():
                raise FormatError(
                    f"{population.name}: neurons that never leak have biases of their own, for which NIR has "
                    "no place. They come from zero padding of normalized input: use padding=0, or a leak."
                )
            return nir.IF(
                r=np.full(shape, 1 / DT, np.float32),
                v_threshold=np.broadcast_to(threshold, shape).astype(np.float32),
                v_reset=np.zeros(shape, np.float32),
            )
        case _:
            raise TypeError("an input is no neuron")


def _metadata(network: FoldedNetwork) -> str:
    input_range = network.input.neuron
    assert isinstance(input_range, Input)
    leaks = {p.name: p.neuron.leak for p in network.populations if isinstance(p.neuron, FloatLif)}
    groups = {c.label: c.synapse.groups for c in network.connections if isinstance(c.synapse, Conv2d)}
    return json.dumps(
        {
            "version": VERSION,
            "dialect": "faithful",
            "dt": DT,
            "timesteps": network.timesteps,
            "input_range": [input_range.minimum, input_range.maximum],
            "populations": [population.name for population in network.populations],
            "leaks": leaks,
            "groups": groups,
            "comparison": "v > v_threshold",
            "reset": "to zero",
            "output": "mean over time steps" if isinstance(network.output.neuron, FloatReadout) else "spikes",
        }
    )


# ---- reading ----------------------------------------------------------------------------------


@record
class _Told:
    """What our own files say in their metadata; empty for files of others."""

    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    dt: float | None = None
    populations: tuple[str, ...] = ()
    leaks: Mapping[str, float]
    groups: Mapping[str, int]


def _read_told(path: Path, graph: nir.NIRGraph) -> _Told:
    text = graph.metadata.get("mpbn_deploy")
    if text is None:
        return _Told(leaks={}, groups={})
    try:
        told = json.loads(text)
        lowest, highest = map(int, told["input_range"])
        return _Told(
            timesteps=int(told["timesteps"]),
            input_range=(lowest, highest),
            dt=float(told["dt"]),
            populations=tuple(map(str, told["populations"])),
            leaks={str(name): float(leak) for name, leak in told["leaks"].items()},
            groups={str(label): int(count) for label, count in told["groups"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: the metadata 'mpbn_deploy' is damaged ({error!r}).") from error


@record
class _Reader:
    """A NIR graph being read; every complaint names the file and the node."""

    path: Path
    graph: nir.NIRGraph
    timesteps: int
    input_range: tuple[int, int]
    dt: float
    told: _Told

    def network(self) -> FoldedNetwork:
        names = {_safe(name): name for name in self.told.populations}
        populations, connections = [], []
        for node in self._population_nodes():
            entering = self._entering(node)
            population, factor = self._population(node, names.get(node, node), entering)
            populations.append(population)
            for source, synapse, _ in entering:
                connection = Connection(
                    source=names.get(source, source),
                    target=population.name,
                    synapse=replace(synapse, weight=synapse.weight * factor),
                )
                connections.append(self._regrouped(connection))
        return FoldedNetwork(
            populations=tuple(populations), connections=tuple(connections), timesteps=self.timesteps
        )

    def _regrouped(self, connection: Connection) -> Connection:
        """A convolution in groups again, where our metadata says that it had some."""
        synapse, groups = connection.synapse, self.told.groups.get(connection.label, 1)
        if not isinstance(synapse, Conv2d) or groups < 2 or synapse.weight.shape[0] % groups:
            return connection
        kernels = _with_groups(synapse.weight, groups)
        return replace(connection, synapse=replace(synapse, weight=kernels, groups=groups))

    def _population_nodes(self) -> list[str]:
        """Inputs, neurons and readouts, in the order in which spikes reach them."""
        known = set(self.graph.nodes)
        if stray := sorted({name for edge in self.graph.edges for name in edge} - known):
            raise FormatError(f"{self.path}: edges to {stray[:5]}, which are no nodes.")
        sorter = TopologicalSorter({name: self._before(name) for name in sorted(known)})
        try:
            order = list(sorter.static_order())
        except CycleError as error:
            raise FormatError(f"{self.path}: a cycle: {' -> '.join(error.args[1])}; not read.") from error
        return [name for name in order if self._is_population(name)]

    def _is_population(self, name: str) -> bool:
        node = self.graph.nodes[name]
        if isinstance(node, nir.Output):  # a readout, unless neurons that fire stand before it
            return not any(isinstance(self.graph.nodes[before], NEURONS) for before in self._before(name))
        if isinstance(node, (nir.Input, *NEURONS)):
            return True
        if isinstance(node, (nir.Affine, nir.Linear, nir.Conv2d, nir.Flatten)):
            return False
        known = "Input, Output, Affine, Linear, Conv2d, Flatten, LIF, IF"
        raise FormatError(f"{self.path}: node {name!r} is a {type(node).__name__}; known are {known}.")

    def _before(self, name: str) -> list[str]:
        return [source for source, target in self.graph.edges if target == name]

    def _entering(self, target: str) -> list[tuple[str, Synapse, Array]]:
        """For each linear node before `target`: the population it reads, its synapse, its bias."""
        found = []
        for name in self._before(target):
            node = self.graph.nodes[name]
            synapse = self._synapse(name, node)
            bias = np.asarray(getattr(node, "bias", 0.0), np.float64)
            found.append((self._source(name), synapse, bias))
        return found

    def _source(self, name: str) -> str:
        """The one population before a linear node, through a flatten node if there is one."""
        sources = self._before(name)
        if len(sources) != 1:
            raise FormatError(f"{self.path}: node {name!r} has {len(sources)} inputs; one is known.")
        flatten = isinstance(self.graph.nodes[sources[0]], nir.Flatten)
        source = self._source(sources[0]) if flatten else sources[0]
        if not isinstance(self.graph.nodes[source], (nir.Input, *NEURONS)):
            raise FormatError(f"{self.path}: node {name!r} reads {source!r}, no input and no neuron.")
        return source

    def _synapse(self, name: str, node: Any) -> Synapse:
        if isinstance(node, (nir.Affine, nir.Linear)):
            return Dense(weight=self._numbers(name, node, "weight"))
        if isinstance(node, nir.Conv2d) and not isinstance(node.padding, str):
            return Conv2d(
                weight=self._numbers(name, node, "weight"),
                stride=_pair(node.stride),
                padding=_pair(node.padding),
                dilation=_pair(node.dilation),
                groups=int(node.groups),
            )
        raise FormatError(f"{self.path}: node {name!r}, a {type(node).__name__}, stands before a neuron; "
                          "Affine, Linear or Conv2d with a number as padding is needed.")  # fmt: skip

    def _population(
        self, node_name: str, name: str, entering: list[tuple[str, Synapse, Array]]
    ) -> tuple[FloatPopulation, float]:
        """The population of a node, and the factor r by which its synapses count."""
        node = self.graph.nodes[node_name]
        if isinstance(node, nir.Input):
            lowest, highest = self.input_range
            shape = _shape(node.input_type["input"])
            return Population(name=name, shape=shape, neuron=Input(minimum=lowest, maximum=highest)), 1.0
        if isinstance(node, nir.Output):
            shape = _shape(node.output_type["output"])
            return Population(name=name, shape=shape, neuron=FloatReadout(bias=_sum(entering, shape))), 1.0
        return self._lif(node_name, name, node, entering)

    def _lif(
        self, node_name: str, name: str, node: Any, entering: list[tuple[str, Synapse, Array]]
    ) -> tuple[FloatPopulation, float]:
        shape = _shape(node.v_threshold.shape)
        if np.any(node.v_reset != 0):
            raise FormatError(f"{self.path}: node {node_name!r} resets to other values than zero; not known.")
        factor, leak, unit = self._single(node_name, node, "r"), 1.0, 1.0
        leftover = np.zeros(shape)
        if isinstance(node, nir.LIF):
            leak = self.told.leaks.get(name, 1 - self.dt / self._single(node_name, node, "tau"))
            leftover, unit = self._numbers(node_name, node, "v_leak"), 1 - leak
        else:
            factor *= self.dt
        bias = _sum(entering, shape) * factor
        neuron = FloatLif(
            threshold=compact(np.asarray(node.v_threshold, np.float64) / unit),
            bias=bias + leftover if leftover.any() else bias,
            leak=leak,
        )
        return Population(name=name, shape=shape, neuron=neuron), factor

    def _single(self, name: str, node: Any, key: str) -> float:
        values = self._numbers(name, node, key)
        if values.size == 0 or values.min() != values.max() or values.max() <= 0:
            raise FormatError(
                f"{self.path}: node {name!r}: {key} must be one positive number for all neurons."
            )
        return float(values.flat[0])

    def _numbers(self, name: str, node: Any, key: str) -> Array:
        values = np.asarray(getattr(node, key))
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            raise FormatError(f"{self.path}: node {name!r}: {key} holds values that are no finite numbers.")
        return values.astype(np.float64)


def _sum(entering: list[tuple[str, Synapse, Array]], shape: Shape) -> Array:
    """The biases of all synapses into a population, one per channel."""
    total = np.zeros(shape[0])
    for _, _, bias in entering:
        total = total + bias
    return per_channel(total, shape)


def _shape(values: Any) -> Shape:
    return tuple(int(size) for size in np.asarray(values).ravel())


def _pair(values: Any) -> Pair:
    numbers = np.asarray(values).ravel().tolist()
    return int(numbers[0]), int(numbers[-1])
