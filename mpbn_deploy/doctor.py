"""Check this machine's installation, and say how to fix what fails (`python -m mpbn_deploy.doctor`)."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from . import __version__
from .base import Command, MissingPackageError, Outcome, Report, main, record
from .execute import EXECUTORS
from .execute.outside import WITNESSES

OLDEST, NEWEST = (3, 10), (3, 13)  # Pythons that the tests run on


@record
class Component:
    """A part of the installation, how to test it, and how to fix it."""

    name: str
    needed: bool  # if it fails, no command but `doctor` works
    test: Callable[[], str]  # returns a version or a result, or raises
    fix: str
    adds: str | None = None  # what it is for, if its absence is no failure


@record
class Diagnosis(Report):
    """The result of testing a component."""

    JSON = "name works needed found mend=fix"  # JSON keys do not change

    name: str
    works: bool
    needed: bool  # false for optional parts
    found: str  # version, and what a trial did
    fix: str | None  # the command that repairs it
    absent: str | None = None  # what would be added by installing it, if it is no failure that it is not


def diagnose() -> list[Diagnosis]:
    """Test every component, also after one has failed."""
    return [_diagnose(component) for component in (*COMPONENTS, *_executors(), *_witnesses())]


def _diagnose(component: Component) -> Diagnosis:
    name, needed = component.name, component.needed
    try:
        found = component.test()
    except Exception as error:  # a broken installation may raise anything
        absent = component.adds if isinstance(error, MissingPackageError) else None
        reason = f"{type(error).__name__}: {error}".splitlines()[0].split("; ")[0]
        return Diagnosis(
            name=name,
            works=False,
            needed=needed,
            found="not installed" if absent else reason,
            fix=component.fix,
            absent=absent,
        )
    return Diagnosis(name=name, works=True, needed=needed, found=found, fix=None)


def _python() -> str:
    """Return the version; one that is newer than the tests may work."""
    version, tested = platform.python_version(), f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    if sys.version_info[:2] < OLDEST:
        raise RuntimeError(f"{version}; supported are {tested}")
    return version if sys.version_info[:2] <= NEWEST else f"{version}, newer than those tested ({tested})"


def _torch() -> str:
    import torch

    if torch.ones(2, 2).sum().item() != 4:
        raise RuntimeError("the sum of four ones is not four")
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


def _numba() -> str:
    from .nn import check_compiled

    return f"{check_compiled()}, compiled a norm"


def _hdf5() -> str:
    from .execute import one_neuron
    from .formats.netx import read_netx, write_netx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.net"
        write_netx(one_neuron(), path)
        populations = len(read_netx(path).populations)
    return f"{metadata.version('h5py')}, wrote and read {populations} populations"


INSTALL = "pip install --upgrade mpbn_deploy"
COMPONENTS = (
    Component(name="Python", needed=True, test=_python, fix="use Python 3.10, 3.11, 3.12 or 3.13"),
    Component(name="torch", needed=True, test=_torch, fix=INSTALL),
    Component(name="NIR", needed=True, test=_nir, fix=INSTALL),
    Component(name="h5py", needed=True, test=_hdf5, fix=INSTALL),
    Component(name="data", needed=True, test=_data, fix=INSTALL),
    Component(name="report", needed=True, test=_report, fix=INSTALL),
    Component(
        name="Numba", needed=False, test=_numba, fix="pip install 'numba>=0.60'", adds="faster training"
    ),
)


def _executors() -> list[Component]:
    """Return the executors that need packages of their own."""
    return [
        Component(name=executor.name, needed=False, test=executor.check, fix=executor.install)
        for executor in EXECUTORS.values()
        if executor.install is not None and not executor.requested
    ]


def _witnesses() -> list[Component]:
    """Return the simulators of others, which `verify --witness` compares."""
    return [
        Component(
            name=witness.name,
            needed=False,
            test=witness.check,
            fix=witness.install,
            adds="verify --witness",
        )
        for witness in WITNESSES.values()
    ]


def _text(diagnoses: list[Diagnosis]) -> RenderableType:
    table = Table(
        "", "works", "found", title=f"mpbn_deploy {__version__}", title_justify="left", box=SIMPLE_HEAD
    )
    for diagnosis in diagnoses:
        table.add_row(diagnosis.name, _answer(diagnosis), diagnosis.found)
    lines = [f"to fix {each.name}: {each.fix}" for each in diagnoses if each.fix and not each.absent]
    added = [f"to add {each.name} ({each.absent}): {each.fix}" for each in diagnoses if each.absent]
    return Group(table, *(lines or ["everything needed works"]), *added)


def _answer(diagnosis: Diagnosis) -> str:
    return "yes" if diagnosis.works else "no" if diagnosis.absent else "NO"


def _json(diagnoses: list[Diagnosis]) -> dict[str, Any]:
    return {
        "mpbn_deploy": __version__,
        "platform": platform.platform(),
        "works": all(diagnosis.works or diagnosis.absent for diagnosis in diagnoses),
        "checks": [diagnosis.to_json() for diagnosis in diagnoses],
    }


def _execute(options: argparse.Namespace) -> Outcome:
    diagnoses = diagnose()
    data = _json(diagnoses)
    return Outcome(data=data, text=_text(diagnoses), exit_code=0 if data["works"] else 1)


COMMAND = Command(
    name="doctor",
    summary="Check this machine's installation, and say how to fix what fails.",
    details=(
        "Runs a neuron in Lava and in each witness. Exit code 0: everything works. 1: something, needed or\n"
        "optional, fails; a witness, or Numba, that is not installed is no failure."
    ),
    add_arguments=lambda parser: None,
    load=lambda: _execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
