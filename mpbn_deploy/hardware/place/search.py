"""Search for the tile with the fewest cores, and compute lower bounds on the number of cores."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from ...ir import Conv2d, Dense, Shape
from .layer import Inlet, Layer, Outlet
from .records import clip_tile, count_tiles
from .tile_use import TileUse

FINEST = 16  # up to this number of parts of an axis every number is tried; beyond, it grows by half each time


def best_tile(uses: TileUse) -> Shape:
    """Return the tile that fits with fewest cores, then with least memory; single neurons if none fits."""
    shape = uses.layer.shape
    if len(shape) == 1:
        return _best_size(uses)
    found: list[Shape] = []
    failed: list[Shape] = []  # none of which covers another
    for tile in sorted(_map_tiles(uses.layer), key=lambda tile: count_tiles(shape, tile)):
        if found and count_tiles(shape, tile) > count_tiles(shape, found[0]):
            break
        if any(_covers(tile, smaller) for smaller in failed):
            continue  # a larger tile almost never needs less
        if uses.fits(tile):
            found.append(tile)
        else:
            failed = [*(larger for larger in failed if not _covers(larger, tile)), tile]
    return min(found, key=uses.total_memory, default=tuple(1 for _ in shape))


def _best_size(uses: TileUse) -> Shape:
    """Divide neurons into the fewest equal parts that fit; smaller parts almost never need more."""
    size = uses.layer.size
    sizes = sorted({-(-size // number) for number in range(1, size + 1)}, reverse=True)
    index = bisect_left(sizes, 1, key=lambda size: int(uses.fits((size,))))
    return (sizes[min(index, len(sizes) - 1)],)


def _map_tiles(layer: Layer) -> Iterator[Shape]:
    """Yield the tiles of a map that satisfy the neuron limit and the lower bound."""
    least, extents = lower_bound(layer), [_equal_extents(size) for size in layer.shape]
    most = layer.most_neurons(layer.size)
    if layer.shares_kernels:
        # The compiler uses powers of two even if that takes more cores; the hardware probably requires it.
        widest = (layer.shape[2] - 1).bit_length()
        extents[2] = [2**power for power in range(widest + 1)]
    for tile in product(*extents):
        clipped = clip_tile(tile, layer.shape)
        if prod(tile) <= most and count_tiles(layer.shape, clipped) >= least:
            yield clipped


def _equal_extents(size: int) -> list[int]:
    """Return the extents of an axis in 1, 2, 3, ... equal parts, skipping some large numbers of parts."""
    numbers = list(range(1, min(size, FINEST) + 1))
    while numbers[-1] < size:
        numbers.append(min(numbers[-1] * 3 // 2, size))
    return sorted({-(-size // number) for number in numbers}, reverse=True)


def _covers(tile: Shape, smaller: Shape) -> bool:
    return all(a >= b for a, b in zip(tile, smaller, strict=True))


def lower_bound(layer: Layer) -> int:
    """max over resources of ceil(need of the whole layer / (limit of a core - fixed need of each core))

    The need assumes that every word is full and nothing is stored twice. Each core has a fixed need of axons
    for dense synapses and of one neuron group. The bound is at most the number of neurons.
    """
    synapses, entries, axons = _synapse_words(layer), _entries(layer), _axons_of_each_core(layer)
    needs = {
        "neurons": (layer.core_neurons * layer.size, 0),
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
    """Count the axons on every core: one per source neuron of a dense synapse, unless zeros are dropped."""
    dense = [i.synapse.weight for i in layer.inlets if isinstance(i.synapse, Dense) and not i.drives]
    counts = layer.stores_zeros or layer.shares_kernels
    return sum(weight.shape[1] for weight in dense) if counts else 0


def _pixel_axons(layer: Layer) -> int:
    """Count the axons of convolutions: each source pixel in use enters some core, once per group."""
    if layer.shares_kernels:
        return 0
    return sum(_pixels(inlet) for inlet in layer.inlets if isinstance(inlet.synapse, Conv2d))


def _entries(layer: Layer) -> int:
    """Count axon-map entries: one per pixel for each outgoing convolution, otherwise one per neuron."""
    pixels = prod(layer.shape[1:])
    maps = [isinstance(outlet.synapse, Conv2d) for outlet in layer.outlets]
    if layer.shares_kernels:
        return pixels if maps and all(maps) else layer.size
    return sum(_least_entries(layer, outlet) for outlet in layer.outlets)


def _least_entries(layer: Layer, outlet: Outlet) -> int:
    return _pixels(outlet) if isinstance(outlet.synapse, Conv2d) else layer.size


def _pixels(end: Inlet | Outlet) -> int:
    """Count the source pixels that a convolution reads, times its groups."""
    assert isinstance(end.synapse, Conv2d)
    read = [int(np.count_nonzero(axis.relation().any(axis=0))) for axis in end.axes]
    return prod(read) * end.synapse.groups


def _synapse_words(layer: Layer) -> int:
    if not layer.knows_rows:
        return 0
    bits = sum(_bits(layer, inlet) * _weights(layer, inlet) for inlet in layer.inlets)
    return -(-bits // layer.limits["word_bits"])


def _bits(layer: Layer, inlet: Inlet) -> int:
    """Return the bits of a weight and its shortest index, which is empty for one neuron on a Loihi 1 core."""
    dense = isinstance(inlet.synapse, Dense)
    if not dense and not layer.shares_kernels:
        return inlet.bits
    return inlet.bits + layer.limits["index_bits" if dense else "shared_index_bits"]


def _weights(layer: Layer, inlet: Inlet) -> int:
    """Return a lower bound on the weights stored on all cores together."""
    weight = inlet.synapse.weight
    if inlet.drives:
        return 0
    if not layer.stores_zeros:
        return int(np.count_nonzero(weight)) if isinstance(inlet.synapse, Dense) else 0
    if layer.shares_kernels:
        return weight.size
    if isinstance(inlet.synapse, Dense):
        # Equal rows are stored once; there are at least as many rows as distinct weights of any neuron.
        return sum(len(np.unique(neuron)) for neuron in weight)
    # On small maps, some kernel rows never meet a source row.
    taps = [int(np.count_nonzero(axis.uses())) for axis in inlet.axes]
    return prod((*weight.shape[:2], *taps))
