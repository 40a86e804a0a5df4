"""Values between neurons: sums of linear maps of what populations send, plus a constant.

    value = sum over populations of map(sent) + constant

Values can be added and passed through affine maps (y = factor * synapse(x) + bias). Maps are composed and
added immediately, so a value has one map per population and delay, in as few synapses as possible. The
constant has one number per neuron, because zero padding reduces it at the borders.

A norm per time step gives a value a gain that depends on the step,

    value_t = gain_t * (sum of maps) + constant_t

which stays outside the maps, so that weights are constant: neurons divide by it (`fold`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np
from typing_extensions import assert_never

from ..base import Array, FoldError, NetworkError, layer_name, record
from .composition import (
    LARGEST_DENSE,
    Synapses,
    add,
    as_dense,
    diagonal_synapse,
    matrix,
    pool_synapse,
    through,
)
from .synapses import (
    Axis,
    Border,
    Conv2d,
    Dense,
    Shape,
    Synapse,
    axes,
    compact,
    constant_through,
    output_shape,
    per_channel,
    positions,
    scaled,
    source_channels,
)
from .trained import AdaptivePool, AveragePool, MaxPool

Arrival = tuple[str, int]  # source population, delay in time steps


@record
class Diagonal:
    """factors * sent: one factor per neuron, or per channel as (channels, 1, 1)"""

    factors: Array

    @property
    def is_identity(self) -> bool:
        return bool(np.all(self.factors == 1))


Map = Diagonal | Synapses


@record
class Value:
    """gain * (sum over arrivals of map(sent)) + constant, where None is one, or zero

    With a gain, [timesteps, *shape], the constant has a first axis of time steps too.
    """

    shape: Shape
    maps: Mapping[Arrival, Map]
    constant: Array | None = None
    gain: Array | None = None

    def as_sent(self) -> Arrival | None:
        """Return the population and delay whose spikes the value equals; None for any other value."""
        (arrival, map_), *others = self.maps.items()
        plain = self.constant is None and self.gain is None
        unchanged = isinstance(map_, Diagonal) and map_.is_identity and plain
        return arrival if unchanged and not others else None


@record
class Affine:
    """y = factor * synapse(x) + bias, `delay` time steps later; None means identity, one or zero.

    Factor and bias have one number per neuron, or one per channel as (channels, 1, 1). `per_step`, they have
    a first axis of time steps. A `channelwise` synapse maps each channel to itself.
    """

    source: Shape  # of x
    shape: Shape  # of y
    synapse: Synapse | None = None
    factor: Array | None = None
    bias: Array | None = None
    delay: int = 0
    per_step: bool = False
    channelwise: bool = False


@record
class Algebra:
    """Operations on values; `shapes` are those of all populations."""

    shapes: Mapping[str, Shape]

    def sent(self, name: str) -> Value:
        """Return the value that a population sends."""
        shape = self.shapes[name]
        ones = per_channel(np.ones(shape[0]), shape)
        return Value(shape=shape, maps={(name, 0): Diagonal(factors=ones)})

    def sum(self, one: Value, other: Value) -> Value:
        """one + other, in the shape of the first"""
        if one.gain is not None or other.gain is not None:
            one, other = _of_one_gain(one, other)
        maps = dict(one.maps)
        for arrival, map_ in other.maps.items():
            maps[arrival] = self._added(arrival, maps[arrival], map_) if arrival in maps else map_
        wide = one.shape if one.gain is None else one.gain.shape
        constants = [value.constant.reshape(wide) for value in (one, other) if value.constant is not None]
        constant = np.sum(constants, axis=0) if constants else None
        return Value(shape=one.shape, maps=maps, constant=constant, gain=one.gain)

    def through(self, affine: Affine, value: Value) -> Value:
        """Return a value after an affine map."""
        if affine.delay and value.constant is not None:
            reason = "delays a bias, which would be missing in the first steps; put the bias after the delay"
            raise NetworkError("value", [reason])
        if affine.per_step:
            return _through_steps(affine, value)
        maps = {
            (source, delay + affine.delay): self._after(map_, affine, source)
            for (source, delay), map_ in value.maps.items()
        }
        if value.gain is None:
            return Value(shape=affine.shape, maps=maps, constant=_constant_through(affine, value.constant))
        moments = [None] * len(value.gain) if value.constant is None else value.constant
        constants = [_constant_through(affine, moment) for moment in moments]
        constant = None if constants[0] is None else np.stack([np.asarray(each) for each in constants])
        gain = _gain_through(affine, value.gain)
        return Value(shape=affine.shape, maps=maps, constant=constant, gain=gain)

    def scaled(self, value: Value, factor: Array) -> Value:
        """Return the value with its maps, and not its gain or constant, times one factor per neuron."""
        maps = {arrival: self._scaled(map_, factor, arrival[0]) for arrival, map_ in value.maps.items()}
        return replace(value, maps=maps)

    def onto(self, value: Value, target: Shape) -> dict[Arrival, Synapses]:
        """Return the maps of a value as synapses onto a population of shape `target`."""
        return {arrival: self._onto(map_, arrival[0], target) for arrival, map_ in value.maps.items()}

    def _onto(self, map_: Map, source: str, target: Shape) -> Synapses:
        """Return a map as synapses; a convolution whose result is reshaped becomes a matrix."""
        synapses, shape = self._synapses(map_, source), self.shapes[source]
        return synapses if _shape_after(synapses, shape) in (None, target) else (matrix(synapses, shape),)

    def _synapses(self, map_: Map, source: str) -> Synapses:
        if isinstance(map_, Diagonal):
            return (diagonal_synapse(map_.factors, self.shapes[source]),)
        return map_

    def _added(self, arrival: Arrival, one: Map, other: Map) -> Map:
        if isinstance(one, Diagonal) and isinstance(other, Diagonal):
            return Diagonal(factors=one.factors + other.factors)
        shape = self.shapes[arrival[0]]
        first, second = (self._synapses(map_, arrival[0]) for map_ in (one, other))
        if _shape_after(first, shape) != _shape_after(second, shape):
            first, second = (matrix(first, shape),), (matrix(second, shape),)
        return add(first, second, shape)

    def _after(self, first: Map, affine: Affine, source: str) -> Map:
        result = (
            first if affine.synapse is None else self._composed(first, affine.synapse, affine.source, source)
        )
        if affine.factor is None:
            return result
        return self._scaled(result, np.broadcast_to(affine.factor, affine.shape), source)

    def _composed(self, first: Map, second: Synapse, between: Shape, source: str) -> Synapses:
        """target = second(first(source)), where the second reads values of shape `between`"""
        shape = self.shapes[source]
        if isinstance(first, Diagonal):
            if (synapse := _scaled_inputs(second, first.factors, shape, between)) is not None:
                return (synapse,)
            first = (as_dense(diagonal_synapse(first.factors, shape), shape),)
        return through(first, second, shape, between=between)

    def _scaled(self, map_: Map, factor: Array, source: str) -> Map:
        """factor * map, one factor per neuron"""
        shape = self.shapes[source]
        if isinstance(map_, Diagonal):
            return Diagonal(factors=compact(map_.factors * factor.reshape(shape)))
        if factor.shape == _shape_after(map_, shape) and (parts := _scaled_convolutions(map_, factor)):
            return parts
        whole = matrix(map_, shape)
        return (replace(whole, weight=whole.weight * factor.reshape(-1, 1)),)


def _shape_after(synapses: Synapses, source: Shape) -> Shape | None:
    """Return the shape of the result; None for a matrix, whose result can have any shape."""
    first = synapses[0]
    return output_shape(first, source) if isinstance(first, Conv2d) else None


def _scaled_inputs(synapse: Synapse, factors: Array, source: Shape, between: Shape) -> Synapse | None:
    """synapse(factors * x) as a synapse of the same kind; None if there is none"""
    match synapse:
        case Dense(weight=weight):
            return replace(synapse, weight=weight * np.broadcast_to(factors, source).ravel())
        case Conv2d(weight=weight):
            if source != between or factors.size != source[0]:
                return None
            inputs = factors.ravel()[source_channels(weight, synapse.groups)]
            return replace(synapse, weight=weight * inputs[:, :, None, None])
        case _:
            assert_never(synapse)


def _scaled_convolutions(synapses: Synapses, factor: Array) -> Synapses | None:
    """factor * convolutions, if it has one number per channel, at least in a window with zeros around it"""
    channels = compact(factor)
    if channels.size == len(factor):
        return tuple(scaled(synapse, channels.ravel()) for synapse in synapses)
    rows, columns = (np.flatnonzero(factor.any(axis=axes)) for axes in ((0, 2), (0, 1)))
    high, wide = (slice(int(axis[0]), int(axis[-1]) + 1) for axis in (rows, columns))
    channels = compact(factor[:, high, wide])
    if channels.size != len(factor):
        return None
    border = ((high.start, factor.shape[1] - high.stop), (wide.start, factor.shape[2] - wide.stop))
    inner = (_without_border(scaled(s, channels.ravel()), border, factor.shape) for s in synapses)
    return tuple(synapse for synapse in inner if synapse) or None


def _without_border(synapse: Synapse, border: Border, target: Shape) -> Synapse | None:
    """Silence a border of the target; None if that leaves nothing"""
    assert isinstance(synapse, Conv2d)
    (top, bottom), (left, right) = (
        (max(a), max(b))
        for a, b in (zip(*ends, strict=True) for ends in zip(border, synapse.silent, strict=True))
    )
    if top + bottom >= target[1] or left + right >= target[2]:
        return None
    return replace(synapse, silent=((top, bottom), (left, right)))


def _constant_through(affine: Affine, constant: Array | None) -> Array | None:
    total = constant
    if total is not None:
        total = total.reshape(affine.source)
        if affine.synapse is not None:
            total = constant_through(affine.synapse, total)
        total = total.reshape(affine.shape)
        if affine.factor is not None:
            total = total * affine.factor
    if affine.bias is None or not affine.bias.any():
        return total
    bias = np.broadcast_to(affine.bias, affine.shape)
    return bias if total is None else total + bias


# ---- gains of time steps ----------------------------------------------------------------------

NO_SHARED_WEIGHTS = (
    "its weights would have to change from step to step, which no neuron can make up for. Normalize per time "
    "step only right before neurons (a pooling may lie between), or train with --norm batch or tdbn"
)


def _through_steps(affine: Affine, value: Value) -> Value:
    """Return factor_t * value + bias_t"""
    assert affine.factor is not None and affine.bias is not None
    steps = len(affine.factor)
    wide = (steps, *value.shape)
    factor, bias = (np.broadcast_to(each, wide) for each in (affine.factor, affine.bias))
    gain = factor if value.gain is None else value.gain * factor
    constant = bias if value.constant is None else value.constant * factor + bias
    return replace(value, gain=gain, constant=constant if constant.any() else None)


def _gain_through(affine: Affine, gain: Array) -> Array:
    """Return the gain of a value after an affine map of constant numbers"""
    if affine.delay:  # nothing arrives in the first steps, so that any gain will do there
        gain = np.concatenate([gain[:1]] * affine.delay + [gain])[: len(gain)]
    steps, flat = len(gain), gain.reshape(len(gain), -1)
    if affine.synapse is None:
        return gain.reshape(steps, *affine.shape)
    if (flat == flat[:, :1]).all():
        return np.broadcast_to(flat[:, 0].reshape(-1, *[1] * len(affine.shape)), (steps, *affine.shape))
    first = gain.reshape(steps, affine.source[0], -1)[..., :1]
    if affine.channelwise and (gain.reshape(*first.shape[:2], -1) == first).all():
        return np.broadcast_to(
            first.reshape(steps, -1, *[1] * (len(affine.shape) - 1)), (steps, *affine.shape)
        )
    raise NetworkError(
        "value", [f"follows a norm per time step, with a gain per channel: {NO_SHARED_WEIGHTS}"]
    )


def _of_one_gain(one: Value, other: Value) -> tuple[Value, Value]:
    """Return two values with the gain of the first; raise if their gains are not proportional over time"""
    steps = len(one.gain if one.gain is not None else other.gain)  # type: ignore[arg-type]
    wide = (steps, *one.shape)
    values = [
        replace(
            value,
            gain=np.broadcast_to(1.0 if value.gain is None else value.gain.reshape(wide), wide),
            constant=None
            if value.constant is None
            else np.broadcast_to(value.constant.reshape(-1, *one.shape), wide),
        )
        for value in (one, other)
    ]
    gains = [np.asarray(value.gain) for value in values]
    if (gains[0] == gains[1]).all():
        return values[0], values[1]
    raise NetworkError("value", [f"adds values with different norms per time step: {NO_SHARED_WEIGHTS}"])


# Express pooling layers as synapses; the IR has no pooling node, because pooling is a linear map.
#
# An average over windows is separable: y = rows x columns^T, with one matrix per direction whose row i
# holds the weights of the pixels in window i. If all windows use the same weights (windows at the border
# may see fewer pixels), that is a convolution of each channel with one kernel. Otherwise (windows at the
# border divided by the number of pixels inside, adaptive windows of different sizes) it is a dense matrix.


def average_synapse(name: str, operation: AveragePool | AdaptivePool, source: Shape) -> Synapse:
    """Return the mean over windows of a source as a synapse."""
    rows, columns = (_shares(operation, source, axis) for axis in (0, 1))
    evenly = _as_convolution(rows, columns, operation, source)
    if evenly is not None:
        return evenly
    size = prod(pooled_shape(operation, source)) * prod(source)
    if size > LARGEST_DENSE:
        raise FoldError(
            f"{layer_name(name)}: pooling windows over {source} differ in their weights, so they need a "
            f"matrix of {size:,} weights; at most {LARGEST_DENSE:,} are allowed. Choose windows that divide "
            "the picture evenly, or set count_include_pad=True."
        )
    one_channel = np.einsum("ia,jb->ijab", rows, columns).reshape(rows.shape[0] * columns.shape[0], -1)
    return Dense(weight=np.kron(np.eye(source[0]), one_channel))


def any_synapse(operation: MaxPool, channels: int) -> Conv2d:
    """Return the synapse that counts the spikes in each window."""
    counting = pool_synapse(channels, operation.kernel, operation.stride, operation.padding)
    return replace(counting, dilation=operation.dilation)


def spread_synapse(source: Shape, target: Shape) -> Synapse | None:
    """Return the synapse that repeats a source along each axis on which it has one place; None if none does.

    Around the one pixel of an axis lie so many zeros that each window of ones sees that pixel alone.
    """
    sizes = list(zip(source, target, strict=True))
    if source == target or any(has not in (1, wants) for has, wants in sizes):
        return None
    if len(target) == 1:
        return Dense(weight=np.ones((target[0], 1)))
    height, width = (wants if has == 1 else 1 for has, wants in sizes[1:])
    weight = np.ones((target[0], 1, height, width))
    return Conv2d(weight=weight, padding=(height - 1, width - 1), groups=source[0])


def _shares(operation: AveragePool | AdaptivePool, source: Shape, number: int) -> Array:
    """[windows, pixels]: the weight of each pixel in each window, along one direction"""
    size, windows = source[1 + number], pooled_shape(operation, source)[1 + number]
    if isinstance(operation, AdaptivePool):
        window, pixel = np.arange(windows)[:, None], np.arange(size)
        inside = (pixel >= window * size // windows) & (pixel < -(-(window + 1) * size // windows))
        return _divided(inside, inside)
    kernel, stride, padding = (
        pair[number] for pair in (operation.kernel, operation.stride, operation.padding)
    )
    axis = Axis(
        source=size, target=windows, first=0, end=windows, taps=kernel, stride=stride, padding=padding
    )
    inside = axis.relation()
    if operation.divisor is not None:  # divides once, for both directions
        shares: Array = inside / (operation.divisor if number == 0 else 1)
        return shares
    # torch never counts the part of a window beyond the padding.
    within = axis.read(np.arange(windows)) < size + padding if operation.count_padding else inside
    return _divided(inside, within)


def _divided(inside: Array, counted: Array) -> Array:
    """Divide each window by the number of its counted pixels."""
    shares: Array = inside / counted.sum(axis=1, keepdims=True)
    return shares


def _as_convolution(
    rows: Array, columns: Array, operation: AveragePool | AdaptivePool, source: Shape
) -> Conv2d | None:
    """Return the convolution that all windows share; None if their weights differ."""
    if isinstance(operation, AdaptivePool):
        stride = max(source[1] // len(rows), 1), max(source[2] // len(columns), 1)
        kernel, padding = stride, (0, 0)
    else:
        stride, kernel, padding = operation.stride, operation.kernel, operation.padding
    share = float(rows.max()), float(columns.max())
    synapse = pool_synapse(source[0], kernel, stride, padding, share[0] * share[1])
    target = output_shape(synapse, source)
    if target != pooled_shape(operation, source):
        return None
    even = [axis.relation() * each for axis, each in zip(axes(synapse, source, target), share, strict=True)]
    return synapse if np.array_equal(rows, even[0]) and np.array_equal(columns, even[1]) else None


def pooled_shape(operation: AveragePool | AdaptivePool | MaxPool, source: Shape) -> Shape:
    """Return the shape after pooling; like torch, drop a last window that starts in the padding or beyond."""
    channels, *sizes = source
    match operation:
        case AdaptivePool(size=wanted):
            return (
                channels,
                *(has if want is None else want for has, want in zip(sizes, wanted, strict=True)),
            )
        case AveragePool():
            dilation, round_up = (1, 1), operation.round_up
        case MaxPool():
            dilation, round_up = operation.dilation, False
    counts = []
    for number, size in enumerate(sizes):
        reach = dilation[number] * (operation.kernel[number] - 1) + 1
        stride, padding = operation.stride[number], operation.padding[number]
        count = positions(size, reach, padding, stride, round_up=round_up)
        counts.append(count - 1 if round_up and (count - 1) * stride >= size + padding else count)
    return (channels, *counts)
