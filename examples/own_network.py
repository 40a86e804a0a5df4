"""A network of your own for the commands, which call `build` with what they know of the data.

cd examples && python -m mpbn_deploy.train --data digits --arch own_network:build --epochs 8
"""

from torch import nn

from mpbn_deploy.api import LIF

LAYERS = ((16, 2), (32, 2), (32, 1), (64, 2), (64, 1))  # channels, stride


def build(input_shape, classes, **neuron):
    """Return convolutions that shrink the picture by their strides, without pooling, and a readout."""
    layers, channels, size = [], input_shape[0], input_shape[1:]
    for outputs, stride in LAYERS:
        size = [-(-length // stride) for length in size]
        layers += [
            nn.Conv2d(channels, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            LIF((outputs, *size), **neuron),
        ]
        channels = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size[0] * size[1], classes))
