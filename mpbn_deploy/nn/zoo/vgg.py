"""Chains of convolutions and pooling: the paper's VGG16, a small one, and a network for event cameras."""

from __future__ import annotations

from typing import Any

from torch import nn

from .layers import ChainBuilder, NeuronArguments, Shape, initialize

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
