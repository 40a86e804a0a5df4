"""Execute `python -m mpbn_deploy.export`."""

from __future__ import annotations

import argparse

from rich.console import Group, RenderableType

from ..base import Outcome, signs_of_life
from ..fit import fit_text
from ..formats.options import ExportOptions
from ..verify import verify_text
from .stage import ExportResult, export


def execute(options: argparse.Namespace) -> Outcome:
    with signs_of_life():
        result = export(options.model, options.target, options.out, ExportOptions.from_arguments(options))
    text = Group(str(result), *(_details(result) if options.verbose else ()))
    return Outcome(data=result.to_json(), text=text, exit_code=0 if result.good else 1)


def _details(result: ExportResult) -> tuple[RenderableType, ...]:
    """Return all that the stages report."""
    return (
        verify_text(result.verified),
        fit_text(result.fitted),
        *(f"note: {note}" for note in (*result.doubts, *result.notes)),
        f"written: {result.folder}/ with {', '.join(result.files)}",
    )
