"""netx files -> IntNetwork: chains as lava-dl writes them, and graphs in our extension.

Keys mean what lava-dl's own reader (`lava/lib/dl/netx/hdf5.py`) makes of them:

    input without neurons   presents the samples: spikes, unless an input range is given
    input with neurons      neurons whose bias is the sample, weight * x + bias; here that bias is the input,
                            which drives the neurons through weights of one. Sigma-delta neurons encode the
                            changes of the input
    dense, conv             one population and the connection from the previous layer
    dense_rec               the same, and a connection to itself with a delay of one step
    dense with delay        per layer, target, source or synapse: one connection for each value
    dense without neurons   integrates its input and never fires
    average (last)          sums the spikes of each group; lava-dl's reader does not support it
    flatten                 no operation: dense layers read their sources in the order channel, y, x

Sigma-delta neurons (SDNN) are not reset, and each layer sends the change to its bias before the first input
arrives. So the connections between them have the delay of one step that they have in Lava.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...base import Array, FormatError, NetworkError, Tree, read_tree, record
from ...ir import MOST_TIMESTEPS, STATE_EXPONENT, STATE_LIMIT, Input, IntNetwork, Neuron, Population, Shape
from .connections import chain_connections, dense_weight, graph_connections
from .node import Node, is_sigma_delta, numbered_nodes, read_neuron

CHAIN_VERSION, GRAPH_VERSION = 1, 2
MOST_LAYERS = 10_000
INPUT_WEIGHT = 64  # lava-dl's default for input layers with neurons

LAYER_TYPES = ("input", "flatten", "dense", "dense_rec", "conv", "average", "concat")


@record
class ReadOptions:
    """Properties of a network given by the caller, for files that lack them."""

    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    input_shape: Shape | None = None


@record
class _Metadata:
    """The group `mpbn_deploy` of our own files; empty for other files."""

    ours: bool = True
    foreign: bool = False  # whether the integers are from elsewhere
    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    input_step: int = 1
    input_offset: int = 0
    names: tuple[str, ...] = ()
    readout: bool | None = None
    scales: Tree
    connections: Tree | None = None


def read_network(path: Path, tree: Tree, given: ReadOptions) -> IntNetwork:
    """Return the network in the tree of a file."""
    metadata = _read_metadata(path, tree)
    layers = _layers(path, tree)
    source = _input(layers, metadata, given)
    working = [layer for layer in layers if _has_population(layer)]
    if not working:
        raise FormatError(f"{path}: no layer with neurons.")
    names = metadata.names or (source.name, *(f"layer{layer.index}" for layer in working))
    if len(names) != len(working) + 1 or len(set(names)) != len(names):
        raise FormatError(f"{path}: {len(set(names))} names for {len(working) + 1} populations.")
    populations: list[Population[Input | Neuron]] = [replace(source, name=names[0])]
    for name, layer in zip(names[1:], working, strict=True):
        shape, is_last = _population_shape(layer), layer is working[-1]
        neuron = read_neuron(layer, shape, is_last=is_last, is_readout=metadata.readout)
        populations.append(Population(name=name, shape=shape, neuron=neuron))
    if metadata.connections is None:
        connections = chain_connections(working, populations)
    else:
        connections = graph_connections(path, metadata.connections, working, populations)
    timesteps = _timesteps(path, tree, metadata, given)
    return IntNetwork(
        populations=tuple(populations),
        connections=connections,
        timesteps=timesteps,
        scales=_all_scales(path, metadata, working, populations, timesteps),
        foreign=metadata.foreign,
    )


# ---- metadata of our own files ----------------------------------------------------------------


def _read_metadata(path: Path, tree: Tree) -> _Metadata:
    extra = tree.get("mpbn_deploy")
    if extra is None:
        return _Metadata(ours=False, foreign=True, scales={})
    if not isinstance(extra, dict) or not isinstance(extra.get("scales"), dict):
        raise FormatError(f"{path}: group mpbn_deploy is damaged (no scales).")
    try:
        metadata = json.loads(extra["json"])
        version = metadata["version"]
        if version not in (CHAIN_VERSION, GRAPH_VERSION):
            raise FormatError(
                f"{path}: version {version!r} of the format; {CHAIN_VERSION} and {GRAPH_VERSION} are read."
            )
        lowest, highest = metadata["input_range"]
        return _Metadata(
            timesteps=_whole(metadata["timesteps"]),
            input_range=(_whole(lowest), _whole(highest)),
            input_step=_whole(metadata.get("input_step", 1)),
            input_offset=_whole(metadata.get("input_offset", 0)),
            names=tuple(map(str, metadata["populations"])),
            readout=bool(metadata["readout"]),
            foreign=bool(metadata.get("foreign", False)),
            scales=extra["scales"],
            connections=_connection_group(path, extra) if version == GRAPH_VERSION else None,
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{path}: group mpbn_deploy is damaged ({error!r}).") from error


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _connection_group(path: Path, extra: Tree) -> Tree:
    group = extra.get("connection")
    if not isinstance(group, dict) or not group:
        raise FormatError(f"{path}: group mpbn_deploy/connection is missing; a graph needs it.")
    return group


def _timesteps(path: Path, tree: Tree, metadata: _Metadata, given: ReadOptions) -> int:
    """Return the number of steps given by the caller, our metadata, or the `simulation` group of lava-dl."""
    timesteps = given.timesteps if given.timesteps is not None else metadata.timesteps
    if timesteps is None and isinstance(simulation := tree.get("simulation"), dict):
        node = Node(path=path, name="simulation", tree=simulation)
        if "tSample" in node:
            timesteps = node.number("tSample") // max(1, node.number_or("Ts", 1))
    if timesteps is None or not 1 <= timesteps <= MOST_TIMESTEPS:
        raise FormatError(
            f"{path}: time steps {timesteps}; give timesteps (--timesteps) of 1..{MOST_TIMESTEPS}."
        )
    return timesteps


def _all_scales(
    path: Path,
    metadata: _Metadata,
    working: Sequence[Node],
    populations: Sequence[Population[Any]],
    timesteps: int,
) -> dict[str, Array]:
    """Return the scales of our metadata; for other files ones, and the divisor of the mean for averages."""
    scales = {}
    for index, population in enumerate(populations[1:], start=1):
        if str(index) in metadata.scales:
            scales[population.name] = _scales(path, metadata.scales[str(index)], population)
        elif not metadata.ours:
            averaged = working[index - 1].text("type") == "average"
            factor = populations[index - 1].size // population.size * timesteps if averaged else 1
            scales[population.name] = np.full(population.shape[0], float(factor))
    return scales


def _scales(path: Path, values: Any, population: Population[Any]) -> Array:
    channels = population.shape[0]
    numbers = isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.shape == (channels,)
    if not numbers or not np.isfinite(values).all():
        raise FormatError(f"{path}: scales of {population.name} are not {channels} numbers.")
    return np.asarray(values, np.float64)


# ---- layers -----------------------------------------------------------------------------------


def _layers(path: Path, tree: Tree) -> list[Node]:
    group = tree.get("layer")
    if not isinstance(group, dict) or not 1 <= len(group) <= MOST_LAYERS:
        raise FormatError(f"{path}: no group 'layer' with 1..{MOST_LAYERS} layers.")
    layers = numbered_nodes(path, group, "layer")
    for layer in layers:
        if (kind := layer.text("type")) not in LAYER_TYPES:
            layer.fail(f"is of type {kind!r}; supported are {', '.join(LAYER_TYPES)}")
        if kind == "input" and layer.index > 0:
            layer.fail("is of type 'input'; only the first layer can be")
        if kind == "average" and layer.index < len(layers) - 1:
            layer.fail("is of type 'average'; only the last layer can be")
    return layers


def _has_population(layer: Node) -> bool:
    kind = layer.text("type")
    return kind != "flatten" and (kind != "input" or "neuron" in layer)


def _input(layers: Sequence[Node], metadata: _Metadata, given: ReadOptions) -> Population[Input]:
    first = layers[0]
    given_range = given.input_range or metadata.input_range
    if first.text("type") != "input":
        shape = given.input_shape or _guessed_input_shape(first)
    else:
        shape = _population_shape(first)
        _check_input_shape(first, shape, given.input_shape)
        if "neuron" in first and given_range is None:
            given_range = _encoded_range() if is_sigma_delta(first) else _drive_range(first)
    lowest, highest = given_range or (0, 1)
    if lowest > highest:
        raise FormatError(
            f"{first.path}: input range {lowest}..{highest} is empty; give the lowest value first."
        )
    if not -STATE_LIMIT <= lowest <= highest <= STATE_LIMIT:  # larger graded spikes would overflow
        raise FormatError(f"{first.path}: input range {lowest}..{highest}; give one within 24 bits.")
    presents = Input(minimum=lowest, maximum=highest)
    if not given.input_range:
        presents = replace(presents, divisor=metadata.input_step, offset=metadata.input_offset)
    if presents.divisor < 1:
        raise FormatError(f"{first.path}: input step {presents.divisor}; 1 or more is needed.")
    return Population(name="input", shape=shape, neuron=presents)


def _check_input_shape(first: Node, shape: Shape, given: Shape | None) -> None:
    if given is not None and given != shape:
        first.fail(
            f"has shape {list(shape)}; input_shape (--input-shape) {list(given)} differs. Omit it: it is "
            "for files without an input layer"
        )


def _guessed_input_shape(first: Node) -> Shape:
    """Infer the input shape of a file without an input layer, which lava-dl writes if the first is dense."""
    kind = first.text("type")
    if kind == "flatten":
        return (prod(first.shape()),)
    if not kind.startswith("dense"):
        first.fail(f"is of type {kind!r}, and the file has no input layer: give input_shape (--input-shape)")
    return (dense_weight(first, "weight").shape[-1],)


def _drive_range(layer: Node) -> tuple[int, int]:
    """weight * x + bias for x from -1 to 1"""
    weight, bias = abs(layer.number_or("weight", INPUT_WEIGHT)), layer.number_or("bias", 0)
    return bias - weight, bias + weight


def _encoded_range() -> tuple[int, int]:
    """Return the values whose encoding fits the state, with lava-dl's exponents."""
    largest = STATE_LIMIT >> 2 * STATE_EXPONENT
    return -largest, largest


def _population_shape(layer: Node) -> Shape:
    """Return the shape of a population: flat for dense layers, a picture for inputs with neurons."""
    shape, kind = layer.shape(), layer.text("type")
    if kind in ("dense", "dense_rec", "average"):
        return (prod(shape),)
    if kind == "input" and "neuron" in layer and len(shape) == 1:
        return (1, 1, *shape)
    return shape


def read_netx(
    path: str | Path,
    *,
    timesteps: int | None = None,
    input_range: tuple[int, int] | None = None,
    input_shape: Shape | None = None,
) -> IntNetwork:
    """Read a chain as lava-dl writes it, or a graph that `write_netx` wrote.

    Files of other writers may lack the number of time steps and, if they start with a convolution, the
    shape of their input: give them. The default input range of such files is 0..1 (spikes); if their input
    layer has neurons, it is the range of the bias that drives them, or of all values that they can encode.
    """
    given = ReadOptions(timesteps=timesteps, input_range=input_range, input_shape=input_shape)
    try:
        return read_network(Path(path), read_tree(Path(path)), given)
    except NetworkError as error:
        raise FormatError(f"{path}: {error}") from error
