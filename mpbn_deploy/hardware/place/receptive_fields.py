"""Relate tiles through a convolution: which parts of the target the parts of the source reach."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...base import Array
from ...ir import Axis, Conv2d, ProjectiveFields, Shape, groups_of, projective_fields, window
from .layer import Inlet, Layer, Outlet
from .records import Tile, extents, overlap, slices


def source_fields(inlet: Inlet, axis: int, part: slice) -> ProjectiveFields:
    """Return the projective fields of the source rows (axis 1) or columns (axis 2) that a part reads."""
    return _fields(inlet.axes[axis - 1].within(part))


_fields = lru_cache(maxsize=4096)(projective_fields)


def has_active_outputs(synapse: Conv2d, target: Shape, part: Tile) -> bool:
    """Return whether a part has neurons outside the silent border of a convolution."""
    rows, columns = window(synapse, target)
    return 0 not in extents((overlap(part[1], rows), overlap(part[2], columns)))


def reach_counts(outlet: Outlet, extent: int, axis: int, part: slice) -> Array:
    """Count, for each part of the target axis, the source rows of `part` that reach it."""
    sums = _reached(outlet.axes[axis - 1], extent)
    counts: Array = sums[:, part.stop] - sums[:, part.start]
    return counts


@lru_cache(maxsize=512)
def _reached(along: Axis, extent: int) -> Array:
    """Count the first n source rows that reach each part, [part of the target, n]."""
    parts = slices(along.target, extent)
    sums = np.zeros((len(parts), along.source + 1), int)
    for part, row in zip(parts, sums, strict=True):
        row[_fields(along.within(part)).source + 1] = 1
    return sums.cumsum(axis=1)


def channel_reach_counts(layer: Layer, outlet: Outlet, extent: int, channels: slice) -> tuple[int, int]:
    """Count the parts of the target channels that `channels` reach, and the pairs of part and group."""
    assert isinstance(outlet.synapse, Conv2d)
    groups = outlet.synapse.groups
    sending = groups_of(channels, layer.shape[0] // groups)
    return _group_reach_counts(sending, outlet.shape[0], outlet.shape[0] // groups, extent)


@lru_cache(maxsize=4096)
def _group_reach_counts(sending: range, channels: int, per_group: int, extent: int) -> tuple[int, int]:
    """Count as `channel_reach_counts` does, given the groups of the source channels."""
    reading = [groups_of(part, per_group) for part in slices(channels, extent)]
    reached = [len(range(max(sending.start, own.start), min(sending.stop, own.stop))) for own in reading]
    return sum(map(bool, reached)), sum(reached)
