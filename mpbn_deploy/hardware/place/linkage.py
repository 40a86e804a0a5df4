"""Find the source neurons with a synapse into a tile, without building the connection matrix.

The source neurons that a tile of a convolution reads are a product of three sets,

    channels x rows x columns

each of which follows from an exact relation [target, source] along one axis (`Axis.relation`). Zero weights
are excluded where they empty a row of taps, a column of taps or a pair of channels. Where zeros are
scattered, a source neuron counts even if all its weights into the tile are zero. In fully connected synapses
every zero is excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import product

import numpy as np

from ...base import Array, record, remembered
from ...ir import Axis, Conv2d, Dense, IntNetwork, Shape, axes, regroup
from .records import tiles_of

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
