"""Convert torch's linear layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from ..base import Array, FrontendError
from ..ir import Conv2d, Convolution, Linear, Pair


def linear(module: nn.Linear) -> Linear:
    return Linear(weight=array(module.weight), bias=bias(module.bias, module.out_features))


def convolution(module: nn.Conv1d | nn.Conv2d) -> Convolution:
    if module.padding_mode != "zeros":
        raise FrontendError(f"padding mode {module.padding_mode!r}; only zeros are supported.")
    synapse = Conv2d(
        weight=array(module.weight).reshape(*module.weight.shape[:2], *pair(module.kernel_size)),
        stride=pair(module.stride),
        padding=_padding(module),
        dilation=pair(module.dilation),
        groups=module.groups,
    )
    return Convolution(synapse=synapse, bias=bias(module.bias, module.out_channels))


def _padding(module: nn.Conv1d | nn.Conv2d) -> Pair:
    """Return the rows and columns of zeros; "same" adds as many on both sides if the kernel is odd."""
    if module.padding == "valid":
        return 0, 0
    if module.padding != "same":
        return pair(module.padding, 0)
    kernel, dilation = pair(module.kernel_size), pair(module.dilation)
    reach = [apart * (size - 1) for size, apart in zip(kernel, dilation, strict=True)]
    if any(each % 2 for each in reach):
        raise FrontendError(
            f"padding 'same' of a kernel of {kernel} adds more zeros on one side; give a number of zeros."
        )
    return reach[0] // 2, reach[1] // 2


def array(tensor: Tensor) -> Array:
    """Return a tensor as float64."""
    values: Array = tensor.detach().cpu().numpy().astype(np.float64)
    return values


def bias(tensor: Tensor | None, count: int) -> Array:
    """Return a bias, or zeros."""
    return np.zeros(count) if tensor is None else array(tensor)


def pair(values: Any, upright: int = 1) -> Pair:
    """Return (vertical, horizontal); of a signal, which is one pixel high, `upright` and its only number."""
    if isinstance(values, tuple) and len(values) == 1:
        return upright, int(values[0])
    first, second = values if isinstance(values, tuple) else (values, values)
    return int(first), int(second)
