"""A core that stores, for each source pixel, the weights it needs of a kernel (Loihi 1, as nengo-loihi does).

    axons in       one per source pixel that reaches the core, and per group of the convolution; of a layer
                   on one core all pixels, used or not
    rows           pixels that meet the same part of the kernel share one, with all source channels in it; but
                   it can be shifted by less than `core.row_shifts` neurons, beyond which it is stored again
    index bits     the first of `core.stored_index_bits` that holds the largest index on the core
    entries out    one per source pixel (convolution) or neuron (dense) for each target core that it reaches

(nengo_loihi conv.py, builder/split_blocks.py, block.py.) Neurons lie on a core row by row, column by column,
channel by channel. nengo-loihi has no groups: each is counted as a convolution of its own.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ...base import Array
from ...ir import Conv2d, ProjectiveFields, by_group
from .bits import next_width
from .model import Inlet, Layer, Outlet, Tiles
from .reach import channel_hits, hits, source_fields
from .records import Tile, count_tiles, extents


def axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """By which a convolution enters a core."""
    assert isinstance(inlet.synapse, Conv2d)
    groups = len(_members(inlet.synapse, part))
    if extents(part) == layer.shape:
        return groups * prod(inlet.source[1:])
    rows, columns = _source_fields(inlet, part)
    return groups * len(rows.count) * len(columns.count)


def words(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """That hold the weights of a convolution on a core."""
    lengths, largest = _rows(layer, inlet, part)
    bits = inlet.bits + index_bits(layer, largest)
    counts = Counter(lengths.tolist())
    return sum(count * layer.row_words(length, bits) for length, count in counts.items())


def index_bits(layer: Layer, largest: int) -> int:
    """Beside each weight, where the largest index on a core is this."""
    widest = layer.limits["shared_index_bits"]
    if not layer.index_widths:
        return widest
    needed = min(largest.bit_length(), widest)  # of a layer that is still to be cut, the widest
    return next_width(needed, layer.index_widths) if needed else 0


def entries(layer: Layer, part: Tile, tiles: Tiles) -> int:
    """For spikes that leave a core, over all targets."""
    return sum(_entries(layer, outlet, part, tiles) for outlet in layer.outlets)


def _entries(layer: Layer, outlet: Outlet, part: Tile, tiles: Tiles) -> int:
    extent, tile = extents(part), tiles.get(outlet.target, outlet.shape)
    if not isinstance(outlet.synapse, Conv2d):
        return prod(extent) * count_tiles(outlet.shape, tile)
    channels = channel_hits(layer, outlet, tile[0], part[0])[1]
    if tile == outlet.shape:
        return prod(extent[1:]) * channels
    rows, columns = (int(hits(outlet, tile[axis], axis, part[axis]).sum()) for axis in (1, 2))
    return channels * rows * columns


def _members(synapse: Conv2d, part: Tile) -> list[slice]:
    """The channels of each group that a part has some of."""
    return by_group(part[0], synapse.weight.shape[0] // synapse.groups)


def _source_fields(inlet: Inlet, part: Tile) -> tuple[ProjectiveFields, ProjectiveFields]:
    """Source rows and columns that reach a part, each with what it reaches there."""
    rows, columns = (source_fields(inlet, axis, part[axis]) for axis in (1, 2))
    return rows, columns


def _rows(layer: Layer, inlet: Inlet, part: Tile) -> tuple[Array, int]:
    """The lengths of all rows of a core, and the largest index in them. Arrays are [row, column, group]."""
    synapse = inlet.synapse
    assert isinstance(synapse, Conv2d)
    down, across = _source_fields(inlet, part)
    groups = _members(synapse, part)
    many = np.array([group.stop - group.start for group in groups])
    offset = np.array([group.start - part[0].start for group in groups])
    first = _neuron(part, down.first, across.first) + offset
    last = _neuron(part, down.last, across.last) + offset + many - 1
    shift = _shift(layer, first)
    unlike = _first_of_each(_patterns(synapse, down, across), np.arange(len(groups)), first - shift)
    lengths = down.count[:, None, None] * across.count[:, None] * many * synapse.weight.shape[1]
    return lengths.reshape(-1)[unlike], int((last - shift).max(initial=0))


def _neuron(part: Tile, rows: Array, columns: Array) -> Array:
    """The number on the core of the first channel of pixels."""
    channels, _, width = extents(part)
    number: Array = (
        (rows - part[1].start)[:, None, None] * width + (columns - part[2].start)[:, None]
    ) * channels
    return number


def _patterns(synapse: Conv2d, down: ProjectiveFields, across: ProjectiveFields) -> Array:
    """A number for each part of a kernel that a source pixel can meet."""
    (height, width), counts = synapse.weight.shape[2:], (down.count, across.count)
    rows, columns = (
        fields.tap * (size + 1) + count
        for fields, size, count in zip((down, across), (height, width), counts, strict=True)
    )
    pattern: Array = rows[:, None, None] * (width + 1) ** 2 + columns[:, None]
    return pattern


def _first_of_each(patterns: Array, groups: Array, start: Array) -> Array:
    """Where the first pixel stands of all those that share a row."""
    keys = (patterns * len(groups) + groups) * (start.max(initial=0) + 1) + start
    unlike: Array = np.unique(keys, return_index=True)[1]
    return unlike


def _shift(layer: Layer, first: Array) -> Array:
    """By how much the row of a pixel is shifted that begins at neuron `first`."""
    shifts = layer.limits.get("row_shifts")
    return first if shifts is None else first % shifts
