"""Convert torch's linear layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from ..base import Array, FrontendError
from ..ir import Conv2d, Convolution, Linear, Pair


def linear(module: nn.Linear) -> Linear:
    return Linear(weight=array(module.weight), bias=bias(module.bias, module.out_features))


def convolution(module: nn.Conv2d) -> Convolution:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise FrontendError(
            f"padding {module.padding!r}, mode {module.padding_mode!r}; only a number of zeros is supported."
        )
    synapse = Conv2d(
        weight=array(module.weight),
        stride=pair(module.stride),
        padding=pair(module.padding),
        dilation=pair(module.dilation),
        groups=module.groups,
    )
    return Convolution(synapse=synapse, bias=bias(module.bias, module.out_channels))


def array(tensor: Tensor) -> Array:
    """Return a tensor as float64."""
    values: Array = tensor.detach().cpu().numpy().astype(np.float64)
    return values


def bias(tensor: Tensor | None, count: int) -> Array:
    """Return a bias, or zeros."""
    return np.zeros(count) if tensor is None else array(tensor)


def pair(values: Any) -> Pair:
    """Return (vertical, horizontal)."""
    first, second = values if isinstance(values, tuple) else (values, values)
    return int(first), int(second)
