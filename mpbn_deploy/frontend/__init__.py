"""Trace a torch module: nn.Module -> TrainedNetwork, the graph of its operations with float64 parameters.

stage      `trace`: converters for torch's layers and ours, the torch.fx trace, shapes
foreign    converters for neurons of snnTorch, SpikingJelly and norse
recording  the graph of one time step of a module of another library, whose forward may loop over time
rehearsal  runs such a module beside what was traced from it
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .foreign import foreign_converters as foreign_converters, is_foreign as is_foreign
    from .stage import foreign_spikes as foreign_spikes, trace as trace
else:
    __getattr__, __dir__ = door(__name__, __file__)
