"""Execute `python -m mpbn_deploy.report`."""

from __future__ import annotations

import argparse

from rich.console import Group
from rich.table import Table

from ..base import Outcome, check_writable, write_atomically
from ..fit import DEPENDS
from .comparison import ComparedExport, comparison_values, read_export
from .formatting import UNKNOWN, integer, percent
from .html import render_template

TEMPLATE = "comparison.html.j2"
COLUMNS = ("export", "target", "bits", "float", "integer", "fits", "cores")
CONDITIONS = f'fits "{DEPENDS}": only if what is not known holds on the chip'


def execute(options: argparse.Namespace) -> Outcome:
    check_writable(options.out)
    exports = [read_export(folder) for folder in options.folders]
    page = render_template(TEMPLATE, comparison_values(exports))
    write_atomically(options.out, page.encode("utf-8"))
    data = {"page": str(options.out), "exports": [export.to_json() for export in exports]}
    table = Table(*COLUMNS, caption=f"written: {options.out}", caption_justify="left")
    for export in exports:
        table.add_row(*_cells(export))
    conditions = [CONDITIONS] if any(export.verdict == DEPENDS for export in exports) else []
    return Outcome(data=data, text=Group(table, *conditions))


def _cells(export: ComparedExport) -> tuple[str, ...]:
    return (
        export.name,
        export.target,
        str(export.weight_bits),
        percent(export.float_accuracy),
        percent(export.integer_accuracy),
        export.verdict,
        UNKNOWN if export.cores is None else integer(export.cores),
    )
