"""Recurrent layers: neurons that receive the spikes of their own layer, one time step later."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..base import OptionError
from .feedback import Feedback
from .neuron import LIF


class RecurrentLIF(LIF):
    """LIF neurons with a synapse from their spikes to themselves. In each time step:

        x_t <- x_t + recurrent(spike_(t-1))        (no spikes before the first step)

    and then as `LIF`. With `shape` = features, the synapse is a matrix between all neurons; with `shape` =
    (channels, height, width) it is a convolution with `kernel` x `kernel` weights per pair of channels,
    padded with zeros to keep the shape. Neither has a bias.
    """

    def __init__(self, shape: int | tuple[int, ...], *, kernel: int | None = None, **neuron: Any) -> None:
        super().__init__(shape, **neuron)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if len(sizes) == 1 and kernel is None:
            self.recurrent: nn.Linear | nn.Conv2d = nn.Linear(sizes[0], sizes[0], bias=False)
            return
        if len(sizes) != 3 or kernel is None or kernel < 1 or kernel % 2 == 0:
            raise OptionError(
                f"RecurrentLIF: shape {sizes} with kernel {kernel}; features without a kernel, or (channels, "
                "height, width) with an odd one, are needed."
            )
        self.recurrent = nn.Conv2d(sizes[0], sizes[0], kernel, padding=kernel // 2, bias=False)

    @property
    def feedback(self) -> Feedback:
        """The recurrent synapse without its weight."""
        if isinstance(self.recurrent, nn.Linear):
            return Feedback(padding=None)
        padding = self.recurrent.padding
        assert isinstance(padding, tuple), "made so above"
        return Feedback(padding=(padding[0], padding[1]))

    def forward(self, x: Tensor) -> Tensor:
        """Return spikes of the inputs' shape, [timesteps * batch, ...]."""
        return self._fire(x, self.feedback, self.recurrent.weight)
