"""Biases of single neurons of a picture, which no node of NIR holds that all readers honour.

They are written as what one more neuron sends that fires in every step, through a convolution. What
our metadata names as such is a bias again when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...base import Array
from ...ir import (
    Connection,
    Conv2d,
    Dense,
    FloatLif,
    FloatPopulation,
    FoldedNetwork,
    Population,
    Shape,
    apply_synapse,
    axes,
    compact,
    incoming,
    neuron_bias,
    per_channel,
    window,
    with_values,
)
from .linear import MOST_TERMS

THRESHOLD, BIAS = 1.0, 2.0  # of a neuron that fires in every step
LEAK = 0.5  # does not matter, but spikingjelly wants one above zero


def always_fires(shape: tuple[int, ...]) -> FloatLif:
    return FloatLif(threshold=np.full(shape, THRESHOLD), bias=np.full(shape, BIAS), leak=LEAK)


def split_bias(network: FoldedNetwork, population: FloatPopulation) -> tuple[Array, Array]:
    """The part of the bias that the first synapse can carry, and what is left per neuron.

    A kernel carries one per channel, a matrix one per neuron; a current that leaks would add a bias up.
    Kernels that share the target out among them carry it together (see `bias_carriers`).
    """
    neuron, shape = population.neuron, population.shape
    full, main = np.broadcast_to(neuron.bias, shape), main_first(network, population.name)[0].synapse
    if neuron.current_leak or not bias_carriers(network, population):
        return np.zeros(len(main.weight)), full
    if isinstance(main, Dense):
        return full.ravel(), np.zeros(shape)
    # The neuron in the middle has the bias of most: what is left over is that of the border.
    middle = np.ravel_multi_index([size // 2 for size in shape[1:]], shape[1:])
    shared = full.reshape(len(full), -1)[:, middle]
    rounded = shared.astype(np.float32).astype(np.float64)
    alike = full.astype(np.float32) == per_channel(rounded, shape)
    return rounded, np.where(alike, 0.0, full - per_channel(rounded, shape))


def bias_carriers(network: FoldedNetwork, population: FloatPopulation) -> list[Connection]:
    """The first connections that together give each neuron its bias once; none if there are no such."""
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
    """The connections into a population with those from the latest population first: skips come after."""
    place = {population.name: index for index, population in enumerate(network.populations)}
    entering = incoming(network.connections, target)
    return sorted(entering, key=lambda c: (c.delay > 0, -place[c.source]))


def needs_constant(network: FoldedNetwork, population: FloatPopulation) -> bool:
    """Whether neurons of one channel, behind kernels, differ in bias."""
    return not population.neuron.current_leak and bool(split_bias(network, population)[1].any())


def can_have_constant(network: FoldedNetwork, population: FloatPopulation) -> bool:
    """Whether a neuron can stand for the biases: the input is a picture, and theirs is not too large.

    The convolution behind that neuron has as many taps as there are pixels. Where no reader would compute it,
    biases are written as the voltage at which neurons rest.
    """
    if len(network.input.shape) != 3 or len(population.shape) != 3:
        return False
    _, side = _stride_and_side(population.shape)
    return population.size * side**2 <= MOST_TERMS


def with_constants(network: FoldedNetwork) -> tuple[FoldedNetwork, list[str]]:
    """The same network with neurons for such biases, and their names."""
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
    silent = Conv2d(weight=np.zeros((1, channels, 1, 1)), stride=(height, width))  # gives one pixel
    connections = (
        Connection(source=network.input.name, target=name, synapse=silent),
        Connection(source=name, target=population.name, synapse=_from_one_pixel(left)),
    )
    changed = _with_bias(population, per_channel(shared, population.shape))
    populations = [changed if p is population else p for p in network.populations]
    return replace(
        network,
        # First, so that its connection does not come before the main one.
        populations=(populations[0], constant, *populations[1:]),
        connections=(*network.connections, *connections),
    ), name


def without_constants(
    network: FoldedNetwork, names: frozenset[str], per_neuron: Mapping[str, tuple[bool, bool]]
) -> FoldedNetwork:
    """Biases again, of populations that `with_constants` made; one per channel where they were so."""
    layers = [p for p in network.layers if p.name not in names]
    for index, population in enumerate(layers):
        for connection in incoming(network.connections, population.name):
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


def _from_one_pixel(values: Array) -> Conv2d:
    """A convolution whose result on a single pixel of one is `values` [channel, y, x].

    Each neuron sees the pixel through a tap of its own. The kernel is square, because nir cannot type
    others: where height and width are not both odd or both even, that takes a stride of two.
    """
    channels, height, width = values.shape
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
