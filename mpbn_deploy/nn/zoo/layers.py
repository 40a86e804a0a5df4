"""Building blocks of the zoo: a builder for chains of layers, and weight initialization."""

from __future__ import annotations

from collections import OrderedDict
from math import prod, sqrt
from typing import Any

from torch import nn

from ...base import OptionError
from .. import LIF, SpikePool, norm_layer, without_norm

Shape = tuple[int, ...]
NeuronArguments = dict[str, Any]  # keyword arguments of LIF, and the norm of its currents


def sequential(**layers: nn.Module) -> nn.Sequential:
    """Return an nn.Sequential with named layers; messages and reports use the names."""
    return nn.Sequential(OrderedDict(layers))


def image_shape(input_shape: Shape) -> Shape:
    """Return the input shape, checked to be (channels, height, width)."""
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise OptionError(
            f"input_shape {tuple(input_shape)}; the network takes images, (channels, height, width)."
        )
    return tuple(input_shape)


def convolved_shape(shape: Shape, channels: int, stride: int = 1) -> Shape:
    """Return the shape after a convolution with `same` padding."""
    _, height, width = shape
    return channels, -(-height // stride), -(-width // stride)


class ChainBuilder:
    """Builds a chain of named layers and tracks the shape after the last one."""

    def __init__(self, input_shape: Shape, neuron: NeuronArguments) -> None:
        self.shape = image_shape(input_shape)
        self.input_shape = self.shape
        self.neuron = neuron
        self.layers: dict[str, nn.Module] = {}

    def add(self, name: str, layer: nn.Module, shape: Shape) -> None:
        """Add a layer with outputs of `shape`."""
        self.layers[name] = layer
        self.shape = shape

    def add_convolution(self, channels: int, *, kernel: int = 3, stride: int = 1, bias: bool = False) -> None:
        """Add a convolution, its batch norm and its neurons."""
        number = self._next("conv")
        shape = convolved_shape(self.shape, channels, stride)
        convolution = nn.Conv2d(self.shape[0], channels, kernel, stride, kernel // 2, bias=bias)
        self.add(f"conv{number}", convolution, shape)
        self.add(f"norm{number}", norm_layer(shape, self.neuron), shape)
        self.add(f"lif{number}", LIF(shape, **without_norm(self.neuron)), shape)

    def add_pool(self, *, maximum: bool = False) -> None:
        """Add 2 x 2 average or max pooling; an odd last row or column is dropped."""
        channels, height, width = self.shape
        name = f"pool{self._next('pool')}"
        if min(height, width) < 2:
            raise OptionError(
                f"input_shape {self.input_shape} is too small: only {height} x {width} reaches {name}, "
                "which needs 2 x 2."
            )
        self.add(name, SpikePool(2) if maximum else nn.AvgPool2d(2), (channels, height // 2, width // 2))

    def add_readout(self, classes: int, *, average: bool = True) -> nn.Sequential:
        """Add global average pooling (optional) and a dense layer; return the finished network."""
        if average:
            self.add("average", nn.AdaptiveAvgPool2d(1), (self.shape[0], 1, 1))
        self.add("flatten", nn.Flatten(), (prod(self.shape),))
        self.add("readout", nn.Linear(self.shape[0], classes), (classes,))
        return sequential(**self.layers)

    def _next(self, kind: str) -> int:
        return 1 + sum(name.startswith(kind) for name in self.layers)


def initialize(body: nn.Module, readout_deviation: float) -> nn.Module:
    """Initialize weights as the paper's code does; biases are zero.

    Convolutions: normal with variance 2 / (kernel area * output channels). Gains stay at 1: the paper's code
    sets the last gain of each residual block to zero, but loses that when it converts the network to a
    spiking one.
    """
    for module in body.modules():
        if any(parameter.is_meta for parameter in module.parameters(recurse=False)):
            continue  # it has no values; torch would load a second of Python code to set them
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, 0, sqrt(2 / (prod(module.kernel_size) * module.out_channels)))
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, readout_deviation)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    return body
