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

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .kinds import MPBN_GAINS as MPBN_GAINS, MPBN_KINDS as MPBN_KINDS, SURROGATE_NAMES as SURROGATE_NAMES
    from .network import ModelCard as ModelCard, SpikingNetwork as SpikingNetwork
    from .neuron import LIF as LIF, MPBN as MPBN
    from .norm import synchronized_batch_norm as synchronized_batch_norm
    from .surrogate import SURROGATES as SURROGATES
    from .timed import Timed as Timed

__getattr__, __dir__ = door(__name__, __file__)
