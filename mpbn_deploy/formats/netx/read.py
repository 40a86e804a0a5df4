"""netx files -> IntNetwork: chains as lava-dl writes them, and graphs in our extension.

Keys mean what lava-dl's own reader (`lava/lib/dl/netx/hdf5.py`) makes of them:

    input without neurons   presents what it is given: spikes, unless told otherwise
    input with neurons      neurons whose bias is the sample, weight * x + bias; here the input is that
                            bias, and it drives the neurons through weights of one
    dense, conv             one population and the connection from the layer before
    dense_rec               and a connection to itself, one step later
    dense, delay            for all synapses, per target, per source, or per synapse: one connection for
                            each value
    dense without neurons   integrates its input and never fires
    average (last)          adds the spikes of each group up; the stock reader stops there
    flatten                 nothing: dense layers read their sources in the order channel, y, x
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
from ...ir import MOST_TIMESTEPS, Input, IntNetwork, Neuron, Population, Shape
from .connections import chain_connections, dense_weight, graph_connections
from .neurons import read_neuron
from .node import Node

CHAIN_VERSION, GRAPH_VERSION = 1, 2
MOST_LAYERS = 10_000
LARGEST_INPUT = 2**23 - 1  # the largest state: a larger graded spike has no meaning
INPUT_WEIGHT = 64  # lava-dl's, where an input layer with neurons has none

LAYER_TYPES = ("input", "flatten", "dense", "dense_rec", "conv", "average", "concat")


@record
class Given:
    """What a caller says of a file that does not say it itself."""

    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    input_shape: Shape | None = None


@record
class _Told:
    """What our own files say beside the layers; empty for files of others."""

    ours: bool = True
    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    names: tuple[str, ...] = ()
    readout: bool | None = None
    scales: Tree
    connections: Tree | None = None


def read_network(path: Path, tree: Tree, given: Given) -> IntNetwork:
    """The network that a file's tree holds."""
    told = _read_told(path, tree)
    layers = _layers(path, tree)
    source = _input(layers, told, given)
    working = [layer for layer in layers if _has_population(layer)]
    if not working:
        raise FormatError(f"{path}: no layer with neurons.")
    names = told.names or (source.name, *(f"layer{layer.index}" for layer in working))
    if len(names) != len(working) + 1 or len(set(names)) != len(names):
        raise FormatError(f"{path}: {len(set(names))} names for {len(working) + 1} populations.")
    populations: list[Population[Input | Neuron]] = [replace(source, name=names[0])]
    for name, layer in zip(names[1:], working, strict=True):
        shape, is_last = _population_shape(layer), layer is working[-1]
        neuron = read_neuron(layer, shape, is_last=is_last, is_readout=told.readout)
        populations.append(Population(name=name, shape=shape, neuron=neuron))
    if told.connections is None:
        connections = chain_connections(working, populations)
    else:
        connections = graph_connections(path, told.connections, working, populations)
    timesteps = _timesteps(path, tree, told, given)
    return IntNetwork(
        populations=tuple(populations),
        connections=connections,
        timesteps=timesteps,
        scales=_all_scales(path, told, working, populations, timesteps),
    )


# ---- what our own files tell ------------------------------------------------------------------


def _read_told(path: Path, tree: Tree) -> _Told:
    extra = tree.get("mpbn_deploy")
    if extra is None:
        return _Told(ours=False, scales={})
    if not isinstance(extra, dict) or not isinstance(extra.get("scales"), dict):
        raise FormatError(f"{path}: group mpbn_deploy is damaged (no scales).")
    try:
        told = json.loads(extra["json"])
        version = told["version"]
        if version not in (CHAIN_VERSION, GRAPH_VERSION):
            raise FormatError(
                f"{path}: version {version!r} of the format; {CHAIN_VERSION} and {GRAPH_VERSION} are read."
            )
        lowest, highest = told["input_range"]
        return _Told(
            timesteps=_whole(told["timesteps"]),
            input_range=(_whole(lowest), _whole(highest)),
            names=tuple(map(str, told["populations"])),
            readout=bool(told["readout"]),
            scales=extra["scales"],
            connections=_connection_group(path, extra) if version == GRAPH_VERSION else None,
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{path}: group mpbn_deploy is damaged ({error!r}).") from error


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _connection_group(path: Path, extra: Tree) -> Tree:
    group = extra.get("connection")
    if not isinstance(group, dict) or not group:
        raise FormatError(f"{path}: group mpbn_deploy/connection is missing; a graph needs it.")
    return group


def _timesteps(path: Path, tree: Tree, told: _Told, given: Given) -> int:
    """As given, as our files tell, or as lava-dl's files say of their simulation."""
    timesteps = given.timesteps if given.timesteps is not None else told.timesteps
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
    path: Path, told: _Told, working: Sequence[Node], populations: Sequence[Population[Any]], timesteps: int
) -> dict[str, Array]:
    """As our files tell. Else ones, and for averages what their sums must be divided by."""
    scales = {}
    for index, population in enumerate(populations[1:], start=1):
        if str(index) in told.scales:
            scales[population.name] = _scales(path, told.scales[str(index)], population)
        elif not told.ours:
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
    missing = [str(index) for index in range(len(group)) if not isinstance(group.get(str(index)), dict)]
    if missing:
        raise FormatError(f"{path}: layers 0..{len(group) - 1} expected; {', '.join(missing[:5])} missing.")
    layers = [Node(path=path, name=f"layer {i}", index=i, tree=group[str(i)]) for i in range(len(group))]
    for layer in layers:
        if (kind := layer.text("type")) not in LAYER_TYPES:
            layer.fail(f"is of type {kind!r}; known are {', '.join(LAYER_TYPES)}")
        if kind == "input" and layer.index > 0:
            layer.fail("is of type 'input', which only the first one can be")
        if kind == "average" and layer.index < len(layers) - 1:
            layer.fail("is of type 'average', which only the last one can be")
    return layers


def _has_population(layer: Node) -> bool:
    kind = layer.text("type")
    return kind != "flatten" and (kind != "input" or "neuron" in layer)


def _input(layers: Sequence[Node], told: _Told, given: Given) -> Population[Input]:
    first = layers[0]
    given_range = given.input_range or told.input_range
    if first.text("type") != "input":
        shape = given.input_shape or _guessed_input_shape(first)
    else:
        shape = _population_shape(first)
        _check_input_shape(first, shape, given.input_shape)
        if "neuron" in first and given_range is None:
            given_range = _drive_range(first)
    lowest, highest = given_range or (0, 1)
    if lowest > highest:
        raise FormatError(
            f"{first.path}: input range {lowest}..{highest} is empty; say the lowest value first."
        )
    if not -LARGEST_INPUT <= lowest <= highest <= LARGEST_INPUT:
        raise FormatError(f"{first.path}: input range {lowest}..{highest}; give one within 24 bits.")
    return Population(name="input", shape=shape, neuron=Input(minimum=lowest, maximum=highest))


def _check_input_shape(first: Node, shape: Shape, given: Shape | None) -> None:
    if given is not None and given != shape:
        first.fail(
            f"has shape {list(shape)}; input_shape (--input-shape) {list(given)} is another. Leave it "
            "out, it is for files without an input layer"
        )


def _guessed_input_shape(first: Node) -> Shape:
    """Files without an input layer, as lava-dl writes them where a network starts with a dense block."""
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


def _population_shape(layer: Node) -> Shape:
    """Dense layers are flat. Inputs with neurons are pictures: of one row, where they are flat."""
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
    """Read a chain as lava-dl writes it, or a graph of ours.

    Files of other writers may not say their time steps, the range of their input or, where they
    start with a convolution, its shape: give them. Their input is taken as plain spikes (0 or 1)
    unless `input_range` says otherwise; where their input layer has neurons, as what drives those.
    """
    given = Given(timesteps=timesteps, input_range=input_range, input_shape=input_shape)
    try:
        return read_network(Path(path), read_tree(Path(path)), given)
    except NetworkError as error:
        raise FormatError(f"{path}: {error}") from error
