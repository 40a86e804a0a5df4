"""Execute `python -m mpbn_deploy.verify`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from ..base import FormatError, OptionError, Outcome, Summary, signs_of_life
from ..data import dataset_name
from ..execute.cluster import chosen_cluster
from ..execute.outside import ASKED, chosen_witnesses
from ..formats.folder import REPORT_FILE, VERIFY_FILE, ExportFolder, NetworkFile, open_network
from ..formats.options import FileFacts, Verifying
from ..ir import overflow_lines
from .accuracy import Accuracy, accuracy_text
from .comparison import COUNTS, CertificateCheck, Comparison, check_certificate, read_certificate
from .drift import Drift, PopulationDrift
from .folding import FoldCheck
from .lava_models import READER
from .stage import VerifyReport, verify

RECORDED = "the accuracy is the one that the export recorded; it was not measured again"


def execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options.network, **asdict(FileFacts.from_arguments(options)))
    recorded = _certificate(opened, options) if options.check else None
    chosen_witnesses(options.witness)  # those of the certificate may be missing, not those asked for
    count = options.samples if recorded is None else recorded["samples"]
    samples = opened.samples(count, options.data, options.data_dir)
    with signs_of_life(), chosen_cluster(options.cluster) as cluster:
        report = verify(
            opened.network,
            samples,
            Verifying.from_arguments(options),
            folded=opened.folded,
            netx=opened.netx,
            assumptions=opened.assumptions,
            patience=options.patience,
            cluster=cluster,
            budget=None if options.stock else options.budget,
            witness=[*options.witness, *_recorded_witnesses(recorded)],
        )
    found = report.to_json()
    report = replace(report, fold=_recorded_fold(opened), accuracy=_with_recorded(report.accuracy, opened))
    data, checked = report.to_json(), None
    if recorded is not None:
        checked = check_certificate(recorded, found)
        data |= {"certificate": checked.to_json()}
    details = [verify_text(report)] if options.verbose else []
    if report.accuracy and not found["accuracy"]:
        details.append(RECORDED)
    passed = report.passed and (checked is None or checked.holds)
    return Outcome(
        data=data,
        text=Group(str(_summary(report, checked, opened)), *details),
        exit_code=0 if passed else 1,
    )


def _summary(
    report: VerifyReport, checked: CertificateCheck | None, opened: ExportFolder | NetworkFile
) -> Summary:
    """Return the verdict, which comprises the certificate, and where to read on."""
    found = report.summary
    if checked is not None and not checked.holds:
        found = replace(found, color="red", verdict=f"the certificate does not hold; {found.verdict}")
    path = opened.netx if isinstance(opened, NetworkFile) else opened.path
    page = "" if isinstance(opened, NetworkFile) else f"{path / REPORT_FILE}, or "
    return found.with_rows(
        certified="" if checked is None else "; ".join(map(str.strip, checked.lines())),
        next=report.remedy or f"python -m mpbn_deploy.fit {path} --target CHIP",
        report=f"{page}--verbose",
    )


def _recorded_fold(opened: ExportFolder | NetworkFile) -> FoldCheck | None:
    """Return what the export found when it compared the PyTorch model, which is not in the folder."""
    if isinstance(opened, NetworkFile):
        return None
    recorded = read_certificate(opened.path / VERIFY_FILE).get("fold")
    return None if recorded is None else FoldCheck.from_json(recorded)


def _with_recorded(accuracy: Accuracy | None, opened: ExportFolder | NetworkFile) -> Accuracy | None:
    """Add what the export tried to keep the accuracy; what it lost there counts where nothing is measured."""
    if isinstance(opened, NetworkFile) or not (accuracy is None or accuracy.lost):
        return accuracy
    recorded = read_certificate(opened.path / VERIFY_FILE).get("accuracy")
    if recorded is None:
        return accuracy
    try:
        before = Accuracy.from_json(recorded)
    except (KeyError, TypeError) as error:
        raise FormatError(f"{opened.path / VERIFY_FILE}: its accuracy is damaged. Export again.") from error
    if accuracy is None:
        return before if before.lost else None
    return replace(accuracy, tried=before.tried)


def _recorded_witnesses(recorded: dict[str, Any] | None) -> list[str]:
    """Return the witnesses that the certificate names, to ask them again."""
    names = [] if recorded is None else [comparison["execution"] for comparison in recorded["comparisons"]]
    return [key for key, witness in ASKED.items() if witness.name in names]


def _certificate(opened: ExportFolder | NetworkFile, options: argparse.Namespace) -> dict[str, Any]:
    """Return the folder's verify.json; raise OptionError if it does not apply to the given options."""
    if isinstance(opened, NetworkFile):
        raise OptionError(
            f"{opened.netx}: --check needs the certificate in an export folder, but this is a file. "
            "Give the folder, or drop --check."
        )
    data = opened.manifest["data"]
    if options.data is not None and dataset_name(options.data) != data:
        raise OptionError(
            f"--check with --data {options.data}: the certificate covers samples of {data}. Drop --data."
        )
    return read_certificate(opened.path / VERIFY_FILE)


# The printed report of `verify`.


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
