"""Express pooling layers as synapses; the IR has no pooling node, because pooling is a linear map.

An average over windows is separable: y = rows x columns^T, with one matrix per direction whose row i
holds the weights of the pixels in window i. If all windows use the same weights (windows at the border
may see fewer pixels), that is a convolution of each channel with one kernel. Otherwise (windows at the
border divided by the number of pixels inside, adaptive windows of different sizes) it is a dense matrix.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ..base import Array, FoldError, layer_name
from .composition import LARGEST_DENSE, pool_synapse
from .receptive import Axis, axes
from .synapses import Conv2d, Dense, Shape, Synapse, output_shape, positions
from .trained import AdaptivePool, AveragePool, MaxPool


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
