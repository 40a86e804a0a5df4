"""Spikes with a gradient: the step function forward, something smoother backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class RectangleSpike(torch.autograd.Function):
    """Forward: 1 where membrane > threshold. Backward, paper Eq. 12: 1 where 0 <= membrane <= 1."""

    @staticmethod
    def forward(ctx: Any, membrane: Tensor, threshold: float) -> Tensor:
        ctx.save_for_backward(membrane)
        return (membrane > threshold).to(membrane.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (membrane,) = ctx.saved_tensors
        inside = (membrane >= 0) & (membrane <= 1)
        return gradients[0] * inside.to(membrane.dtype), None


def rectangle(membrane: Tensor, threshold: float) -> Tensor:
    """The surrogate that the paper prints."""
    spikes = RectangleSpike.apply(membrane, threshold)  # type: ignore[no-untyped-call]
    assert isinstance(spikes, Tensor)
    return spikes


SURROGATES: dict[str, Callable[[Tensor, float], Tensor]] = {"rectangle": rectangle}
