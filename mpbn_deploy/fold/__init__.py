"""Fold normalizations into weights and thresholds: TrainedNetwork -> FoldedNetwork.

The folded network fires the same spikes without batch norms, MPBN, input normalization or pooling layers.
The equations are in the docstring of `stage.py`; `inputs.py` doubles channels with gains of both signs, and
changes what a folded network takes.
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .inputs import (
        as_trained as as_trained,
        coarsen_inputs as coarsen_inputs,
        normalize_inputs as normalize_inputs,
        offset_inputs as offset_inputs,
    )
    from .stage import fold as fold
else:
    __getattr__, __dir__ = door(__name__, __file__)
