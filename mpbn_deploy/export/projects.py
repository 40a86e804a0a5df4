"""Write what a network is built from outside of Python: a C program."""

from __future__ import annotations

from pathlib import Path

from ..base import announce
from ..data import Samples
from ..execute.reference import simulate
from ..formats.c import FOLDER, plan_program, sample_count, write_project
from ..formats.options import ExportOptions
from ..hardware import HardwareProfile
from ..ir import IntNetwork


def check_projects(network: IntNetwork, profile: HardwareProfile, options: ExportOptions) -> None:
    """Raise if a network cannot be written as asked, before anything is written."""
    if _emits_c(profile, options):
        plan_program(network)


def write_projects(
    staging: Path, network: IntNetwork, profile: HardwareProfile, samples: Samples, options: ExportOptions
) -> tuple[str, ...]:
    """Write the folders that are asked for, or that the target needs; return their names."""
    written = []
    if _emits_c(profile, options):
        announce(f"write: {FOLDER}/, the network as C")
        inputs = samples.inputs[: sample_count(network)]
        write_project(staging / FOLDER, network, inputs, simulate(network, inputs), options.c_prefix)
        written.append(f"{FOLDER}/")
    return tuple(written)


def _emits_c(profile: HardwareProfile, options: ExportOptions) -> bool:
    """Whether a C program is part of the export: on request, and for targets that run one."""
    return "c" in options.emit or profile.placement == "program"
