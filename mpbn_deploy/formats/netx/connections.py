"""Read the connections of a netx file: from the layers of a chain, or from the list of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...base import Array, Tree
from ...ir import MOST_TIMESTEPS, Connection, Conv2d, Dense, Population, Synapse
from .node import Node, is_sigma_delta, numbered_nodes

MOST_DELAYS = 64  # different delays in a layer; the chip supports 0..62
LARGEST_SPLIT = 2**26  # total weights of the connections that a layer is split into


def chain_connections(
    working: Sequence[Node], populations: Sequence[Population[Any]]
) -> tuple[Connection, ...]:
    """Return the connections of a chain, layer by layer."""
    if any(map(is_sigma_delta, working)):
        return _sigma_delta_chain(working, populations)
    found: list[Connection] = []
    for layer, (source, target) in zip(working, pairwise(populations), strict=True):
        found += _entering(layer, source, target)
    return tuple(found)


def _sigma_delta_chain(
    working: Sequence[Node], populations: Sequence[Population[Any]]
) -> tuple[Connection, ...]:
    """Return the connections of a chain of sigma-delta neurons, each one step later, as in Lava."""
    found: list[Connection] = []
    for layer, (source, target) in zip(working, pairwise(populations), strict=True):
        if not is_sigma_delta(layer):
            layer.fail("has other neurons than its sigma-delta network; no file mixes them")
        if "delay" in layer or layer.text("type") not in ("input", "dense", "conv"):
            layer.fail("has loops or delays; in a sigma-delta network they are not supported")
        late = 0 if layer.text("type") == "input" else 1  # a sample reaches its own neurons at once
        found += [replace(c, delay=late) for c in _entering(layer, source, target)]
    return tuple(found)


def _entering(layer: Node, source: Population[Any], target: Population[Any]) -> list[Connection]:
    """Return the connections in a layer of a chain."""

    def forward(synapse: Synapse, delay: int = 0) -> Connection:
        return Connection(source=source.name, target=target.name, synapse=synapse, delay=delay)

    match layer.text("type"):
        case "input":
            channels = target.shape[0]
            return [forward(Conv2d(weight=np.ones((channels, 1, 1, 1), np.int32), groups=channels))]
        case "dense" if "delay" in layer:
            weight = dense_weight(layer, "weight")
            return [forward(Dense(weight=part), delay) for delay, part in _split(layer, weight)]
        case "dense_rec":
            _check_no_delays(layer, "drops the exponent of their weights (netx/blocks/process.py)")
            again = Dense(weight=dense_weight(layer, "weight_rec"))
            loop = Connection(source=target.name, target=target.name, synapse=again, delay=1)
            return [forward(_synapse(layer)), loop]
        case "conv":
            _check_no_delays(layer, "ignores them")
            return [forward(_synapse(layer))]
        case "average":
            return [forward(Dense(weight=_group_sums(layer, source.size, target.size)))]
        case _:
            return [forward(_synapse(layer))]


def _synapse(node: Node) -> Synapse:
    kind, exponent = node.text("type"), node.number_or("exponent", 0)
    if kind in ("dense", "dense_rec"):
        return Dense(weight=dense_weight(node, "weight"), exponent=exponent)
    if kind != "conv":
        node.fail(f"is of type {kind!r}, which has no weights")
    weight = node.integers("weight")
    if weight.ndim == 5 and weight.shape[4] == 1:  # older exports carry a time axis of one
        weight = weight[..., 0]
    return Conv2d(
        weight=weight,
        stride=node.pair("stride"),
        padding=node.pair("padding"),
        dilation=node.pair("dilation"),
        groups=node.number("groups"),
        exponent=exponent,
    )


def dense_weight(node: Node, key: str) -> Array:
    """Return the weight as [out, in]; lava-dl may write a single row without the first axis."""
    weight = node.integers(key)
    if weight.ndim == 1 and "shape" in node and weight.size % prod(node.shape()) == 0:
        weight = weight.reshape(prod(node.shape()), -1)
    if weight.ndim != 2:
        node.fail(f"has {key} of shape {weight.shape}; [out, in] is needed")
    return weight


def _check_no_delays(layer: Node, reader: str) -> None:
    if "delay" in layer and layer.integers("delay").any():
        layer.fail(
            f"of type {layer.text('type')!r} has delays; lava-dl's reader {reader}, so they are not supported"
        )


def _split(layer: Node, weight: Array) -> list[tuple[int, Array]]:
    """Split a weight matrix into one matrix per delay."""
    delay = _delay_of_each_synapse(layer, weight)
    values = np.unique(delay)
    if values.size > 1:  # a weight of zero has no delay
        values = np.unique(delay[weight != 0]) if weight.any() else values[:1]
    if values.size > MOST_DELAYS or values.size * weight.size > LARGEST_SPLIT:
        layer.fail(
            f"has {values.size} different delays, {values[0]}..{values[-1]}, of {weight.size} synapses; "
            f"at most {MOST_DELAYS} delays, and {LARGEST_SPLIT} weights in total, are supported"
        )
    if values.size == 1:
        return [(int(values[0]), weight)]
    return [(int(value), np.where(delay == value, weight, 0)) for value in values]


def _delay_of_each_synapse(layer: Node, weight: Array) -> Array:
    delay = layer.integers("delay")
    if delay.min() < 0 or delay.max() > MOST_TIMESTEPS:
        layer.fail(f"has delays {delay.min()}..{delay.max()}; allowed are 0..{MOST_TIMESTEPS}")
    if delay.size == 1:
        return np.broadcast_to(delay.ravel(), weight.shape)
    if delay.shape == (weight.shape[0],):
        return np.broadcast_to(delay[:, None], weight.shape)
    if delay.shape not in ((weight.shape[1],), weight.shape):
        layer.fail(f"has delay of shape {delay.shape}, which does not match the weight, {weight.shape}")
    return np.broadcast_to(delay, weight.shape)


def _group_sums(layer: Node, inputs: int, outputs: int) -> Array:
    """Return the matrix that sums groups of inputs of equal size."""
    if inputs % outputs or inputs * outputs > LARGEST_SPLIT:
        layer.fail(f"averages {inputs} neurons in {outputs} groups, which differ in size or are too many")
    sums: Array = np.kron(np.eye(outputs, dtype=np.int32), np.ones((1, inputs // outputs), np.int32))
    return sums


def graph_connections(
    path: Path, group: Tree, working: Sequence[Node], populations: Sequence[Population[Any]]
) -> tuple[Connection, ...]:
    """Return the connections of a graph's list; without weights, they are those of the target's layer."""
    layers = {layer.index: layer for layer in working}
    names = {0: populations[0].name}
    names |= {layer.index: p.name for layer, p in zip(working, populations[1:], strict=True)}
    found: list[Connection] = []
    used: dict[str, str] = {}  # layer with weights -> the connection that uses them
    for node in numbered_nodes(path, group, "connection"):
        ends = node.number("source"), node.number("target")
        for end in ends:
            if end not in names:
                node.fail(f"names layer {end}, which has no population")
        weights = node if "weight" in node else _layer_with_weights(node, layers.get(ends[1], node), used)
        found.append(
            Connection(
                source=names[ends[0]],
                target=names[ends[1]],
                synapse=_bordered(node, _synapse(weights)),
                delay=node.number("delay"),
            )
        )
    _check_lists(layers, names, found)
    for layer in working:
        if layer.text("type") in ("dense", "conv") and layer.name not in used:
            layer.fail("has weights, but every connection to it in the list has its own")
    return tuple(found)


def _bordered(node: Node, synapse: Synapse) -> Synapse:
    """Return the synapse with the silent border that its connection specifies."""
    if "silent" not in node:
        return synapse
    values = node.integers("silent")
    if not isinstance(synapse, Conv2d) or values.shape != (2, 2):
        node.fail(f"has silent {values.tolist()}; [[top, bottom], [left, right]] of a convolution is needed")
    (top, bottom), (left, right) = values.tolist()
    return replace(synapse, silent=((top, bottom), (left, right)))


def _layer_with_weights(connection: Node, layer: Node, used: dict[str, str]) -> Node:
    """Return the target's layer, for a connection without weights; their exponents and delays must agree."""
    if layer.text("type") == "concat":
        return layer  # has no weights, which fails when they are read
    if layer.text("type") == "dense_rec":
        layer.fail("is of type 'dense_rec' in a graph, where loops belong in the list of connections")
    if other := used.get(layer.name):
        connection.fail(f"has no weights, and {other} already uses those of {layer.name}")
    used[layer.name] = connection.name
    for key in ("exponent", "delay"):
        listed, in_layer = connection.number_or(key, 0), layer.number_or(key, 0)
        if listed != in_layer:
            connection.fail(
                f"has {key} {listed}; {layer.name}, which has its weights, has {in_layer}. Make them "
                "equal, or give the connection its own weights"
            )
    return layer


def _check_lists(layers: dict[int, Node], names: dict[int, str], connections: Sequence[Connection]) -> None:
    """Check that the `layers` of each concat layer are the sources of its connections."""
    for index, layer in layers.items():
        if layer.text("type") != "concat":
            continue
        sources = {c.source for c in connections if c.target == names[index]}
        listed = {names.get(source) for source in layer.integers("layers").ravel().tolist()}
        if sources != listed:
            layer.fail(f"has layers {sorted(map(str, listed))}; its connections come from {sorted(sources)}")
