"""Count axons and memory of convolutions whose core stores weights per source pixel (Loihi 1, nengo-loihi).

    axons in       one per source pixel that reaches the core, and per group of the convolution; for a layer
                   on a single core, one for every source pixel
    rows           one per distinct part of the kernel that a source pixel meets, with all source channels; a
                   row can be shifted by less than `core.row_shifts` neurons, beyond which it is stored again
    index bits     the first of `core.stored_index_bits` that holds the largest index on the core
    entries out    one per source pixel (convolution) or neuron (dense) for each target core that it reaches

As in nengo_loihi conv.py, builder/split_blocks.py and block.py. Neurons on a core are ordered by row, column
and channel. nengo-loihi has no groups; each group is counted as a separate convolution.
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ...base import Array
from ...ir import Conv2d, ProjectiveFields, by_group
from .bits import next_width
from .layer import Inlet, Layer, Outlet, Tiles
from .receptive_fields import channel_reach_counts, reach_counts, source_fields
from .records import Tile, count_tiles, extents


def input_axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the input axons of a convolution on a core."""
    assert isinstance(inlet.synapse, Conv2d)
    groups = len(_group_channels(inlet.synapse, part))
    if extents(part) == layer.shape:
        return groups * prod(inlet.source[1:])
    rows, columns = _source_fields(inlet, part)
    return groups * len(rows.count) * len(columns.count)


def synapse_words(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the words for the weights of a convolution on a core."""
    lengths, largest = _rows(layer, inlet, part)
    bits = inlet.bits + index_bits(layer, largest)
    counts = Counter(lengths.tolist())
    return sum(count * layer.row_words(length, bits) for length, count in counts.items())


def index_bits(layer: Layer, largest: int) -> int:
    """Return the bits of the index stored with each weight, given the largest index on the core."""
    widest = layer.limits["shared_index_bits"]
    if not layer.index_widths:
        return widest
    needed = min(largest.bit_length(), widest)  # an undivided layer may exceed the widest index
    return next_width(needed, layer.index_widths) if needed else 0


def axon_map_entries(layer: Layer, part: Tile, tiles: Tiles) -> int:
    """Count the axon-map entries for spikes that leave a core, over all targets."""
    return sum(_entries(layer, outlet, part, tiles) for outlet in layer.outlets)


def _entries(layer: Layer, outlet: Outlet, part: Tile, tiles: Tiles) -> int:
    extent, tile = extents(part), tiles.get(outlet.target, outlet.shape)
    if not isinstance(outlet.synapse, Conv2d):
        return prod(extent) * count_tiles(outlet.shape, tile)
    channels = channel_reach_counts(layer, outlet, tile[0], part[0])[1]
    if tile == outlet.shape:
        return prod(extent[1:]) * channels
    rows, columns = (int(reach_counts(outlet, tile[axis], axis, part[axis]).sum()) for axis in (1, 2))
    return channels * rows * columns


def _group_channels(synapse: Conv2d, part: Tile) -> list[slice]:
    """Return the channels that a part has of each group."""
    return by_group(part[0], synapse.weight.shape[0] // synapse.groups)


def _source_fields(inlet: Inlet, part: Tile) -> tuple[ProjectiveFields, ProjectiveFields]:
    """Return the projective fields, within a part, of the source rows and columns that reach it."""
    rows, columns = (source_fields(inlet, axis, part[axis]) for axis in (1, 2))
    return rows, columns


def _rows(layer: Layer, inlet: Inlet, part: Tile) -> tuple[Array, int]:
    """Return the lengths of all rows of a core, and the largest index. Arrays are [row, column, group]."""
    synapse = inlet.synapse
    assert isinstance(synapse, Conv2d)
    down, across = _source_fields(inlet, part)
    groups = _group_channels(synapse, part)
    many = np.array([group.stop - group.start for group in groups])
    offset = np.array([group.start - part[0].start for group in groups])
    first = _neuron_numbers(part, down.first, across.first) + offset
    last = _neuron_numbers(part, down.last, across.last) + offset + many - 1
    shift = _shift(layer, first)
    distinct = _distinct_rows(_patterns(synapse, down, across), np.arange(len(groups)), first - shift)
    lengths = down.count[:, None, None] * across.count[:, None] * many * synapse.weight.shape[1]
    return lengths.reshape(-1)[distinct], int((last - shift).max(initial=0))


def _neuron_numbers(part: Tile, rows: Array, columns: Array) -> Array:
    """Return the neuron number, on the core, of the first channel of each pixel."""
    channels, _, width = extents(part)
    number: Array = (
        (rows - part[1].start)[:, None, None] * width + (columns - part[2].start)[:, None]
    ) * channels
    return number


def _patterns(synapse: Conv2d, down: ProjectiveFields, across: ProjectiveFields) -> Array:
    """Number the parts of a kernel that source pixels can meet."""
    (height, width), counts = synapse.weight.shape[2:], (down.count, across.count)
    rows, columns = (
        fields.tap * (size + 1) + count
        for fields, size, count in zip((down, across), (height, width), counts, strict=True)
    )
    pattern: Array = rows[:, None, None] * (width + 1) ** 2 + columns[:, None]
    return pattern


def _distinct_rows(patterns: Array, groups: Array, start: Array) -> Array:
    """Return the index of the first pixel of each set of pixels that share a row."""
    keys = (patterns * len(groups) + groups) * (start.max(initial=0) + 1) + start
    distinct: Array = np.unique(keys, return_index=True)[1]
    return distinct


def _shift(layer: Layer, first: Array) -> Array:
    """Return the shift of a row that starts at neuron `first`."""
    shifts = layer.limits.get("row_shifts")
    return first if shifts is None else first % shifts
