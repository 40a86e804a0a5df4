"""Compare a network with its own thresholds, with one per core, and with one per population.

Where a chip is not known to hold a threshold per channel, quantization can move the scale of each channel
into its weights, so that the channels of a core or of a population share one threshold. The weights become
coarser; what that costs is measured here, on the samples of the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np

from ..base import Array, DeployError, OptionError, Report, announce, record
from ..execute.emulator import emulate
from ..formats.options import Thresholds
from ..ir import IntNetwork, firing
from .question import PREDICTIONS_REFERENCE, Question
from .requantize import Requantizer
from .stage import FitReport

MEANINGS = {"own": "per channel or neuron", "core": "one per core", "shared": "one per population"}


@record
class ThresholdVariant(Report):
    """One choice of thresholds, and what it costs. `accuracy` is None without labels."""

    JSON = """thresholds most_per_population?=most fits?=report.fits not_known? cores=report.cores accuracy
        predictions_changed=changed predictions_reference? samples? commands?"""

    thresholds: Thresholds
    most: int  # distinct thresholds of a population
    report: FitReport
    accuracy: float | None
    changed: int  # predictions that differ from those of the given integer network, of `samples`
    samples: int
    commands: tuple[str, ...]

    @property
    def not_known(self) -> int:
        """The number of limits that are not known."""
        return len(self.report.found("not known"))

    @property
    def predictions_reference(self) -> str:
        """What `predictions_changed` counts against."""
        return PREDICTIONS_REFERENCE


def compare_thresholds(question: Question) -> list[ThresholdVariant]:
    """Quantize with each choice of thresholds, fit, and predict the samples of the request."""
    requantizer = Requantizer(question)
    if not requantizer.possible:
        raise OptionError(
            f"{question.path}: --compare-thresholds quantizes again, which needs the real numbers of an "
            "export folder; this network has integers only. Export the trained model."
        )
    if question.samples is None:
        raise OptionError("--compare-thresholds needs samples: name their data set with --data.")
    before = _predict(question.opened.network, question)
    return list(_variants(question, requantizer, before))


def _variants(question: Question, requantizer: Requantizer, before: Array) -> Iterator[ThresholdVariant]:
    assert requantizer.folder is not None and question.samples is not None
    labels = question.samples.labels
    for choice in get_args(Thresholds):
        announce(f"thresholds: {MEANINGS[choice]}")
        options = replace(requantizer.folder.options, thresholds=choice)
        try:
            network = requantizer.quantize(options)
        except DeployError as error:
            announce(f"note: thresholds {MEANINGS[choice]}: {error}")
            continue
        predictions = _predict(network, question)
        yield ThresholdVariant(
            thresholds=choice,
            most=max((len(np.unique(p.neuron.threshold)) for p in firing(network)), default=0),
            report=question.ask(network),
            accuracy=None if labels is None else float(np.mean(predictions == labels)),
            changed=int(np.count_nonzero(predictions != before)),
            samples=len(predictions),
            commands=tuple(requantizer.commands(question, options, choice)),
        )


def _predict(network: IntNetwork, question: Question) -> Array:
    assert question.samples is not None
    return emulate(network, question.samples.inputs, keep_trace=False).predictions
