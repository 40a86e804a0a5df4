"""Tilings tried for the fewest cores, and how few cores no tiling could do with less than."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from ...ir import Conv2d, Dense, Shape
from .model import Inlet, Layer, Outlet
from .records import count_tiles
from .site import Site

FINEST = 16  # parts of an axis up to which all are tried; beyond, only half as many again each time


def best_tile(site: Site) -> Shape:
    """The tile of fewest cores that keeps all limits, then of least memory; single neurons if none does."""
    shape = site.layer.shape
    if len(shape) == 1:
        return _best_size(site)
    found: list[Shape] = []
    failed: list[Shape] = []
    for tile in sorted(_map_tiles(site.layer), key=lambda tile: count_tiles(shape, tile)):
        if found and count_tiles(shape, tile) > count_tiles(shape, found[0]):
            break
        if any(_covers(tile, smaller) for smaller in failed):
            continue  # a larger tile hardly ever needs less
        (found if site.holds(tile) else failed).append(tile)
    return min(found, key=site.all_words, default=tuple(1 for _ in shape))


def _best_size(site: Site) -> Shape:
    """Neurons in equal parts, as few parts as keep the limits; smaller ones hardly ever need more."""
    size = site.layer.size
    sizes = sorted({-(-size // number) for number in range(1, size + 1)}, reverse=True)
    index = bisect_left(sizes, 1, key=lambda size: int(site.holds((size,))))
    return (sizes[min(index, len(sizes) - 1)],)


def _map_tiles(layer: Layer) -> Iterator[Shape]:
    """Tiles of a map that keep the limit of neurons and the lower bound."""
    least, extents = lower_bound(layer), [_equal_extents(size) for size in layer.shape]
    most = layer.limits.get("neurons", prod(layer.shape))
    if layer.shares_kernels:
        # The compiler cuts maps at powers of two, though it takes it more cores; then a core must need it so.
        widest = (layer.shape[2] - 1).bit_length()
        extents[2] = [2**power for power in range(widest + 1)]
    for tile in product(*extents):
        within = tuple(min(pair) for pair in zip(tile, layer.shape, strict=True))
        if prod(tile) <= most and count_tiles(layer.shape, within) >= least:
            yield within


def _equal_extents(size: int) -> list[int]:
    """The extents of an axis in 1, 2, 3, ... equal parts; not of each large number of parts."""
    numbers = list(range(1, min(size, FINEST) + 1))
    while numbers[-1] < size:
        numbers.append(min(numbers[-1] * 3 // 2, size))
    return sorted({-(-size // number) for number in numbers}, reverse=True)


def _covers(tile: Shape, smaller: Shape) -> bool:
    return all(a >= b for a, b in zip(tile, smaller, strict=True))


def lower_bound(layer: Layer) -> int:
    """max over resources of ceil(what all cores need together / what one has for it)

    All is counted as if every word were full and nothing stored twice. What each core needs anyway (axons of
    dense synapses, a neuron group) is taken from what it has. Beyond single neurons nobody can cut.
    """
    synapses, entries, axons = _synapse_words(layer), _entries(layer), _axons_of_each_core(layer)
    needs = {
        "neurons": (layer.size, 0),
        "axon_map_entries": (entries, 0),
        "input_axons": (_pixel_axons(layer), 0),
        "synapse_words": (synapses, 0),
        "input_words": (synapses, axons),
        "total_words": (synapses + layer.size + entries, axons + 1),
    }
    cores = [
        -(-need // (limit - each))
        for resource, (need, each) in needs.items()
        if (limit := layer.limits.get(resource)) is not None and limit > each
    ]
    return min(max(cores, default=1), layer.size)


def _axons_of_each_core(layer: Layer) -> int:
    """Every source neuron has an axon to each core of a dense layer, unless zeros are dropped."""
    dense = [i.synapse.weight for i in layer.inlets if isinstance(i.synapse, Dense) and not i.drives]
    counts = layer.stores_zeros or layer.shares_kernels
    return sum(weight.shape[1] for weight in dense) if counts else 0


def _pixel_axons(layer: Layer) -> int:
    """Every source pixel that is read enters some core, for each group of a convolution."""
    if layer.shares_kernels:
        return 0
    return sum(_pixels(inlet) for inlet in layer.inlets if isinstance(inlet.synapse, Conv2d))


def _entries(layer: Layer) -> int:
    """Of the axon map: one for each pixel to each convolution, one for each neuron otherwise."""
    pixels = prod(layer.shape[1:])
    maps = [isinstance(outlet.synapse, Conv2d) for outlet in layer.outlets]
    if layer.shares_kernels:
        return pixels if maps and all(maps) else layer.size
    return sum(_least_entries(layer, outlet) for outlet in layer.outlets)


def _least_entries(layer: Layer, outlet: Outlet) -> int:
    return _pixels(outlet) if isinstance(outlet.synapse, Conv2d) else layer.size


def _pixels(way: Inlet | Outlet) -> int:
    """Source pixels that a convolution reads, times its groups."""
    assert isinstance(way.synapse, Conv2d)
    read = [np.count_nonzero(axis.relation().any(axis=0)) for axis in way.axes]
    return prod(read) * way.synapse.groups


def _synapse_words(layer: Layer) -> int:
    if not layer.knows_rows:
        return 0
    bits = sum(_bits(layer, inlet) * _weights(layer, inlet) for inlet in layer.inlets)
    return -(-bits // layer.limits["word_bits"])


def _bits(layer: Layer, inlet: Inlet) -> int:
    """Of a weight and the least index beside it: with one neuron on a core it may be empty."""
    dense = isinstance(inlet.synapse, Dense)
    if not dense and not layer.shares_kernels:
        return inlet.bits
    return inlet.bits + layer.limits["index_bits" if dense else "shared_index_bits"]


def _weights(layer: Layer, inlet: Inlet) -> int:
    """How many weights all cores together store at least."""
    weight = inlet.synapse.weight
    if inlet.drives:
        return 0
    if not layer.stores_zeros:
        return int(np.count_nonzero(weight)) if isinstance(inlet.synapse, Dense) else 0
    if layer.shares_kernels:
        return weight.size
    if isinstance(inlet.synapse, Dense):
        # Equal rows are stored once; there are no fewer than unlike weights of any neuron on the core.
        return sum(len(np.unique(neuron)) for neuron in weight)
    # Of small maps not all rows of a kernel meet a source row.
    taps = [np.count_nonzero(axis.uses()) for axis in inlet.axes]
    return weight.shape[0] * weight.shape[1] * prod(taps)
