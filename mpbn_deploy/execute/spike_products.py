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
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import assert_never

from ..ir import (
    NO_BORDER,
    STATE_EXPONENT,
    Conv2d,
    Dense,
    Shape,
    Synapse,
    apply_synapse,
    magnitude,
)
from .convolutions import ordinary_form

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
