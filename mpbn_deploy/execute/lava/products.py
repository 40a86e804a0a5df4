"""Synapses as matrix products, on values in Lava's axes [lanes, x, y, channel] or [lanes, feature].

A convolution gathers the receptive field of each neuron (im2col) and multiplies it by the kernel with BLAS.
Sums are exact in the float type that `ir.exact_float` returns.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.linalg.blas import dgemm, sgemm
from typing_extensions import assert_never

from ...base import Array
from ...ir import Connection, Conv2d, Dense, Shape, output_shape, span, window

GATHERED_BYTES = 2**22  # receptive fields gathered at once, which should fit the cache


def multiply(left: Array, right: Array, product: Array) -> None:
    """product = left @ right, with SciPy's BLAS, in place; all arrays are contiguous.

    Lava requires NumPy 1, whose BLAS does not recognize newer processors and is five times slower on them.
    SciPy, which Lava requires too, brings a newer BLAS.
    """
    gemm = sgemm if left.dtype == np.float32 else dgemm
    gemm(1.0, right.T, left.T, beta=0.0, c=product.T, overwrite_c=True)  # BLAS is column-major


class DenseProduct:
    """target = weight @ values, with rows and columns of the weight in Lava's order"""

    def __init__(self, synapse: Dense, source: Shape, target: Shape, kind: type, factor: float) -> None:
        weight = synapse.weight.astype(np.float64).reshape(*target, *source)
        axes = [*reversed(range(len(target))), *reversed(range(len(target), weight.ndim))]
        weight = weight.transpose(axes).reshape(prod(target), prod(source))
        self.weight: Array = np.ascontiguousarray(weight.T * factor, kind)
        self.shape = target[::-1]
        self.inside: tuple[slice, ...] = (slice(None),)

    def __call__(self, values: Array) -> Array:
        flat = values.reshape(len(values), -1).astype(self.weight.dtype)
        product: Array = np.empty((len(values), self.weight.shape[1]), self.weight.dtype)
        multiply(flat, self.weight, product)
        return product.reshape(len(values), *self.shape)


class ConvolutionProduct:
    """target[x, y, o] = sum of weight * values over the receptive field, inside the window of the synapse"""

    def __init__(self, synapse: Conv2d, source: Shape, kind: type, factor: float) -> None:
        self.synapse = synapse
        target = output_shape(synapse, source)
        rows, columns = window(synapse, target)
        self.inside: tuple[slice, ...] = (slice(None), columns, rows)
        self.windows = (columns.stop - columns.start, rows.stop - rows.start)
        groups, kernel = synapse.groups, synapse.weight.astype(np.float64) * factor
        channels, inner, height, width = kernel.shape
        kernel = kernel.reshape(groups, channels // groups, inner, height, width).transpose(0, 4, 3, 2, 1)
        self.weight: Array = np.ascontiguousarray(kernel.reshape(groups, -1, channels // groups), kind)
        self.taps = (width, height, inner)
        size = groups * prod(self.windows) * prod(self.taps) * self.weight.itemsize
        self.lanes_at_once = max(1, GATHERED_BYTES // size)
        self._gathered: Array = np.empty(0, kind)

    def __call__(self, values: Array) -> Array:
        groups, _, channels = self.weight.shape
        product: Array = np.empty((len(values), *self.windows, groups * channels), self.weight.dtype)
        for start in range(0, len(values), self.lanes_at_once):
            part = slice(start, start + self.lanes_at_once)
            self._multiply(values[part], product[part])
        return product

    def _multiply(self, values: Array, product: Array) -> None:
        gathered = self._gather(values)  # [groups, lanes * windows, taps]
        columns = product.reshape(-1, product.shape[-1])
        if len(gathered) == 1:
            multiply(gathered[0], self.weight[0], columns)
            return
        channels = self.weight.shape[2]
        for group, (left, right) in enumerate(zip(gathered, self.weight, strict=True)):
            own = np.empty((len(columns), channels), columns.dtype)
            multiply(left, right, own)
            columns[:, group * channels : (group + 1) * channels] = own

    def _gather(self, values: Array) -> Array:
        """Return the receptive fields of the window by group, in memory that is reused."""
        (step_y, step_x), (skip_y, skip_x) = self.synapse.stride, self.synapse.dilation
        reach_y, reach_x = span(self.synapse)
        read = sliding_window_view(self._padded(values), (reach_x, reach_y), axis=(1, 2))  # type: ignore[call-overload]
        read = read[:, ::step_x, ::step_y, :, ::skip_x, ::skip_y][self.inside]
        groups, lanes = self.synapse.groups, len(values)
        read = read.reshape(*read.shape[:3], groups, -1, *read.shape[4:])
        shape = (groups, lanes, *self.windows, *self.taps)
        if self._gathered.shape != shape:
            self._gathered = np.empty(shape, self.weight.dtype)
        self._gathered[...] = read.transpose(3, 0, 1, 2, 5, 6, 4)
        return self._gathered.reshape(groups, lanes * prod(self.windows), -1)

    def _padded(self, values: Array) -> Array:
        pad_y, pad_x = self.synapse.padding
        if not (pad_x or pad_y):
            return values
        lanes, width, height, channels = values.shape
        padded: Array = np.zeros((lanes, width + 2 * pad_x, height + 2 * pad_y, channels), values.dtype)
        padded[:, pad_x : pad_x + width, pad_y : pad_y + height] = values
        return padded


Product = DenseProduct | ConvolutionProduct


def product(connection: Connection, source: Shape, target: Shape, kind: type, factor: float) -> Product:
    """Prepare a synapse, times 2**exponent and a factor, in floats of type `kind`."""
    synapse = connection.synapse
    factor = factor * 2.0**synapse.exponent
    match synapse:
        case Dense():
            return DenseProduct(synapse, source, target, kind, factor)
        case Conv2d():
            return ConvolutionProduct(synapse, source, kind, factor)
        case _:
            assert_never(synapse)
