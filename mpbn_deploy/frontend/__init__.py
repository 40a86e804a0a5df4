"""Read a torch module: nn.Module -> TrainedNetwork, from what torch executes while the module runs.

stage      `trace`: runs the module, watched; writes the network; proves it
watch      sees every operation, with the path and the line that called it
values     what tensors hold: constants and coefficients of numbered elements
rules      what operations do to values
neurons    comparisons make spikes; membranes that are chained over time make neurons
network    writes a TrainedNetwork: operations, populations, readout
proof      runs the module beside the network
rounding   bounds the rounding errors of a network: spikes that float64 cannot decide
layers     our own neurons, modules with a converter; what to do about operations that no chip computes
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .layers import foreign_neurons as foreign_neurons
    from .proof import Player as Player
    from .rounding import rounding_bounds as rounding_bounds
    from .stage import foreign_player as foreign_player, foreign_run as foreign_run, trace as trace
else:
    __getattr__, __dir__ = door(__name__, __file__)
