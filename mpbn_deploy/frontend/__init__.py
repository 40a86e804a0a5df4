"""Trace a torch module: nn.Module -> TrainedNetwork, the graph of its operations with float64 parameters.

stage        `trace`: the torch.fx trace, or a run
operations   the graph of torch.fx, and its nodes as operations; shapes: those of what they give
layers       converters for torch's layers and our neurons; synapses: those with weights
foreign      converters for neurons of snnTorch, SpikingJelly and norse
arithmetic   arithmetic with constants in forward, as norms
recording    the graph of one time step of a module whose forward may loop over time, made by running it
following    follows the values of such a run; values: what they hold
handwritten  neurons that forward computes by itself: their membranes as polynomials, and what they are
hints        what to do instead about what no chip does
rehearsal    runs such a module beside what was traced from it
rounding     bounds the rounding errors of a traced network: spikes that float64 cannot decide
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .foreign import foreign_converters as foreign_converters, is_foreign as is_foreign
    from .rehearsal import Player as Player
    from .rounding import rounding_bounds as rounding_bounds
    from .stage import foreign_player as foreign_player, foreign_run as foreign_run, trace as trace
else:
    __getattr__, __dir__ = door(__name__, __file__)
