"""Which source rows reach which target rows of a convolution; and columns likewise, for it is separable."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...base import Array, record
from ...ir import Conv2d, Shape, window
from .model import Layer, Outlet
from .records import Tile, extents, overlap, slices


@record
class Meeting:
    """For each source row that reaches a part of the target: the first and last target row there, how
    many, and the row of the kernel by which it reaches the first."""

    source: Array
    first: Array
    last: Array
    count: Array
    tap: Array


def meeting(synapse: Conv2d, source: Shape, target: Shape, axis: int, part: slice) -> Meeting:
    """Along axis 1 (rows) or 2 (columns); neurons in the silent border are reached by nothing."""
    inside = overlap(part, window(synapse, target)[axis - 1])
    along = axis - 1
    steps = (synapse.stride[along], synapse.padding[along], synapse.dilation[along])
    return _meeting(source[axis], inside.start, inside.stop, synapse.weight.shape[1 + axis], *steps)


@lru_cache(maxsize=4096)
def _meeting(
    size: int, start: int, stop: int, kernel: int, stride: int, padding: int, dilation: int
) -> Meeting:
    """source = stride * target - padding + dilation * tap"""
    low = max(stride * start - padding, 0)
    rows = np.arange(low, max(low, min(stride * (stop - 1) - padding + dilation * (kernel - 1) + 1, size)))
    taps = np.arange(kernel)
    target, rest = np.divmod(rows[:, None] + padding - dilation * taps, stride)
    meets = (rest == 0) & (target >= start) & (target < stop)
    seen = meets.any(axis=1)
    meets, target = meets[seen], target[seen]
    tap = kernel - 1 - np.argmax(meets[:, ::-1], axis=1)  # the later in the kernel, the earlier the target
    return Meeting(
        source=rows[seen],
        first=target[np.arange(len(tap)), tap],
        last=target[np.arange(len(tap)), np.argmax(meets, axis=1)],
        count=np.count_nonzero(meets, axis=1),
        tap=tap,
    )


def served(synapse: Conv2d, target: Shape, part: Tile) -> bool:
    """Whether a part has neurons outside of the silent border of a convolution."""
    rows, columns = window(synapse, target)
    return 0 not in extents((overlap(part[1], rows), overlap(part[2], columns)))


def hits(layer: Layer, outlet: Outlet, extent: int, axis: int, part: slice) -> Array:
    """For each part of the target's axis: how many source rows of a part reach it."""
    assert isinstance(outlet.synapse, Conv2d)
    border = outlet.synapse.silent[axis - 1]
    along = axis - 1
    steps = (outlet.synapse.stride[along], outlet.synapse.padding[along], outlet.synapse.dilation[along])
    kernel = outlet.synapse.weight.shape[1 + axis]
    sums = _reached(layer.shape[axis], outlet.shape[axis], extent, border, kernel, *steps)
    counts: Array = sums[:, part.stop] - sums[:, part.start]
    return counts


@lru_cache(maxsize=512)
def _reached(
    size: int,
    target: int,
    extent: int,
    border: tuple[int, int],
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
) -> Array:
    """[part of the target, n]: how many of the first n source rows reach it."""
    inside = slice(border[0], target - border[1])
    ends = [overlap(part, inside) for part in slices(target, extent)]
    sums = np.zeros((len(ends), size + 1), int)
    for number, end in enumerate(ends):
        rows = _meeting(size, end.start, end.stop, kernel, stride, padding, dilation).source
        sums[number, rows + 1] = 1
    return sums.cumsum(axis=1)


def channel_hits(layer: Layer, outlet: Outlet, extent: int, channels: slice) -> tuple[int, int]:
    """How many parts of the target's channels, and how many pairs of part and group, some channels reach."""
    assert isinstance(outlet.synapse, Conv2d)
    groups = outlet.synapse.groups
    entering, leaving = layer.shape[0] // groups, outlet.shape[0] // groups
    reached = range(channels.start // entering, (channels.stop - 1) // entering + 1)
    pairs = [
        (number, group)
        for number, part in enumerate(slices(outlet.shape[0], extent))
        for group in range(
            max(reached.start, part.start // leaving),
            min(reached.stop, (part.stop - 1) // leaving + 1),
        )
    ]
    return len({number for number, _ in pairs}), len(pairs)
