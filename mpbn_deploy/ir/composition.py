"""Compose linear maps into synapses: one after the other, or added.

The IR connects populations with `Dense` and `Conv2d`, whose currents add. Pooling, scaling and
convolutions without a neuron between them are composed into such synapses, exactly: weights are float64,
so integers below 2**53 stay integers. Neurons at a border read fewer pixels; where one kernel cannot
express that, the target is split into windows, each with its own convolution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import gcd, prod

import numpy as np

from ..base import Array, NetworkError, record
from .synapses import (
    Axis,
    Conv2d,
    Dense,
    Pair,
    Shape,
    Synapse,
    apply_synapse,
    axes,
    output_shape,
    real_weight,
    source_channels,
)

Synapses = tuple[Synapse, ...]  # from one source to one target: their currents add

# The largest number of weights of a matrix made from a convolution: half a gigabyte.
LARGEST_DENSE = 2**26


def pool_synapse(
    channels: int, kernel: Pair, stride: Pair, padding: Pair = (0, 0), weight: float = 1.0
) -> Conv2d:
    """Sum each channel over a window, times `weight`; a weight of 1 / (height * width) gives the average."""
    kernels = np.full((channels, 1, *kernel), weight, np.float64)
    return Conv2d(weight=kernels, stride=stride, padding=padding, groups=channels)


def identity_synapse(shape: Shape) -> Synapse:
    """target = source"""
    return diagonal_synapse(np.ones(shape[0]), shape)


def diagonal_synapse(values: Array, shape: Shape) -> Synapse:
    """target = values * source, with one value per channel or one per neuron"""
    values = np.asarray(values, np.float64)
    if values.size == shape[0] and len(shape) == 3:
        return Conv2d(weight=values.reshape(-1, 1, 1, 1), groups=shape[0])
    size = prod(shape)
    _check_size((size, size), LARGEST_DENSE)
    return Dense(weight=np.diag(np.broadcast_to(values, shape).ravel()))


def compose(
    first: Synapse,
    second: Synapse,
    source_shape: Shape,
    *,
    between: Shape | None = None,
    limit: int = LARGEST_DENSE,
) -> Synapses:
    """target = second(first(source)), in as few synapses as possible

    Two convolutions give one convolution per window of the target (see `_windows`), usually a single one.
    The result is a matrix if either map is one, or if a matrix has fewer weights than all windows together.
    Raises if it would have more than `limit` weights. `between` is the shape in which the second map reads
    the result of the first, if the result is reshaped.
    """
    given = output_shape(first, source_shape)
    middle = given if between is None else between
    if isinstance(first, Conv2d) and isinstance(second, Conv2d):
        windows = _windows(first, second, source_shape) if middle == given else []
        size = (prod(output_shape(second, middle)), prod(source_shape))
        if _are_fewer(windows, len(windows) * prod(_chained_shape(first, second)), size, limit):
            target = output_shape(second, middle)
            return tuple(_chain(first, _part(second, target, *ends)) for ends in windows)
        first = as_dense(first, source_shape, limit)
    if isinstance(first, Conv2d):
        _check_size((len(second.weight), prod(source_shape)), limit)
        rows = real_weight(second).reshape(-1, *given)
        return (Dense(weight=_adjoint(first, rows, source_shape)),)
    if isinstance(second, Conv2d):
        _check_size((prod(output_shape(second, middle)), prod(source_shape)), limit)
        columns = real_weight(first).T.reshape(-1, *middle)
        return (Dense(weight=apply_synapse(second, columns).reshape(len(columns), -1).T),)
    return (Dense(weight=real_weight(second) @ real_weight(first)),)


def through(first: Synapses, second: Synapse, source_shape: Shape, *, between: Shape) -> Synapses:
    """target = second(sum of first(source))"""
    parts = [compose(synapse, second, source_shape, between=between) for synapse in first]
    return reduce(partial(add, source_shape=source_shape), parts)


def add(first: Synapses, second: Synapses, source_shape: Shape, limit: int = LARGEST_DENSE) -> Synapses:
    """target = first(source) + second(source), merged into one synapse where possible"""
    together = list(first)
    for synapse in second:
        found = (_beside(one, synapse, source_shape) for one in together)
        place, one = next(((i, one) for i, one in enumerate(found) if one), (len(together), synapse))
        together[place : place + 1] = [one]
    convolutions = [synapse for synapse in together if isinstance(synapse, Conv2d)]
    weights = sum(synapse.weight.size for synapse in convolutions)
    size = (prod(output_shape(together[0], source_shape)), prod(source_shape))
    if len(convolutions) == len(together) and _are_fewer(convolutions, weights, size, limit):
        return tuple(together)
    return (matrix(tuple(together), source_shape, limit),)


def matrix(synapses: Synapses, source_shape: Shape, limit: int = LARGEST_DENSE) -> Dense:
    """Return the sum of synapses as one matrix."""
    first, *others = (as_dense(synapse, source_shape, limit).weight for synapse in synapses)
    return Dense(weight=sum(others, first))


def _are_fewer(parts: Sequence[object], weights: int, matrix_shape: Pair, limit: int) -> bool:
    """Whether to keep convolutions: a single one always, several unless a matrix has fewer weights."""
    return len(parts) == 1 or (bool(parts) and weights <= min(limit, prod(matrix_shape)))


def as_dense(synapse: Synapse, source_shape: Shape, limit: int = LARGEST_DENSE) -> Dense:
    """Return the same map as a matrix; raise if it has more than `limit` weights."""
    if isinstance(synapse, Dense):
        return Dense(weight=real_weight(synapse))
    target = output_shape(synapse, source_shape)
    _check_size((prod(target), prod(source_shape)), limit)
    # With excessive padding the matrix may fit in memory while the padded picture does not.
    padded = [size + 2 * padding for size, padding in zip(source_shape[1:], synapse.padding, strict=True)]
    _check_size((prod(target), source_shape[0] * prod(padded)), 4 * limit)
    matrix = np.zeros((*target, *source_shape))
    kernel = regroup(real_weight(synapse), synapse.groups, 1)
    rows, columns = axes(synapse, source_shape, target)
    for down, right in np.ndindex(kernel.shape[2:]):
        (y, row), (x, column) = rows.through(down), columns.through(right)
        # NumPy puts the axes of separated index arrays first: [y, x, output, input]
        matrix[:, np.r_[y][:, None], np.r_[x], :, np.r_[row][:, None], np.r_[column]] = kernel[
            :, :, down, right
        ]
    return Dense(weight=matrix.reshape(prod(target), -1))


def regroup(weight: Array, groups: int, fewer: int) -> Array:
    """Rewrite kernels [output, input / groups, y, x] in fewer groups; weights across old groups are zero."""
    if groups == fewer:
        return weight
    inputs = weight.shape[1] * groups // fewer
    whole = np.zeros((len(weight), inputs, *weight.shape[2:]), weight.dtype)
    whole[np.arange(len(weight))[:, None], source_channels(weight, groups) % inputs] = weight
    return whole


# ---- one convolution after another --------------------------------------------------------------


@record
class _Stretch:
    """Target rows (or columns) `first` to `end - 1`, for which the second convolution uses the same taps."""

    first: int
    end: int
    taps: Array  # bool per tap


def _windows(first: Conv2d, second: Conv2d, source_shape: Shape) -> list[tuple[_Stretch, _Stretch]]:
    """Split the target into windows (rows, columns) in each of which one chained kernel is exact.

    The second convolution reads zeros beyond the border of the first one's result, but a chained kernel
    would read what the first computes there. Neurons for which that differs from zero get their own
    window, whose kernel lacks those taps.
    """
    middle = output_shape(first, source_shape)
    shape = output_shape(second, middle)
    rows, columns = map(_stretches, axes(first, source_shape, middle), axes(second, middle, shape))
    return list(product(rows, columns))


def _part(second: Conv2d, target: Shape, rows: _Stretch, columns: _Stretch) -> Conv2d:
    """Return the second convolution restricted to one window of its target."""
    return replace(
        second,
        weight=second.weight * (rows.taps[:, None] & columns.taps),
        silent=((rows.first, target[1] - rows.end), (columns.first, target[2] - columns.end)),
    )


def _stretches(first: Axis, second: Axis) -> list[_Stretch]:
    """Cut the second convolution's window along one axis where neighbours cannot use the same taps."""
    needed, wrong = _reads(first, second)
    stretches: list[_Stretch] = []
    start, used, unused = 0, needed[0], wrong[0]
    for row in range(1, len(needed) + 1):
        if row < len(needed) and not ((used | needed[row]) & (unused | wrong[row])).any():
            used, unused = used | needed[row], unused | wrong[row]
            continue
        stretches.append(_Stretch(first=second.first + start, end=second.first + row, taps=~unused))
        if row < len(needed):
            start, used, unused = row, needed[row], wrong[row]
    return stretches


def _reads(first: Axis, second: Axis) -> tuple[Array, Array]:
    """Return two masks [row, tap]: taps that read a pixel of the first's result, and taps that read outside.

    Both leave out taps whose receptive field lies entirely outside the source: they read zero anyway.
    """
    pixel = second.read(np.arange(second.first, second.end))
    matters = first.inside(first.read(pixel)).any(axis=-1)
    real = (first.first <= pixel) & (pixel < first.end)
    return real & matters, ~real & matters


def _chain(first: Conv2d, second: Conv2d) -> Conv2d:
    """weight[o, i, a * first.stride * second.dilation + b * first.dilation] += second[o, m, a] first[m, i, b]

    with stride = product of strides and padding = first.padding + first.stride * second.padding.
    """
    groups = gcd(first.groups, second.groups)
    merged = first.groups // groups  # of the first's groups in each of the result
    inner, outer = real_weight(first), regroup(real_weight(second), second.groups, groups)
    (near_y, near_x), (far_y, far_x), dilation = _tap_spacings(first, second)
    kernel = np.zeros(_chained_shape(first, second))
    outer_parts, inner_parts, parts = (np.split(k, groups) for k in (outer, inner, kernel))
    for after, before, part in zip(outer_parts, inner_parts, parts, strict=True):
        columns = before.reshape(merged, len(before) // merged, -1)
        for down, right in np.ndindex(after.shape[2:]):
            rows = after[:, :, down, right].reshape(len(after), *columns.shape[:2]).swapaxes(0, 1)
            terms = (rows @ columns).swapaxes(0, 1).reshape(len(after), -1, *before.shape[2:])
            y, x = far_y * down, far_x * right
            frame = part[:, :, y:, x:][:, :, ::near_y, ::near_x]
            frame[:, :, : before.shape[2], : before.shape[3]] += terms
    return Conv2d(
        weight=np.concatenate(parts),
        stride=_pair(a * b for a, b in zip(first.stride, second.stride, strict=True)),
        padding=_pair(p + s * q for p, s, q in zip(first.padding, first.stride, second.padding, strict=True)),
        dilation=dilation,
        groups=groups,
        silent=second.silent,
    )


def _chained_shape(first: Conv2d, second: Conv2d) -> Shape:
    """Return the shape of the chained weight."""
    near, far, _ = _tap_spacings(first, second)
    sides = zip(near, first.weight.shape[2:], far, second.weight.shape[2:], strict=True)
    height, width = (a * (inner - 1) + b * (outer - 1) + 1 for a, inner, b, outer in sides)
    merged = first.groups // gcd(first.groups, second.groups)
    return len(second.weight), first.weight.shape[1] * merged, height, width


def _tap_spacings(first: Conv2d, second: Conv2d) -> tuple[Pair, Pair, Pair]:
    """Return the tap spacing of each convolution within the chained kernel, and that kernel's dilation."""
    near, far = first.dilation, _pair(s * d for s, d in zip(first.stride, second.dilation, strict=True))
    sides = zip(near, first.weight.shape[2:], far, second.weight.shape[2:], strict=True)
    # The spacing of a single tap is arbitrary.
    dilation = _pair(gcd(a * (inner > 1), b * (outer > 1)) or 1 for a, inner, b, outer in sides)
    spacings = [_pair(max(1, a // b) for a, b in zip(taps, dilation, strict=True)) for taps in (near, far)]
    return spacings[0], spacings[1], dilation


def _adjoint(first: Conv2d, rows: Array, source_shape: Shape) -> Array:
    """rows @ first: map rows [channels, y, x] over a convolution's result to rows over its source"""
    total = np.zeros((len(rows), *source_shape))
    down, across = axes(first, source_shape, rows.shape[1:])
    if len(first.weight) == first.groups:  # one term per weight: all groups at once, instead of one by one
        kernel = real_weight(first)
        grouped = total.reshape(len(rows), *kernel.shape[:2], *source_shape[1:])
        for a, b in np.ndindex(kernel.shape[2:]):
            (y, row), (x, column) = down.through(a), across.through(b)
            grouped[..., row, column] += rows[:, :, None, y, x] * kernel[:, :, a, b, None, None]
        return total.reshape(len(rows), -1)
    for kernel, values, part in zip(
        np.split(real_weight(first), first.groups),
        np.split(rows, first.groups, axis=1),
        np.split(total, first.groups, axis=1),
        strict=True,
    ):
        for a, b in np.ndindex(kernel.shape[2:]):
            (y, row), (x, column) = down.through(a), across.through(b)
            terms = np.tensordot(values, kernel[:, :, a, b], axes=((1,), (0,)))  # [row, y, x, input]
            part[:, :, row, column] += np.moveaxis(terms[:, y, x], 3, 1)
    return total.reshape(len(rows), -1)


# ---- one convolution beside another -------------------------------------------------------------


def _beside(first: Synapse, second: Synapse, source_shape: Shape) -> Synapse | None:
    """first + second as one synapse; None where one synapse cannot express the sum"""
    if isinstance(first, Dense) and isinstance(second, Dense):
        return Dense(weight=real_weight(first) + real_weight(second))
    if isinstance(first, Dense) or isinstance(second, Dense) or first.silent != second.silent:
        return None
    stride = _common_stride(first, second, output_shape(first, source_shape)[1:])
    return None if stride is None else _side_by_side(first, second, source_shape, stride)


def _common_stride(first: Conv2d, second: Conv2d, target: Shape) -> Pair | None:
    """Return the stride that both have; the stride of a single output pixel is arbitrary."""
    pairs = zip(first.stride, second.stride, target, strict=True)
    strides = [a if a == b or size == 1 else 0 for a, b, size in pairs]
    return _pair(strides) if all(strides) else None


def _side_by_side(first: Conv2d, second: Conv2d, source_shape: Shape, stride: Pair) -> Conv2d:
    """Add both kernels in one kernel large enough for the taps of either."""
    groups = gcd(first.groups, second.groups)
    target = output_shape(first, source_shape)
    frames = [
        _frame(first, second, axis, source_shape[1 + axis], target[1 + axis], stride[axis]) for axis in (0, 1)
    ]
    kernel = np.zeros((len(first.weight), source_shape[0] // groups, *(size for _, size in frames)))
    for synapse in (first, second):
        y, x = (padding - own for (padding, _), own in zip(frames, synapse.padding, strict=True))
        part = regroup(real_weight(synapse), synapse.groups, groups)
        frame = kernel[:, :, y:, x:][:, :, :: synapse.dilation[0], :: synapse.dilation[1]]
        frame[:, :, : part.shape[2], : part.shape[3]] += part
    return Conv2d(
        weight=kernel,
        stride=stride,
        padding=(frames[0][0], frames[1][0]),
        groups=groups,
        silent=first.silent,
    )


def _frame(first: Conv2d, second: Conv2d, axis: int, source: int, target: int, stride: int) -> Pair:
    """Return the padding and size of a kernel that holds the taps of both and gives `target` pixels."""
    padding = max(first.padding[axis], second.padding[axis])
    end = max(
        synapse.dilation[axis] * (synapse.weight.shape[2 + axis] - 1) - synapse.padding[axis]
        for synapse in (first, second)
    )
    pixels = (source + padding - end - 1) // stride + 1
    while pixels < target:  # zeros before the first tap allow one more
        padding += 1
        pixels = (source + padding - end - 1) // stride + 1
    while pixels > target:  # zeros after the last tap allow one less
        end += 1
        pixels = (source + padding - end - 1) // stride + 1
    return padding, padding + end + 1


def _pair(values: Iterable[int]) -> Pair:
    vertical, horizontal = values
    return vertical, horizontal


def _check_size(shape: Pair, limit: int) -> None:
    if prod(shape) > limit:
        raise NetworkError(
            "synapse", [f"a matrix of {shape[0]} x {shape[1]} weights would be needed; allowed are {limit}"]
        )
