"""Linear maps put together into one synapse: two in a row, or two side by side.

Between two populations the IR knows a single `Dense` or `Conv2d`. Pooling, scaling and
convolutions without a neuron between them become that one, exactly: weights are float64, and
integers below 2**53 stay integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, prod

import numpy as np

from .errors import NetworkError
from .graph import Conv2d, Dense, Pair, Shape, Synapse, apply_synapse, output_shape
from .records import Array

# Weights of a matrix that a convolution may grow into: half a gigabyte.
LARGEST_DENSE = 2**26


def pool_synapse(
    channels: int, kernel: Pair, stride: Pair, padding: Pair = (0, 0), weight: float = 1.0
) -> Conv2d:
    """Each channel's sum over a window, times `weight`: 1 / (height * width) makes it the average."""
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
    _refuse_large((size, size), LARGEST_DENSE)
    return Dense(weight=np.diag(np.broadcast_to(values, shape).ravel()))


def compose(
    first: Synapse,
    second: Synapse,
    source_shape: Shape,
    *,
    between: Shape | None = None,
    limit: int = LARGEST_DENSE,
) -> Synapse:
    """target = second(first(source)), as one synapse.

    Two convolutions make one where the second's zero padding reads what the first would compute
    beyond its border anyway (see `_border_is_silent`); otherwise, and with a matrix among them,
    they make a matrix of at most `limit` weights. `between` is the shape in which the second
    reads the first, where that differs from the one that the first gives.
    """
    given = output_shape(first, source_shape)
    middle = given if between is None else between
    if isinstance(first, Conv2d) and isinstance(second, Conv2d):
        if middle == given and _border_is_silent(first, second, source_shape, middle):
            return _chain(first, second)
        first = as_dense(first, source_shape, limit)
    if isinstance(first, Conv2d):
        _refuse_large((len(second.weight), prod(source_shape)), limit)
        rows = _weight(second).reshape(-1, *output_shape(first, source_shape))
        return Dense(weight=_adjoint(first, rows, source_shape))
    if isinstance(second, Conv2d):
        _refuse_large((prod(output_shape(second, middle)), prod(source_shape)), limit)
        columns = _weight(first).T.reshape(-1, *middle)
        return Dense(weight=apply_synapse(second, columns).reshape(len(columns), -1).T)
    return Dense(weight=_weight(second) @ _weight(first))


def add(first: Synapse, second: Synapse, source_shape: Shape, limit: int = LARGEST_DENSE) -> Synapse:
    """target = first(source) + second(source), as one synapse"""
    if isinstance(first, Conv2d) and isinstance(second, Conv2d):
        stride = _common_stride(first, second, output_shape(first, source_shape)[1:])
        if stride is not None:
            return _side_by_side(first, second, source_shape, stride)
    matrices = [as_dense(synapse, source_shape, limit).weight for synapse in (first, second)]
    return Dense(weight=matrices[0] + matrices[1])


def as_dense(synapse: Synapse, source_shape: Shape, limit: int = LARGEST_DENSE) -> Dense:
    """The same map as a matrix, refused where it has more than `limit` weights."""
    if isinstance(synapse, Dense):
        return Dense(weight=_weight(synapse))
    target = output_shape(synapse, source_shape)
    _refuse_large((prod(target), prod(source_shape)), limit)
    (pad_y, pad_x), (_, height, width) = synapse.padding, source_shape
    padded = (source_shape[0], height + 2 * pad_y, width + 2 * pad_x)
    _refuse_large((prod(target), prod(padded)), 4 * limit)
    matrix = np.zeros((*target, *padded))
    kernel = regroup(_weight(synapse), synapse.groups, 1)
    rows, columns = np.arange(target[1])[:, None], np.arange(target[2])
    for down, right in np.ndindex(kernel.shape[2:]):
        y = synapse.stride[0] * rows + synapse.dilation[0] * down
        x = synapse.stride[1] * columns + synapse.dilation[1] * right
        # Index arrays that are apart come first: [y, x, output, input]
        matrix[:, rows, columns, :, y, x] = kernel[:, :, down, right]
    inner = matrix[..., pad_y : pad_y + height, pad_x : pad_x + width]
    return Dense(weight=inner.reshape(prod(target), -1))


def regroup(weight: Array, groups: int, fewer: int) -> Array:
    """Kernels [output, input / groups, y, x] in fewer groups, zero where an old group did not reach."""
    if groups == fewer:
        return weight
    outputs, inputs, merged = len(weight) // groups, weight.shape[1], groups // fewer
    whole = np.zeros((len(weight), merged * inputs, *weight.shape[2:]), weight.dtype)
    for group in range(groups):
        rows, start = slice(group * outputs, (group + 1) * outputs), group % merged * inputs
        whole[rows, start : start + inputs] = weight[rows]
    return whole


# ---- one convolution after another --------------------------------------------------------------


def _border_is_silent(first: Conv2d, second: Conv2d, source_shape: Shape, middle: Shape) -> bool:
    """Whether the one convolution sees zeros wherever the second one's padding is read.

    Pixel j of the middle reads source pixels stride*j - padding + 0..reach. The second reads j
    from -padding on: those below zero must lie wholly before the source, and those that it reads
    at or beyond the end of the middle wholly after it.
    """
    target = output_shape(second, middle)
    for axis in (0, 1):
        reach = first.dilation[axis] * (first.weight.shape[2 + axis] - 1)
        stride, padding = first.stride[axis], first.padding[axis]
        if second.padding[axis] and reach - padding - stride >= 0:
            return False
        end = middle[1 + axis]
        last = (target[1 + axis] - 1) * second.stride[axis] - second.padding[axis]
        last += second.dilation[axis] * (second.weight.shape[2 + axis] - 1)
        if last >= end and stride * end - padding < source_shape[1 + axis]:
            return False
    return True


def _chain(first: Conv2d, second: Conv2d) -> Conv2d:
    """weight[o, i, a * first.stride * second.dilation + b * first.dilation] += second[o, m, a] first[m, i, b]

    with stride = product of strides and padding = first.padding + first.stride * second.padding.
    """
    groups = gcd(first.groups, second.groups)
    inner, outer = (regroup(_weight(s), s.groups, groups) for s in (first, second))
    steps = tuple(s * d for s, d in zip(first.stride, second.dilation, strict=True))
    dilation = _common_dilation(inner, first.dilation, outer, steps)
    # A kernel of one tap takes no steps, so any step will do.
    (near_y, near_x), (far_y, far_x) = (
        _pair(max(1, a // b) for a, b in zip(taps, dilation, strict=True)) for taps in (first.dilation, steps)
    )
    height = far_y * (outer.shape[2] - 1) + near_y * (inner.shape[2] - 1) + 1
    width = far_x * (outer.shape[3] - 1) + near_x * (inner.shape[3] - 1) + 1
    kernel = np.zeros((len(outer), inner.shape[1], height, width))
    outer_parts, inner_parts, parts = (np.split(k, groups) for k in (outer, inner, kernel))
    for after, before, part in zip(outer_parts, inner_parts, parts, strict=True):
        for down, right in np.ndindex(after.shape[2:]):
            product = np.tensordot(after[:, :, down, right], before, axes=1)
            y, x = far_y * down, far_x * right
            window = part[:, :, y:, x:][:, :, ::near_y, ::near_x]
            window[:, :, : before.shape[2], : before.shape[3]] += product
    return Conv2d(
        weight=np.concatenate(parts),
        stride=_pair(a * b for a, b in zip(first.stride, second.stride, strict=True)),
        padding=_pair(p + s * q for p, s, q in zip(first.padding, first.stride, second.padding, strict=True)),
        dilation=dilation,
        groups=groups,
    )


def _common_dilation(inner: Array, near: Pair, outer: Array, far: tuple[int, ...]) -> Pair:
    """The largest step that all taps of the two kernels are multiples of; one where there is one tap."""

    def along(axis: int) -> int:
        sizes = ((inner.shape[2 + axis], near[axis]), (outer.shape[2 + axis], far[axis]))
        return gcd(*(step for size, step in sizes if size > 1)) or 1

    return along(0), along(1)


def _adjoint(first: Conv2d, rows: Array, source_shape: Shape) -> Array:
    """rows . first: each row [channels, y, x] over the result of a convolution, as one over its source"""
    (pad_y, pad_x), (channels, height, width) = first.padding, source_shape
    total = np.zeros((len(rows), channels, height + 2 * pad_y, width + 2 * pad_x))
    kernels = np.split(_weight(first), first.groups)
    parts = zip(
        kernels, np.split(rows, first.groups, axis=1), np.split(total, first.groups, axis=1), strict=True
    )
    (step_y, step_x), (down, right) = first.stride, first.dilation
    ends = step_y * (rows.shape[2] - 1) + 1, step_x * (rows.shape[3] - 1) + 1
    for kernel, values, part in parts:
        for a, b in np.ndindex(kernel.shape[2:]):
            product = np.tensordot(values, kernel[:, :, a, b], axes=((1,), (0,)))  # [row, y, x, input]
            y, x = down * a, right * b
            part[:, :, y : y + ends[0] : step_y, x : x + ends[1] : step_x] += np.moveaxis(product, 3, 1)
    inner = total[:, :, pad_y : pad_y + height, pad_x : pad_x + width]
    return inner.reshape(len(rows), -1)


# ---- one convolution beside another -------------------------------------------------------------


def _common_stride(first: Conv2d, second: Conv2d, target: Shape) -> Pair | None:
    """The stride of both, where they agree; one output pixel has any stride."""
    pairs = zip(first.stride, second.stride, target, strict=True)
    strides = [a if a == b or size == 1 else 0 for a, b, size in pairs]
    return _pair(strides) if all(strides) else None


def _side_by_side(first: Conv2d, second: Conv2d, source_shape: Shape, stride: Pair) -> Conv2d:
    """Both kernels laid into one frame of taps that reaches as far as either of them."""
    groups = gcd(first.groups, second.groups)
    target = output_shape(first, source_shape)
    frames = [
        _frame(first, second, axis, source_shape[1 + axis], target[1 + axis], stride[axis]) for axis in (0, 1)
    ]
    kernel = np.zeros((len(first.weight), source_shape[0] // groups, *(size for _, size in frames)))
    for synapse in (first, second):
        y, x = (padding - own for (padding, _), own in zip(frames, synapse.padding, strict=True))
        part = regroup(_weight(synapse), synapse.groups, groups)
        window = kernel[:, :, y:, x:][:, :, :: synapse.dilation[0], :: synapse.dilation[1]]
        window[:, :, : part.shape[2], : part.shape[3]] += part
    return Conv2d(weight=kernel, stride=stride, padding=(frames[0][0], frames[1][0]), groups=groups)


def _frame(first: Conv2d, second: Conv2d, axis: int, source: int, target: int, stride: int) -> Pair:
    """The padding and size of a kernel that holds the taps of both and gives `target` pixels."""
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


def _weight(synapse: Synapse) -> Array:
    weight: Array = synapse.weight.astype(np.float64) * 2.0**synapse.exponent
    return weight


def _refuse_large(shape: Pair, limit: int) -> None:
    if prod(shape) > limit:
        raise NetworkError(
            "synapse", [f"a matrix of {shape[0]} x {shape[1]} weights would be needed; allowed are {limit}"]
        )
