"""Network architectures: each a function (input_shape, classes, **neuron) -> body of a SpikingNetwork.

`neuron` are the keyword arguments of every LIF: mpbn, mpbn_gain, leak, threshold, surrogate. The
networks of the paper also take `width`, the channels of their first layer; slim ones have a
quarter of the paper's channels or less, so that a laptop can train them.
"""

from typing import TYPE_CHECKING

from ...base.doors import door

if TYPE_CHECKING:
    from .registry import ARCHITECTURES as ARCHITECTURES, Architecture as Architecture
    from .resnet import ResidualBlock as ResidualBlock

__getattr__, __dir__ = door(__name__, __file__)
