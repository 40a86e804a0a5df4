"""A spiking transformer for small images (Yao et al., Spike-Driven Transformer, NeurIPS 2023, version 1).

Attention without softmax and without products of sums: with spikes q, k and v of each position,

    attention = q * lif(sum over positions of k * v)

Products of spikes are spikes. Residual connections add currents, so that every synapse receives spikes only.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ...base import OptionError
from .. import LIF
from .layers import NeuronArguments, Shape, convolved_shape, image_shape, sequential


def digits_transformer(input_shape: Shape, classes: int, *, width: int = 32, **neuron: Any) -> nn.Module:
    """Build two convolutions, of which each pixel of the second is a token, two blocks and a readout."""
    half = convolved_shape(image_shape(input_shape), width // 2)
    tokens = convolved_shape(half, width, stride=2)
    if width < 2:
        raise OptionError(f"width {width}; at least 2 is needed.")
    return sequential(
        conv1=nn.Conv2d(input_shape[0], width // 2, 3, padding=1, bias=False),
        norm1=nn.BatchNorm2d(width // 2),
        lif1=LIF(half, **neuron),
        conv2=nn.Conv2d(width // 2, width, 3, stride=2, padding=1, bias=False),
        norm2=nn.BatchNorm2d(width),
        block1=_Block(tokens, neuron),
        block2=_Block(tokens, neuron),
        lif3=LIF(tokens, **neuron),
        average=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        readout=nn.Linear(width, classes),
    )


class _Attention(nn.Module):
    """currents = norm(project(q * lif(sum of k * v)))"""

    def __init__(self, shape: Shape, neuron: NeuronArguments) -> None:
        super().__init__()
        channels, height, width = shape
        self.lif = LIF(shape, **neuron)
        self.q, self.k, self.v = (_pixelwise(shape, channels, neuron) for _ in range(3))
        self.sum = nn.AvgPool2d((height, width), divisor_override=1)
        self.context = LIF((channels, 1, 1), **neuron)
        self.project = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map currents to currents, [timesteps * batch, channels, height, width]."""
        spikes = self.lif(x)
        context = self.context(self.sum(self.k(spikes) * self.v(spikes)))
        currents: Tensor = self.norm(self.project(self.q(spikes) * context))
        return currents


class _Block(nn.Module):
    """x <- x + attention(x), then x <- x + mlp(x), in currents"""

    def __init__(self, shape: Shape, neuron: NeuronArguments) -> None:
        super().__init__()
        channels = shape[0]
        self.attention = _Attention(shape, neuron)
        self.mlp = sequential(
            lif=LIF(shape, **neuron),
            hidden=_pixelwise(shape, 2 * channels, neuron),
            project=nn.Conv2d(2 * channels, channels, 1, bias=False),
            norm=nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map currents to currents."""
        x = x + self.attention(x)
        currents: Tensor = x + self.mlp(x)
        return currents


def _pixelwise(shape: Shape, channels: int, neuron: NeuronArguments) -> nn.Module:
    """Return neurons of `channels` channels, each of which sees the spikes of one pixel."""
    return sequential(
        conv=nn.Conv2d(shape[0], channels, 1, bias=False),
        norm=nn.BatchNorm2d(channels),
        lif=LIF((channels, *shape[1:]), **neuron),
    )
