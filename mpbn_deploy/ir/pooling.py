"""Pooling as a synapse: there is no node for it, because to a chip it is a linear map like others.

An average over windows is separable: y = rows x columns^T, with one matrix per direction whose row i
holds the shares of the pixels in window i. Where all windows share alike (those at the border just
see fewer pixels), that is a convolution of each channel with one kernel. Where they do not (windows
at the border divided by the pixels inside, uneven adaptive windows), it is a dense matrix.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ..base import Array, FoldError
from .composition import LARGEST_DENSE, pool_synapse
from .receptive import Axis, axes
from .synapses import Conv2d, Dense, Shape, Synapse, output_shape, positions
from .trained import AdaptivePool, AveragePool, MaxPool


def average_synapse(name: str, operation: AveragePool | AdaptivePool, source: Shape) -> Synapse:
    """The mean over windows of a source of that shape."""
    rows, columns = (_shares(operation, source, axis) for axis in (0, 1))
    evenly = _as_convolution(rows, columns, operation, source)
    if evenly is not None:
        return evenly
    size = prod(pooled_shape(operation, source)) * prod(source)
    if size > LARGEST_DENSE:
        raise FoldError(
            f"{name}: its windows over {source} share unevenly, so no kernel holds them, and a matrix would "
            f"have {size:,} weights; at most {LARGEST_DENSE:,} are made. Pool with windows that fit the "
            "picture, or with count_include_pad=True."
        )
    one_channel = np.einsum("ia,jb->ijab", rows, columns).reshape(rows.shape[0] * columns.shape[0], -1)
    return Dense(weight=np.kron(np.eye(source[0]), one_channel))


def any_synapse(operation: MaxPool, channels: int) -> Conv2d:
    """How many neurons of each window fire."""
    counting = pool_synapse(channels, operation.kernel, operation.stride, operation.padding)
    return replace(counting, dilation=operation.dilation)


def _shares(operation: AveragePool | AdaptivePool, source: Shape, number: int) -> Array:
    """[windows, pixels]: with which share each pixel enters each window, in one direction"""
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
    # What of a window lies beyond the padding, torch never counts.
    within = axis.read(np.arange(windows)) < size + padding if operation.count_padding else inside
    return _divided(inside, within)


def _divided(inside: Array, counted: Array) -> Array:
    """Each window's pixels, divided by how many of it count."""
    shares: Array = inside / counted.sum(axis=1, keepdims=True)
    return shares


def _as_convolution(
    rows: Array, columns: Array, operation: AveragePool | AdaptivePool, source: Shape
) -> Conv2d | None:
    """The kernel that all windows share, if they do."""
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
    for number, size in enumerate(sizes):
        reach = dilation[number] * (operation.kernel[number] - 1) + 1
        stride, padding = operation.stride[number], operation.padding[number]
        count = positions(size, reach, padding, stride, round_up=round_up)
        counts.append(count - 1 if round_up and (count - 1) * stride >= size + padding else count)
    return (channels, *counts)
