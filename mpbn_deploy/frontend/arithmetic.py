"""Arithmetic with constants in `forward`: y = factor * x + shift, such as x / 255 or (x - mean) / deviation.

Constants are numbers, or tensors that do not depend on the input. They may differ between channels, but not
within a channel, so y is a batch norm whose gain is the factor and whose offset is the shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base import FrontendError, record
from ..ir import BatchNorm, Shape

# Names of functions, operators and methods, without underscores.
SUMS = frozenset({"add", "radd", "iadd"})
DIFFERENCES = frozenset({"sub", "subtract", "isub"})
REVERSED_DIFFERENCES = frozenset({"rsub"})
PRODUCTS = frozenset({"mul", "multiply", "rmul", "imul"})
QUOTIENTS = frozenset({"div", "divide", "truediv", "true_divide", "itruediv"})
NEGATIONS = frozenset({"neg", "negative"})
ARITHMETIC = SUMS | DIFFERENCES | REVERSED_DIFFERENCES | PRODUCTS | QUOTIENTS | NEGATIONS


@record
class Scaling:
    """y = factor * x + shift, with tensors that broadcast to x."""

    factor: Tensor
    shift: Tensor


def plain_name(function: Any) -> str:
    """Return the name of a function, operator or method without underscores: __rmul__ -> rmul."""
    return str(getattr(function, "__name__", function)).strip("_")


def scaling(function: Any, arguments: Sequence[Any], place: int) -> Scaling | None:
    """Return what a call does to its argument in `place`, if all others are constants.

    None for calls that are not supported. Callers must reject keywords such as alpha, and rounding modes.
    """
    name = plain_name(function)
    if name in NEGATIONS and len(arguments) == 1:
        return Scaling(factor=-_ONE, shift=_ZERO)
    if name not in ARITHMETIC or len(arguments) != 2:
        return None
    constant = exactly(arguments[1 - place])
    if name in SUMS:
        return Scaling(factor=_ONE, shift=constant)
    if name in PRODUCTS:
        return Scaling(factor=constant, shift=_ZERO)
    if name in QUOTIENTS:
        return Scaling(factor=1 / constant, shift=_ZERO) if place == 0 else None
    minuend = (place == 0) == (name in DIFFERENCES)
    return Scaling(factor=_ONE, shift=-constant) if minuend else Scaling(factor=-_ONE, shift=constant)


_ONE, _ZERO = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)


def exactly(constant: Any) -> Tensor:
    """Return a number or a tensor in float64; torch would make a float32 tensor of a number."""
    return torch.as_tensor(constant, dtype=torch.float64).detach()


def scale_and_shift(x: Tensor, gain: Sequence[float], offset: Sequence[float]) -> Tensor:
    """Compute gain * x + offset, one number per channel of [samples, channels, ...]."""
    shape = (-1, *(1 for _ in x.shape[2:]))
    return torch.as_tensor(gain).to(x).reshape(shape) * x + torch.as_tensor(offset).to(x).reshape(shape)


def norm_of(gain: Sequence[float], offset: Sequence[float]) -> BatchNorm:
    """Return gain * x + offset as a norm."""
    none, one = np.zeros(len(gain)), np.ones(len(gain))
    return BatchNorm(gain=np.array(gain), offset=np.array(offset), mean=none, variance=one, epsilon=0.0)


def channel_numbers(where: str, found: Scaling, shape: Shape) -> tuple[list[float], list[float]]:
    """Return gain and offset of a scaling for each channel of values of this shape, in one time step."""
    return _numbers(where, found.factor, shape), _numbers(where, found.shift, shape)


def _numbers(where: str, constant: Tensor, shape: Shape) -> list[float]:
    """Return one number for each channel; for all samples and time steps, it must be the same."""
    values = constant
    while values.dim() > len(shape) and torch.equal(values, values[:1].expand(values.shape)):
        values = values[0]
    try:
        values = values.expand(shape).reshape(shape[0], -1)
    except RuntimeError as error:
        raise FrontendError(
            f"{where}: a constant of shape {tuple(constant.shape)} for values of shape {shape}; one number, "
            "or one per channel, is supported."
        ) from error
    if not torch.isfinite(values).all():
        raise FrontendError(f"{where}: a constant that is not finite.")
    if not torch.equal(values, values[:, :1].expand(values.shape)):
        raise FrontendError(
            f"{where}: constants that differ within a channel; one number, or one per channel, is supported."
        )
    numbers: list[float] = values[:, 0].tolist()
    return numbers
