"""What you train with: the paper's neuron, its membrane-potential batch norm, and the network around them.

    body = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3), torch.nn.BatchNorm2d(16), LIF(16),
        torch.nn.Flatten(), torch.nn.Linear(16 * 36, 10),
    )
    network = SpikingNetwork(body, timesteps=4, input_format=...)

Inside the body, time steps lie in the batch: every layer sees [timesteps * batch, ...], time first.
So all of torch's ordinary layers work as they are, batch norm after a convolution averages over
batch and time together as the paper wants, and only LIF knows that there is time.
"""

from .network import ModelCard, SpikingNetwork
from .neuron import LIF, MPBN, MPBN_GAINS, MPBN_KINDS
from .quantized import QUANTIZED, QuantizedBody
from .surrogate import SURROGATES

__all__ = [
    "LIF",
    "MPBN",
    "MPBN_GAINS",
    "MPBN_KINDS",
    "QUANTIZED",
    "SURROGATES",
    "ModelCard",
    "QuantizedBody",
    "SpikingNetwork",
]
