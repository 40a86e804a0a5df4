"""Count axons and memory of convolutions whose core stores each kernel once, for all pixels (Loihi 2).

    channels on a core       divided into blocks of 2**k, largest first (48 = 32 + 16); one neuron group each
    kernel rows              one per block, source channel and kernel position
    axons in                 `core.shared_axons` per block of each convolution
    entries out              one per pixel and block if all targets are convolutions, otherwise one per neuron
    axon memory words        pixels * blocks * target cores / `core.axon_memory_targets`

Recovered from the tables that Intel's compiler prints in the lava-dl notebooks, which contain channel counts
with one and two blocks only.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ...ir import Conv2d, by_group
from .layer import Inlet, Layer, Outlet, Tiles
from .receptive_fields import channel_reach_counts, has_active_outputs, reach_counts
from .records import Tile, extents


def blocks(layer: Layer, part: Tile) -> list[slice]:
    """Divide the channels of a part into blocks of powers of two; one block without incoming kernels."""
    start, stop = part[0].start, part[0].stop
    if not layer.convolutions:
        return [part[0]]
    found = []
    while start < stop:
        block = 2 ** ((stop - start).bit_length() - 1)
        found.append(slice(start, start + block))
        start += block
    return found


def input_axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the input axons of a convolution on a core."""
    assert isinstance(inlet.synapse, Conv2d)
    shared = layer.limits["shared_axons"]
    return shared * len(blocks(layer, part)) if has_active_outputs(inlet.synapse, layer.shape, part) else 0


def synapse_words(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the words for the kernels of a convolution on a core."""
    synapse = inlet.synapse
    assert isinstance(synapse, Conv2d)
    if not has_active_outputs(synapse, layer.shape, part):
        return 0
    bits = inlet.bits + layer.limits["shared_index_bits"]
    per_group = synapse.weight.shape[0] // synapse.groups
    lengths: Counter[int] = Counter()
    for block in blocks(layer, part):
        lengths.update(channels.stop - channels.start for channels in by_group(block, per_group))
    rows: int = synapse.weight.shape[1] * _stored_taps(synapse, layer)
    return rows * sum(count * layer.row_words(length, bits) for length, count in lengths.items())


def _stored_taps(synapse: Conv2d, layer: Layer) -> int:
    """Count the kernel positions that have a row."""
    if layer.stores_zeros:
        return prod(synapse.weight.shape[2:])
    return int(np.count_nonzero(synapse.weight.any(axis=(0, 1))))


def axon_map_entries(layer: Layer, part: Tile) -> int:
    """Count the axon-map entries for spikes that leave a core."""
    extent = extents(part)
    return prod(extent[1:]) * len(blocks(layer, part)) if _per_pixel(layer) else prod(extent)


def axon_memory_words(layer: Layer, part: Tile, tiles: Tiles) -> int:
    """Count the words for the lists of target cores of the pixels of a part."""
    if not _per_pixel(layer):
        return 0
    targets = sum(_target_cores(layer, outlet, part, tiles) for outlet in layer.outlets)
    return -(-axon_map_entries(layer, part) * targets // layer.limits["axon_memory_targets"])


def _per_pixel(layer: Layer) -> bool:
    return bool(layer.outlets) and all(isinstance(outlet.synapse, Conv2d) for outlet in layer.outlets)


def _target_cores(layer: Layer, outlet: Outlet, part: Tile, tiles: Tiles) -> int:
    """Count the target cores that some pixel of a part reaches; 0 while the target is not divided yet."""
    tile = tiles.get(outlet.target)
    if tile is None:
        return 0
    rows, columns = (
        int(np.count_nonzero(reach_counts(outlet, tile[axis], axis, part[axis]))) for axis in (1, 2)
    )
    return channel_reach_counts(layer, outlet, tile[0], part[0])[0] * rows * columns
