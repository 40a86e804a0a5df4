"""The paper's residual networks for CIFAR (ResNet19, ResNet20) and ImageNet (ResNet18, ResNet34)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .. import LIF, norm_layer, without_norm
from .networks import ChainBuilder, NeuronArguments, Shape, convolved_shape, initialize, sequential

Shortcut = Callable[[int, int, int], nn.Module]  # (input channels, output channels, stride) -> layers


class ResidualBlock(nn.Module):
    """spikes = lif2(norm2(conv2(lif1(norm1(conv1(x))))) + shortcut(x))

    The two paths are added before the neuron, so a block outputs only spikes. conv1 has the stride; the
    shortcut is the identity unless the number of channels or the image size changes.
    """

    def __init__(
        self, input_shape: Shape, channels: int, stride: int, shortcut: Shortcut, neuron: NeuronArguments
    ) -> None:
        super().__init__()
        inputs, shape = input_shape[0], convolved_shape(input_shape, channels, stride)
        lif = without_norm(neuron)
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.norm1 = norm_layer(shape, neuron)
        self.lif1 = LIF(shape, **lif)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = norm_layer(shape, neuron)
        changes = stride != 1 or inputs != channels
        self.shortcut = shortcut(inputs, channels, stride) if changes else nn.Identity()
        self.lif2 = LIF(shape, **lif)

    def forward(self, x: Tensor) -> Tensor:
        """Map spikes to spikes, [timesteps * batch, channels, height, width]."""
        hidden = self.lif1(self.norm1(self.conv1(x)))
        spikes: Tensor = self.lif2(self.norm2(self.conv2(hidden)) + self.shortcut(x))
        return spikes


def strided_shortcut(inputs: int, channels: int, stride: int) -> nn.Module:
    """Return a strided 1 x 1 convolution and its batch norm."""
    return sequential(conv=nn.Conv2d(inputs, channels, 1, stride, bias=False), norm=nn.BatchNorm2d(channels))


def pooled_shortcut(inputs: int, channels: int, stride: int) -> nn.Module:
    """Return average pooling over stride x stride (less at an odd border), a 1 x 1 convolution and a norm."""
    return sequential(
        pool=nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False),
        conv=nn.Conv2d(inputs, channels, 1, bias=False),
        norm=nn.BatchNorm2d(channels),
    )


def resnet20(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """Build the paper's ResNet20 (res20m in its code): 64-128-256-512 channels, two blocks each.

    Three convolutions and a pool precede the blocks; shortcuts use average pooling.
    """
    chain = ChainBuilder(input_shape, neuron)
    for _ in range(3):
        chain.add_convolution(width)
    chain.add_pool()
    return _with_blocks(chain, classes, (2, 2, 2, 2), width, pooled_shortcut)


def resnet19(input_shape: Shape, classes: int, *, width: int = 128, **neuron: Any) -> nn.Module:
    """Build the paper's ResNet19 (res19 in its code): 128-256-512 channels in 3, 3 and 2 blocks."""
    chain = ChainBuilder(input_shape, neuron)
    chain.add_convolution(width)
    return _with_blocks(chain, classes, (3, 3, 2), width, strided_shortcut)


def resnet20_128(input_shape: Shape, classes: int, *, width: int = 128, **neuron: Any) -> nn.Module:
    """Build res20 of the paper's code, which is not the paper's ResNet20: 128-256-512, three blocks each."""
    chain = ChainBuilder(input_shape, neuron)
    chain.add_convolution(width)
    return _with_blocks(chain, classes, (3, 3, 3), width, strided_shortcut)


def resnet18(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """Build the paper's ResNet18 for ImageNet: 64-128-256-512 channels, two blocks each."""
    return _with_blocks(_imagenet_stem(input_shape, width, neuron), classes, (2, 2, 2, 2), width)


def resnet34(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """Build the paper's ResNet34 for ImageNet: 64-128-256-512 channels in 3, 4, 6 and 3 blocks."""
    return _with_blocks(_imagenet_stem(input_shape, width, neuron), classes, (3, 4, 6, 3), width)


def _imagenet_stem(input_shape: Shape, width: int, neuron: NeuronArguments) -> ChainBuilder:
    """Start a chain with a 7 x 7 convolution and a padded 3 x 3 average pool, both with stride 2."""
    chain = ChainBuilder(input_shape, neuron)
    chain.add_convolution(width, kernel=7, stride=2)
    chain.add("pool1", nn.AvgPool2d(3, stride=2, padding=1), convolved_shape(chain.shape, width, stride=2))
    return chain


def _with_blocks(
    chain: ChainBuilder, classes: int, blocks: Shape, width: int, shortcut: Shortcut = strided_shortcut
) -> nn.Module:
    """Add stages layer1, layer2, ... of residual blocks; each doubles the channels and halves the image."""
    for number, count in enumerate(blocks, start=1):
        channels, stride = width * 2 ** (number - 1), 1 if number == 1 else 2
        shape = convolved_shape(chain.shape, channels, stride)
        first = ResidualBlock(chain.shape, channels, stride, shortcut, chain.neuron)
        others = (ResidualBlock(shape, channels, 1, shortcut, chain.neuron) for _ in range(count - 1))
        chain.add(f"layer{number}", nn.Sequential(first, *others), shape)
    features = chain.shape[0]
    return initialize(chain.add_readout(classes), readout_deviation=1 / features)


# Chains of convolutions and pooling: the paper's VGG16, a small one, and a network for event cameras.


READOUT_DEVIATION = 0.01

# Channels of each convolution as multiples of the width; a pool follows each group.
VGG16_GROUPS = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))
SMALL_GROUPS = ((1, 1), (2, 2), (4, 4, 4))
LEAN_GROUPS = ((1,), (2, 2), (4, 4))
STEEP_GROUPS = ((1, 1), (2, 4), (8, 8))
VGGSNN_GROUPS = ((1, 2), (4, 4), (8, 8), (8, 8))


def vgg16(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """Build the paper's VGG16: thirteen convolutions (64-128-256-512-512 channels) and one dense layer.

    Images must be at least 32 x 32, for five pools. Convolutions have a bias, as in the paper's code.
    """
    chain = _features(input_shape, VGG16_GROUPS, width, neuron, bias=True)
    return initialize(chain.add_readout(classes), READOUT_DEVIATION)


def dvs_cnn(input_shape: Shape, classes: int, *, width: int = 16, **neuron: Any) -> nn.Module:
    """Build VGGSNN, the usual network for CIFAR10-DVS, with a quarter of its channels.

    Eight convolutions (16-32-64-64-128-128-128-128 channels) and four pools; the readout sees the whole map
    that is left (3 x 3 of 48 x 48). The original (Deng et al., Temporal Efficient Training, ICLR 2022) has
    width=64.
    """
    chain = _features(input_shape, VGGSNN_GROUPS, width, neuron)
    return initialize(chain.add_readout(classes, average=False), READOUT_DEVIATION)


def cifar_cnn(input_shape: Shape, classes: int, *, width: int = 32, **neuron: Any) -> nn.Module:
    """Build seven convolutions (32-32-64-64-128-128-128 channels) with three max pools, and a dense layer.

    For two processor cores: a max pool of spikes is a population of its own on a chip, of a quarter of the
    neurons, and costs no synapses in the next layer. The last one leaves the readout as many inputs as a
    core of Loihi 2 takes.
    """
    chain = _features(input_shape, SMALL_GROUPS, width, neuron, maximum=True)
    return initialize(chain.add_readout(classes), READOUT_DEVIATION)


def cifar_cnn_lean(input_shape: Shape, classes: int, *, width: int = 32, **neuron: Any) -> nn.Module:
    """Build `cifar_cnn` with five convolutions (32-64-64-128-128 channels), only one of whole pictures."""
    chain = _features(input_shape, LEAN_GROUPS, width, neuron, maximum=True)
    return initialize(chain.add_readout(classes), READOUT_DEVIATION)


def cifar_cnn_steep(input_shape: Shape, classes: int, *, width: int = 32, **neuron: Any) -> nn.Module:
    """Build `cifar_cnn` with six convolutions (32-32-64-128-256-256 channels).

    The channels double more often: most of its time goes to small pictures with many channels, where
    convolutions run at full speed and norms and neurons cost little.
    """
    chain = _features(input_shape, STEEP_GROUPS, width, neuron, maximum=True)
    return initialize(chain.add_readout(classes), READOUT_DEVIATION)


def _features(
    input_shape: Shape,
    groups: tuple[Shape, ...],
    width: int,
    neuron: NeuronArguments,
    *,
    bias: bool = False,
    maximum: bool = False,
) -> ChainBuilder:
    chain = ChainBuilder(input_shape, neuron)
    for group in groups:
        for factor in group:
            chain.add_convolution(factor * width, bias=bias)
        chain.add_pool(maximum=maximum)
    return chain
