"""Slopes for the step function: a spike has no gradient, so backward multiplies by one of these.

Each takes the gradient of the loss by the spikes and the normalized membranes at which they were
decided, and gives the gradient by those membranes. Both are zero outside 0 <= membrane <= 1.
"""

from __future__ import annotations

from collections.abc import Callable
from math import tanh

import torch
from torch import Tensor

Surrogate = Callable[[Tensor, Tensor], Tensor]

TEMPERATURE = 3.0  # of the tanh in the paper's code


def rectangle(gradient: Tensor, membrane: Tensor) -> Tensor:
    """gradient * (1 where 0 <= membrane <= 1, else 0): what the paper prints (Eq. 12)"""
    limits = torch.finfo(membrane.dtype)
    # hardtanh's own kernel is one pass over memory, but leaves out its borders; the paper has them.
    below_zero, above_one = -limits.tiny * limits.eps, 1 + limits.eps
    inside: Tensor = torch.ops.aten.hardtanh_backward(gradient, membrane, below_zero, above_one)
    return inside


def scaled_tanh(gradient: Tensor, membrane: Tensor) -> Tensor:
    """gradient * d/dm [tanh(k (m - 1/2)) / (2 tanh(k / 2))] for 0 <= m <= 1, with k = 3: the paper's code"""
    curve = (membrane - 0.5).mul_(TEMPERATURE).tanh_()
    slope = torch.ops.aten.tanh_backward(gradient, curve).mul_(TEMPERATURE / (2 * tanh(TEMPERATURE / 2)))
    return rectangle(slope, membrane)


SURROGATES: dict[str, Surrogate] = {"rectangle": rectangle, "tanh": scaled_tanh}
