"""Synapses: the linear maps between populations, `Dense` and `Conv2d`, and what is computed with them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from typing_extensions import assert_never

from ..base import Array, array_record, record

Shape = tuple[int, ...]
Pair = tuple[int, int]
Border = tuple[Pair, Pair]  # rows (top, bottom), columns (left, right)

NO_BORDER: Border = ((0, 0), (0, 0))


@array_record
class Dense:
    """target[i] = 2**exponent * sum_j weight[i, j] * source.ravel()[j]"""

    weight: Array  # [target size, source size]
    exponent: int = 0


@array_record
class Conv2d:
    """target[o, y, x] = 2**exponent * sum_{i,a,b} weight[o, i, a, b]
                         * source[first(o) + i, stride*y - padding + dilation*a, (likewise) b]

    A cross-correlation with zero padding, as in torch. `first(o)` is the first input channel of
    the group that output channel `o` belongs to. Pairs are (vertical, horizontal).

    In the `silent` border of the target it gives zero. Several convolutions can so divide one target into
    windows, each with its own kernel.
    """

    weight: Array  # [target channels, source channels / groups, kernel height, kernel width]
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    exponent: int = 0
    silent: Border = NO_BORDER


Synapse = Dense | Conv2d


def picture_shape(shape: Shape) -> Shape:
    """Return the shape of a population: a signal, (channels, length), is a picture one pixel high."""
    return (shape[0], 1, shape[1]) if len(shape) == 2 else shape


def output_shape(synapse: Synapse, source_shape: Shape) -> Shape:
    """Return the shape of a synapse's result, given the shape of its source."""
    match synapse:
        case Dense():
            return (synapse.weight.shape[0],)
        case Conv2d():
            sizes = zip(source_shape[1:], span(synapse), synapse.padding, synapse.stride, strict=True)
            height, width = (positions(*axis) for axis in sizes)
            return (synapse.weight.shape[0], height, width)
        case _:
            assert_never(synapse)


def positions(size: int, reach: int, padding: int, stride: int, *, round_up: bool = False) -> int:
    """Count the windows of `reach` pixels on a padded axis; if rounded up, the last may extend beyond it."""
    room = size + 2 * padding - reach
    return (-(-room // stride) if round_up else room // stride) + 1


def window(synapse: Conv2d, target: Shape) -> tuple[slice, slice]:
    """Return the rows and columns of a target outside of the convolution's silent border."""
    rows, columns = (
        slice(near, size - far) for (near, far), size in zip(synapse.silent, target[1:], strict=True)
    )
    return rows, columns


def apply_synapse(synapse: Synapse, values: Array) -> Array:
    """Apply a synapse to values [batch, *source shape], in float64.

    Exact on integers as long as no partial sum reaches 2**53.
    """
    weight, values = real_weight(synapse), values.astype(np.float64)
    match synapse:
        case Dense():
            product: Array = values.reshape(len(values), -1) @ weight.T
            return product
        case Conv2d():
            return _correlate(synapse, weight, values)
        case _:
            assert_never(synapse)


def constant_through(synapse: Synapse, constant: Array) -> Array:
    """Apply a synapse to one constant picture or vector; pixels that read equal windows get equal values.

    BLAS adds in an order that depends on the row of the product, so equal windows may round differently, and
    a channel of one constant would seem to have several. Here each different window is multiplied once.
    """
    if isinstance(synapse, Dense):
        vector: Array = apply_synapse(synapse, constant[None])[0]
        return vector
    windows = patches(synapse, constant.astype(np.float64))
    channels, height, width, *taps = windows.shape
    rows = np.moveaxis(windows, 0, 2).reshape(height * width, -1)
    different, where = np.unique(rows, axis=0, return_inverse=True)
    pictures = different.reshape(-1, channels, 1, 1, *taps)
    sums = _sums_of_products(pictures, real_weight(synapse), synapse.groups).reshape(len(different), -1)
    everywhere = sums[where.reshape(-1)].T.reshape(-1, height, width)
    heard: Array = np.zeros_like(everywhere)
    inside = (slice(None), *window(synapse, everywhere.shape))
    heard[inside] = everywhere[inside]
    return heard


def real_weight(synapse: Synapse) -> Array:
    """weight * 2**exponent, in float64"""
    weight: Array = synapse.weight.astype(np.float64) * 2.0**synapse.exponent
    return weight


def per_channel(values: Array, shape: Shape) -> Array:
    """Reshape one value per channel to (channels, 1, 1) or (features,), to broadcast over `shape`."""
    return np.asarray(values).reshape(-1, *(1 for _ in shape[1:]))


def scale_channels(values: Array, factor: Array, *, per_step: bool = False) -> Array:
    """Multiply the weights, biases or thresholds of each target channel by its factor.

    A hard-reset neuron fires the same spikes when its weights, bias and threshold are multiplied by the
    same positive number, because its voltage is multiplied too. A negative factor turns v < threshold into
    -v > -threshold. Folding uses this for the sign of an MPBN gain, and quantization for its scales. Values
    `per_step` have a first axis of time steps.
    """
    scaled: Array = values * per_channel(factor, values.shape[per_step:])
    return scaled


def scaled(synapse: Synapse, factor: Array) -> Synapse:
    """Multiply each target channel by its factor; a channel of a dense synapse may have several rows."""
    rows = np.repeat(factor, len(synapse.weight) // len(factor))
    return replace(synapse, weight=scale_channels(synapse.weight, rows))


def largest_per_channel(values: Array) -> Array:
    """Return the largest magnitude in each channel."""
    largest: Array = np.abs(values).reshape(len(values), -1).max(axis=1)
    return largest


def compact(values: Array) -> Array:
    """Return one value per channel, as (channels, 1, 1), if all neurons of each channel agree."""
    first = values.reshape(len(values), -1)[:, :1]
    channel = first.reshape(len(values), *(1 for _ in values.shape[1:]))
    return channel if np.array_equal(np.broadcast_to(channel, values.shape), values) else values


def span(synapse: Conv2d) -> Pair:
    """Return the number of source pixels that a kernel spans, dilation included."""
    (height, width), (down, right) = synapse.weight.shape[2:], synapse.dilation
    return down * (height - 1) + 1, right * (width - 1) + 1


def patches(synapse: Conv2d, values: Array) -> Array:
    """[..., y, x, a, b]: what tap (a, b) reads for target pixel (y, x), of values [..., row, column]"""
    around = [(0, 0)] * (values.ndim - 2) + [(padding, padding) for padding in synapse.padding]
    (stride_y, stride_x), (skip_y, skip_x) = synapse.stride, synapse.dilation
    windows = sliding_window_view(np.pad(values, around), span(synapse), axis=(-2, -1))  # type: ignore[call-overload]
    found: Array = windows[..., ::stride_y, ::stride_x, ::skip_y, ::skip_x]
    return found


def _correlate(synapse: Conv2d, weight: Array, values: Array) -> Array:
    windows = patches(synapse, values)
    rows, columns = window(synapse, windows.shape[1:4])
    windows = windows[:, :, rows, columns]
    channels = _sums_of_products(windows, weight, synapse.groups)
    inner = np.moveaxis(channels, 3, 1)
    return inner if synapse.silent == NO_BORDER else np.pad(inner, ((0, 0), (0, 0), *synapse.silent))


def _sums_of_products(windows: Array, weight: Array, groups: int) -> Array:
    """[batch, y, x, channel], of windows [batch, source channel, y, x, a, b]"""
    if groups == 1:
        product: Array = np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3)))
        return product
    batch, channels, height, width, *taps = windows.shape
    grouped = windows.reshape(batch, groups, channels // groups, height, width, *taps)
    rows = np.moveaxis(grouped, (1, 0, 3, 4), (0, 1, 2, 3)).reshape(groups, batch * height * width, -1)
    columns = weight.reshape(groups, len(weight) // groups, -1).swapaxes(1, 2)
    products: Array = rows @ columns
    return products.swapaxes(0, 1).reshape(batch, height, width, len(weight))


# Receptive fields of convolutions: which rows, columns and channels of a source reach which of a target.
#
# The receptive field of a neuron is a product of three sets, channels x rows x columns. Along rows, and along
# columns likewise,
#
#     source = stride * target - padding + dilation * tap,        0 <= source < rows of the source
#
# for every target row outside of the silent border. A target channel reads the source channels of its group.
# A neuron of a dense synapse reads the whole source.
#
# Only shapes matter here: taps with a weight of zero are part of the receptive field.


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
