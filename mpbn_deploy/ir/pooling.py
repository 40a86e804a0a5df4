"""Pooling as a synapse: there is no node for it, because to a chip it is a linear map like others.

An average over windows is separable: y = rows x columns^T, with one matrix per direction whose row i
holds the shares of the pixels in window i. Where all windows share alike (those at the border just
see fewer pixels), that is a convolution of each channel with one kernel. Where they do not (windows
at the border divided by the pixels inside, uneven adaptive windows), it is a dense matrix.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..base import Array, FoldError
from .synapses import Conv2d, Dense, Shape, Synapse
from .trained import AdaptivePool, AveragePool, MaxPool

LARGEST_MATRIX = 2**26  # numbers in a dense matrix that stands for uneven windows: half a gigabyte


def average_synapse(name: str, operation: AveragePool | AdaptivePool, source: Shape) -> Synapse:
    """The mean over windows of a source of that shape."""
    rows, columns = (_shares(operation, source, axis) for axis in (0, 1))
    evenly = _as_convolution(rows, columns, operation, source)
    if evenly is not None:
        return evenly
    size = prod(pooled_shape(operation, source)) * prod(source)
    if size > LARGEST_MATRIX:
        raise FoldError(
            f"{name}: its windows over {source} share unevenly, so no kernel holds them, and a matrix would "
            f"have {size:,} weights; at most {LARGEST_MATRIX:,} are made. Pool with windows that fit the "
            "picture, or with count_include_pad=True."
        )
    one_channel = np.einsum("ia,jb->ijab", rows, columns).reshape(rows.shape[0] * columns.shape[0], -1)
    return Dense(weight=np.kron(np.eye(source[0]), one_channel))


def any_synapse(operation: MaxPool, channels: int) -> Conv2d:
    """How many neurons of each window fire."""
    return Conv2d(
        weight=np.ones((channels, 1, *operation.kernel)),
        stride=operation.stride,
        padding=operation.padding,
        dilation=operation.dilation,
        groups=channels,
    )


def _shares(operation: AveragePool | AdaptivePool, source: Shape, axis: int) -> Array:
    """[windows, pixels]: with which share each pixel enters each window, in one direction"""
    size, windows = source[1 + axis], pooled_shape(operation, source)[1 + axis]
    shares = np.zeros((windows, size))
    for window in range(windows):
        first, last, divisor = _window(operation, axis, window, windows, size)
        shares[window, max(first, 0) : min(last, size)] = 1 / divisor
    return shares


def _window(
    operation: AveragePool | AdaptivePool, axis: int, window: int, windows: int, size: int
) -> tuple[int, int, float]:
    """The first pixel, the one after the last, and by what their sum is divided, as torch does it."""
    if isinstance(operation, AdaptivePool):
        first, last = window * size // windows, -(-(window + 1) * size // windows)
        return first, last, last - first
    first = window * operation.stride[axis] - operation.padding[axis]
    last = min(first + operation.kernel[axis], size + operation.padding[axis])
    if operation.divisor is not None:  # divides once, for both directions
        return first, last, operation.divisor if axis == 0 else 1
    inside = min(last, size) - max(first, 0)
    return first, last, last - first if operation.count_padding else inside


def _as_convolution(
    rows: Array, columns: Array, operation: AveragePool | AdaptivePool, source: Shape
) -> Conv2d | None:
    """The kernel that all windows share, if they do."""
    if isinstance(operation, AdaptivePool):
        strides = tuple(matrix.shape[1] // matrix.shape[0] for matrix in (rows, columns))
        kernel, padding = strides, (0, 0)
    else:
        strides, kernel, padding = operation.stride, operation.kernel, operation.padding
    share = [float(matrix.max()) for matrix in (rows, columns)]
    for axis, matrix in enumerate((rows, columns)):
        even = _even_shares(matrix.shape, kernel[axis], strides[axis], padding[axis]) * share[axis]
        reached = (len(matrix) - 1) * strides[axis] + kernel[axis] <= matrix.shape[1] + 2 * padding[axis]
        if not (reached and np.array_equal(matrix, even)):
            return None
    weight = np.full((source[0], 1, *kernel), share[0] * share[1])
    return Conv2d(weight=weight, stride=(strides[0], strides[1]), padding=padding, groups=source[0])


def _even_shares(shape: Shape, kernel: int, stride: int, padding: int) -> Array:
    first = np.arange(shape[0])[:, None] * stride - padding
    pixel = np.arange(shape[1])
    return ((pixel >= first) & (pixel < first + kernel)).astype(np.float64)


def pooled_shape(operation: AveragePool | AdaptivePool | MaxPool, source: Shape) -> Shape:
    """As torch counts windows: one that begins beyond the picture and its padding at the start is none."""
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
    for axis, size in enumerate(sizes):
        reach = dilation[axis] * (operation.kernel[axis] - 1) + 1
        stride, padding = operation.stride[axis], operation.padding[axis]
        room = size + 2 * padding - reach
        count = -(-room // stride) + 1 if round_up else room // stride + 1
        counts.append(count - 1 if round_up and (count - 1) * stride >= size + padding else count)
    return (channels, *counts)
