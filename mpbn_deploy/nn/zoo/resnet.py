"""Residual networks of the paper: for CIFAR (ResNet19, ResNet20) and for ImageNet (ResNet18, ResNet34)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .. import LIF
from .layers import Chain, Neuron, Shape, convolved, initialize, sequential

Shortcut = Callable[[int, int, int], nn.Module]  # of (input channels, output channels, stride)


class ResidualBlock(nn.Module):
    """spikes = lif2(norm2(conv2(lif1(norm1(conv1(x))))) + shortcut(x))

    The two paths are added before the neuron, so only spikes leave a block. conv1 strides; the
    shortcut passes its input on where neither the channels nor the size of the image change.
    """

    def __init__(
        self, input_shape: Shape, channels: int, stride: int, shortcut: Shortcut, neuron: Neuron
    ) -> None:
        super().__init__()
        inputs, shape = input_shape[0], convolved(input_shape, channels, stride)
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.lif1 = LIF(shape, **neuron)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        changes = stride != 1 or inputs != channels
        self.shortcut = shortcut(inputs, channels, stride) if changes else nn.Identity()
        self.lif2 = LIF(shape, **neuron)

    def forward(self, x: Tensor) -> Tensor:
        """Spikes [timesteps * batch, channels, height, width] of spikes."""
        hidden = self.lif1(self.norm1(self.conv1(x)))
        spikes: Tensor = self.lif2(self.norm2(self.conv2(hidden)) + self.shortcut(x))
        return spikes


def strided_shortcut(inputs: int, channels: int, stride: int) -> nn.Module:
    """A 1 x 1 convolution that strides, and its batch norm."""
    return sequential(conv=nn.Conv2d(inputs, channels, 1, stride, bias=False), norm=nn.BatchNorm2d(channels))


def pooled_shortcut(inputs: int, channels: int, stride: int) -> nn.Module:
    """An average over stride x stride (fewer at an odd border), a 1 x 1 convolution, and its batch norm."""
    return sequential(
        pool=nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False),
        conv=nn.Conv2d(inputs, channels, 1, bias=False),
        norm=nn.BatchNorm2d(channels),
    )


def resnet20(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """The paper's ResNet20 (its code's res20m): 64-128-256-512 channels, two blocks each.

    Three convolutions and a pool before the blocks; shortcuts average.
    """
    chain = Chain(input_shape, neuron)
    for _ in range(3):
        chain.convolve(width)
    chain.halve()
    return _with_blocks(chain, classes, (2, 2, 2, 2), width, pooled_shortcut)


def resnet19(input_shape: Shape, classes: int, *, width: int = 128, **neuron: Any) -> nn.Module:
    """The paper's ResNet19 (its code's res19): 128-256-512 channels in 3, 3 and 2 blocks."""
    chain = Chain(input_shape, neuron)
    chain.convolve(width)
    return _with_blocks(chain, classes, (3, 3, 2), width, strided_shortcut)


def resnet20_128(input_shape: Shape, classes: int, *, width: int = 128, **neuron: Any) -> nn.Module:
    """The res20 of the paper's code, which is not the paper's ResNet20: 128-256-512, three blocks each."""
    chain = Chain(input_shape, neuron)
    chain.convolve(width)
    return _with_blocks(chain, classes, (3, 3, 3), width, strided_shortcut)


def resnet18(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """The paper's ResNet18 for ImageNet: 64-128-256-512 channels, two blocks each."""
    return _with_blocks(_imagenet_stem(input_shape, width, neuron), classes, (2, 2, 2, 2), width)


def resnet34(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """The paper's ResNet34 for ImageNet: 64-128-256-512 channels in 3, 4, 6 and 3 blocks."""
    return _with_blocks(_imagenet_stem(input_shape, width, neuron), classes, (3, 4, 6, 3), width)


def _imagenet_stem(input_shape: Shape, width: int, neuron: Neuron) -> Chain:
    """A 7 x 7 convolution and an average pool (3 x 3, padded), both of which halve the image."""
    chain = Chain(input_shape, neuron)
    chain.convolve(width, kernel=7, stride=2)
    chain.add("pool1", nn.AvgPool2d(3, stride=2, padding=1), convolved(chain.shape, width, stride=2))
    return chain


def _with_blocks(
    chain: Chain, classes: int, blocks: Shape, width: int, shortcut: Shortcut = strided_shortcut
) -> nn.Module:
    """layer1, layer2, ... of so many blocks, each twice as wide as the one before, and half as large."""
    for number, count in enumerate(blocks, start=1):
        channels, stride = width * 2 ** (number - 1), 1 if number == 1 else 2
        shape = convolved(chain.shape, channels, stride)
        first = ResidualBlock(chain.shape, channels, stride, shortcut, chain.neuron)
        others = (ResidualBlock(shape, channels, 1, shortcut, chain.neuron) for _ in range(count - 1))
        chain.add(f"layer{number}", nn.Sequential(first, *others), shape)
    features = chain.shape[0]
    return initialize(chain.read_out(classes), readout_deviation=1 / features)
