"""Small networks for small pictures."""

from __future__ import annotations

from collections import OrderedDict
from math import prod

from torch import nn

from ..nn import LIF

Shape = tuple[int, ...]


def digits_cnn(input_shape: Shape, classes: int, mpbn: str = "channel") -> nn.Module:
    """Two convolutions (16 and 32 channels, the second halves the picture), a dense layer, a readout."""
    channels, height, width = input_shape
    half = (32, (height + 1) // 2, (width + 1) // 2)
    return _sequential(
        conv1=nn.Conv2d(channels, 16, 3, padding=1, bias=False),
        norm1=nn.BatchNorm2d(16),
        lif1=LIF((16, height, width), mpbn=mpbn),
        conv2=nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        norm2=nn.BatchNorm2d(32),
        lif2=LIF(half, mpbn=mpbn),
        flatten=nn.Flatten(),
        dense3=nn.Linear(prod(half), 64, bias=False),
        norm3=nn.BatchNorm1d(64),
        lif3=LIF(64, mpbn=mpbn),
        readout=nn.Linear(64, classes),
    )


def digits_mlp(input_shape: Shape, classes: int, mpbn: str = "channel") -> nn.Module:
    """One dense layer of 64 neurons and a readout."""
    return _sequential(
        flatten=nn.Flatten(),
        dense1=nn.Linear(prod(input_shape), 64, bias=False),
        norm1=nn.BatchNorm1d(64),
        lif1=LIF(64, mpbn=mpbn),
        readout=nn.Linear(64, classes),
    )


def _sequential(**layers: nn.Module) -> nn.Sequential:
    """Layers one after another, under names that messages and reports can use."""
    return nn.Sequential(OrderedDict(layers))
