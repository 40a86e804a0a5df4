"""Memory layouts of activations, [timesteps * batch, ...]."""

from __future__ import annotations

import torch
from torch import Tensor


def steps_of(values: Tensor, timesteps: int) -> Tensor:
    """Reshape [timesteps * batch, ...] to [timesteps, batch, ...]."""
    return values.view(timesteps, -1, *values.shape[1:])


def has_channels_last(x: Tensor) -> bool:
    """Return whether the channels of a pixel, or of a sample without pixels, are neighbors in memory."""
    if x.dim() == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.dim() == 2 and x.is_contiguous()


def dense(x: Tensor) -> Tensor:
    """Return x contiguous, in whichever of torch's two memory formats it has."""
    return x if has_channels_last(x) else x.contiguous()


def in_layout_of(model: Tensor, values: Tensor) -> Tensor:
    """Copy values to the memory layout of `model`; the next layer may return gradients in another."""
    if values.stride() == model.stride():
        return values
    return torch.empty_like(model, dtype=values.dtype).copy_(values)
