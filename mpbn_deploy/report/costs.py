"""Energy and time per sample, by item, and compared with an ordinary network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log10

from markupsafe import Markup

from ..base import record
from ..fit import JOULES, SECONDS, WATTS, CostItem, EnergyReport, Range, quantity, range_ends, spread
from .formatting import plural, shortened
from .svg import decades, element, line, picture, rectangle, text

# Pixels of the figure with the logarithmic axis.
WIDTH, ROW, NAMES, VALUES, BELOW = 1040.0, 28.0, 220.0, 90.0, 26.0
LETTERS = 30  # longest name
EXCLUDING = ", excluding the items listed below"


@record
class CostRow:
    """One item; `share`, `low` and `high` are percentages of the largest high value in its table."""

    name: str
    count: str
    each: str
    total: str
    reach: str
    basis: str
    missing: str | None
    share: float
    low: float
    high: float


@record
class Costs:
    """The contents of the section."""

    energy: str
    time: str
    dynamic: tuple[CostRow, ...]
    static: tuple[CostRow, ...]
    steps: tuple[CostRow, ...]
    comparison: Markup | None
    ordinary: tuple[CostRow, ...]
    missing: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]


def costs(report: EnergyReport) -> Costs:
    """Turn an energy report into sentences, table rows and bars."""
    parts = (*report.dynamic.items, *report.static.items)
    top = _top(parts)
    return Costs(
        energy=_energy(report),
        time=_time(report),
        dynamic=tuple(_row(item, JOULES, JOULES, top) for item in report.dynamic.items),
        static=tuple(_static_row(item, top) for item in report.static.items),
        steps=tuple(_row(item, SECONDS, SECONDS, _top(report.step.items)) for item in report.step.items),
        comparison=_comparison(report),
        ordinary=tuple(_row(item, JOULES, JOULES, _top(report.ordinary)) for item in report.ordinary),
        missing=report.missing,
        sources=tuple((", ".join(names), source) for source, names in report.sources.items()),
    )


def _energy(report: EnergyReport) -> str:
    if report.energy is None:
        return "The energy per sample is unknown."
    lower_bound = EXCLUDING if report.dynamic.missing or report.static.missing else ""
    return f"Energy per sample: {spread(report.energy, *JOULES)}{lower_bound}."


def _time(report: EnergyReport) -> str:
    if report.step.total is None:
        return "The time per sample is unknown."
    lower_bound = EXCLUDING if report.step.missing else ""
    sample, step = spread(report.time, *SECONDS), spread(report.step.total, *SECONDS)
    return f"Time per sample: {sample}{lower_bound}; per time step: {step} ({report.step_of})."


def _top(items: Sequence[CostItem]) -> float:
    return max((item.total.high for item in items if item.total is not None), default=0.0)


def _row(item: CostItem, unit: tuple[str, float], each: tuple[str, float], top: float) -> CostRow:
    total, cost = item.total, item.cost
    known = Range(value=0.0, low=0.0, high=0.0) if total is None else total
    share, low, high = (100 * value / top if top else 0.0 for value in (known.value, known.low, known.high))
    return CostRow(
        name=item.name,
        count="" if item.count is None else f"{item.count:,.0f}",
        each="" if cost is None else quantity(cost.value, *each),
        total="" if total is None else quantity(total.value, *unit),
        reach="" if total is None or total.low == total.high else range_ends(total, *unit),
        basis="" if cost is None else cost.basis,
        missing=item.missing,
        share=share,
        low=low,
        high=high,
    )


def _static_row(item: CostItem, top: float) -> CostRow:
    """Return the row of static power, whose count is the number of chips."""
    chips = None if item.count is None else int(item.count)
    return replace(_row(item, JOULES, WATTS, top), count=plural(chips, "chip"))


# ---- comparison with an ordinary network ------------------------------------------------------


@record
class Dot:
    """A row of the comparison: this chip, or an ordinary processor."""

    name: str
    total: Range
    kind: str


def _comparison(report: EnergyReport) -> Markup | None:
    """Compare this chip, without and with static power, with ordinary processors."""
    found = [(f"{report.target}, dynamic", report.dynamic.total, "chip")]
    if report.static.total is not None:
        found.append((f"{report.target}, with static", report.energy, "chip"))
    found += [(item.name, item.total, "ordinary") for item in report.ordinary]
    dots = [
        Dot(name=name, total=total, kind=kind)
        for name, total, kind in found
        if total is not None and total.low > 0  # zero has no logarithm
    ]
    return logarithmic(dots) if dots else None


def logarithmic(dots: Sequence[Dot]) -> Markup:
    """Draw each value in picojoules as a dot on a bar from low to high, on a logarithmic axis."""
    exponents = decades(min(dot.total.low for dot in dots), max(dot.total.high for dot in dots))
    first, height = exponents[0], ROW * len(dots) + BELOW
    decade = (WIDTH - NAMES - VALUES) / max(len(exponents) - 1, 1)

    def across(value: float) -> float:
        return NAMES + decade * (log10(value) - first)

    parts = []
    for exponent in exponents:
        x = across(10.0**exponent)
        parts.append(line((x, 0), (x, height - BELOW), "grid"))
        parts.append(text(x, height - 8, quantity(10.0**exponent, *JOULES), "muted small", "middle"))
    for place, dot in enumerate(dots):
        y, low, high = ROW * (place + 0.5), across(dot.total.low), across(dot.total.high)
        parts.append(text(0, y + 4, shortened(dot.name, LETTERS)))
        reach = rectangle(low, y - 3, max(high - low, 0.5), 6)
        parts.append(element("path", d=reach, class_=f"reach {dot.kind}"))
        parts.append(element("circle", cx=across(dot.total.value), cy=y, r=5, class_=f"dot {dot.kind}"))
        parts.append(text(high + 12, y + 4, quantity(dot.total.value, *JOULES), "small"))
    return picture(parts, WIDTH, height, "Energy of a sample on a logarithmic axis", class_="log")
