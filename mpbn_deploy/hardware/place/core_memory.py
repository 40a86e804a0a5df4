"""Count the resources that one core with a memory of words needs (Loihi 1 and 2).

one word per input axon, neuron, neuron group and axon-map entry
words of a row of n weights = ceil((n * b + row_header_bits) / word_bits)
dense:        one row per source neuron, b = weight bits + index_bits
convolution:  `loihi1_synapse_words`, `loihi2_synapse_words`; b = weight bits + bits of the index
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ...base import Array
from ...ir import Conv2d, Dense, ProjectiveFields, by_group
from .layer import (
    Inlet,
    Layer,
    Outlet,
    Tiles,
    channel_reach_counts,
    has_active_outputs,
    reach_counts,
    source_fields,
)
from .tiles import WORD_RESOURCES, Tile, Use, count_tiles, extents, next_width

INHIBITION_BITS = 8  # of the weight that subtracts, times a power of two
MEMORY = (*WORD_RESOURCES, "axon_memory_words")  # resources that add up to total_words


def core_use(layer: Layer, part: Tile, tiles: Tiles) -> dict[str, int]:
    """Return the use of each resource on one core, as far as the profile defines them."""
    shared = layer.shares_kernels
    neurons = prod(extents(part))
    # Where a soft reset takes a second neuron of the core, it inhibits the first by an axon and a synapse.
    inhibited = neurons * (layer.core_neurons - 1)
    use = {
        "input_axons": sum(_axons(layer, inlet, part) for inlet in layer.inlets) + inhibited,
        "neuron_groups": len(blocks(layer, part)) if shared else 1,
        "neurons": layer.core_neurons * neurons,
        "axon_map_entries": (
            loihi2_axon_map_entries(layer, part) if shared else loihi1_axon_map_entries(layer, part, tiles)
        )
        + inhibited,
    }
    if "axon_memory_targets" in layer.limits:
        use["axon_memory_words"] = axon_memory_words(layer, part, tiles)
    if layer.knows_rows:
        use["synapse_words"] = sum(_words(layer, inlet, part) for inlet in layer.inlets)
        if inhibited:
            use["synapse_words"] += inhibited * layer.row_words(1, INHIBITION_BITS)
        use["input_words"] = use["input_axons"] + use["synapse_words"]
        use["total_words"] = sum(use.get(resource, 0) for resource in MEMORY)
    return use


def worst_ratio(layer: Layer, use: Use) -> int:
    """Return max ceil(use / limit) over the resources with a known limit; 1 if every limit holds."""
    pairs = [(use[resource], layer.limits[resource]) for resource in layer.limits.keys() & use.keys()]
    return max([1, *(-(-need // limit) if limit else need + 1 for need, limit in pairs)])


def depends_on_weights(layer: Layer) -> bool:
    """Return whether the length or number of dense rows may differ between cores."""
    full = layer.shares_kernels and layer.stores_zeros
    return not full and any(isinstance(inlet.synapse, Dense) for inlet in layer.inlets)


def _axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the input axons of a core for one synapse."""
    if inlet.drives and layer.shares_kernels:
        return 1
    if not isinstance(inlet.synapse, Dense):
        input_axons = loihi2_input_axons if layer.shares_kernels else loihi1_input_axons
        return input_axons(layer, inlet, part)
    if layer.shares_kernels:
        return int(
            inlet.synapse.weight.shape[1]
        )  # the compiler also counts axons without any weight on the core
    return int(np.count_nonzero(_dense_rows(layer, inlet.synapse, part)))


def _words(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the words for the weights of one synapse on a core."""
    if inlet.drives and layer.shares_kernels:
        return 0
    if isinstance(inlet.synapse, Dense):
        return _dense_words(layer, inlet, inlet.synapse, part)
    synapse_words = loihi2_synapse_words if layer.shares_kernels else loihi1_synapse_words
    return synapse_words(layer, inlet, part)


def _dense_words(layer: Layer, inlet: Inlet, synapse: Dense, part: Tile) -> int:
    rows = Counter(_dense_rows(layer, synapse, part).tolist())
    if not layer.shares_kernels and layer.stores_zeros and extents(part) != layer.shape:
        # nengo-loihi (split_blocks.py): parts of a divided layer store equal rows once.
        distinct = {row.tobytes() for row in _part_weights(layer, synapse, part).T}
        rows = Counter({length: len(distinct) for length in rows})
    bits = inlet.bits + layer.limits["index_bits"]
    return sum(count * layer.row_words(length, bits) for length, count in rows.items())


def _dense_rows(layer: Layer, synapse: Dense, part: Tile) -> Array:
    """Return the number of stored weights per source neuron; 0 if it has no row on the core."""
    if layer.stores_zeros:
        return np.full(synapse.weight.shape[1], prod(extents(part)))
    rows: Array = np.count_nonzero(_part_weights(layer, synapse, part), axis=0)
    return rows


def _part_weights(layer: Layer, synapse: Dense, part: Tile) -> Array:
    """Return the weights into the neurons of a part, [neuron, source neuron]."""
    weight = synapse.weight.reshape(*layer.shape, -1)[part]
    return weight.reshape(-1, weight.shape[-1])


# Count axons and memory of convolutions whose core stores weights per source pixel (Loihi 1, nengo-loihi).
#
#     axons in       one per source pixel that reaches the core, and per group of the convolution; for a layer
#                    on a single core, one for every source pixel
#     rows           one per distinct part of the kernel that a source pixel meets, with all source channels;
#     a
#                    row can be shifted by less than `core.row_shifts` neurons, beyond which it is stored
#                    again
#     index bits     the first of `core.stored_index_bits` that holds the largest index on the core
#     entries out    one per source pixel (convolution) or neuron (dense) for each target core that it reaches
#
# As in nengo_loihi conv.py, builder/split_blocks.py and block.py. Neurons on a core are ordered by row,
# column and channel. nengo-loihi has no groups; each group is counted as a separate convolution.


def loihi1_input_axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the input axons of a convolution on a core."""
    assert isinstance(inlet.synapse, Conv2d)
    groups = len(_group_channels(inlet.synapse, part))
    if extents(part) == layer.shape:
        return groups * prod(inlet.source[1:])
    rows, columns = _source_fields(inlet, part)
    return groups * len(rows.count) * len(columns.count)


def loihi1_synapse_words(layer: Layer, inlet: Inlet, part: Tile) -> int:
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


def loihi1_axon_map_entries(layer: Layer, part: Tile, tiles: Tiles) -> int:
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


# Count axons and memory of convolutions whose core stores each kernel once, for all pixels (Loihi 2).
#
#     channels on a core       divided into blocks of 2**k, largest first (48 = 32 + 16); one neuron group
#     each
#     kernel rows              one per block, source channel and kernel position
#     axons in                 `core.shared_axons` per block of each convolution
#     entries out              one per pixel and block if all targets are convolutions, otherwise one per
#     neuron
#     axon memory words        pixels * blocks * target cores / `core.axon_memory_targets`
#
# Recovered from the tables that Intel's compiler prints in the lava-dl notebooks, which contain channel
# counts with one and two blocks only.


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


def loihi2_input_axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the input axons of a convolution on a core."""
    assert isinstance(inlet.synapse, Conv2d)
    shared = layer.limits["shared_axons"]
    return shared * len(blocks(layer, part)) if has_active_outputs(inlet.synapse, layer.shape, part) else 0


def loihi2_synapse_words(layer: Layer, inlet: Inlet, part: Tile) -> int:
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


def loihi2_axon_map_entries(layer: Layer, part: Tile) -> int:
    """Count the axon-map entries for spikes that leave a core."""
    extent = extents(part)
    return prod(extent[1:]) * len(blocks(layer, part)) if _per_pixel(layer) else prod(extent)


def axon_memory_words(layer: Layer, part: Tile, tiles: Tiles) -> int:
    """Count the words for the lists of target cores of the pixels of a part."""
    if not _per_pixel(layer):
        return 0
    targets = sum(_target_cores(layer, outlet, part, tiles) for outlet in layer.outlets)
    return -(-loihi2_axon_map_entries(layer, part) * targets // layer.limits["axon_memory_targets"])


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
