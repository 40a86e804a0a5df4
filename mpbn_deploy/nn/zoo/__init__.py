"""Network architectures: functions (input_shape, classes, **neuron) -> body of a SpikingNetwork.

`neuron` holds the keyword arguments of every LIF: mpbn, mpbn_gain, leak, current_leak, threshold, surrogate,
reset, reset_gradient; and the norm of currents before it, `norm` and its `norm_steps` (`norm_layer`). The
paper's networks also take `width`, the number of channels of the first layer; the slim variants have at most
a quarter of the paper's channels, so that a laptop can train them.

    registry   the architectures by name
    networks   networks for small images, for signals with Conv1d, a Spike-Driven Transformer; their layers
    paper      the paper's ResNets and VGG16, and a network for event cameras
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .paper import ResidualBlock as ResidualBlock
    from .registry import ARCHITECTURES as ARCHITECTURES, Architecture as Architecture
else:
    __getattr__, __dir__ = door(__name__, __file__)
