"""Network architectures: each a function (input_shape, classes, **neuron) -> body of a SpikingNetwork.

`neuron` are the keyword arguments of every LIF: mpbn, mpbn_gain, leak, threshold, surrogate. The
networks of the paper also take `width`, the channels of their first layer; slim ones have a
quarter of the paper's channels or less, so that a laptop can train them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from .resnet import ResidualBlock, resnet18, resnet19, resnet20, resnet20_128, resnet34
from .small import digits_cnn, digits_mlp, mnist_cnn
from .vgg import dvs_cnn, vgg16

Architecture = Callable[..., nn.Module]

ARCHITECTURES: dict[str, Architecture] = {
    # small pictures
    "digits-cnn": digits_cnn,
    "digits-mlp": digits_mlp,
    "mnist-cnn": mnist_cnn,
    # CIFAR
    "resnet19": resnet19,
    "resnet20": resnet20,
    "resnet20-128": resnet20_128,
    "vgg16": vgg16,
    "resnet19-slim": partial(resnet19, width=16),
    "resnet20-slim": partial(resnet20, width=16),
    "vgg16-slim": partial(vgg16, width=16),
    # event cameras
    "dvs-cnn": dvs_cnn,
    # ImageNet
    "resnet18": resnet18,
    "resnet34": resnet34,
}

__all__ = ["ARCHITECTURES", "Architecture", "ResidualBlock"]
