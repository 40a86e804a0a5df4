"""What the networks of the zoo are made from: a chain of layers that knows its shape; initial weights."""

from __future__ import annotations

from collections import OrderedDict
from math import prod, sqrt
from typing import Any

from torch import nn

from ...base import OptionError
from .. import LIF

Shape = tuple[int, ...]
Neuron = dict[str, Any]  # keyword arguments of LIF


def sequential(**layers: nn.Module) -> nn.Sequential:
    """Layers one after another, under names that messages and reports can use."""
    return nn.Sequential(OrderedDict(layers))


def image(input_shape: Shape) -> Shape:
    """The input shape, if it is that of an image."""
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise OptionError(f"input_shape {tuple(input_shape)}; it takes images, (channels, height, width).")
    return tuple(input_shape)


def convolved(shape: Shape, channels: int, stride: int = 1) -> Shape:
    """What is left of an image after a convolution that is padded by half of its kernel."""
    _, height, width = shape
    return channels, -(-height // stride), -(-width // stride)


class Chain:
    """A network while it is built: its layers by name, and the shape that the last of them gives."""

    def __init__(self, input_shape: Shape, neuron: Neuron) -> None:
        self.shape = image(input_shape)
        self.input_shape = self.shape
        self.neuron = neuron
        self.layers: dict[str, nn.Module] = {}

    def add(self, name: str, layer: nn.Module, shape: Shape) -> None:
        """One more layer, which gives `shape`."""
        self.layers[name] = layer
        self.shape = shape

    def convolve(self, channels: int, *, kernel: int = 3, stride: int = 1, bias: bool = False) -> None:
        """A convolution, its batch norm and its neurons; with a bias only where the paper's code has one."""
        number = self._next("conv")
        shape = convolved(self.shape, channels, stride)
        convolution = nn.Conv2d(self.shape[0], channels, kernel, stride, kernel // 2, bias=bias)
        self.add(f"conv{number}", convolution, shape)
        self.add(f"norm{number}", nn.BatchNorm2d(channels), shape)
        self.add(f"lif{number}", LIF(shape, **self.neuron), shape)

    def halve(self) -> None:
        """The average of each two by two neurons; an odd last row or column is left out."""
        channels, height, width = self.shape
        name = f"pool{self._next('pool')}"
        if min(height, width) < 2:
            raise OptionError(
                f"input_shape {self.input_shape} is too small: only {height} x {width} of it is left "
                f"at {name}, which needs 2 x 2."
            )
        self.add(name, nn.AvgPool2d(2), (channels, height // 2, width // 2))

    def read_out(self, classes: int, *, average: bool = True) -> nn.Sequential:
        """The finished network: an average over the image (or all of it), then a dense layer."""
        if average:
            self.add("average", nn.AdaptiveAvgPool2d(1), (self.shape[0], 1, 1))
        self.add("flatten", nn.Flatten(), (prod(self.shape),))
        self.add("readout", nn.Linear(self.shape[0], classes), (classes,))
        return sequential(**self.layers)

    def _next(self, kind: str) -> int:
        return 1 + sum(name.startswith(kind) for name in self.layers)


def initialize(body: nn.Module, readout_deviation: float) -> nn.Module:
    """Weights as the paper's code draws them before training; biases are zero.

    Convolutions: normal, of variance 2 / (kernel area * output channels). Gains stay as torch makes
    them, one: the zeros that the paper's code writes into the last gain of each residual block are
    lost when it turns the network into a spiking one.
    """
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, 0, sqrt(2 / (prod(module.kernel_size) * module.out_channels)))
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, readout_deviation)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    return body
