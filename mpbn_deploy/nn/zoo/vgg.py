"""Convolutions and average pooling, one after another: the paper's VGG16, and a network for event cameras."""

from __future__ import annotations

from typing import Any

from torch import nn

from .layers import Chain, Neuron, Shape, initialize

READOUT_DEVIATION = 0.01

# The channels of each convolution, in units of the width; a pool after each group.
VGG16_GROUPS = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))
VGGSNN_GROUPS = ((1, 2), (4, 4), (8, 8), (8, 8))


def vgg16(input_shape: Shape, classes: int, *, width: int = 64, **neuron: Any) -> nn.Module:
    """The paper's VGG16: thirteen convolutions (64-128-256-512-512 channels) and one dense layer.

    Five pools halve the image, so 32 x 32 is the least. Convolutions have a bias, as in the paper's code.
    """
    chain = _features(input_shape, VGG16_GROUPS, width, neuron, bias=True)
    return initialize(chain.read_out(classes), READOUT_DEVIATION)


def dvs_cnn(input_shape: Shape, classes: int, *, width: int = 16, **neuron: Any) -> nn.Module:
    """VGGSNN, the field's network for CIFAR10-DVS, with a quarter of its channels (eight convolutions,
    16-32-64-64-128-128-128-128).

    Four pools halve the image; the readout sees all that is left of it (3 x 3 of 48 x 48). The
    whole VGGSNN (Deng et al., Temporal Efficient Training, ICLR 2022) has width=64.
    """
    chain = _features(input_shape, VGGSNN_GROUPS, width, neuron)
    return initialize(chain.read_out(classes, average=False), READOUT_DEVIATION)


def _features(
    input_shape: Shape, groups: tuple[Shape, ...], width: int, neuron: Neuron, *, bias: bool = False
) -> Chain:
    chain = Chain(input_shape, neuron)
    for group in groups:
        for factor in group:
            chain.convolve(factor * width, bias=bias)
        chain.halve()
    return chain
