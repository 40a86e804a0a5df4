"""Execute `python -m mpbn_deploy.export`."""

from __future__ import annotations

import argparse

from rich.console import Group

from ..base import Outcome
from ..fit import fit_text
from ..formats.folder import FILES, MANIFEST_FILE
from ..formats.options import ExportOptions
from ..verify import verify_text
from .stage import export


def execute(options: argparse.Namespace) -> Outcome:
    result = export(options.model, options.target, options.out, ExportOptions.from_arguments(vars(options)))
    text = Group(
        verify_text(result.verified),
        fit_text(result.fitted),
        *(f"note: {note}" for note in result.notes),
        f"written: {result.folder}/ with {', '.join([*FILES, MANIFEST_FILE])}",
    )
    return Outcome(data=result.to_json(), text=text, exit_code=0 if result.good else 1)
