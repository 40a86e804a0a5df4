"""Describe a placement: populations divided into tiles of one shape, one tile per core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from itertools import product
from math import prod
from typing import Literal

import numpy as np

from ...base import Array, record, remembered
from ...ir import Axis, Conv2d, Dense, IntNetwork, Shape, axes, regroup
from ..profile import HardwareProfile

WORD_RESOURCES = ("input_axons", "neuron_groups", "neurons", "synapse_words", "axon_map_entries")
RESOURCES = (*WORD_RESOURCES, "total_words")
ROW_RESOURCES = ("synapse_words", "total_words")
# Required to compute the words of a row.
ROW_KEYS = (
    "core.word_bits",
    "core.row_header_bits",
    "core.index_bits",
    "core.shared_index_bits",
    "core.zero_weights_stored",
)

Tile = tuple[slice, ...]  # the neurons of one core, as an index into an array of the population's shape
Use = Mapping[str, int]  # resource -> amount on one core
Tiling = Literal["auto", "compiler", "best"]  # auto: best where it takes fewer cores than the compiler's
Storage = Literal["usual", "sparse"]  # of rows of weights: as the chip's own tool does it, or without zeros


@record
class PlacedLayer:
    """A population divided into tiles of one shape, one per core; the last tiles may be smaller.

    `lower_bound` bounds the cores of any tiling and storage from below. `by_tool` says whether the chip's own
    tool chooses this tile; where its rule leaves a core that overflows, we continue with a smaller tile.
    """

    name: str
    shape: Shape
    tile: Shape
    use: Use  # peak over all cores, per resource
    lower_bound: int = 1
    by_tool: bool = True
    storage: Storage = "usual"
    use_of: Callable[[Tile], Use] | None = None  # use of each core; None if all are alike
    core: int | None = None  # number of its core, where the cores of a chip differ
    packets_per_spike: int = 1  # packets that carry one spike to one core of this layer

    @property
    def cores(self) -> int:
        return count_tiles(self.shape, self.tile)

    @property
    def neurons(self) -> int:
        return prod(self.shape)

    def tiles(self) -> Iterator[Tile]:
        return tiles_of(self.shape, self.tile)

    def most_distinct(self, values: Array) -> int:
        """Return the largest number of distinct values on one core; `values` broadcast over the shape."""
        values = values.reshape(*(1 for _ in self.shape[values.ndim :]), *values.shape)
        tiles = tiles_of(values.shape, clip_tile(self.tile, values.shape))
        return max(len(np.unique(values[tile])) for tile in tiles)

    def uses(self) -> Iterator[tuple[Tile, Use]]:
        """Yield every tile with its resource use, in the order of `tiles`."""
        for tile in self.tiles():
            yield tile, self.use_of(tile) if self.use_of else self.use


@record
class Problem:
    """Why a population or connection (`where`) cannot be placed."""

    where: str
    message: str


SINGLE_CORE = ("whole", "program", "fabric")  # placements on one core


@record
class Placement:
    """All populations but the input, in network order.

    `kind` is the `placement` of the profile. `totals` are sums over the network, if one core holds all of it.
    `tiling` is the one in use, which is never "auto".
    """

    layers: tuple[PlacedLayer, ...]
    kind: str = "words"
    totals: Use = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    tiling: Tiling = "compiler"

    @property
    def on_one_core(self) -> bool:
        """Whether all populations share one core."""
        return self.kind in SINGLE_CORE

    @property
    def cores(self) -> int | None:
        """Return the number of cores; None if core allocation is undocumented."""
        if self.kind == "unknown":
            return None
        return 1 if self.on_one_core else sum(layer.cores for layer in self.layers)

    @property
    def lower_bound(self) -> int | None:
        """Return a lower bound on the cores if layers share none; None if core allocation is undocumented."""
        cores = self.cores
        return None if cores is None else min(cores, sum(layer.lower_bound for layer in self.layers))


def tiles_of(shape: Shape, tile: Shape) -> Iterator[Tile]:
    """Divide a shape into tiles, in row-major order."""
    return product(*(slices(size, extent) for size, extent in zip(shape, tile, strict=True)))


def slices(size: int, extent: int) -> list[slice]:
    """Divide an axis into parts of one extent; the last may be smaller."""
    return [slice(start, min(start + extent, size)) for start in range(0, size, extent)]


def count_tiles(shape: Shape, tile: Shape) -> int:
    return prod(-(-size // extent) for size, extent in zip(shape, tile, strict=True))


def clip_tile(tile: Shape, shape: Shape) -> Shape:
    return tuple(min(pair) for pair in zip(tile, shape, strict=True))


def extents(part: Tile) -> Shape:
    return tuple(axis.stop - axis.start for axis in part)


def overlap(one: slice, other: slice) -> slice:
    start = max(one.start, other.start)
    return slice(start, max(start, min(one.stop, other.stop)))


# Count the bits of weights and the memory words of rows of weights.


def weight_bits(weight: Array) -> int:
    """Return the bits, sign included, of every weight divided by the common power of two.

    The power of two goes into the exponent of the connection, as in lava-dl's `optimize_weight_bits`.
    """
    return signed_bits(*_mantissa_ends(weight))


def stored_bits(weight: Array, profile: HardwareProfile) -> int:
    """Return the bits per weight in core memory: no sign bit if all signs agree, and only supported widths.

    Intel's compiler uses 1 bit for weights that are all one, and 8 bits where 7 are needed.
    """
    low, high = _mantissa_ends(weight)
    needed = signed_bits(low, high) if low < 0 <= high else max(max(high, -low).bit_length(), 1)
    widths = profile.allowed("core.stored_weight_bits")
    return next_width(needed, widths.values if widths else ())


@remembered
def _mantissa_ends(weight: Array) -> tuple[int, int]:
    """Return the smallest and the largest weight, divided by the common power of two."""
    mantissa = weight >> trailing_zeros(weight)
    return int(mantissa.min()), int(mantissa.max())


def next_width(needed: int, widths: Sequence[int]) -> int:
    """Return the smallest width that is at least `needed`; `needed` itself if there is none."""
    return min((width for width in widths if width >= needed), default=needed)


def trailing_zeros(weight: Array) -> int:
    """Return the largest k such that 2**k divides every weight; 0 if all are zero."""
    together = int(np.bitwise_or.reduce(weight, axis=None))
    return (together & -together).bit_length() - 1 if together else 0


def signed_bits(low: int, high: int) -> int:
    """Return the least b with -2**(b-1) <= low and high < 2**(b-1)."""
    return max(high, -low - 1, 0).bit_length() + 1


def row_words(weights: int, bits: int, profile: HardwareProfile) -> int:
    """Return the words of one row; after every `core.row_entries` weights, a row needs another header."""
    header, word = profile.value("core.row_header_bits"), profile.value("core.word_bits")
    entries = profile.limit("core.row_entries")
    return words_of_row(weights, bits, header, word, entries.value if entries else None)


def words_of_row(weights: int, bits: int, header: int, word: int, entries: int | None) -> int:
    """Return the words of one row, given the numbers of the profile."""
    longest = entries or max(weights, 1)
    whole, rest = divmod(weights, longest)
    words = whole * -(-(longest * bits + header) // word)
    return words + (-(-(rest * bits + header) // word) if rest else 0)


# Find the source neurons with a synapse into a tile, without building the connection matrix.
#
# The source neurons that a tile of a convolution reads are a product of three sets,
#
#     channels x rows x columns
#
# each of which follows from an exact relation [target, source] along one axis (`Axis.relation`). Zero weights
# are excluded where they empty a row of taps, a column of taps or a pair of channels. Where zeros are
# scattered, a source neuron counts even if all its weights into the tile are zero. In fully connected
# synapses every zero is excluded.


Relations = tuple[Array, ...]  # per axis, [target, source]: whether the target reads the source
Sets = tuple[Array, ...]  # per axis, [tile, source]: whether the tile reads the source


@record
class Link:
    """The synapses from one population to another: a matrix, or convolutions."""

    source: str
    delay: int
    source_shape: Shape
    target_shape: Shape
    matrix: Array | None  # [*target shape, source size], nonzero where there is a synapse
    convolutions: tuple[Relations, ...]

    def sources(self, tile: Shape) -> Iterator[Array]:
        """Yield for each tile, in the order of `tiles_of`, the unique flat indices of its source neurons."""
        if self.matrix is not None:
            for part in tiles_of(self.target_shape, tile):
                yield np.flatnonzero(self.matrix[part].reshape(-1, self.matrix.shape[-1]).any(axis=0))
            return
        boxes = (_boxes(relations, tile, self.source_shape) for relations in self.convolutions)
        for indices in zip(*boxes, strict=True):
            yield merge_indices(indices)

    def counts(self, tile: Shape) -> Array:
        """Count the source neurons of each tile, [parts along each axis]."""
        if self.matrix is not None:
            counts: Array = np.count_nonzero(_any_in_parts(self.matrix, tile), axis=-1)
            return counts
        return _count_union(
            [
                tuple(_any_in_parts(axis, (size,)) for axis, size in zip(relations, tile, strict=True))
                for relations in self.convolutions
            ]
        )


def links(network: IntNetwork, target: str, *, by_delay: bool = False) -> list[Link]:
    """Group the synapses into a population by source; with `by_delay`, by source and delay."""
    shapes = network.shapes
    synapses: dict[tuple[str, int, bool], list[Dense | Conv2d]] = {}
    for connection in network.entering(target):
        synapse, delay = connection.synapse, connection.delay if by_delay else 0
        synapses.setdefault((connection.source, delay, isinstance(synapse, Dense)), []).append(synapse)
    return [
        _link(source, delay, group, shapes[source], shapes[target])
        for (source, delay, _), group in synapses.items()
    ]


def _link(source: str, delay: int, group: Sequence[Dense | Conv2d], before: Shape, after: Shape) -> Link:
    matrices = [synapse.weight for synapse in group if isinstance(synapse, Dense)]
    matrix = matrices[0] if len(matrices) == 1 else reduce(np.logical_or, matrices) if matrices else None
    return Link(
        source=source,
        delay=delay,
        source_shape=before,
        target_shape=after,
        matrix=None if matrix is None else matrix.reshape(*after, -1),
        convolutions=tuple(_relations(s, before, after) for s in group if isinstance(s, Conv2d)),
    )


def _relations(synapse: Conv2d, source: Shape, target: Shape) -> Relations:
    """Return the relations along channels, rows and columns."""
    within, *taps = _used(synapse.weight)
    pairs = regroup(within, synapse.groups, 1)
    rows, columns = map(Axis.relation, axes(synapse, source, target), taps)
    return pairs[:, :, 0, 0], rows, columns


@remembered
def _used(weight: Array) -> tuple[Array, Array, Array]:
    """Return the pairs of channels with a weight, [target, source, 1, 1], and rows and columns of taps."""
    there = weight != 0
    rows, columns = (np.flatnonzero(there.any(axis=axes)) for axes in ((0, 1, 3), (0, 1, 2)))
    return there.any(axis=(2, 3), keepdims=True), rows, columns


def _boxes(relations: Relations, tile: Shape, shape: Shape) -> Iterator[Array]:
    """Yield for each tile the flat indices of the channels x rows x columns that it reads."""
    sets = (_any_in_parts(axis, (extent,)) for axis, extent in zip(relations, tile, strict=True))
    read = ([np.flatnonzero(part) for part in axis] for axis in sets)
    for channels, rows, columns in product(*read):
        lines = shape[1] * channels[:, None, None] + rows[:, None]
        yield (shape[2] * lines + columns).reshape(-1)


def merge_indices(indices: Sequence[Array]) -> Array:
    """Merge arrays of indices, without duplicates."""
    return indices[0] if len(indices) == 1 else np.unique(np.concatenate(indices))


def _any_in_parts(values: Array, extents: Shape) -> Array:
    """Divide the leading axes into parts, and return whether each part has a nonzero value."""
    found: Array = values != 0
    for axis, extent in enumerate(extents):
        found = np.logical_or.reduceat(found, np.arange(0, values.shape[axis], extent), axis=axis)
    return found


def _count_union(boxes: Sequence[Sets]) -> Array:
    """|A or B or C ...| = |A| + |B or C ...| - |AB or AC ...|, for all tiles at once."""
    if not boxes:
        return np.zeros((), np.int64)
    first, *others = boxes
    overlaps = _maximal(tuple(a & b for a, b in zip(first, other, strict=True)) for other in others)
    return _volume(first) + _count_union(others) - _count_union(overlaps)


def _maximal(boxes: Iterable[Sets]) -> list[Sets]:
    """Drop boxes that are empty, or that lie within another box in every tile."""
    kept: list[Sets] = []
    for box in boxes:
        if all(axis.any() for axis in box) and not any(_within(box, other) for other in kept):
            kept = [other for other in kept if not _within(other, box)] + [box]
    return kept


def _within(inner: Sets, outer: Sets) -> bool:
    return not any((a & ~b).any() for a, b in zip(inner, outer, strict=True))


def _volume(box: Sets) -> Array:
    channels, rows, columns = (np.count_nonzero(axis, axis=1) for axis in box)
    volume: Array = channels[:, None, None] * rows[:, None] * columns
    return volume


def block_sums(values: Array, tile: Shape) -> Array:
    """Sum the values of each tile, [parts along each axis]."""
    return reduce(_summed, enumerate(tile), values)


def _summed(values: Array, axis_and_extent: tuple[int, int]) -> Array:
    axis, extent = axis_and_extent
    summed: Array = np.add.reduceat(values, np.arange(0, values.shape[axis], extent), axis=axis)
    return summed
