"""Verify an exported network (`python -m mpbn_deploy.verify`).

IntNetwork + samples (+ FoldedNetwork, PyTorch model, test split) -> VerifyReport

    stage         `verify`: all of the checks below in one report
    executions    runs the reference and every executor once, Lava's own models in a process beside
    comparison    one executor against the reference simulator, bit by bit; repeats the verification that
                  verify.json records (`verify FOLDER --check`)
    lava_models   Lava's own models, within a budget; simulators of others, population by population
    drift         the integer against the float network, per population and time step
    flips         which rounding error flipped a spike, and the first spike that differs
    folding       the trained PyTorch model against the folded network, which Lava's floating-point models
                  execute too
    accuracy      predictions and accuracy on a whole test split; the PyTorch twin as an executor
    command       what the command prints; __main__ defines its options
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .accuracy import (
        Accuracy as Accuracy,
        Trial as Trial,
        measure_accuracy as measure_accuracy,
        predict as predict,
    )
    from .command import verify_text as verify_text
    from .comparison import CertificateCheck as CertificateCheck, Mismatch as Mismatch, compare as compare
    from .drift import Drift as Drift, drift_schema as drift_schema
    from .folding import FoldCheck as FoldCheck, trained_spikes as trained_spikes
    from .stage import VerifyReport as VerifyReport, verify as verify
else:
    __getattr__, __dir__ = door(__name__, __file__)
