"""NIR's linear nodes -> `Affine` maps: synapse, factor, bias and delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ...base import Array
from ...ir import (
    MOST_TIMESTEPS,
    Affine,
    Connection,
    Conv2d,
    Dense,
    FloatPopulation,
    FoldedNetwork,
    Pair,
    Population,
    Shape,
    always_fires,
    apply_synapse,
    axes,
    compact,
    has_current,
    neuron_bias,
    output_shape,
    per_channel,
    picture_shape,
    pool_synapse,
    window,
    with_values,
)
from .file import Node
from .metadata import is_signal

CONVOLUTIONS = frozenset({"Conv1d", "Conv2d"})
POOLINGS = frozenset({"SumPool2d", "AvgPool2d"})
# Inputs and outputs of nested graphs pass on their values.
LINEAR = CONVOLUTIONS | POOLINGS | {"Affine", "Linear", "Scale", "Flatten", "Delay", "Input", "Output"}
MOST_PRODUCTS = 2**32  # of one convolution in a time step: some seconds
MOST_TERMS = 2**28  # inputs of all its outputs together, which simulators hold in memory


Linear = tuple[Shape, Affine]  # the shape of a node's result, as in the file, and its map


def _affine(source: Shape, shape: Shape, **parts: Any) -> Linear:
    """Return the map of a node from one shape to another; `parts` are fields of `Affine`."""
    return shape, Affine(source=picture_shape(source), shape=picture_shape(shape), **parts)


def linear(node: Node, shape: Shape, dt: float) -> Linear:
    """Return the map of a linear node on values of a shape."""
    if node.kind in ("Affine", "Linear"):
        return _matrix(node, shape)
    if node.kind in CONVOLUTIONS:
        return _convolution(node, shape)
    if node.kind in POOLINGS:
        return _pooling(node, shape)
    if node.kind == "Scale":
        return _scale(node, shape)
    if node.kind == "Flatten":
        return _affine(shape, _flattened(node, shape))
    if node.kind == "Delay":
        return _delay(node, shape, dt)
    return _affine(shape, shape)


def _matrix(node: Node, shape: Shape) -> Linear:
    weight = node.numbers("weight")
    # Writers that count a batch axis may leave values unflattened, so only their number is checked.
    if weight.ndim != 2 or weight.shape[1] != prod(shape):
        node.fail("weight", f"has shape {weight.shape} on values of shape {shape}")
    bias = node.numbers("bias").ravel() if node.kind == "Affine" else None
    if bias is not None and bias.size != len(weight):
        node.fail("bias", f"holds {bias.size} values for {len(weight)} rows of weights")
    return _affine(shape, (len(weight),), synapse=Dense(weight=weight), bias=bias)


def _convolution(node: Node, shape: Shape) -> Linear:
    flat = node.kind == "Conv1d"
    weight = node.numbers("weight")
    if weight.ndim != (3 if flat else 4) or len(shape) != weight.ndim - 1:
        node.fail("weight", f"has shape {weight.shape} on values of shape {shape}")
    if flat:
        weight = weight[:, :, None, :]
    groups = node.number("groups")
    if groups < 1 or weight.shape[1] * groups != shape[0] or len(weight) % groups:
        node.fail("weight", f"has shape {weight.shape} in {groups} groups on {shape[0]} channels")
    stride, dilation = (_positive(node, key, flat) for key in ("stride", "dilation"))
    weight, padding = _padded(node, weight, stride, dilation, flat)
    synapse = Conv2d(weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    given = _checked(node, synapse, shape)
    bias = node.numbers("bias").ravel()
    if bias.size not in (1, len(weight)):
        node.fail("bias", f"holds {bias.size} values for {len(weight)} channels")
    bias = per_channel(np.broadcast_to(bias, (len(weight),)), picture_shape(given))
    return _affine(shape, given, synapse=synapse, bias=bias)


def _pooling(node: Node, shape: Shape) -> Linear:
    if len(shape) != 3:
        node.reject(f"pools values of shape {shape}; (channels, height, width) is needed")
    kernel, stride = _positive(node, "kernel_size"), _positive(node, "stride")
    padding = _paddings(node)
    if prod(kernel) * shape[0] > MOST_TERMS // 8:
        node.fail("kernel_size", f"is {list(kernel)}, which is too large")
    share = 1.0 if node.kind == "SumPool2d" else 1.0 / prod(kernel)
    synapse = pool_synapse(shape[0], kernel, stride, padding, share)
    return _affine(shape, _checked(node, synapse, shape), synapse=synapse)


def _scale(node: Node, shape: Shape) -> Linear:
    values, whole = node.numbers("scale"), picture_shape(shape)
    if values.size == prod(shape):
        factor = values.reshape(whole)
    elif values.size == shape[0]:
        factor = np.broadcast_to(per_channel(values, whole), whole)
    elif values.size == 1:
        factor = np.full(whole, values.flat[0])
    else:
        node.fail("scale", f"holds {values.size} values for values of shape {shape}")
    return _affine(shape, shape, factor=factor)


def _flattened(node: Node, shape: Shape) -> Shape:
    first, last = (
        node.number(key) if key in node.tree else default
        for key, default in (("start_dim", 0), ("end_dim", -1))
    )
    last = last + len(shape) if last < 0 else min(last, len(shape) - 1)
    first = max(0, first + len(shape) if first < 0 else first)
    if first >= last:
        return shape
    return (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])


def _delay(node: Node, shape: Shape, dt: float) -> Linear:
    values = node.numbers("delay") / dt
    steps = round(float(values.flat[0]))
    if np.abs(values - steps).max() > 1e-3 or not 0 <= steps <= MOST_TIMESTEPS:
        node.fail("delay", f"is not the same whole number of time steps of {dt:g} s for all")
    return _affine(shape, shape, delay=steps)


def _checked(node: Node, synapse: Conv2d, shape: Shape) -> Shape:
    """Return the shape of a convolution's result; raise if it is empty or too expensive."""
    found = output_shape(synapse, picture_shape(shape))
    if min(found) < 1:
        node.reject(
            f"its kernel of {synapse.weight.shape[2:]} is larger than its picture {shape}, padding included"
        )
    positions, kernel = prod(found[1:]), synapse.weight.shape[2:]
    products, terms = positions * synapse.weight.size, positions * shape[0] * prod(kernel)
    if products > MOST_PRODUCTS or terms > MOST_TERMS:
        node.fail(
            "padding" if max(synapse.padding) > max(shape) else "weight",
            f"takes {products} products of {terms} inputs; allowed are {MOST_PRODUCTS} of {MOST_TERMS}",
        )
    node.bounded("weight", found)
    return (found[0], found[2]) if len(shape) == 2 else found


def _positive(node: Node, key: str, flat: bool = False) -> Pair:
    values = (1, node.number(key)) if flat else node.pair(key)
    if min(values) < 1:
        node.fail(key, f"is {list(values)}; numbers above zero are needed")
    return values


def _paddings(node: Node, flat: bool = False) -> Pair:
    values = (0, node.number("padding")) if flat else node.pair("padding")
    if min(values) < 0:
        node.fail("padding", f"is {list(values)}; it cannot be negative")
    return values


def _padded(node: Node, weight: Array, stride: Pair, dilation: Pair, flat: bool) -> tuple[Array, Pair]:
    """Return the kernel and its padding; 'same' prepends a zero to even kernels, which shifts taps by one."""
    word = node.text("padding")
    if word is None:
        return weight, _paddings(node, flat)
    if word == "valid":
        return weight, (0, 0)
    if word != "same" or stride != (1, 1):
        node.fail("padding", f"is {word!r}; allowed are numbers, 'valid', or 'same' with a stride of one")
    reach = [apart * (size - 1) for apart, size in zip(dilation, weight.shape[2:], strict=True)]
    odd = [total % 2 for total in reach]
    if any(shift and apart > 1 for shift, apart in zip(odd, dilation, strict=True)):
        node.fail("padding", "is 'same' with an even kernel and a dilation; give numbers")
    weight = np.pad(weight, ((0, 0), (0, 0), (odd[0], 0), (odd[1], 0)))
    return weight, ((reach[0] + odd[0]) // 2, (reach[1] + odd[1]) // 2)


# Biases that differ within a channel, for which NIR has no node that all readers support.
#
# They are written as an extra neuron that fires in every step, and a convolution of its spikes. Our metadata
# lists these neurons, so that reading turns them into biases again.


def split_bias(network: FoldedNetwork, population: FloatPopulation) -> tuple[Array, Array]:
    """Split the bias into the part that the first synapse can carry, and a remainder per neuron.

    A kernel carries one bias per channel, a matrix one per neuron. A synapse onto a leaking current carries
    none, because the bias would accumulate. Kernels that divide the target into windows carry it together
    (see `bias_carriers`).
    """
    neuron, shape = population.neuron, population.shape
    full, main = np.broadcast_to(neuron.bias, shape), main_first(network, population.name)[0].synapse
    if has_current(neuron) or not bias_carriers(network, population):
        return np.zeros(len(main.weight)), full
    if isinstance(main, Dense):
        return full.ravel(), np.zeros(shape)
    # Most neurons have the bias of the one in the middle; only those at the border differ.
    middle = np.ravel_multi_index([size // 2 for size in shape[1:]], shape[1:])
    shared = full.reshape(len(full), -1)[:, middle]
    rounded = shared.astype(np.float32).astype(np.float64)
    alike = full.astype(np.float32) == per_channel(rounded, shape)
    return rounded, np.where(alike, 0.0, full - per_channel(rounded, shape))


def bias_carriers(network: FoldedNetwork, population: FloatPopulation) -> list[Connection]:
    """Return the first connections that together reach each neuron exactly once; empty if there are none."""
    served = np.zeros(population.shape[1:], int)
    carriers = []
    for connection in main_first(network, population.name):
        synapse = connection.synapse
        inside = window(synapse, population.shape) if isinstance(synapse, Conv2d) else ()
        served[inside] += 1
        carriers.append(connection)
        if served.min() == served.max():
            return carriers if served.max() == 1 else []
    return []


def main_first(network: FoldedNetwork, target: str) -> list[Connection]:
    """Return the connections into a population, the main path (from the latest population) before skips."""
    return sorted(network.entering(target), key=lambda c: (c.delay > 0, -network.order[c.source]))


def needs_constant(network: FoldedNetwork, population: FloatPopulation) -> bool:
    """Whether biases differ between neurons that share a kernel."""
    return not has_current(population.neuron) and bool(split_bias(network, population)[1].any())


def can_have_constant(network: FoldedNetwork, population: FloatPopulation) -> bool:
    """Whether an extra neuron can replace the biases: input and population are pictures, and not too large.

    The convolution of that neuron has one tap per pixel. If it is too large for readers to compute, biases
    are written as the resting voltage of the neurons instead.
    """
    if len(network.input.shape) != 3 or len(population.shape) != 3:
        return False
    _, side = _stride_and_side(population.shape)
    return population.size * side**2 <= MOST_TERMS


def with_constants(network: FoldedNetwork) -> tuple[FoldedNetwork, list[str]]:
    """Replace biases that differ within a channel by extra neurons; return the network and their names."""
    made = []
    for population in network.layers:
        if can_have_constant(network, population) and needs_constant(network, population):
            network, name = _with_constant(network, population)
            made.append(name)
    return network, made


def _with_constant(network: FoldedNetwork, population: FloatPopulation) -> tuple[FoldedNetwork, str]:
    shared, left = split_bias(network, population)
    name, (channels, height, width) = f"{population.name}_constant", network.input.shape
    constant = Population(name=name, shape=(1, 1, 1), neuron=always_fires((1, 1, 1)))
    silent = Conv2d(weight=np.zeros((1, channels, 1, 1)), stride=(height, width))  # onto one pixel
    connections = (
        Connection(source=network.input.name, target=name, synapse=silent),
        Connection(source=name, target=population.name, synapse=_from_one_pixel(left, is_signal(network))),
    )
    changed = _with_bias(population, per_channel(shared, population.shape))
    populations = [changed if p is population else p for p in network.populations]
    return replace(
        network,
        # Listed first, so that its connection comes after the main path (see `main_first`).
        populations=(populations[0], constant, *populations[1:]),
        connections=(*network.connections, *connections),
    ), name


def without_constants(
    network: FoldedNetwork, names: frozenset[str], per_neuron: Mapping[str, tuple[bool, bool]]
) -> FoldedNetwork:
    """Turn the neurons made by `with_constants` back into biases, per neuron or per channel as before."""
    layers = [p for p in network.layers if p.name not in names]
    for index, population in enumerate(layers):
        for connection in network.entering(population.name):
            if connection.source in names:
                added = apply_synapse(connection.synapse, np.ones((1, 1, 1, 1)))[0]
                bias = neuron_bias(population.neuron) + added.reshape(population.shape)
                _, own = per_neuron.get(population.name, (True, True))
                population = _with_bias(population, bias if own else compact(bias))
        layers[index] = population
    kept = [c for c in network.connections if not names & {c.source, c.target}]
    return replace(network, populations=(network.input, *layers), connections=tuple(kept))


def _with_bias(population: FloatPopulation, bias: Array) -> FloatPopulation:
    return population.with_neuron(with_values(population.neuron, bias, None))


def _from_one_pixel(values: Array, signal: bool) -> Conv2d:
    """Return a convolution whose result on a single pixel of value one is `values` [channel, y, x].

    Each neuron reads the pixel through its own tap. The kernel is square, because nir cannot type-check
    others; unless height and width are both odd or both even, that needs a stride of two. The kernel of a
    signal is as high as it.
    """
    channels, height, width = values.shape
    if signal:
        return Conv2d(weight=values[:, None, :, ::-1], padding=(0, width - 1))
    stride, size = _stride_and_side(values.shape)
    padding = (size + height) // 2 - 1, (size + stride * (width - 1)) // 2
    kernel = np.zeros((channels, 1, size, size))
    synapse = Conv2d(weight=kernel, stride=(1, stride), padding=padding)
    (_, rows, _), (_, columns, _) = (axis.pairs() for axis in axes(synapse, (1, 1, 1), values.shape))
    kernel[:, 0, rows[:, None], columns] = values
    return replace(synapse, weight=kernel)


def _stride_and_side(shape: Shape) -> tuple[int, int]:
    _, height, width = shape
    stride = 1 if height % 2 == width % 2 else 2
    side = max(height, stride * (width - 1) + 1)
    return stride, side + (side - height) % 2
