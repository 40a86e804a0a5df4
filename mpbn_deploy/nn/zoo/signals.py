"""Networks for signals, (channels, length), presented as a whole in every time step."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...base import OptionError
from .. import LIF
from .layers import Shape, sequential


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
