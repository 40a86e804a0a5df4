"""To be described."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from .accuracy import accuracy_text
from .comparison import COUNTS, Comparison
from .drift import drift_table, drift_text
from .stage import VerifyReport


def verify_text(report: VerifyReport) -> RenderableType:
    """The report for people."""
    table = Table("execution", title=f"{report.verdict}, {report.samples} samples", title_justify="left",
                  box=SIMPLE_HEAD)  # fmt: skip
    for heading in ("spikes", "different", "voltages", "different", "outputs", "different"):
        table.add_column(heading, justify="right")
    for comparison in report.comparisons:
        table.add_row(comparison.execution, *_cells(comparison))
    lines: list[RenderableType] = [
        f"{c.execution} {'broke off' if c.execution in report.failed else 'not run'}: {c.not_run}"
        for c in report.comparisons
        if c.not_run
    ]
    if report.stock_reader_obstacle is not None:
        lines.append(f"stock netx reader: not run, {report.stock_reader_obstacle}")
    lines += [
        f"{c.execution}: first difference: {c.first_mismatch}" for c in report.comparisons if c.first_mismatch
    ]
    if report.fold is not None:
        changed, compared = report.fold.spikes_mismatched, report.fold.spikes_compared
        counts = f"{changed} of {compared}" if compared else "not compared, it has no LIF of ours"
        lines.append(f"spikes changed by folding, against the PyTorch model: {counts}")
    if report.floating is not None:
        lines.append(str(report.floating))
    if report.drift is not None:
        lines += [drift_table(report.drift), *drift_text(report.drift)]
    if report.accuracy is not None:
        lines += accuracy_text(report.accuracy)
    return Group(table, *lines)


def _cells(comparison: Comparison) -> Iterator[str]:
    """Counts in pairs; where an execution shows nothing to compare, nothing was found equal either."""
    for compared, mismatched in zip(COUNTS[::2], COUNTS[1::2], strict=True):
        shown = getattr(comparison, compared)
        yield from (str(shown), str(getattr(comparison, mismatched))) if shown else ("not shown", "")
