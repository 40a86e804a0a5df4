"""Receptive fields: which rows, columns and channels of a source reach which of a target.

A neuron of a convolution reads a product of three sets, channels x rows x columns. Along rows, and along
columns likewise,

    source = stride * target - padding + dilation * tap,        0 <= source < rows of the source

for every target row outside of the silent border. A target channel reads the source channels of its group.
A neuron of a dense synapse reads the whole source, so there is nothing to state.

This module knows shapes only. Which weights are zero, and what a tile of neurons makes of its receptive
field, is asked elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base import Array, record
from .synapses import Conv2d, Shape, window


class Axis(NamedTuple):
    """One direction of a convolution: its rows or its columns. A plain tuple, so results can be cached."""

    source: int  # rows of the source
    target: int  # rows of the target
    first: int  # of the target, the rows that are served: `first` up to `end`
    end: int
    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def within(self, part: slice) -> Axis:
        """The same for some rows of the target alone."""
        first = max(self.first, part.start)
        end = max(first, min(self.end, part.stop))
        return Axis(self.source, self.target, first, end, self.taps, self.stride, self.padding, self.dilation)

    def read(self, targets: Array) -> Array:
        """[*targets, tap]: the source row that a target row reads through each tap, or one in the padding."""
        taps = np.arange(self.taps)
        rows: Array = self.stride * targets[..., None] - self.padding + self.dilation * taps
        return rows

    def inside(self, rows: Array) -> Array:
        """Whether the source has such rows."""
        found: Array = (rows >= 0) & (rows < self.source)
        return found

    def pairs(self) -> tuple[Array, Array, Array]:
        """All (target row, tap, source row) that belong together, by target row."""
        rows = self.read(np.arange(self.first, self.end))
        target, tap = np.nonzero(self.inside(rows))
        return self.first + target, tap, rows[target, tap]

    def through(self, tap: int) -> tuple[slice, slice]:
        """The target rows that read some source row through one tap, and these source rows, one for each."""
        shift = self.dilation * tap - self.padding  # source = stride * target + shift
        first = max(self.first, -(shift // self.stride))
        count = max(min(self.end, (self.source - 1 - shift) // self.stride + 1) - first, 0)
        start = self.stride * first + shift
        return slice(first, first + count), slice(start, start + self.stride * count, self.stride)

    def uses(self) -> Array:
        """[tap]: how many target rows read a source row through it."""
        return np.bincount(self.pairs()[1], minlength=self.taps)

    def relation(self, taps: Array | None = None) -> Array:
        """[target row, source row]: whether one reads the other, through any tap or through some of them."""
        found = np.zeros((self.target, self.source), bool)
        target, tap, source = self.pairs()
        chosen = slice(None) if taps is None else np.isin(tap, taps)
        found[target[chosen], source[chosen]] = True
        return found


def axes(synapse: Conv2d, source: Shape, target: Shape) -> tuple[Axis, Axis]:
    """Rows and columns of a convolution."""
    served = window(synapse, target)
    rows, columns = (
        Axis(
            source=source[1 + axis],
            target=target[1 + axis],
            first=served[axis].start,
            end=served[axis].stop,
            taps=synapse.weight.shape[2 + axis],
            stride=synapse.stride[axis],
            padding=synapse.padding[axis],
            dilation=synapse.dilation[axis],
        )
        for axis in (0, 1)
    )
    return rows, columns


@record
class ProjectiveFields:
    """The other way round: for each source row that is read, the first and last target row that reads it, how
    many there are, and the tap through which the first one does."""

    source: Array
    first: Array
    last: Array
    count: Array
    tap: Array


def projective_fields(axis: Axis) -> ProjectiveFields:
    """Of all source rows that some target row of an axis reads."""
    target, tap, source = axis.pairs()
    count = np.bincount(source, minlength=axis.source)
    first, last, by = np.empty((3, axis.source), int)
    # Of equal indices the last one stays.
    first[source[::-1]], by[source[::-1]] = target[::-1], tap[::-1]
    last[source] = target
    read = np.flatnonzero(count)
    return ProjectiveFields(source=read, first=first[read], last=last[read], count=count[read], tap=by[read])


def groups_of(channels: slice, per_group: int) -> range:
    """The groups that some channels belong to."""
    return range(channels.start // per_group, (channels.stop - 1) // per_group + 1)


def by_group(channels: slice, per_group: int) -> list[slice]:
    """Those of some channels that are in each of their groups."""
    return [
        slice(max(channels.start, group * per_group), min(channels.stop, (group + 1) * per_group))
        for group in groups_of(channels, per_group)
    ]


def source_channels(weight: Array, groups: int) -> Array:
    """[target channel, input]: the source channel that each input of a kernel reads."""
    outputs, inputs = weight.shape[:2]
    group = np.arange(outputs) // (outputs // groups)
    channels: Array = group[:, None] * inputs + np.arange(inputs)
    return channels
