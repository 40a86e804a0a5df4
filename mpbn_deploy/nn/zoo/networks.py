"""Building blocks of the zoo: a builder for chains of layers, and weight initialization."""

from __future__ import annotations

from collections import OrderedDict
from math import prod, sqrt
from typing import Any

from torch import Tensor, nn

from ...base import OptionError
from ...ir import XYLO_OUTPUT_SPIKES
from .. import (
    LIF,
    GradedLIF,
    RecurrentLIF,
    SpikeCount,
    SpikePool,
    StepDelay,
    XyloLIF,
    norm_layer,
    without_norm,
)

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


# Small networks for small images.


def digits_cnn(input_shape: Shape, classes: int, **neuron: Any) -> nn.Module:
    """Build two convolutions (16 and 32 channels, the second with stride 2), a dense layer, a readout."""
    return _two_convolutions(input_shape, classes, first_stride=1, features=64, neuron=neuron)


def digits_graded(input_shape: Shape, classes: int, **neuron: Any) -> nn.Module:
    """Build `digits-cnn` with integer spikes, 0..3, whose neurons subtract what they send."""
    graded = {**neuron, "levels": 3, "reset": "subtract"}
    return _two_convolutions(
        input_shape, classes, first_stride=1, features=64, neuron=graded, layer=GradedLIF
    )


def mnist_cnn(input_shape: Shape, classes: int, **neuron: Any) -> nn.Module:
    """Build two convolutions (16 and 32 channels, both with stride 2), a dense layer of 128, a readout."""
    return _two_convolutions(input_shape, classes, first_stride=2, features=128, neuron=neuron)


def digits_mlp(input_shape: Shape, classes: int, **neuron: Any) -> nn.Module:
    """Build a dense layer of 64 neurons and a readout."""
    return sequential(
        flatten=nn.Flatten(),
        dense1=nn.Linear(prod(input_shape), 64, bias=False),
        norm1=norm_layer(64, neuron),
        lif1=LIF(64, **without_norm(neuron)),
        readout=nn.Linear(64, classes),
    )


def digits_rnn(input_shape: Shape, classes: int, **neuron: Any) -> nn.Module:
    """Build a recurrent layer of 64 neurons, for inputs that come row by row, and a readout."""
    return sequential(
        flatten=nn.Flatten(),
        dense1=nn.Linear(prod(input_shape), 64, bias=False),
        norm1=norm_layer(64, neuron),
        lif1=RecurrentLIF(64, **without_norm(neuron)),
        readout=nn.Linear(64, classes),
    )


def xylo_mlp(input_shape: Shape, classes: int, width: int = 64, **neuron: Any) -> nn.Module:
    """Build two hidden layers of Xylo neurons and spiking outputs."""
    return _xylo(input_shape, classes, (width, width), recurrent=False, neuron=neuron)


def xylo_rnn(input_shape: Shape, classes: int, width: int = 96, **neuron: Any) -> nn.Module:
    """Build a recurrent hidden layer of Xylo neurons and spiking outputs."""
    return _xylo(input_shape, classes, (width,), recurrent=True, neuron=neuron)


def _xylo(
    input_shape: Shape, classes: int, widths: tuple[int, ...], *, recurrent: bool, neuron: dict[str, Any]
) -> nn.Module:
    """Chain hidden layers, each followed by the step that its spikes take on the chip, and outputs."""
    if len(input_shape) != 1:
        raise OptionError(
            f"input_shape {tuple(input_shape)}; networks for Xylo take channels over time, such as --data "
            "digits-rows."
        )
    if "norm" in neuron:
        raise OptionError(f"norm {neuron['norm']}; networks for Xylo normalize no currents: drop --norm.")
    layers: dict[str, nn.Module] = {}
    (size,) = input_shape
    for number, width in enumerate(widths, 1):
        layers[f"dense{number}"] = nn.Linear(size, width, bias=False)
        layers[f"lif{number}"] = XyloLIF(width, recurrent=recurrent, **neuron)
        layers[f"delay{number}"] = StepDelay()
        size = width
    return sequential(
        **layers,
        readout=nn.Linear(size, classes, bias=False),
        # The paper normalizes no outputs.
        spikes=XyloLIF(classes, max_spikes=XYLO_OUTPUT_SPIKES, **{**neuron, "mpbn": "none"}),
        count=SpikeCount(),
    )


def _two_convolutions(
    input_shape: Shape,
    classes: int,
    *,
    first_stride: int,
    features: int,
    neuron: dict[str, Any],
    layer: Any = LIF,
) -> nn.Module:
    shape1 = convolved_shape(image_shape(input_shape), 16, first_stride)
    shape2, lif = convolved_shape(shape1, 32, stride=2), without_norm(neuron)
    return sequential(
        conv1=nn.Conv2d(input_shape[0], 16, 3, stride=first_stride, padding=1, bias=False),
        norm1=norm_layer(shape1, neuron),
        lif1=layer(shape1, **lif),
        conv2=nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        norm2=norm_layer(shape2, neuron),
        lif2=layer(shape2, **lif),
        flatten=nn.Flatten(),
        dense3=nn.Linear(prod(shape2), features, bias=False),
        norm3=norm_layer(features, neuron),
        lif3=layer(features, **lif),
        readout=nn.Linear(features, classes),
    )


# Networks for signals, (channels, length), presented as a whole in every time step.


def signal_cnn(input_shape: Shape, classes: int, *, width: int = 32, **neuron: Any) -> nn.Module:
    """Build three convolutions of 5 samples each, pools behind the first two, and a readout."""
    if len(input_shape) != 2 or min(input_shape) < 1 or input_shape[1] < 4:
        raise OptionError(
            f"input_shape {tuple(input_shape)}; the network takes signals, (channels, length), with a length "
            "of 4 or more."
        )
    layers: dict[str, nn.Module] = {}
    channels, length = input_shape
    for number, count in enumerate((width, width, 2 * width), 1):
        layers[f"conv{number}"] = nn.Conv1d(channels, count, 5, padding=2, bias=False)
        layers[f"norm{number}"] = nn.BatchNorm1d(count)
        layers[f"lif{number}"] = LIF((count, length), **neuron)
        if number < 3:
            layers[f"pool{number}"] = nn.AvgPool1d(2)
            length //= 2
        channels = count
    return sequential(
        **layers,
        average=nn.AdaptiveAvgPool1d(1),
        flatten=nn.Flatten(),
        readout=nn.Linear(channels, classes),
    )


# A spiking transformer for small images (Yao et al., Spike-Driven Transformer, NeurIPS 2023, version 1).
#
# Attention without softmax and without products of sums: with spikes q, k and v of each position,
#
#     attention = q * lif(sum over positions of k * v)
#
# Products of spikes are spikes. Residual connections add currents, so that every synapse receives spikes
# only.


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
