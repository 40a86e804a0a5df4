"""Execute `python -m mpbn_deploy.report`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import Group
from rich.table import Table

from ..base import Array, FormatError, Outcome, Report, check_writable, read_json, record, write_atomically
from ..fit import DEPENDS, JOULES, SECONDS, quantity, used_bits, verdict_word
from ..formats.folder import FIT_FILE, VERIFY_FILE, open_folder
from ..verify import FoldCheck
from .html import render_template
from .svg import (
    NONE,
    UNKNOWN,
    element,
    integer,
    line,
    number,
    percent,
    picture,
    population_colors,
    text,
    ticks,
)

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


# Compare several exports: their accuracy, cores and energy against the bits of their weights.


# Pixels of a chart.
WIDTH, HEIGHT, LEFT, BELOW, TOP, RIGHT = 340.0, 220.0, 58.0, 34.0, 14.0, 14.0
TICKS = 5
MARGIN = 0.08  # of the range of values, above and below


@record
class ComparedExport(Report):
    """The figures of one export folder; None where it does not state one."""

    JSON = """name target weight_bits bit_exact fold_agrees? fits cores chips data float_accuracy
        integer_accuracy energy_per_sample_pj=energy time_per_sample_ns=time random_inputs"""

    name: str  # of the folder
    target: str
    weight_bits: int  # of the widest weight, sign included
    bit_exact: bool
    fits: bool | None
    cores: int | None
    chips: int | None
    fold_agrees: bool | None = None  # None if the export had no PyTorch model
    data: str | None = None  # test split of the accuracies
    float_accuracy: float | None = None
    integer_accuracy: float | None = None
    energy: float | None = None  # picojoules per sample
    time: float | None = None  # nanoseconds per sample
    random_inputs: bool = False  # whether energy and time are those of random inputs
    conditions: int = 0  # findings that no public source settles

    @property
    def exact(self) -> bool:
        """Whether the integers are bit-exact, and those of a network that folding did not change."""
        return self.bit_exact and self.fold_agrees is not False

    @property
    def verdict(self) -> str:
        """The word that `fit` and `export` use."""
        return verdict_word(self.fits, self.cores, self.conditions)


def _chosen_bits(weight: Array) -> int:
    """Return the bits of the weights without the power of two that all of them share.

    A chip may store weights of 4 bits as multiples of 16 in 8.
    """
    together = int(np.bitwise_or.reduce(weight, axis=None, initial=0))
    return used_bits(weight // (together & -together or 1))


def read_export(path: Path) -> ComparedExport:
    """Read the figures of an export folder, after all its hashes have been checked."""
    opened = open_folder(path)
    fit, verify = read_json(path / FIT_FILE), read_json(path / VERIFY_FILE)
    try:
        accuracy, energy = verify["accuracy"] or {}, fit["energy"] or {}
        return ComparedExport(
            name=path.resolve().name,
            target=str(fit["target"]),
            weight_bits=max(_chosen_bits(c.synapse.weight) for c in opened.network.connections),
            bit_exact=verify["bit_exact"],
            fold_agrees=None if verify["fold"] is None else FoldCheck.from_json(verify["fold"]).agrees,
            fits=fit["fits"],
            cores=fit["cores"],
            chips=fit["chips"],
            data=accuracy.get("data"),
            float_accuracy=accuracy.get("float"),
            integer_accuracy=accuracy.get("integer"),
            energy=_value(energy.get("energy_per_sample")),
            time=_value(energy.get("time_per_sample")),
            random_inputs=energy.get("random_inputs", False),
            conditions=sum(finding["severity"] == "not known" for finding in fit["findings"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{path}: {FIT_FILE} or {VERIFY_FILE} lacks {error}. Export again.") from error


def _value(found: dict[str, Any] | None) -> float | None:
    return None if found is None else float(found["value"])


# ---- the page -----------------------------------------------------------------------------------


def comparison_values(exports: Sequence[ComparedExport]) -> dict[str, Any]:
    """Return the variables of the page's template."""
    colors = population_colors(list(dict.fromkeys(export.target for export in exports)))
    energies = "Energy per sample (nJ)"
    charts = [
        ("Accuracy of the integers (%)", lambda e: _times(e.integer_accuracy, 100)),
        ("Cores", lambda e: e.cores),
        (energies, lambda e: _times(e.energy, 1e-3)),
    ]
    return {
        "rows": [_row(place, export, colors) for place, export in enumerate(exports, 1)],
        "charts": [(title, chart(title, exports, value, colors)) for title, value in charts],
        "random": any(export.random_inputs for export in exports),
        "conditions": any(export.verdict == DEPENDS for export in exports),
    }


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _row(place: int, export: ComparedExport, colors: dict[str, str]) -> dict[str, Any]:
    return {
        "place": place,
        "name": export.name,
        "target": export.target,
        "color": colors[export.target],
        "weight_bits": export.weight_bits,
        "data": export.data or NONE,
        "float_accuracy": percent(export.float_accuracy),
        "integer_accuracy": percent(export.integer_accuracy),
        "exact": ("yes", "good") if export.exact else ("no", "bad"),
        "fits": (export.verdict, {"yes": "good", "no": "bad"}.get(export.verdict, "unknown")),
        "cores": UNKNOWN if export.cores is None else integer(export.cores),
        "chips": UNKNOWN if export.chips is None else integer(export.chips),
        "energy": NONE if export.energy is None else quantity(export.energy, *JOULES),
        "time": NONE if export.time is None else quantity(export.time, *SECONDS),
        "random": export.random_inputs,
    }


def chart(
    title: str,
    exports: Sequence[ComparedExport],
    value: Callable[[ComparedExport], float | None],
    colors: dict[str, str],
) -> Markup | None:
    """Draw a value of each export against the bits of its weights; None if no export has the value."""
    points = [(place, e, float(v)) for place, e in enumerate(exports, 1) if (v := value(e)) is not None]
    if not points:
        return None
    low, high = _ends([found for _, _, found in points])
    bits = sorted({export.weight_bits for _, export, _ in points})
    first, last = bits[0] - 0.5, bits[-1] + 0.5

    def across(width: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (width - first) / (last - first)

    def down(found: float) -> float:
        return HEIGHT - BELOW - (HEIGHT - BELOW - TOP) * (found - low) / (high - low)

    parts = [text(LEFT, HEIGHT - 2, "bits per weight", "muted small")]
    whole = all(found.is_integer() for _, _, found in points)
    for tick in ticks(low, high, TICKS):
        if whole and not tick.is_integer():
            continue
        parts.append(line((LEFT, down(tick)), (WIDTH - RIGHT, down(tick)), "grid"))
        parts.append(text(LEFT - 8, down(tick) + 4, number(tick), "muted small", "end"))
    for width in bits:
        parts.append(text(across(width), HEIGHT - BELOW + 16, str(width), "muted small", "middle"))
    labels: dict[tuple[float, float], list[str]] = {}
    for place, export, found in points:
        x, y = across(export.weight_bits), down(found)
        parts.append(element("circle", cx=x, cy=y, r=5, fill=colors[export.target]))
        labels.setdefault((x, y), []).append(str(place))
    parts += [text(x + 9, y + 4, ", ".join(places), "small") for (x, y), places in labels.items()]
    return picture(parts, WIDTH, HEIGHT, f"{title} against bits per weight")


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis that holds the values with a margin."""
    low, high = min(values), max(values)
    margin = (high - low) * MARGIN or abs(high) * MARGIN or 1.0
    return low - margin, high + margin
