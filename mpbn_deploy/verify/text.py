"""The printed report of `verify`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from ..ir import overflow_lines
from .accuracy import accuracy_text
from .comparison import COUNTS, Comparison
from .drift import Drift, PopulationDrift
from .lava_models import READER
from .stage import VerifyReport

LEGEND = "spikes, voltages, outputs: integers compared; different: those unequal to the reference's"


def verify_text(report: VerifyReport) -> RenderableType:
    """Return all that a report says."""
    title = f"executions against the reference, {report.samples} {report.sample_kind}"
    table = Table("execution", title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("spikes", "voltages", "outputs", "different"):
        table.add_column(heading, justify="right")
    for comparison in report.comparisons:
        table.add_row(comparison.execution, *_cells(comparison, failed=comparison.execution in report.failed))
    lines: list[RenderableType] = [LEGEND, *map(str, report.assumptions)]
    lines += [
        f"{c.execution} {'failed' if c.execution in report.failed else 'not run'}: {c.not_run}"
        for c in report.comparisons
        if c.not_run
    ]
    lines += [claim for claim in (report.lava_claim, report.maker_claim) if claim is not None]
    lines += [
        f"{c.execution}: {c.extent}" for c in report.comparisons if c.extent and c is not report.lavas_own
    ]
    lines += overflow_lines(report.overflows)
    if report.silent:
        lines.append(_silence(report))
    if report.stock_reader_obstacle is not None:
        lines.append(f"{READER.name} cannot run this network: {report.stock_reader_obstacle}")
    lines += [
        f"{c.execution}: first difference: {c.first_mismatch}" for c in report.comparisons if c.first_mismatch
    ]
    if report.fold is not None:
        lines.append(str(report.fold))
    if report.floating is not None:
        lines.append(str(report.floating))
    if report.drift is not None:
        lines += [drift_table(report.drift), *drift_text(report.drift, whole=report.accuracy is not None)]
    if report.accuracy is not None:
        lines += accuracy_text(report.accuracy)
    return Group(table, *lines)


def _silence(report: VerifyReport) -> str:
    """Name the populations that never fired, and what may be the cause."""
    steps = [each.what for each in report.assumptions if each.what.startswith("time steps")]
    dt = f"; {steps[0]} were assumed, and the file may mean another --dt" if steps else ""
    return (
        f"SILENT: {', '.join(report.silent)} never fired on {report.samples} {report.sample_kind}, so that "
        "no spike reaches the outputs. Inputs may be smaller than in training (--input-range, --normalize)"
        f"{dt}"
    )


def _cells(comparison: Comparison, *, failed: bool) -> Iterator[str]:
    """Yield how many values of each kind were compared, "" where none were, and how many of them differ."""
    for compared in COUNTS[::2]:
        yield str(getattr(comparison, compared) or "")
    differences = str(sum(getattr(comparison, count) for count in COUNTS[1::2]))
    yield differences if not comparison.not_run else "failed" if failed else "not run"


def drift_table(drift: Drift) -> Table:
    """Return a table with one row per population: firing rates, equal spikes, voltage errors, flips."""
    table = Table(title="folded against integer", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("population", overflow="fold")
    for heading in ("rate", "equal", "error", "near"):
        table.add_column(heading, justify="right")
    table.add_column("flips by cause")
    for population in drift.populations:
        table.add_row(population.name, *_drift_cells(population))
    return table


def _drift_cells(population: PopulationDrift) -> list[str]:
    whole, fires = population.over_steps(), population.fires
    relative, near = population.relative_error, whole["near_threshold"]
    causes = ", ".join(f"{cause} {count}" for cause, count in population.flips.items() if count)
    return [
        f"{100 * whole['rate_float']:.2f}/{whole['rate_integer']:.2%}" if fires else "",
        f"{whole['spike_agreement']:.2%}" if fires else "",
        f"{relative:.2%}" if np.isfinite(relative) else f"{whole['voltage_error_rms']:.3g}",
        f"{near:.2%}" if np.isfinite(near) else "",
        causes or ("none" if fires else ""),
    ]


def drift_text(drift: Drift, *, whole: bool = False) -> list[str]:
    """Return the legend of `drift_table`, the first flip and the changed predictions.

    Predictions are left out if others are shown, for the whole test split.
    """
    flipped = any(sum(population.flips.values()) for population in drift.populations)
    none = "not searched for in neurons that fire several times in a step" if flipped else "none"
    first = none if drift.first_flip is None else str(drift.first_flip)
    predictions = drift.predictions
    counted = [] if whole else [
        f"predictions equal to the folded network: {predictions.agreement:.2%}; changed: {predictions}"
    ]  # fmt: skip
    return [
        "rate: firing rate, folded/integer; equal: equal spikes; error: RMS voltage error, relative to the "
        "RMS distance from the threshold if there is one; near: voltages within one unit of weight of it; "
        "flips by cause: spikes that differ, and what rounding did to them",
        f"first spike that differs: {first}",
        *counted,
    ]
