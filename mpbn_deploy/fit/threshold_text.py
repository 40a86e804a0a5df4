"""Print the comparison of thresholds per channel, per core and per population."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from .stage import UNKNOWN, short_verdict
from .threshold_variants import MEANINGS, ThresholdVariant


def variants_text(target: str, variants: Sequence[ThresholdVariant]) -> RenderableType:
    """Return a table of the choices, and the commands of those that share thresholds."""
    table = Table("thresholds", box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in ("most per\npopulation", "fits", "cores", "accuracy", "predictions\nchanged"):
        table.add_column(heading, justify="right")
    for one in variants:
        table.add_row(
            MEANINGS[one.thresholds],
            str(one.most),
            short_verdict(one.report),
            UNKNOWN if one.report.cores is None else str(one.report.cores),
            UNKNOWN if one.accuracy is None else f"{one.accuracy:.2%}",
            f"{one.changed} of {one.samples}",
        )
    commands = [f"  {command}" for one in variants if one.thresholds != "own" for command in one.commands]
    measured = f"measured on {variants[0].samples} samples, against the given integers" if variants else ""
    title = f"{target}: thresholds, {measured}" if variants else target
    return Group(title, table, 'fits "depends": only if the chip holds a threshold per channel', *commands)
