"""Small networks for small images."""

from __future__ import annotations

from math import prod
from typing import Any

from torch import nn

from ...base import OptionError
from ...ir import XYLO_OUTPUT_SPIKES
from .. import LIF, GradedLIF, RecurrentLIF, SpikeCount, StepDelay, XyloLIF, norm_layer, without_norm
from .layers import Shape, convolved_shape, image_shape, sequential


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
