"""Receptive fields of convolutions: which rows, columns and channels of a source reach which of a target.

The receptive field of a neuron is a product of three sets, channels x rows x columns. Along rows, and along
columns likewise,

    source = stride * target - padding + dilation * tap,        0 <= source < rows of the source

for every target row outside of the silent border. A target channel reads the source channels of its group.
A neuron of a dense synapse reads the whole source.

Only shapes matter here: taps with a weight of zero are part of the receptive field.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base import Array, record
from .synapses import Conv2d, Shape, window


class Axis(NamedTuple):
    """One direction of a convolution, its rows or its columns. Hashable, so that results can be cached."""

    source: int  # rows of the source
    target: int  # rows of the target
    first: int  # the target rows outside of the silent border: `first` to `end - 1`
    end: int
    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def within(self, part: slice) -> Axis:
        """Return the axis restricted to some rows of the target."""
        first = max(self.first, part.start)
        end = max(first, min(self.end, part.stop))
        return Axis(self.source, self.target, first, end, self.taps, self.stride, self.padding, self.dilation)

    def read(self, targets: Array) -> Array:
        """[*targets, tap]: the row that a target row reads through each tap, in the source or its padding."""
        taps = np.arange(self.taps)
        rows: Array = self.stride * targets[..., None] - self.padding + self.dilation * taps
        return rows

    def inside(self, rows: Array) -> Array:
        """Whether rows lie in the source, not in the padding."""
        found: Array = (rows >= 0) & (rows < self.source)
        return found

    def pairs(self) -> tuple[Array, Array, Array]:
        """Return all (target row, tap, source row) with a read inside the source, ordered by target row."""
        rows = self.read(np.arange(self.first, self.end))
        target, tap = np.nonzero(self.inside(rows))
        return self.first + target, tap, rows[target, tap]

    def through(self, tap: int) -> tuple[slice, slice]:
        """Return the target rows that read the source through one tap, and the source row that each reads."""
        shift = self.dilation * tap - self.padding  # source = stride * target + shift
        first = max(self.first, -(shift // self.stride))
        count = max(min(self.end, (self.source - 1 - shift) // self.stride + 1) - first, 0)
        start = self.stride * first + shift
        return slice(first, first + count), slice(start, start + self.stride * count, self.stride)

    def uses(self) -> Array:
        """[tap]: the number of target rows that read the source through it."""
        return np.bincount(self.pairs()[1], minlength=self.taps)

    def relation(self, taps: Array | None = None) -> Array:
        """[target row, source row]: whether the target row reads the source row, through any of `taps`."""
        found = np.zeros((self.target, self.source), bool)
        target, tap, source = self.pairs()
        chosen = slice(None) if taps is None else np.isin(tap, taps)
        found[target[chosen], source[chosen]] = True
        return found


def axes(synapse: Conv2d, source: Shape, target: Shape) -> tuple[Axis, Axis]:
    """Return the two directions of a convolution: rows and columns."""
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
    """Projective fields: for each source row that is read, the first and last target row that reads it, their
    number, and the tap through which the first one reads it."""

    source: Array
    first: Array
    last: Array
    count: Array
    tap: Array


def projective_fields(axis: Axis) -> ProjectiveFields:
    """Return the projective fields of all source rows that are read along an axis."""
    target, tap, source = axis.pairs()
    count = np.bincount(source, minlength=axis.source)
    first, last, by = np.empty((3, axis.source), int)
    # NumPy keeps the last value assigned to repeated indices.
    first[source[::-1]], by[source[::-1]] = target[::-1], tap[::-1]
    last[source] = target
    read = np.flatnonzero(count)
    return ProjectiveFields(source=read, first=first[read], last=last[read], count=count[read], tap=by[read])


def groups_of(channels: slice, per_group: int) -> range:
    """Return the groups that a range of channels touches."""
    return range(channels.start // per_group, (channels.stop - 1) // per_group + 1)


def by_group(channels: slice, per_group: int) -> list[slice]:
    """Split a range of channels at the borders of its groups."""
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
