"""Fold normalizations into weights and thresholds: TrainedNetwork -> FoldedNetwork.

The folded network fires the same spikes without batch norms, MPBN, input normalization or pooling layers.
`stage.py` holds all of it; the equations are in its docstring.
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .stage import fold as fold
else:
    __getattr__, __dir__ = door(__name__, __file__)
