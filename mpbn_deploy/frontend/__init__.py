"""Trace a torch module: nn.Module -> TrainedNetwork, the graph of its operations with float64 parameters.

stage     `trace`: converters for torch's layers and ours, the torch.fx trace, shapes
foreign   converters for neurons of snnTorch and SpikingJelly
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .foreign import foreign_converters as foreign_converters
    from .stage import trace as trace
else:
    __getattr__, __dir__ = door(__name__, __file__)
