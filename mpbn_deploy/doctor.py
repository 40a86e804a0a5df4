"""COMMAND: what of this machine works, and for what does not, the line to type."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from . import __version__
from .base import Command, Outcome, main, record
from .execute import EXECUTORS

OLDEST, NEWEST = (3, 10), (3, 12)


@record
class Check:
    """One thing that should work: how to find out, and how to mend it."""

    name: str
    needed: bool  # without it, nothing but `doctor` works
    works: Callable[[], str]  # gives a version or a result, or raises
    mend: str


@record
class Finding:
    """What a check found."""

    name: str
    works: bool
    needed: bool
    found: str
    mend: str | None


def examine() -> list[Finding]:
    """Run all checks; none of them stops another."""
    return [_examine(check) for check in (*CHECKS, *_executors())]


def _examine(check: Check) -> Finding:
    try:
        found = check.works()
    except Exception as error:  # a broken installation may fail in any way, and that is the finding
        reason = f"{type(error).__name__}: {error}".splitlines()[0].split("; ")[0]
        return Finding(name=check.name, works=False, needed=check.needed, found=reason, mend=check.mend)
    return Finding(name=check.name, works=True, needed=check.needed, found=found, mend=None)


def _python() -> str:
    version = platform.python_version()
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        raise RuntimeError(f"{version}; tried are {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}")
    return version


def _torch() -> str:
    import torch

    if torch.ones(2, 2).sum().item() != 4:
        raise RuntimeError("two by two ones do not make four")
    return f"{torch.__version__}, {torch.get_num_threads()} threads"


def _data() -> str:
    from .data import load_dataset

    return f"scikit-learn {metadata.version('scikit-learn')}, {len(load_dataset('digits').train)} digits"


def _report() -> str:
    import jinja2
    from matplotlib.figure import Figure

    Figure().add_subplot()
    return f"matplotlib {metadata.version('matplotlib')}, jinja2 {jinja2.__version__}"


def _nir() -> str:
    import nir

    graph = nir.NIRGraph.from_list(nir.Linear(weight=np.ones((1, 1))))
    return f"{metadata.version('nir')}, a graph of {len(graph.nodes)} nodes"


def _hdf5() -> str:
    from .execute import one_neuron
    from .formats.netx import read_netx, write_netx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.net"
        write_netx(one_neuron(), path)
        populations = len(read_netx(path).populations)
    return f"{metadata.version('h5py')}, wrote and read {populations} populations"


INSTALL = "pip install --upgrade mpbn_deploy"
CHECKS = (
    Check(name="Python", needed=True, works=_python, mend="use Python 3.10, 3.11 or 3.12"),
    Check(name="torch", needed=True, works=_torch, mend=INSTALL),
    Check(name="NIR", needed=True, works=_nir, mend=INSTALL),
    Check(name="h5py", needed=True, works=_hdf5, mend=INSTALL),
    Check(name="data", needed=True, works=_data, mend=INSTALL),
    Check(name="report", needed=True, works=_report, mend=INSTALL),
)


def _executors() -> list[Check]:
    """Return a check for each executor that needs packages of its own."""
    return [
        Check(name=executor.name, needed=False, works=executor.check, mend=executor.install)
        for executor in EXECUTORS.values()
        if executor.install is not None
    ]


def _text(findings: list[Finding]) -> RenderableType:
    table = Table(
        "", "works", "found", title=f"mpbn_deploy {__version__}", title_justify="left", box=SIMPLE_HEAD
    )
    for finding in findings:
        table.add_row(finding.name, "yes" if finding.works else "NO", finding.found)
    lines = [f"to mend {f.name}: {f.mend}" for f in findings if f.mend]
    return Group(table, *(lines or ["everything works"]))


def _json(findings: list[Finding]) -> dict[str, Any]:
    return {
        "mpbn_deploy": __version__,
        "platform": platform.platform(),
        "works": all(finding.works for finding in findings),
        "checks": [asdict(finding) for finding in findings],
    }


def _execute(options: argparse.Namespace) -> Outcome:
    findings = examine()
    broken = any(not finding.works for finding in findings)
    return Outcome(data=_json(findings), text=_text(findings), exit_code=1 if broken else 0)


COMMAND = Command(
    name="doctor",
    summary="Say what of this machine works, and how to mend what does not.",
    details="Runs a real neuron in Lava. Exit code 0: all works. 1: something optional or needed does not.",
    add_arguments=lambda parser: None,
    load=lambda: _execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
