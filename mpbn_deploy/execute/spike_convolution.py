"""Convolutions of spikes in integers, where torch brings oneDNN's: exact, and much faster than floats.

Weights are int8, spikes uint8, sums int32, and the result is float32 times a power of two: no rounding
anywhere. Processors without VNNI are left out, because there oneDNN halves the weights; and since the
operators are not public API, each convolution is held against float arithmetic once before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..ir import NO_BORDER, STATE_EXPONENT, Conv2d, Shape

INT8 = 127
TRIAL = 2  # samples on which it must equal float arithmetic before it is used


def spike_convolution(synapse: Conv2d, source: Shape, samples: int) -> Callable[[Tensor], Tensor] | None:
    """Spikes [samples, *source] -> currents in units of the state; None where this machine has it not."""
    weight = torch.tensor(synapse.weight)
    if not _available() or synapse.silent != NO_BORDER or weight.abs().max() > INT8:
        return None
    try:
        convolve = _prepared(synapse, weight, (samples, *source))
        found = convolve(_trial(source))
    except (AttributeError, RuntimeError, TypeError):  # another release of torch, another signature
        return None
    expected = functional.conv2d(
        _trial(source).double(),
        weight.double() * 2.0 ** (STATE_EXPONENT + synapse.exponent),
        None,
        synapse.stride,
        synapse.padding,
        synapse.dilation,
        synapse.groups,
    )
    return convolve if torch.equal(found.double(), expected) else None


def _prepared(synapse: Conv2d, weight: Tensor, shape: Shape) -> Callable[[Tensor], Tensor]:
    operators: Any = torch.ops.onednn
    where = (list(synapse.stride), list(synapse.padding), list(synapse.dilation), synapse.groups)
    scales = torch.full((len(weight),), 2.0 ** (STATE_EXPONENT + synapse.exponent))
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    packed = operators.qconv_prepack(weight.to(torch.int8), scales, 1.0, 0, *where, list(shape))

    def convolve(spikes: Tensor) -> Tensor:
        sent = spikes.view(torch.uint8)
        currents: Tensor = operators.qconv2d_pointwise(
            sent, 1.0, 0, packed, scales, zeros, None, *where, 1.0, 0, torch.float32, "none", [], ""
        )
        return currents

    return convolve


def _trial(source: Shape) -> Tensor:
    """Spikes in every other place, or so: a pattern that no kernel is blind to."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(TRIAL, *source, generator=generator) < 0.5


def _available() -> bool:
    supported = getattr(torch.cpu, "_is_vnni_supported", None)
    backend: Any = torch.backends.mkldnn
    return bool(backend.is_available() and supported is not None and supported())
