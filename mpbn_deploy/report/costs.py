"""Energy and time per sample, by item, and compared with an ordinary network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil, isqrt, log10

import numpy as np
from markupsafe import Markup

from ..base import Array, array_record, record
from ..fit import (
    JOULES,
    SECONDS,
    WATTS,
    ChipMap,
    CostItem,
    EnergyReport,
    LayerFit,
    Range,
    column,
    quantity,
    range_ends,
    spread,
)
from ..hardware import HardwareProfile
from ..hardware.place import Placement
from .svg import decades, element, group, line, picture, plural, population_colors, rectangle, shortened, text

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


# Grid maps of the cores of every chip, colored by population and filled by utilization.
#
# Adjacent cores of a row with the same population and utilization are drawn as one rectangle, with the gaps
# between them on top. The figure of thousands of cores thus takes only some kilobytes.


CELL = 10.0
PIXELS = {1: 30, 4: 20, 12: 14}  # largest number of chips -> cell size on the page; beyond, CELL
LEVELS = 20  # of utilization; the legend shows percentages
WIDEST = 520  # largest width of one chip on the page, in pixels
SHOWN = 60  # chips; the rest are in a closed <details> element


@record
class Grid:
    """Layout of a chip: routers in columns and rows, with `per_router` cores each."""

    columns: int
    rows: int
    per_router: int = 1

    @property
    def block(self) -> tuple[int, int]:
        """Return the columns and rows of cells of one router."""
        across = isqrt(self.per_router - 1) + 1
        return across, -(-self.per_router // across)

    @property
    def cells(self) -> tuple[int, int]:
        """Return the columns and rows of cells of the chip."""
        return self.columns * self.block[0], self.rows * self.block[1]

    def positions(self, slots: Array) -> tuple[Array, Array]:
        """Return column and row of the cell of each slot; slots fill the routers row by row."""
        router, place = np.divmod(slots, self.per_router)
        y, x = np.divmod(router, self.columns)
        across, down = self.block
        return x * across + place % across, y * down + place // across


@array_record
class Cores:
    """Per core: index of its layer, chip, slot on the chip, and utilization (NaN if unknown)."""

    layer: Array
    chip: Array
    slot: Array
    load: Array


@record
class Chip:
    """The figure of one chip."""

    name: str
    note: str
    picture: Markup


@record
class Legend:
    """A population, its cores, and the highest utilization of its scarcest `resource`."""

    name: str
    color: str
    cores: int
    percent: float | None
    resource: str


@record
class CoreMap:
    """All chips, each `width` pixels wide."""

    width: int
    shown: tuple[Chip, ...]
    collapsed: tuple[Chip, ...]
    legend: tuple[Legend, ...]


def core_map(
    placement: Placement, layers: Sequence[LayerFit], chip_map: ChipMap | None, profile: HardwareProfile
) -> CoreMap | None:
    """Draw all chips; None if cores are unknown, or if one core holds the whole network."""
    if placement.cores is None or placement.on_one_core:
        return None
    limits = {layer.name: {name: use.limit for name, use in layer.use.items()} for layer in layers}
    cores = cores_of(placement, limits, chip_map, profile)
    grid = grid_of(profile, cores)
    names = [layer.name for layer in placement.layers]
    colors = population_colors(names)
    count = int(cores.chip.max(initial=0)) + 1
    chips = [_chip(number, cores, grid, colors) for number in range(count)]
    pixels = next((size for most, size in PIXELS.items() if count <= most), int(CELL))
    return CoreMap(
        width=min(WIDEST, pixels * grid.cells[0]),
        shown=tuple(chips[:SHOWN]),
        collapsed=tuple(chips[SHOWN:]),
        legend=tuple(_legend(layer, colors[layer.name]) for layer in layers),
    )


def grid_of(profile: HardwareProfile, cores: Cores) -> Grid:
    """Return the profile's grid, or else one about twice as wide as high that holds a chip's cores."""
    columns, rows = profile.limit("chip.grid_columns"), profile.limit("chip.grid_rows")
    per_router, per_chip = profile.limit("chip.cores_per_router"), profile.limit("chip.cores")
    needed = int(cores.slot.max(initial=0)) + 1
    if columns is not None and rows is not None:
        at_one = per_router.value if per_router else 1
        return Grid(
            columns=columns.value,
            rows=max(rows.value, ceil(needed / at_one / columns.value)),
            per_router=at_one,
        )
    room = max(needed, per_chip.value if per_chip else 0)
    wide = isqrt(2 * room - 1) + 1
    return Grid(columns=wide, rows=-(-room // wide))


def cores_of(
    placement: Placement,
    limits: Mapping[str, Mapping[str, int | None]],
    chip_map: ChipMap | None,
    profile: HardwareProfile,
) -> Cores:
    """Locate all cores; without a chip map, they are numbered in the order of layers."""
    layer = np.repeat(np.arange(len(placement.layers)), [each.cores for each in placement.layers])
    load = [_load(use, limits.get(each.name, {})) for each in placement.layers for _, use in each.uses()]
    if chip_map is not None:
        chip, slot = chip_map.chip, chip_map.slot
    else:
        per_chip = profile.limit("chip.cores")
        chip, slot = np.divmod(np.arange(len(layer)), per_chip.value if per_chip else max(len(layer), 1))
    if placement.layers and all(each.core is not None for each in placement.layers):
        slot = np.array([each.core for each in placement.layers])
    return Cores(layer=layer, chip=chip, slot=slot, load=np.array(load, np.float64))


def _load(use: Mapping[str, int], limits: Mapping[str, int | None]) -> float:
    """Return the utilization of the scarcest resource."""
    shares = [used / limit for name, used in use.items() if (limit := limits.get(name))]
    return max(shares, default=float("nan"))


# ---- one chip ---------------------------------------------------------------------------------


def _chip(number: int, cores: Cores, grid: Grid, colors: Mapping[str, str]) -> Chip:
    here = np.flatnonzero(cores.chip == number)
    across, down = grid.cells
    names, found = list(colors), Counter(cores.layer[here].tolist())
    parts = [element("path", d=rectangle(0, 0, across * CELL, down * CELL), class_="idle")]
    for layer in sorted(found):
        runs = list(_runs(cores, here[cores.layer[here] == layer], grid))
        title = element("title", f"{names[layer]}: {plural(found[layer], 'core')} of this chip")
        whole = "".join(rectangle(CELL * x, CELL * y, CELL * length, CELL) for x, y, length, _ in runs)
        filled = "".join(
            rectangle(CELL * x, CELL * (y + 1 - share), CELL * length, CELL * share)
            for x, y, length, share in runs
            if share
        )
        paths = [element("path", d=whole, class_="pale"), element("path", d=filled)]
        parts.append(group([title, *paths], fill=colors[names[layer]]))
    parts.append(element("path", d=_gaps(across, down, 1), class_="gaps"))
    if grid.per_router > 1:
        parts.append(element("path", d=_gaps(across, down, *grid.block), class_="gaps wide"))
    note = f"{plural(len(here), 'core')}, {plural(len(found), 'population')}"
    label = f"Chip {number + 1}: {note}"
    drawn = picture(parts, across * CELL, down * CELL, label)
    return Chip(name=f"chip {number + 1}", note=note, picture=drawn)


def _runs(cores: Cores, chosen: Array, grid: Grid) -> Iterator[tuple[int, int, int, float]]:
    """Yield column, row and length of runs of equal utilization, and the utilization; NaN counts as 0."""
    columns, rows = grid.positions(cores.slot[chosen])
    full = np.ceil(LEVELS * np.clip(np.nan_to_num(cores.load[chosen]), 0, 1)) / LEVELS
    order = np.lexsort((columns, rows))
    cells = zip(rows[order].tolist(), columns[order].tolist(), full[order].tolist(), strict=True)
    numbered = ((row, column - place, column, share) for place, (row, column, share) in enumerate(cells))
    for (row, _, share), run in groupby(numbered, key=lambda cell: (cell[0], cell[1], cell[3])):
        found = [column for _, _, column, _ in run]
        yield found[0], row, len(found), share


def _gaps(across: int, down: int, step: int, step_down: int | None = None) -> str:
    """Return path data of the lines between cells."""
    upright = "".join(f"M{x * 10} 0v{down * 10}" for x in range(step, across, step))
    return upright + "".join(
        f"M0 {y * 10}h{across * 10}" for y in range(step_down or step, down, step_down or step)
    )


def _legend(layer: LayerFit, color: str) -> Legend:
    known = [(use.percent, column(name)) for name, use in layer.use.items() if use.percent is not None]
    percent, resource = max(known, default=(None, ""), key=lambda pair: pair[0])
    return Legend(name=layer.name, color=color, cores=layer.cores, percent=percent, resource=resource)
