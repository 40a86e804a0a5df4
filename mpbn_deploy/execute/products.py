"""Integer products of spikes and weights with torch's oneDNN operators: exact, and faster than floats.

Weights are int8, spikes uint8, sums int32, and the result is float32 times a power of two, so nothing is
rounded while sums stay below 2**24. The operators are not public API, and how they compute depends on the
processor, so each synapse is tried: on a small input, integers must give what NumPy gives. They take a third
of the time of float32, which is exact too, and more on processors without VNNI.

A pool that was composed into a convolution is taken out again: where the weights of each block of pixels are
equal, sums of blocks are convolved, with fewer products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import assert_never

from ..base import record
from ..ir import NO_BORDER, STATE_EXPONENT, Conv2d, Dense, Pair, Shape, Synapse, apply_synapse, magnitude

LARGEST_WEIGHT = 127  # int8
LARGEST_POOL = 11  # pixels along a side: pairs of products of sums up to 128 fit 16 bits, as AVX2 has them
TRIAL_SPIKES = 2**16

Product = Callable[[Tensor], Tensor]


def spike_product(synapse: Synapse, source: Shape) -> Product | None:
    """Return spikes [samples, *source] -> currents, in units of the state; None if they are not right here.

    Sums must be below 2**24.
    """
    if magnitude(synapse.weight) > LARGEST_WEIGHT:
        return None
    if isinstance(synapse, Conv2d) and synapse.silent != NO_BORDER:
        return None
    spikes = _trial_spikes(source)
    try:
        product = _in_integers(synapse, spikes)
        return product if _is_right(product(spikes), synapse, spikes) else None
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):  # other releases, other processors
        return None


def _in_integers(synapse: Synapse, spikes: Tensor) -> Product:
    match synapse:
        case Dense():
            return _matrix(synapse, tuple(spikes.flatten(1).shape))
        case Conv2d():
            pooled = _without_pool(synapse, tuple(spikes.shape[2:]))
            if pooled is None:
                return _convolution(synapse, tuple(spikes.shape))
            size = synapse.stride[0]
            convolve = _convolution(pooled, tuple(_block_sums(spikes, size).shape))
            return lambda sent: convolve(_block_sums(sent, size))
        case _:
            assert_never(synapse)


def _matrix(synapse: Dense, shape: Shape) -> Product:
    operators: Any = torch.ops.onednn
    weight, scales, zeros = _quantized(synapse)
    packed = operators.qlinear_prepack(weight, list(shape))

    def multiply(spikes: Tensor) -> Tensor:
        sent = spikes.flatten(1).view(torch.uint8)
        currents: Tensor = operators.qlinear_pointwise(
            sent, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return currents

    return multiply


def _convolution(synapse: Conv2d, shape: Shape) -> Product:
    operators: Any = torch.ops.onednn
    form = ordinary_form(synapse, (shape[2], shape[3]))
    weight, scales, zeros = _quantized(replace(synapse, weight=form.kernel(synapse.weight)))
    geometry = (*form.geometry, synapse.groups)
    read = form.read(torch.zeros(shape, dtype=torch.uint8))
    packed = operators.qconv_prepack(weight, scales, 1.0, 0, *geometry, list(read.shape))

    def convolved(spikes: Tensor) -> Tensor:
        sent = form.read(spikes.view(torch.uint8)).contiguous(memory_format=torch.channels_last)
        currents: Tensor = operators.qconv2d_pointwise(
            sent, 1.0, 0, packed, scales, zeros, None, *geometry, 1.0, 0, torch.float32, "none", [], ""
        )
        return currents

    return convolved


def _quantized(synapse: Synapse) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights as int8, the scale of each output, and its zero point."""
    weight = torch.tensor(synapse.weight, dtype=torch.int8)
    scales = torch.full((len(weight),), 2.0 ** (STATE_EXPONENT + synapse.exponent))
    return weight, scales, torch.zeros(len(weight), dtype=torch.int64)


def _without_pool(synapse: Conv2d, pixels: Shape) -> Conv2d | None:
    """Return the convolution of sums of blocks of pixels, as wide as the stride; None if blocks differ."""
    size, weight = synapse.stride[0], synapse.weight
    lengths = (*pixels, *weight.shape[2:], *synapse.padding)
    if not 1 < size <= LARGEST_POOL or any(length % size for length in lengths):
        return None
    if synapse.stride != (size, size) or synapse.dilation != (1, 1):
        return None
    first = weight[:, :, ::size, ::size]
    if not np.array_equal(weight, first.repeat(size, axis=2).repeat(size, axis=3)):
        return None
    rows, columns = (padding // size for padding in synapse.padding)
    return replace(synapse, weight=first, stride=(1, 1), padding=(rows, columns))


def _block_sums(spikes: Tensor, size: int) -> Tensor:
    """Return the number of spikes in each block of size x size pixels."""
    counts = spikes.view(torch.uint8)
    total = counts[:, :, ::size, ::size]
    for place in range(1, size * size):
        total = total + counts[:, :, place // size :: size, place % size :: size]
    return total


def _is_right(found: Tensor, synapse: Synapse, spikes: Tensor) -> bool:
    """Compare a few samples with NumPy, which shares no code with torch, and so no error."""
    chosen = [0, len(spikes) // 2, -1]
    currents = apply_synapse(synapse, spikes[chosen].numpy()) * 2.0**STATE_EXPONENT
    return np.array_equal(found[chosen].numpy().reshape(currents.shape), currents)


def as_floats(values: Tensor, kind: torch.dtype) -> Tensor:
    """Return values as floats; torch converts bytes several times faster than Booleans."""
    return (values.view(torch.uint8) if values.dtype == torch.bool else values).to(kind)


def _trial_spikes(source: Shape) -> Tensor:
    """Return random spikes, which exercise every weight, and a sample of all spikes: the largest sums."""
    generator = torch.Generator().manual_seed(0)
    samples = 1 + max(1, TRIAL_SPIKES // prod(source))
    *before, channels = (*source[1:], source[0])  # channels-last memory, as the emulator has it
    spikes = torch.rand(samples, *before, channels, generator=generator) < 0.5
    spikes[0] = True
    return spikes.movedim(-1, 1)


# Convolutions in forms that torch computes correctly, whatever their geometry.
#
# oneDNN, which torch calls, leaves outputs unwritten or ends the process for some odd geometries: a side of
# one pixel with a stride, or kernels that reach beyond the image. So torch is asked for ordinary ones only.
# Along each side of an image, a convolution is ordinary if it has several outputs and several taps, its
# windows leave no gaps, and its kernel is neither larger than the image nor beside it. On any other side, the
# pixels that the taps of each output read are laid side by side: windows that do not overlap, without padding
# and dilation.


@record
class Side:
    """How a convolution reads one side of an image."""

    stride: int = 1
    padding: int = 0
    dilation: int = 1
    pixels: Tensor | None = None  # what is read, if not the side as it is: 0 is a zero, n + 1 is pixel n
    taps: list[int] | None = None  # of the kernel that are kept, if not all


@record
class OrdinaryForm:
    """A convolution as torch is asked for it: that of `read(values)` with `kernel(weight)`."""

    rows: Side
    columns: Side

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int]]:
        """Stride, padding and dilation."""
        sides = (self.rows, self.columns)
        return [s.stride for s in sides], [s.padding for s in sides], [s.dilation for s in sides]

    def read(self, values: Tensor) -> Tensor:
        if self.rows.pixels is not None:
            values = functional.pad(values, (0, 0, 1, 0)).index_select(2, self.rows.pixels)
        if self.columns.pixels is not None:
            values = functional.pad(values, (1, 0)).index_select(3, self.columns.pixels)
        return values

    def kernel(self, weight: Any) -> Any:
        """Return the taps that are kept, of a tensor or an array."""
        weight = weight if self.rows.taps is None else weight[:, :, self.rows.taps]
        return weight if self.columns.taps is None else weight[:, :, :, self.columns.taps]


def ordinary_form(synapse: Conv2d, source: Pair) -> OrdinaryForm:
    """Return the ordinary form of a convolution of images of `source` pixels."""
    geometry = (synapse.weight.shape[2:], synapse.stride, synapse.padding, synapse.dilation)
    rows, columns = (_side(*side) for side in zip(source, *geometry, strict=True))
    return OrdinaryForm(rows=rows, columns=columns)


@lru_cache(maxsize=4096)
def _side(source: int, kernel: int, stride: int, padding: int, dilation: int) -> Side:
    """Output o reads pixel o * stride + t * dilation - padding with tap t."""
    reach = dilation * (kernel - 1) + 1
    outputs = (source + 2 * padding - reach) // stride + 1
    if outputs > 1 and kernel > 1 and max(padding + 1, stride) <= reach <= source:
        return Side(stride=stride, padding=padding, dilation=dilation)
    read = [[o * stride + t * dilation - padding for o in range(outputs)] for t in range(kernel)]
    taps = [t for t, pixels in enumerate(read) if any(0 <= pixel < source for pixel in pixels)] or [0]
    pixels = [read[t][o] + 1 if 0 <= read[t][o] < source else 0 for o in range(outputs) for t in taps]
    return Side(
        stride=len(taps) if outputs > 1 else 1,
        pixels=None if pixels == [*range(1, source + 1)] else torch.tensor(pixels),
        taps=None if len(taps) == kernel else taps,
    )


def convolve(values: Tensor, weight: Tensor, synapse: Conv2d) -> Tensor:
    """Return the convolution of a synapse whose weight is given."""
    form = ordinary_form(synapse, (values.shape[2], values.shape[3]))
    read, kernel = form.read(values), form.kernel(weight)
    return functional.conv2d(read, kernel, None, *form.geometry, synapse.groups)
