"""COMMAND: executions compared bit by bit, and the float network against its integers.

integer network, samples, perhaps the folded network and the PyTorch model  ->  VerifyReport

stage         verify: all of the below, in one report
comparison    every executor against the reference simulator
twin          a model that was trained quantization-aware, as one more executor
drift, flips  how far integers are from the float network, and which rounding flipped a spike
floating      the folded network in Lava's floating-point models
accuracy      predictions and accuracies on a whole test split
certificate   verify.json, reproduced by `verify FOLDER --check`
text          the report as text
"""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .certificate import LAVA_CLAIM as LAVA_CLAIM
    from .comparison import Mismatch as Mismatch, compare as compare
    from .drift import Drift as Drift
    from .stage import VerifyReport as VerifyReport, trained_spikes as trained_spikes, verify as verify
    from .text import verify_text as verify_text
else:
    __getattr__, __dir__ = door(__name__, __file__)
