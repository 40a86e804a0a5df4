"""lava-dl netx files (network.net): IntNetwork <-> HDF5.

    layer/<i>/type                 input, conv, flatten, dense
    layer/<i>/shape                [channels, height, width] or [features]
    layer/<i>/weight               conv [out, in / groups, y, x], dense [out, in]
    layer/<i>/bias                 per channel [channels], or per neuron [x, y, channel]
    layer/<i>/{stride, padding, dilation, groups}
    layer/<i>/neuron/{type, iDecay, vDecay, vThMant, ...}

Thresholds (`vThMant`) have the shapes of a bias; the stock reader takes them so, and fires each
neuron at its own. netx knows nothing of time steps, input ranges and readouts: those stand in a
group `mpbn_deploy` beside `layer`, which other readers do not see.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from typing_extensions import assert_never

from .bounds import bounds
from .errors import FormatError, NetworkError
from .graph import Connection, Conv2d, Dense, Pair, Population, Shape, Synapse
from .hdf5 import LARGEST_ARRAY, Tree, read_tree, write_tree
from .int_ir import DECAY_ONE, STATE_EXPONENT, Input, IntNetwork, IntPopulation, Lif, Neuron, Readout
from .records import Array, record

VERSION = 1
NEVER_FIRES = 2**17 - 1  # the largest threshold of the format; a readout's voltage must stay below it
MOST_LAYERS = 10_000


def write_netx(network: IntNetwork, path: str | Path) -> None:
    """Write a chain; the stock reader `lava.lib.dl.netx.hdf5.Network` loads it and fires the same spikes."""
    _refuse_what_netx_cannot_say(network)
    layers: list[Tree] = [{"type": "input", "shape": np.array(network.input.shape, np.int32)}]
    shape = network.input.shape
    for connection, population in zip(network.connections, network.populations[1:], strict=True):
        if isinstance(connection.synapse, Dense) and len(shape) == 3:
            layers.append({"type": "flatten", "shape": np.array([prod(shape)], np.int32)})
        layers.append(_layer(connection, population))
        shape = population.shape
    tree = {"layer": {str(i): layer for i, layer in enumerate(layers)}, "mpbn_deploy": _extra(network)}
    write_tree(Path(path), tree)


def read_netx(
    path: str | Path, *, timesteps: int | None = None, input_range: tuple[int, int] | None = None
) -> IntNetwork:
    """Read a chain. Files of other writers do not say time steps or the range of the input: give them.

    Their input is taken as plain spikes (0 or 1) unless `input_range` says otherwise.
    """
    try:
        return _read_network(Path(path), read_tree(Path(path)), timesteps, input_range)
    except NetworkError as error:
        raise FormatError(f"{path}: {error}") from error


# ---- writing ----------------------------------------------------------------------------------


def _refuse_what_netx_cannot_say(network: IntNetwork) -> None:
    problems = []
    if not network.is_chain:
        problems.append("the network is not a chain; netx holds one layer after another")
    problems += [
        f"{connection.label}: weight exponent {connection.synapse.exponent}; netx has none"
        for connection in network.connections
        if connection.synapse.exponent != 0
    ]
    for population in network.populations[1:]:
        neuron = population.neuron
        if not isinstance(neuron, Input) and neuron.bias_exponent != STATE_EXPONENT:
            problems.append(f"{population.name}: bias exponent {neuron.bias_exponent}; netx has 6")
        if isinstance(neuron, Readout):
            largest = bounds(network)[population.name].voltage[1]
            if largest > NEVER_FIRES << STATE_EXPONENT:
                problems.append(
                    f"{population.name}: voltages up to {largest} could fire netx' largest threshold"
                )
    if problems:
        raise FormatError("netx cannot hold this network:\n  - " + "\n  - ".join(problems))


def _layer(connection: Connection, population: IntPopulation) -> Tree:
    neuron, synapse = population.neuron, connection.synapse
    assert not isinstance(neuron, Input)
    common = {
        "shape": np.array(population.shape, np.int32),
        "weight": synapse.weight.astype(np.int32),
        "bias": _to_netx(neuron.bias),
        "neuron": _neuron(neuron),
    }
    match synapse:
        case Dense():
            return {"type": "dense", **common}
        case Conv2d():
            geometry = {
                "stride": np.array(synapse.stride, np.int32),
                "padding": np.array(synapse.padding, np.int32),
                "dilation": np.array(synapse.dilation, np.int32),
                "groups": np.int32(synapse.groups),
            }
            return {"type": "conv", **common, **geometry}
        case _:
            assert_never(synapse)


def _neuron(neuron: Lif | Readout) -> Tree:
    fixed = {"type": "CUBA", "refDelay": np.int32(1), "gradedSpike": np.int32(0)}
    match neuron:
        case Lif(decay_current=current, decay_voltage=voltage):
            rule = {"iDecay": current, "vDecay": voltage, "vThMant": _to_netx(neuron.threshold)}
        case Readout():
            rule = {"iDecay": DECAY_ONE, "vDecay": 0, "vThMant": NEVER_FIRES}
        case _:
            assert_never(neuron)
    return fixed | {key: np.asarray(value, np.int32) for key, value in rule.items()}


def _to_netx(values: Array) -> Array:
    """(channels, 1, 1) -> (channels,); (channel, y, x) -> (x, y, channel)"""
    per_channel = values.ndim == 3 and values.shape[1:] == (1, 1)
    return (values.ravel() if per_channel else values.T).astype(np.int32)


def _extra(network: IntNetwork) -> Tree:
    """What netx has no words for."""
    told = {
        "version": VERSION,
        "timesteps": network.timesteps,
        "input_range": [network.input_range.minimum, network.input_range.maximum],
        "populations": [population.name for population in network.populations],
        "readout": isinstance(network.output.neuron, Readout),
    }
    scales = {
        str(i): network.scales[p.name] for i, p in enumerate(network.populations) if p.name in network.scales
    }
    return {"json": json.dumps(told), "scales": scales}


# ---- reading ----------------------------------------------------------------------------------


@record
class _Told:
    """What our own files say beside the layers; empty for files of others."""

    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    populations: tuple[str, ...] = ()
    readout: bool = False
    scales: Tree


def _read_told(path: Path, tree: Tree) -> _Told:
    extra = tree.get("mpbn_deploy")
    if extra is None:
        return _Told(scales={})
    if not isinstance(extra, dict) or not isinstance(extra.get("scales"), dict):
        raise FormatError(f"{path}: group mpbn_deploy is damaged (no scales).")
    try:
        told = json.loads(extra["json"])
        if told["version"] != VERSION:
            raise FormatError(
                f"{path}: version {told['version']!r} of the format; version {VERSION} is read."
            )
        lowest, highest = map(int, told["input_range"])
        return _Told(
            timesteps=int(told["timesteps"]),
            input_range=(lowest, highest),
            populations=tuple(map(str, told["populations"])),
            readout=bool(told["readout"]),
            scales=extra["scales"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: group mpbn_deploy is damaged ({error!r}).") from error


def _read_network(
    path: Path, tree: Tree, timesteps: int | None, input_range: tuple[int, int] | None
) -> IntNetwork:
    told = _read_told(path, tree)
    layers = _read_layers(path, tree)
    timesteps = told.timesteps if timesteps is None else timesteps
    if timesteps is None or timesteps < 1:
        raise FormatError(f"{path}: time steps {timesteps}; give timesteps of at least 1.")
    lowest, highest = input_range or told.input_range or (0, 1)
    working = [layer for layer in layers[1:] if layer.text("type") != "flatten"]
    names = told.populations or ("input", *(f"layer{layer.index}" for layer in working))
    if len(names) != len(working) + 1:
        raise FormatError(f"{path}: {len(names)} names for {len(working) + 1} populations.")
    source: Neuron = Input(minimum=lowest, maximum=highest)
    first = Population(name=names[0], shape=layers[0].shape(), neuron=source)
    populations = [
        Population(name=name, shape=layer.shape(), neuron=layer.neuron(told.readout and layer is working[-1]))
        for name, layer in zip(names[1:], working, strict=True)
    ]
    connections = [
        Connection(source=before, target=target, synapse=layer.synapse())
        for before, target, layer in zip(names[:-1], names[1:], working, strict=True)
    ]
    return IntNetwork(
        populations=(first, *populations),
        connections=tuple(connections),
        timesteps=timesteps,
        scales={
            population.name: _scales(path, told.scales.get(str(index)), population)
            for index, population in enumerate(populations, start=1)
        },
    )


def _scales(path: Path, values: Any, population: IntPopulation) -> Array:
    """One factor per channel; one where a file says nothing."""
    channels = population.shape[0]
    if values is None:
        return np.ones(channels)
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.shape != (channels,):
        raise FormatError(f"{path}: scales of {population.name} are not {channels} numbers.")
    return values.astype(np.float64)


def _read_layers(path: Path, tree: Tree) -> list[_Layer]:
    group = tree.get("layer")
    if not isinstance(group, dict) or not 2 <= len(group) <= MOST_LAYERS:
        raise FormatError(f"{path}: no group 'layer' with an input and at least one layer after it.")
    missing = [str(index) for index in range(len(group)) if not isinstance(group.get(str(index)), dict)]
    if missing:
        raise FormatError(f"{path}: layers 0..{len(group) - 1} expected; {', '.join(missing[:5])} missing.")
    layers = [_Layer(path=path, index=index, tree=group[str(index)]) for index in range(len(group))]
    if layers[0].text("type") != "input":
        layers[0].fail("is not of type 'input', as the first one must be")
    return layers


@record
class _Layer:
    """One layer of a file; every complaint names the file, the layer and the key."""

    path: Path
    index: int
    tree: Tree

    def neuron(self, is_readout: bool) -> Neuron:
        shape = self.shape()
        zeros = np.zeros((shape[0], *(1 for _ in shape[1:])), np.int32)
        bias = self.per_neuron("bias", shape) if "bias" in self.tree else zeros
        group = self.tree.get("neuron")
        if not isinstance(group, dict):
            self.fail("has no group 'neuron'")
        rule = replace(self, tree=group)
        if (kind := rule.text("type")) not in ("CUBA", "LOIHI"):
            self.fail(f"has neurons of type {kind!r}; CUBA and LOIHI are known")
        if "refDelay" in group and rule.number("refDelay") != 1:
            self.fail("has neurons with a refractory delay; only a refDelay of 1, which is none, is known")
        if is_readout:
            return Readout(bias=bias)
        return Lif(
            threshold=rule.per_neuron("vThMant", shape),
            bias=bias,
            decay_current=rule.number("iDecay"),
            decay_voltage=rule.number("vDecay"),
        )

    def synapse(self) -> Synapse:
        weight, kind = self.integers("weight"), self.text("type")
        if "delay" in self.tree:
            self.fail("has synaptic delays; they are not known")
        if kind == "dense":
            outputs = prod(self.shape())
            return Dense(weight=weight.reshape(outputs, -1) if weight.size % outputs == 0 else weight)
        if kind != "conv":
            self.fail(f"is of type {kind!r}; input, conv, flatten and dense are known")
        if weight.ndim == 5 and weight.shape[4] == 1:  # lava-dl's own exports carry a time axis of one
            weight = weight[..., 0]
        return Conv2d(
            weight=weight,
            stride=self.pair("stride"),
            padding=self.pair("padding"),
            dilation=self.pair("dilation"),
            groups=self.number("groups"),
        )

    def shape(self) -> Shape:
        sizes: list[int] = self.integers("shape").ravel().tolist()
        if len(sizes) not in (1, 3) or min(sizes) < 1 or prod(sizes) > LARGEST_ARRAY:
            self.fail(f"has shape {sizes}; [features] or [channels, height, width] is needed")
        return tuple(sizes)

    def per_neuron(self, key: str, shape: Shape) -> Array:
        """One value for all, [channels], or [x, y, channel] -> (channels, 1, 1) or (channel, y, x)"""
        values, channels = self.integers(key), (shape[0], *(1 for _ in shape[1:]))
        if values.size == 1:
            return np.full(channels, values.ravel()[0])
        if values.shape == (shape[0],):
            return values.reshape(channels)
        if values.shape != shape[::-1]:
            self.fail(f"has {key} of shape {values.shape}; ({shape[0]},) or {shape[::-1]} is needed")
        return values.T

    def pair(self, key: str) -> Pair:
        values = self.integers(key).ravel().tolist()
        if len(values) not in (1, 2):
            self.fail(f"has {key} {values}; one or two numbers are needed")
        return values[0], values[-1]

    def number(self, key: str) -> int:
        values = self.integers(key)
        if values.size != 1:
            self.fail(f"has {values.size} values of {key}; one is needed")
        return int(values.ravel()[0])

    def integers(self, key: str) -> Array:
        values = np.asarray(self.tree.get(key))
        if values.dtype.kind not in "iuf" or values.size == 0:
            self.fail(f"has no numbers under the key {key!r}")
        whole: Array = np.rint(values)
        if not np.array_equal(whole, values) or np.abs(whole).max() >= 2**31:
            self.fail(f"has values of {key} that are no 32-bit integers")
        return whole.astype(np.int32)

    def text(self, key: str) -> str:
        value = self.tree.get(key)
        if isinstance(value, np.ndarray) and value.size == 1:  # lava-dl writes strings as arrays of one
            value = value.ravel()[0]
        if isinstance(value, bytes):
            value = value.decode("ascii", errors="replace")
        if not isinstance(value, str):
            self.fail(f"has no word under the key {key!r}")
        return value

    def fail(self, reason: str) -> NoReturn:
        raise FormatError(f"{self.path}: layer {self.index} {reason}.")
