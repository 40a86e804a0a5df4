"""Search for the tile with the fewest cores, and compute lower bounds on the number of cores."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from itertools import product
from math import prod

import numpy as np

from ...base import record
from ...ir import Conv2d, Dense, Shape
from .core_memory import MEMORY, core_use, depends_on_weights, worst_ratio
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
from .tiles import Tile, Use, clip_tile, count_tiles, slices

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


# Evaluate candidate tiles of a population, given the tiles of the populations that it sends spikes to.
#
# Cores with equal resource use are counted together. The use of a core follows, axis by axis, from the spikes
# that arrive and leave, so only one part of each kind is evaluated along each axis, whatever the size of the
# map.


Kinds = list[tuple[slice, int]]  # one part of each kind, and the number of such parts


@record
class TileUse:
    """The resource use of a layer for any tile."""

    layer: Layer
    tiles: Tiles
    cache: dict[tuple[int, int, Shape], Kinds] = field(default_factory=dict)

    def peak_use(self, tile: Shape) -> Use:
        """Return the maximum over all cores, per resource."""
        uses = [use for use, _ in self._uses(tile)]
        return {resource: max(use[resource] for use in uses) for resource in uses[0]}

    def total_memory(self, tile: Shape) -> int:
        """Return the words of all cores together, without synapses if the size of rows is unknown."""
        return sum(many * sum(use.get(name, 0) for name in MEMORY) for use, many in self._uses(tile))

    def fits(self, tile: Shape) -> bool:
        """Return whether every core satisfies all limits."""
        most = self.layer.most_neurons(prod(tile))
        return prod(tile) <= most and all(worst_ratio(self.layer, use) <= 1 for use, _ in self._uses(tile))

    def use_of(self, part: Tile) -> Use:
        """Return the use of one core."""
        return core_use(self.layer, part, self.tiles)

    def _uses(self, tile: Shape) -> Iterator[tuple[Use, int]]:
        """Yield the use of each kind of core, and the number of such cores."""
        tiles = {**self.tiles, self.layer.name: tile}  # the layer may send spikes to itself
        for kinds in product(*(self._kinds(axis, tile, tiles) for axis in range(len(tile)))):
            part = tuple(part for part, _ in kinds)
            yield core_use(self.layer, part, tiles), prod(many for _, many in kinds)

    def _kinds(self, axis: int, tile: Shape, tiles: Tiles) -> Kinds:
        key = (axis, tile[axis], tile if self.layer.is_recurrent else ())
        if key not in self.cache:
            parts = slices(self.layer.shape[axis], tile[axis])
            kinds = [_kind(self.layer, axis, part, tiles) for part in parts]
            counts = Counter(kinds)
            first = dict(reversed(list(zip(kinds, parts, strict=True))))
            self.cache[key] = [(first[kind], many) for kind, many in counts.items()]
        return self.cache[key]


def _kind(layer: Layer, axis: int, part: slice, tiles: Tiles) -> tuple[object, ...]:
    """Return everything about a part of one axis that determines the use of its cores."""
    length = part.stop - part.start
    if depends_on_weights(layer):
        return (part.start, length)
    arriving = [_arriving(layer, inlet, axis, part) for inlet in layer.inlets]
    return (length, *arriving, *_leaving(layer, axis, part, tiles))


def _arriving(layer: Layer, inlet: Inlet, axis: int, part: slice) -> object:
    synapse = inlet.synapse
    if isinstance(synapse, Dense):
        return None
    if axis == 0:
        return part.start % (layer.shape[0] // synapse.groups) if synapse.groups > 1 else None
    if layer.shares_kernels:
        whole = [slice(0, size) for size in layer.shape]
        whole[axis] = part
        return has_active_outputs(synapse, layer.shape, tuple(whole))
    fields = source_fields(inlet, axis, part)
    return tuple(found.tobytes() for found in (fields.first - part.start, fields.count, fields.tap))


def _leaving(layer: Layer, axis: int, part: slice, tiles: Tiles) -> Iterator[object]:
    for outlet in layer.outlets:
        tile = tiles.get(outlet.target)
        if not isinstance(outlet.synapse, Conv2d) or tile is None:
            yield None
        elif axis == 0:
            yield channel_reach_counts(layer, outlet, tile[0], part)
        else:
            counts = reach_counts(outlet, tile[axis], axis, part)
            yield int(np.count_nonzero(counts)), int(counts.sum())
