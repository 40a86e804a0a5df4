"""Print an EnergyReport: costs per sample, their sources, and what is excluded."""

from __future__ import annotations

from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from .energy import JOULES, SECONDS, WATTS, CostItem, EnergyReport, quantity, range_ends, sample_kind, spread


def energy_table(report: EnergyReport) -> RenderableType:
    """Return a table of costs, followed by excluded items and sources."""
    table = Table("per sample", box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in ("count", "each", "total", "range"):
        table.add_column(heading, justify="right")
    for item in report.dynamic.items:
        table.add_row(*_cells(item, *JOULES))
    for item in report.static.items:
        power = quantity(item.cost.value, *WATTS) if item.cost else ""
        table.add_row(*_cells(item, *JOULES, each=power, count=f"chips: {report.chips}"))
    for item in report.outside:
        table.add_row(*_cells(replace(item, missing="?"), *JOULES))
    table.add_section()
    table.add_row("per time step")
    for item in report.step.items:
        table.add_row(*_cells(item, *SECONDS))
    table.add_section()
    table.add_row("ordinary network")
    for item in report.ordinary:
        table.add_row(*_cells(item, *JOULES))
    return Group(_headline(report), table, *_notes(report))


def _headline(report: EnergyReport) -> str:
    incomplete = "; incomplete, see below" if report.missing else ""
    cores = "not known" if report.cores is None else report.cores
    size = f"cores: {cores}, chips: {report.chips}, {sample_kind(report)}: {report.samples}"
    energy, time = spread(report.energy, *JOULES), spread(report.time, *SECONDS)
    return (
        f"{report.target}: estimate ({size})\n"
        f"per sample: energy {energy}, time {time}{incomplete}\n"
        f"per time step: {spread(report.step.total, *SECONDS)} ({report.step_of})"
    )


def _cells(item: CostItem, unit: str, scale: float, **shown: str) -> list[str]:
    count = "" if item.count is None else f"{item.count:,.0f}"
    each = quantity(item.cost.value, unit, scale) if item.cost else ""
    total = item.total
    return [
        item.name,
        shown.get("count", count),
        shown.get("each", each),
        item.missing or "" if total is None else quantity(total.value, unit, scale),
        "" if total is None or total.low == total.high else range_ends(total, unit, scale),
    ]


def _notes(report: EnergyReport) -> list[str]:
    """List excluded items, the meaning of the ordinary network, and the sources."""
    return [
        *(f"excluded: {text}" for text in report.missing),
        *_outside(report),
        "ordinary network: estimate for one 8-bit pass through the same layers, without time steps",
        *(f"{', '.join(names)}: {source}" for source, names in report.sources.items()),
    ]


def _outside(report: EnergyReport) -> list[str]:
    """Name what has no public figure, and is not in the sums."""
    names = [item.name for item in report.outside]
    named = f"{', '.join(names)}, embedded processors" if names else "embedded processors"
    return [f"without a public figure, so never included: {named}"]
