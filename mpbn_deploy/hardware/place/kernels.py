"""A core that stores kernels as they are, and serves all pixels of a map with them (Loihi 2).

    channels on a core       cut into blocks of 2**k, the largest first: 48 = 32 + 16; a neuron group each
    kernel rows              for each block one per (source channel, kernel position)
    axons in                 `core.shared_axons` for each block of each convolution
    entries out              one per pixel and block if all targets are convolutions, else one per neuron
    words of axon memory     pixels * blocks * target cores / `core.axon_memory_targets`

Recovered from the tables of Intel's compiler in the notebooks of lava-dl. Only channel counts of one and
of two blocks occur in them.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ...ir import Conv2d, by_group
from .model import Inlet, Layer, Outlet, Tiles
from .reach import channel_hits, hits, served
from .records import Tile, extents


def blocks(layer: Layer, part: Tile) -> list[slice]:
    """The channels of a part in blocks of powers of two; all together where no kernel enters."""
    start, stop = part[0].start, part[0].stop
    if not layer.convolutions:
        return [part[0]]
    found = []
    while start < stop:
        block = 2 ** ((stop - start).bit_length() - 1)
        found.append(slice(start, start + block))
        start += block
    return found


def axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """By which a convolution enters a core."""
    assert isinstance(inlet.synapse, Conv2d)
    shared = layer.limits["shared_axons"]
    return shared * len(blocks(layer, part)) if served(inlet.synapse, layer.shape, part) else 0


def words(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """That hold the kernels of a convolution on a core."""
    synapse = inlet.synapse
    assert isinstance(synapse, Conv2d)
    if not served(synapse, layer.shape, part):
        return 0
    bits = inlet.bits + layer.limits["shared_index_bits"]
    per_group = synapse.weight.shape[0] // synapse.groups
    lengths: Counter[int] = Counter()
    for block in blocks(layer, part):
        lengths.update(channels.stop - channels.start for channels in by_group(block, per_group))
    rows = synapse.weight.shape[1] * _positions(synapse, layer)
    return rows * sum(count * layer.row_words(length, bits) for length, count in lengths.items())


def _positions(synapse: Conv2d, layer: Layer) -> int:
    """Kernel positions that have a row."""
    if layer.stores_zeros:
        return prod(synapse.weight.shape[2:])
    return int(np.count_nonzero(synapse.weight.any(axis=(0, 1))))


def entries(layer: Layer, part: Tile) -> int:
    """Of the axon map, for spikes that leave a core."""
    extent = extents(part)
    return prod(extent[1:]) * len(blocks(layer, part)) if _per_pixel(layer) else prod(extent)


def axon_memory(layer: Layer, part: Tile, tiles: Tiles) -> int:
    """Words for the lists of cores to which the pixels of a part go."""
    if not _per_pixel(layer):
        return 0
    targets = sum(_target_cores(layer, outlet, part, tiles) for outlet in layer.outlets)
    return -(-entries(layer, part) * targets // layer.limits["axon_memory_targets"])


def _per_pixel(layer: Layer) -> bool:
    return bool(layer.outlets) and all(isinstance(outlet.synapse, Conv2d) for outlet in layer.outlets)


def _target_cores(layer: Layer, outlet: Outlet, part: Tile, tiles: Tiles) -> int:
    """Cores of a target with a neuron that some pixel of a part reaches; none while it is not cut."""
    tile = tiles.get(outlet.target)
    if tile is None:
        return 0
    rows, columns = (int(np.count_nonzero(hits(outlet, tile[axis], axis, part[axis]))) for axis in (1, 2))
    return channel_hits(layer, outlet, tile[0], part[0])[0] * rows * columns
