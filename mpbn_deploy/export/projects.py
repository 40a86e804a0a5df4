"""Write what a network is built from outside of Python: C, a core in Verilog, the numbers of Rockpool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base import announce
from ..data import Samples
from ..execute.reference import simulate
from ..fit import uses_single_port
from ..formats import c, verilog, xylo
from ..formats.options import ExportOptions
from ..hardware import HardwareProfile
from ..ir import IntNetwork
from ..quantize import shifts_decays

# Targets with a flow of open tools: the device.
FPGAS = {"ice40-up5k": "up5k", "ecp5-25k": "25k", "ecp5-85k": "85k"}


def check_projects(network: IntNetwork, profile: HardwareProfile, options: ExportOptions) -> None:
    """Raise if a network cannot be written as asked, before anything is written."""
    if _emits_c(profile, options):
        c.plan_program(network)
    if shifts_decays(profile):
        xylo.specification(network)


def write_projects(
    staging: Path,
    network: IntNetwork,
    profile: HardwareProfile,
    samples: Samples,
    options: ExportOptions,
    class_names: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write the folders and files that are asked for, or that the target needs; return their names."""
    written: list[str] = []
    if _emits_c(profile, options):
        announce(f"write: {c.FOLDER}/, the network as C")
        inputs = samples.inputs[: c.sample_count(network)]
        c.write_project(staging / c.FOLDER, network, inputs, simulate(network, inputs), options.c_prefix)
        written.append(f"{c.FOLDER}/")
    if profile.name in FPGAS and verilog.obstacle(network) is None:  # which fit reports
        announce(f"write: {verilog.FOLDER}/, the core in Verilog with the network's memories")
        _write_fpga(staging / verilog.FOLDER, network, profile, samples)
        written.append(f"{verilog.FOLDER}/")
    if shifts_decays(profile):
        announce(f"write: {', '.join(xylo.XYLO_FILES)}, for Rockpool")
        xylo.write_xylo(network, staging, profile.name, class_names)
        written.extend(xylo.XYLO_FILES)
    return tuple(written)


def _emits_c(profile: HardwareProfile, options: ExportOptions) -> bool:
    """Whether a C program is part of the export: on request, and for targets that run one."""
    return "c" in options.emit or profile.placement == "program"


def _write_fpga(folder: Path, network: IntNetwork, profile: HardwareProfile, samples: Samples) -> None:
    lanes = profile.value("fabric.lanes")
    inputs = samples.inputs[: verilog.sample_count(network, len(samples.inputs))]
    verilog.write_fpga(
        folder,
        network,
        inputs,
        simulate(network, inputs),
        device=FPGAS[profile.name],
        lanes=lanes,
        spram=uses_single_port(verilog.core_tables(network, lanes=lanes), profile),
    )
