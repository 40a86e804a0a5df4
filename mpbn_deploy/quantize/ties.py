"""Weights that stay equal: those under one window of a pooling, so that relays can pool in their place.

sum over a window of w * input = w * (sum over the window of inputs): the weight is rounded once, for the sum.
"""

from __future__ import annotations

from torch import Tensor

from ..base import record
from ..ir import Connection, Dense, Pair, Shape, pooled_window


@record
class Tie:
    """Pictures [channels, height, width] of weights, equal in windows; one pixel each without a pooling."""

    shape: Shape
    window: Pair = (1, 1)

    @classmethod
    def of(cls, connection: Connection, source: Shape) -> Tie:
        """Return the tie of the pooling that a connection contains."""
        synapse = connection.synapse
        shape = source if isinstance(synapse, Dense) else synapse.weight.shape[1:]
        window = pooled_window(synapse, source)
        return cls(shape=shape) if window is None else cls(shape=shape, window=window)

    def sums(self, inputs: Tensor) -> Tensor:
        """Sum inputs [..., weights] over windows."""
        return inputs if self.window == (1, 1) else self._windows(inputs).sum(dim=(-3, -1)).flatten(-3)

    def firsts(self, weight: Tensor) -> Tensor:
        """Return one weight of each window."""
        return weight if self.window == (1, 1) else self._windows(weight)[..., :, 0, :, 0].flatten(-3)

    def spread(self, weight: Tensor) -> Tensor:
        """Repeat one weight per window: the inverse of `firsts`."""
        if self.window == (1, 1):
            return weight
        (channels, height, width), (down, right) = self.shape, self.window
        pictures = weight.reshape(*weight.shape[:-1], channels, height // down, width // right)
        return pictures.repeat_interleave(down, -2).repeat_interleave(right, -1).flatten(-3)

    def _windows(self, values: Tensor) -> Tensor:
        (channels, height, width), (down, right) = self.shape, self.window
        sizes = (channels, height // down, down, width // right, right)
        return values.reshape(*values.shape[:-1], *sizes)
