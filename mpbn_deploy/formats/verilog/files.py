"""The files of the folder `fpga/`, and where the tools that use them are."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ...base import MissingPackageError

HERE = Path(__file__).parent
SOURCES = ("mpbn_network.v", "mpbn_core.v", "mpbn_scan.v", "mpbn_events.v", "mpbn_neuron.v", "mpbn_decay.v", "mpbn_memory.v")
INSTALL = {
    "verilator": "apt-get install verilator",
    "iverilog": "apt-get install iverilog",
    "yosys": "pip install 'mpbn_deploy[fpga]'",
    "nextpnr-ice40": "pip install 'mpbn_deploy[fpga]'",
    "nextpnr-ecp5": "pip install 'mpbn_deploy[fpga]'",
}


def core_files() -> dict[str, str]:
    """Return the text of the hand-written files: the core and its benches."""
    paths = (*(HERE / "core").glob("*.v"), *(HERE / "sim").glob("bench.*"))
    return {path.name: path.read_text(encoding="ascii") for path in sorted(paths)}


def find_tool(name: str) -> str:
    """Return the path of a tool, on PATH or in this Python's environment; its pip name has the prefix yowasp-.

    Raises MissingPackageError with the command that installs it.
    """
    scripts = str(Path(sys.executable).parent)
    for candidate in (name, f"yowasp-{name}"):
        found = shutil.which(candidate) or shutil.which(candidate, path=scripts)
        if found is not None:
            return found
    raise MissingPackageError(f"{name} is not installed; {INSTALL[name]}.")
