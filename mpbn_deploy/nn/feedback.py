"""The synapse of a recurrent layer, forward and backward: a matrix, or a convolution that keeps the shape."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from ..base import record


@record
class Feedback:
    """drive = weight * spikes of the step before; `padding` is that of a convolution, None for a matrix"""

    padding: tuple[int, int] | None

    def drive(self, weight: Tensor, spikes: Tensor) -> Tensor:
        """Return what arrives one step after the spikes."""
        if self.padding is None:
            return functional.linear(spikes, weight)
        return functional.conv2d(spikes, weight, padding=self.padding)

    def by_spikes(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient by the spikes, given that by the drive."""
        if self.padding is None:
            return gradient @ weight
        return functional.conv_transpose2d(gradient, weight, padding=self.padding)

    def by_weight(self, weight: Tensor, gradient: Tensor, spikes: Tensor) -> Tensor:
        """Return the gradient by the weight, over all steps at once."""
        if self.padding is None:
            return gradient.T @ spikes
        found: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
            spikes, weight.shape, gradient, padding=self.padding
        )
        return found
