"""Choose the command that a report ends with: what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..hardware import readable_profiles

if TYPE_CHECKING:
    from .advice import Advice
    from .question import Question
    from .search import SearchResult
    from .stage import FitReport

CHIPS, INPUT, LAYERS = "cores_fit_on_chip", "input_values_fit_message", "layers_fit_on_cores"


def next_command(
    question: Question,
    report: FitReport,
    *,
    advice: Sequence[Advice] | None = None,
    forms: Sequence[SearchResult] = (),
    compared: bool = False,
) -> str:
    """Return the smallest change that fits, the search for one, or a run.

    A comparison of thresholds is suggested where one is possible and has not just been made.
    """
    if question.untrained is not None:
        if report.fits is False:
            return _another_form(question, report, forms)
        return question.training_command()
    if report.fits is False:
        if advice is None:
            return question.command(None, "--advise")
        return next((one.commands[0] for one in advice if one.report.fits), "")
    if not compared and report.found("not known") and question.samples is not None:
        from .requantize import Requantizer

        if Requantizer(question).possible:
            return question.command(None, "--compare-thresholds")
    return question.run_command


def _another_form(question: Question, report: FitReport, forms: Sequence[SearchResult]) -> str:
    """Return how an untrained network may fit: with more room, as a search finds, or on another chip."""
    broken = {finding.rule for finding in report.found("error")}
    if not broken:  # with --strict, what is not known blocks
        return replace(question, strict=False).command()
    if broken <= {CHIPS} and (found := _more_chips(question, report)) is not None:
        return found.command()
    if forms:
        return _found(forms)
    free = replace(question, tiling="auto", first_layer="auto", readout="auto", pooling="auto")
    if broken <= {CHIPS, INPUT, LAYERS} and free.command() != question.command():
        return free.command()
    others = [each.name for _, each in readable_profiles()[0] if each.exportable and each.is_chip]
    first, *more = [name for name in others if name != question.target]
    return replace(question, target=first).command(
        None, *(word for name in more for word in ("--target", name))
    )


def _found(forms: Sequence[SearchResult]) -> str:
    """Return the command of the best form that a search found; nothing if none fits.

    A rewritten network can be made only from a trained one.
    """
    from .search import fewest  # imports torch

    best = fewest(list(forms))
    if best.report.fits is False:
        return ""
    return best.commands[-1] if best.commands else replace(best.question, pooling="auto").training_command()


def _more_chips(question: Question, report: FitReport) -> Question | None:
    """Return the request with as many chips as are needed; None if it does not fit these either."""
    question = replace(question, chips=max(question.chips, report.chips or 1))
    return question if question.ask(question.network).fits else None
