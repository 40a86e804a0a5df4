"""Execute `python -m mpbn_deploy.verify`."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import Any

from rich.console import Group

from ..base import FormatError, OptionError, Outcome, Summary, signs_of_life
from ..data import dataset_name
from ..execute.cluster import chosen_cluster
from ..execute.outside import ASKED, chosen_witnesses
from ..formats.folder import REPORT_FILE, VERIFY_FILE, ExportFolder, NetworkFile, open_network
from ..formats.options import FileFacts, Verifying
from .accuracy import Accuracy
from .certificate import CertificateCheck, check_certificate, read_certificate
from .folding import FoldCheck
from .stage import VerifyReport, verify
from .text import verify_text

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
