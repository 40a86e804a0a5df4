"""Max pooling of spikes, with a gradient that follows the membranes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import max_pool2d

from . import compiled
from .scan import is_compiled, normalized_membranes, scan_node
from .timed import run_eagerly

HALVES = ([2, 2], [2, 2], [0, 0], [1, 1], False)  # windows of 2 x 2 pixels that do not overlap


class SpikePool(nn.MaxPool2d):
    """nn.MaxPool2d of spikes: in each window, the gradient goes to the neuron with the highest membrane.

    That neuron alone decides whether the window has a spike. nn.MaxPool2d cannot know it: the spikes of a
    window are often equal, and it takes the first of them. Unless it is directly behind a LIF, this is
    nn.MaxPool2d.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the largest spike of each window."""
        return run_eagerly(self._pool, input)

    def _pool(self, input: Tensor) -> Tensor:
        node = scan_node(input)
        if node is None or self.return_indices:
            pooled: Tensor = super().forward(input)
        else:
            pooled = _Pooled.apply(input, node, self)  # type: ignore[no-untyped-call]
        return pooled


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, spikes: Tensor, node: Any, pool: SpikePool) -> Tensor:
        ctx.node = node
        sizes = (pool.kernel_size, pool.stride, pool.padding, pool.dilation)
        pairs = ([size] * 2 if isinstance(size, int) else list(size) for size in sizes)
        ctx.geometry = (*pairs, pool.ceil_mode)
        ctx.compiled = is_compiled(node) and ctx.geometry == HALVES and min(spikes.shape[2:]) > 1
        pooled: Tensor = compiled.pool(spikes) if ctx.compiled else max_pool2d(spikes, *ctx.geometry)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.compiled:
            return compiled.pool_gradient(gradients[0], ctx.node), None, None
        membranes = normalized_membranes(ctx.node)
        _, highest = max_pool2d(membranes, *ctx.geometry, return_indices=True)
        by_spike = torch.ops.aten.max_pool2d_with_indices_backward(
            gradients[0].to(membranes.dtype), membranes, *ctx.geometry, highest
        )
        return by_spike.to(gradients[0].dtype), None, None
