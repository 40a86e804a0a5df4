"""An EnergyReport for people: what a sample costs, where each figure is from, and what is left out."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from .energy import EnergyReport, Item, Range

JOULES, SECONDS = ("J", 1e-12), ("s", 1e-9)  # units, and what our picojoules and nanoseconds are in them
PREFIXES = {"p": 1e-12, "n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0}


def energy_table(report: EnergyReport) -> RenderableType:
    """Tables of what a sample costs and where each figure is from, then what is left out."""
    table = Table(
        "per sample", title=_headline(report), title_justify="left", box=SIMPLE_HEAD, collapse_padding=True
    )
    for heading in ("count", "each", "together", "range", "basis"):
        table.add_column(heading, justify="left" if heading == "basis" else "right")
    for item in report.dynamic.items:
        table.add_row(*_cells(item, "J", 1e-12))
    for item in report.static.items:
        power = quantity(item.cost.value, "W", 1e-3) if item.cost else ""
        table.add_row(*_cells(item, "J", 1e-12, each=power, count=f"chips {report.chips}"))
    table.add_section()
    for item in report.step.items:
        table.add_row(*_cells(item, "s", 1e-9, name=f"time step: {item.name}"))
    table.add_section()
    for item in report.ordinary:
        table.add_row(*_cells(item, "J", 1e-12, name=f"ordinary network: {item.name}"))
    return Group(table, *_notes(report))


def _headline(report: EnergyReport) -> str:
    sample = f"{spread(report.energy, 'J', 1e-12)}, {spread(report.time, 's', 1e-9)}"
    step = f"a step {spread(report.step.total, 's', 1e-9)}, {report.step_of}"
    incomplete = "; incomplete, see below" if report.missing else ""
    return (
        f"{report.target}: cores {report.cores}, chips {report.chips}; estimated, samples {report.samples}\n"
        f"a sample {sample}{incomplete}\n{step}"
    )


def _cells(item: Item, unit: str, scale: float, **shown: str) -> list[str]:
    count = "" if item.count is None else f"{item.count:,.0f}"
    each = quantity(item.cost.value, unit, scale) if item.cost else ""
    total = item.total
    return [
        shown.get("name", item.name),
        shown.get("count", count),
        shown.get("each", each),
        item.missing or "" if total is None else quantity(total.value, unit, scale),
        "" if total is None or total.low == total.high else _ends(total, unit, scale),
        item.cost.basis if item.cost else "",
    ]


def _notes(report: EnergyReport) -> list[str]:
    """What is left out, what an ordinary network's figures are, and the sources."""
    lines = [f"left out: {text}" for text in report.missing]
    lines.append("ordinary network: an estimate, one 8-bit pass of the same layers, without time steps")
    items = [*report.dynamic.items, *report.static.items, *report.step.items, *report.ordinary]
    sources: dict[str, list[str]] = {}
    for item in items:
        if item.cost is not None:
            sources.setdefault(item.cost.source, []).append(item.name)
    return [*lines, *(f"{', '.join(dict.fromkeys(names))}: {source}" for source, names in sources.items())]


def sample_costs(report: EnergyReport) -> list[tuple[Range | None, bool, tuple[str, float]]]:
    """Energy and time of a sample, whether something is left out of them, and their units."""
    left_out = bool(report.dynamic.missing or report.static.missing)
    return [(report.energy, left_out, JOULES), (report.time, bool(report.step.missing), SECONDS)]


def headline(report: EnergyReport) -> tuple[str, str]:
    """Energy and time of a sample, without their ranges; '> 1.2 µJ' where something is left out."""
    energy, time = (
        f"> {short(found, *unit)}" if left_out and found is not None else short(found, *unit)
        for found, left_out, unit in sample_costs(report)
    )
    return energy, time


def short(found: Range | None, unit: str, scale: float) -> str:
    """'1.23 mJ'"""
    return "unknown" if found is None else quantity(found.value, unit, scale)


def spread(found: Range | None, unit: str, scale: float) -> str:
    """'1.23 mJ (0.9 mJ to 2 mJ)'"""
    if found is None:
        return "unknown"
    text = quantity(found.value, unit, scale)
    return text if found.low == found.high else f"{text} ({_ends(found, unit, scale)})"


def _ends(found: Range, unit: str, scale: float) -> str:
    return f"{quantity(found.low, unit, scale)} to {quantity(found.high, unit, scale)}"


def quantity(value: float, unit: str, scale: float) -> str:
    """Three digits, with the prefix that makes them readable: of 1234567 at a scale of 1e-12, '1.23 µJ'."""
    if value == 0:
        return f"0 {unit}"
    amount = value * scale
    for prefix, size in PREFIXES.items():
        if amount / size < 999.5:
            return f"{amount / size:.3g} {prefix}{unit}"
    return f"{amount:,.0f} {unit}"
