"""The receptive fields of tiles: which parts of a convolution's target the parts of its source reach."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...base import Array
from ...ir import Axis, Conv2d, ProjectiveFields, Shape, groups_of, projective_fields, window
from .model import Inlet, Layer, Outlet
from .records import Tile, extents, overlap, slices


def source_fields(inlet: Inlet, axis: int, part: slice) -> ProjectiveFields:
    """Of the source rows (axis 1) or columns (axis 2) that a part of the target reads."""
    return _fields(inlet.axes[axis - 1].within(part))


_fields = lru_cache(maxsize=4096)(projective_fields)


def served(synapse: Conv2d, target: Shape, part: Tile) -> bool:
    """Whether a part has neurons outside of the silent border of a convolution."""
    rows, columns = window(synapse, target)
    return 0 not in extents((overlap(part[1], rows), overlap(part[2], columns)))


def hits(outlet: Outlet, extent: int, axis: int, part: slice) -> Array:
    """For each part of the target's axis: how many source rows of a part reach it."""
    sums = _reached(outlet.axes[axis - 1], extent)
    counts: Array = sums[:, part.stop] - sums[:, part.start]
    return counts


@lru_cache(maxsize=512)
def _reached(along: Axis, extent: int) -> Array:
    """[part of the target, n]: how many of the first n source rows reach it."""
    parts = slices(along.target, extent)
    sums = np.zeros((len(parts), along.source + 1), int)
    for part, row in zip(parts, sums, strict=True):
        row[_fields(along.within(part)).source + 1] = 1
    return sums.cumsum(axis=1)


def channel_hits(layer: Layer, outlet: Outlet, extent: int, channels: slice) -> tuple[int, int]:
    """How many parts of the target's channels, and how many pairs of part and group, some channels reach."""
    assert isinstance(outlet.synapse, Conv2d)
    groups = outlet.synapse.groups
    sending = groups_of(channels, layer.shape[0] // groups)
    return _group_hits(sending, outlet.shape[0], outlet.shape[0] // groups, extent)


@lru_cache(maxsize=4096)
def _group_hits(sending: range, channels: int, per_group: int, extent: int) -> tuple[int, int]:
    """The same, of the groups that some source channels belong to."""
    reading = [groups_of(part, per_group) for part in slices(channels, extent)]
    reached = [len(range(max(sending.start, own.start), min(sending.stop, own.stop))) for own in reading]
    return sum(map(bool, reached)), sum(reached)
