"""Biases that differ within a channel, for which NIR has no node that all readers support.

They are written as an extra neuron that fires in every step, and a convolution of its spikes. Our metadata
lists these neurons, so that reading turns them into biases again.
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
    FloatPopulation,
    FoldedNetwork,
    Population,
    Shape,
    always_fires,
    apply_synapse,
    axes,
    compact,
    has_current,
    neuron_bias,
    per_channel,
    window,
    with_values,
)
from .kernels import is_signal
from .linear import MOST_TERMS


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
