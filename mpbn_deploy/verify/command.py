"""What `python -m mpbn_deploy.verify` does with its options."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Group

from ..base import (
    OptionError,
    Outcome,
)
from ..execute.cluster import chosen_cluster
from ..formats.folder import VERIFY_FILE, ExportFolder, NetworkFile, open_network
from .certificate import check, read_certificate
from .stage import verify
from .text import verify_text


def execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options)
    told = _certificate(opened, options) if options.check else None
    count = options.samples if told is None else told["samples"]
    samples = opened.samples(count, options.data, options.data_dir)
    with chosen_cluster(options.cluster) as cluster:
        report = verify(
            opened.network,
            samples.inputs,
            folded=opened.folded,
            netx=opened.netx,
            labels=samples.labels,
            test=samples.test,
            data_name=samples.name,
            stock=options.stock,
            patience=options.patience,
            cluster=cluster,
        )
    data, text = report.to_json(), verify_text(report)
    if told is None:
        return Outcome(data=data, text=text, exit_code=0 if report.passed else 1)
    checked = check(told, data)
    return Outcome(
        data={**data, "certificate": checked.to_json()},
        text=Group(text, *checked.lines()),
        exit_code=0 if report.passed and checked.holds else 1,
    )


def _certificate(opened: ExportFolder | NetworkFile, options: argparse.Namespace) -> dict[str, Any]:
    """What the folder's verify.json says, to be found again on the samples that it was found on."""
    if isinstance(opened, NetworkFile):
        raise OptionError(
            f"{opened.netx}: --check reads the certificate of an export folder; this is a file."
        )
    data = opened.manifest["data"]
    if options.data not in (None, data):
        raise OptionError(f"--check with --data {options.data}: the certificate is about samples of {data}.")
    return read_certificate(opened.path / VERIFY_FILE)
