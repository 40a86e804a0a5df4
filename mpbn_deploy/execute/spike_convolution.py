"""Integer convolutions of spikes with torch's oneDNN operators: exact, and much faster than floats.

Weights are int8, spikes uint8, sums int32, and the result is float32 times a power of two, so nothing is
rounded while sums stay below 2**24. Processors without VNNI fall back to floats, because oneDNN halves the
weights there. The operators are not public API, so each convolution is compared with float64 on a small input
before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..ir import NO_BORDER, STATE_EXPONENT, Conv2d, Shape, magnitude

LARGEST_WEIGHT = 127  # int8
TRIAL_SAMPLES = 2  # compared with float64 before a convolution is used


def spike_convolution(synapse: Conv2d, source: Shape, samples: int) -> Callable[[Tensor], Tensor] | None:
    """Return spikes [samples, *source] -> currents in units of the state; None if not supported here."""
    weight = torch.tensor(synapse.weight)
    if not _available() or synapse.silent != NO_BORDER or magnitude(synapse.weight) > LARGEST_WEIGHT:
        return None
    try:
        convolve = _prepared(synapse, weight, (samples, *source))
        found = convolve(_trial_spikes(source))
    except (AttributeError, RuntimeError, TypeError):  # the signature differs between releases of torch
        return None
    expected = functional.conv2d(
        _trial_spikes(source).double(),
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
    geometry = (list(synapse.stride), list(synapse.padding), list(synapse.dilation), synapse.groups)
    scales = torch.full((len(weight),), 2.0 ** (STATE_EXPONENT + synapse.exponent))
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    packed = operators.qconv_prepack(weight.to(torch.int8), scales, 1.0, 0, *geometry, list(shape))

    def convolve(spikes: Tensor) -> Tensor:
        sent = spikes.view(torch.uint8)
        currents: Tensor = operators.qconv2d_pointwise(
            sent, 1.0, 0, packed, scales, zeros, None, *geometry, 1.0, 0, torch.float32, "none", [], ""
        )
        return currents

    return convolve


def _trial_spikes(source: Shape) -> Tensor:
    """Return random spikes, which exercise every weight of the kernel."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(TRIAL_SAMPLES, *source, generator=generator) < 0.5


def _available() -> bool:
    supported = getattr(torch.cpu, "_is_vnni_supported", None)
    backend: Any = torch.backends.mkldnn
    return bool(backend.is_available() and supported is not None and supported())
