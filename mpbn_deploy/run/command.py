"""Execute `python -m mpbn_deploy.run`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..base import Outcome
from ..data import RANDOM
from ..execute.cluster import chosen_cluster
from ..formats.folder import open_network
from ..formats.options import FileFacts
from ..ir import Overflow, overflow_lines
from .stage import run


def execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options.network, **asdict(FileFacts.from_arguments(options)))
    samples = opened.samples(options.samples, options.data, options.data_dir)
    with chosen_cluster(options.cluster) as cluster:
        result = run(
            opened.network,
            samples,
            options.backend,
            stock=options.stock,
            netx=opened.netx,
            patience=options.patience,
            cluster=cluster,
            port=options.port,
        )
    return Outcome(data=result, text=_text(result, opened.class_names))


def _text(result: dict[str, Any], class_names: Sequence[str]) -> str:
    names = [class_names[p] if p < len(class_names) else str(p) for p in result["predictions"][:16]]
    more = " ..." if result["samples"] > len(names) else ""
    accuracy = "" if result["accuracy"] is None else f", accuracy {result['accuracy']:.2%}"
    rate = f"{result['samples_per_second']:.1f} samples per second"
    head = f"{result['backend']}: {_inputs(result)}{accuracy}, {rate}"
    overflows = {name: Overflow(**found) for name, found in result["overflows"].items()}
    return "\n".join([head, f"predictions: {' '.join(names)}{more}", *overflow_lines(overflows)])


def _inputs(result: dict[str, Any]) -> str:
    count, data = result["samples"], result["data"]
    return f"{count} random inputs" if data == RANDOM else f"{count} samples of {data}"
