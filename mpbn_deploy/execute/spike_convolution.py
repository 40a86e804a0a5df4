"""Integer convolutions of spikes with torch's oneDNN operators: exact, and much faster than floats.

Weights are int8, spikes uint8, sums int32, and the result is float32 times a power of two, so nothing is
rounded while sums stay below 2**24. The operators are not public API, and how they compute depends on the
processor, so a trial decides for each convolution: on a small input it must give what float32 gives, which is
exact too, and take less time. With VNNI it takes about a quarter of the time, with AVX2 alone about half.

A pool that was composed into a convolution is taken out again: where the weights of each block of pixels are
equal, sums of blocks are convolved, with fewer products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..ir import NO_BORDER, STATE_EXPONENT, Conv2d, Shape, magnitude

LARGEST_WEIGHT = 127  # int8
LARGEST_POOL = 11  # pixels along a side: pairs of products of sums up to 128 fit 16 bits, as AVX2 has them
TRIAL_SPIKES = 2**16

Convolve = Callable[[Tensor], Tensor]


def spike_convolution(synapse: Conv2d, source: Shape) -> Convolve | None:
    """Return spikes [samples, *source] -> currents in units of the state; None if floats are as good here.

    Sums must be below 2**24.
    """
    if synapse.silent != NO_BORDER or magnitude(synapse.weight) > LARGEST_WEIGHT:
        return None
    spikes = _trial_spikes(source)
    try:
        convolve = _convolution(synapse, spikes)
        found, seconds = _tried(convolve, spikes)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):  # other releases, other processors
        return None
    expected, float_seconds = _tried(_in_floats(synapse), spikes)
    return convolve if torch.equal(found, expected) and seconds < float_seconds else None


def _convolution(synapse: Conv2d, spikes: Tensor) -> Convolve:
    pooled = _without_pool(synapse, tuple(spikes.shape[2:]))
    if pooled is None:
        return _in_integers(synapse, tuple(spikes.shape))
    size = synapse.stride[0]
    convolve = _in_integers(pooled, tuple(_block_sums(spikes, size).shape))
    return lambda sent: convolve(_block_sums(sent, size))


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


def _in_integers(synapse: Conv2d, shape: Shape) -> Convolve:
    operators: Any = torch.ops.onednn
    weight = torch.tensor(synapse.weight, dtype=torch.int8)
    geometry = (list(synapse.stride), list(synapse.padding), list(synapse.dilation), synapse.groups)
    scales = torch.full((len(weight),), 2.0 ** (STATE_EXPONENT + synapse.exponent))
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    packed = operators.qconv_prepack(weight, scales, 1.0, 0, *geometry, list(shape))

    def convolve(spikes: Tensor) -> Tensor:
        sent = spikes.view(torch.uint8)
        currents: Tensor = operators.qconv2d_pointwise(
            sent, 1.0, 0, packed, scales, zeros, None, *geometry, 1.0, 0, torch.float32, "none", [], ""
        )
        return currents

    return convolve


def _in_floats(synapse: Conv2d) -> Convolve:
    scale = 2.0 ** (STATE_EXPONENT + synapse.exponent)
    weight = torch.tensor(synapse.weight, dtype=torch.float32) * scale
    geometry = (synapse.stride, synapse.padding, synapse.dilation, synapse.groups)
    return lambda spikes: functional.conv2d(spikes.float(), weight, None, *geometry)


def _tried(convolve: Convolve, spikes: Tensor) -> tuple[Tensor, float]:
    """Return the currents, and the processor seconds of the second call: the first one prepares."""
    convolve(spikes)
    started = process_time()
    return convolve(spikes), process_time() - started


def _trial_spikes(source: Shape) -> Tensor:
    """Return random spikes, which exercise every weight, and a sample of all spikes: the largest sums."""
    generator = torch.Generator().manual_seed(0)
    channels, height, width = source
    samples = 1 + max(1, TRIAL_SPIKES // prod(source))
    spikes = torch.rand(samples, height, width, channels, generator=generator) < 0.5
    spikes[0] = True
    return spikes.movedim(-1, 1)  # channels-last memory, as the emulator has it
