"""What crosses time steps in a recurrent layer, forward and backward.

    current = current_leak * current + x + weight * (spike of the step before)

`Feedback` is the synapse, a matrix or a convolution that keeps the shape; `Loop` follows the equation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from ..base import record


@record
class Feedback:
    """drive = weight * spikes of the step before; `padding` is that of a convolution, None for a matrix"""

    padding: tuple[int, int] | None
    groups: int = 1

    def drive(self, weight: Tensor, spikes: Tensor) -> Tensor:
        """Return what arrives one step after the spikes."""
        if self.padding is None:
            return functional.linear(spikes, weight)
        return functional.conv2d(spikes, weight, padding=self.padding, groups=self.groups)

    def by_spikes(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient by the spikes, given that by the drive."""
        if self.padding is None:
            return gradient @ weight
        return functional.conv_transpose2d(gradient, weight, padding=self.padding, groups=self.groups)

    def by_weight(self, weight: Tensor, gradient: Tensor, spikes: Tensor) -> Tensor:
        """Return the gradient by the weight, over all steps at once."""
        if self.padding is None:
            return gradient.T @ spikes
        found: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
            spikes, weight.shape, gradient, padding=self.padding, groups=self.groups
        )
        return found


class Loop:
    """The states of a recurrent layer that cross time steps; without feedback it changes nothing.

    `decay` replaces the multiplication by the leak, and may change its argument, a copy.
    """

    def __init__(
        self,
        weight: Tensor | None,
        feedback: Feedback | None,
        leak: float,
        decay: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.weight, self.feedback, self.leak, self.decay = weight, feedback, leak, decay
        self.spike: Tensor | None = None  # of the step before
        self.charge: Tensor | None = None  # the current of the step before
        self.later: Tensor | None = None  # the gradient by the current of the step after

    def current(self, arriving: Tensor) -> Tensor:
        """Return the current, and remember it if it outlasts the step."""
        if self.feedback is None or self.weight is None:
            return arriving
        if self.spike is not None:
            arriving = arriving + self.feedback.drive(self.weight, self.spike)
        if self.charge is not None:
            if self.decay is None:
                arriving = torch.add(arriving, self.charge, alpha=self.leak)
            else:
                arriving = arriving + self.decay(self.charge.clone())
        self.charge = arriving if self.leak else None
        return arriving

    def by_spike(self, gradient: Tensor) -> Tensor:
        """Return dL/dspike with what the spike causes in the step after."""
        if self.feedback is None or self.weight is None or self.later is None:
            return gradient
        return gradient + self.feedback.by_spikes(self.weight, self.later)

    def by_membrane(self, gradient: Tensor) -> Tensor:
        """Return the gradient by a membrane, after changing it in place to that by the current."""
        if self.feedback is None:
            return gradient
        kept = gradient
        if self.leak and self.later is not None:
            kept = gradient.clone()
            gradient.add_(self.later, alpha=self.leak)
        self.later = gradient
        return kept

    def by_weight(self, by_current: Tensor, spikes: Tensor) -> Tensor | None:
        """Return dL/dweight, from all steps [timesteps, batch, ...]."""
        if self.feedback is None or self.weight is None:
            return None
        if len(spikes) == 1:
            return torch.zeros_like(self.weight)
        later, sooner = by_current[1:].flatten(0, 1), spikes[:-1].flatten(0, 1)
        return self.feedback.by_weight(self.weight, later, sooner)
