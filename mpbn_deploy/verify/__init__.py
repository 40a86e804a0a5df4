"""Verify an exported network (`python -m mpbn_deploy.verify`).

IntNetwork + samples (+ FoldedNetwork, PyTorch model, test split) -> VerifyReport

    stage         `verify`: all of the checks below in one report
    executions    runs the reference and every executor once
    comparison    one executor against the reference simulator, bit by bit
    lava_models   Lava's own models, within a budget
    beside        Lava's own models in a process beside this one
    outside       simulators of others, population by population
    twin          the PyTorch model of quantization-aware training as an executor
    drift         the integer against the float network, per population and time step
    flips         which rounding error flipped a spike, and the first spike that differs
    folding       the trained PyTorch model against the folded network
    floating      the folded network in Lava's floating-point models
    accuracy      predictions and accuracy on a whole test split
    certificate   repeats the verification that verify.json records (`verify FOLDER --check`)
    text          the printed report; command and __main__ are the command line
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
    from .certificate import CertificateCheck as CertificateCheck
    from .comparison import Mismatch as Mismatch, compare as compare
    from .drift import Drift as Drift, drift_schema as drift_schema
    from .folding import FoldCheck as FoldCheck, trained_spikes as trained_spikes
    from .stage import VerifyReport as VerifyReport, verify as verify
    from .text import verify_text as verify_text
else:
    __getattr__, __dir__ = door(__name__, __file__)
