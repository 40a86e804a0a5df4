"""The folder `fpga/`: the core, a network's memories, boards, a Makefile, and what a simulation must give."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from string import Template

import numpy as np

from ...base import Array, MissingPackageError, record
from ...ir import IntNetwork, Trace, as_steps
from .layout import core_tables
from .tables import Grid, Tables

HERE = Path(__file__).parent
FOLDER = "fpga"
SUFFIXES = (".v", ".cpp", ".pcf", ".lpf")
CORE = (
    "mpbn_network.v",
    "mpbn_core.v",
    "mpbn_scan.v",
    "mpbn_events.v",
    "mpbn_neuron.v",
    "mpbn_decay.v",
    "mpbn_memory.v",
)
FRONT = ("mpbn_front.v", "mpbn_uart.v")
FROM_FLASH = ("mpbn_loader.v", "mpbn_spram.v")
PIP = "pip install 'mpbn_deploy[fpga]'"
INSTALL = {
    "verilator": "apt-get install verilator",
    "iverilog": "apt-get install iverilog",
    "vvp": "apt-get install iverilog",
    **dict.fromkeys(("yosys", "nextpnr-ice40", "nextpnr-ecp5", "icepack", "ecppack"), PIP),
}
SIMULATED_NEURONS = 2**16  # neurons and steps of all samples that `make sim` compares


@record
class Board:
    """A board: its FPGA as nextpnr names it, the file of its pins, and how it is programmed."""

    family: str  # ice40 or ecp5
    device: str
    package: str
    pins: str
    program: str


_ICE = {"family": "ice40", "device": "--up5k", "package": "sg48"}
_ICEPROG = "iceprog top.bin && iceprog -o 128k weights.bin"
BOARDS = {
    "icebreaker": Board(**_ICE, pins="icebreaker.pcf", program=_ICEPROG),
    "upduino3": Board(**_ICE, pins="upduino3.pcf", program=_ICEPROG),
    "orangecrab": Board(
        family="ecp5",
        device="--25k",
        package="CSFBGA285",
        pins="orangecrab.lpf",
        program="dfu-util -D top.bit",
    ),
    "orangecrab-85": Board(
        family="ecp5",
        device="--85k",
        package="CSFBGA285",
        pins="orangecrab.lpf",
        program="dfu-util -D top.bit",
    ),
    "ulx3s-25": Board(
        family="ecp5",
        device="--25k",
        package="CABGA381",
        pins="ulx3s.lpf",
        program="openFPGALoader -b ulx3s top.bit",
    ),
    "ulx3s": Board(
        family="ecp5",
        device="--85k",
        package="CABGA381",
        pins="ulx3s.lpf",
        program="openFPGALoader -b ulx3s top.bit",
    ),
}


def boards_of(device: str) -> list[str]:
    """Return the boards with a device, up5k, 25k or 85k, the default first."""
    return [name for name, board in BOARDS.items() if board.device == f"--{device}"]


def core_files() -> dict[str, str]:
    """Return the text of the hand-written files: core, front, boards and benches."""
    paths = [
        path for folder in ("core", "front", "boards", "sim") for path in sorted((HERE / folder).iterdir())
    ]
    return {path.name: path.read_text(encoding="ascii") for path in paths if path.suffix in SUFFIXES}


def find_tool(name: str) -> str:
    """Return the path of a tool, on PATH or in this Python's environment; from pip it has the prefix yowasp-.

    Raises MissingPackageError with the command that installs it.
    """
    scripts = str(Path(sys.executable).parent)
    for candidate in (name, f"yowasp-{name}"):
        found = shutil.which(candidate) or shutil.which(candidate, path=scripts)
        if found is not None:
            return found
    raise MissingPackageError(f"{name} is not installed; {INSTALL[name]}.")


def write_fpga(
    folder: Path, network: IntNetwork, inputs: Array, trace: Trace, *, device: str, lanes: int, spram: bool
) -> Tables:
    """Write the folder; `trace` is what the reference computes for `inputs`, with spikes and voltages."""
    static = np.asarray(inputs).ndim == 1 + len(network.input.shape)
    tables = core_tables(network, lanes=lanes, static=static)
    count = sample_count(network, len(inputs))
    files = {
        **core_files(),
        **tables.files(spram=spram),
        "samples.txt": numbers_text(input_memory(network, inputs[:count], static=static)),
        "expected.txt": expected_text(network, tables, trace, count),
        "Makefile": makefile(device, spram=spram),
    }
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="ascii")
    if spram:
        (folder / "weights.bin").write_bytes(weight_bytes(tables))
    return tables


def sample_count(network: IntNetwork, available: int) -> int:
    """Return how many samples `make sim` compares: at least one."""
    neurons = network.timesteps * sum(population.size for population in network.layers)
    return max(1, min(available, SIMULATED_NEURONS // neurons))


def input_memory(network: IntNetwork, inputs: Array, *, static: bool) -> Array:
    """Return the input memory of each sample: [time step, row, column, channel]; static: one step."""
    steps = as_steps(inputs, network.input.shape, network.timesteps)
    steps = steps[:, :1] if static else steps
    if steps.ndim == 5:
        steps = np.moveaxis(steps, 2, 4)
    return steps.reshape(len(steps), -1).astype(np.int32)


def numbers_text(values: Array) -> str:
    return "".join(f"{value}\n" for value in values.ravel().tolist())


def expected_text(network: IntNetwork, tables: Tables, trace: Trace, count: int) -> str:
    """Return the lines that sim/bench.v prints, without cycles: voltages and spikes, then scores."""
    lines = []
    for sample in range(count):
        for number, steps in tables.schedule(network.timesteps):
            name, where = network.layers[number].name, tables.populations[number]
            states = [trace.voltages[name][sample], trace.spikes[name][sample].astype(np.int64)]
            pairs = zip(
                *(in_core_order(each[steps.start : steps.stop], where).tolist() for each in states),
                strict=True,
            )
            lines += [f"t {voltage} {spike}\n" for voltage, spike in pairs]
        last = tables.populations[-1]
        scores = in_core_order(np.asarray(trace.outputs[sample], np.int64)[None], last)
        lines += [f"s {score} 0\n" for score in scores.tolist()]
    return "".join(lines)


def in_core_order(values: Array, where: Grid) -> Array:
    """Sort [steps, *shape] as the core visits neurons: pixel, group, step, lane; padded with zeros."""
    steps = len(values)
    padded = np.zeros((steps, where.words * where.unit, where.height * where.width), np.int64)
    padded[:, : where.channels] = values.reshape(steps, where.channels, -1)
    lanes = padded.reshape(steps, where.words, where.unit, -1)
    return lanes.transpose(3, 1, 0, 2).ravel()


def weight_bytes(tables: Tables) -> bytes:
    """Return the rows of weights as a flash memory holds them, the first lane first."""
    size = tables.lanes * tables.numbers["WEIGHT_BITS"] // 8
    return b"".join(word.to_bytes(size, "little") for word in tables.weight_words())


def makefile(device: str, *, spram: bool) -> str:
    """Return the Makefile of a folder, with the pins and commands of every board that has the device."""
    names = boards_of(device)
    cases = "\n".join(
        f"{word} ($(BOARD),{name})\nPINS := {board.pins}\nPACKAGE := {board.package}\n"
        f"PROGRAM := {board.program}"
        for word, name, board in (
            ("ifeq" if k == 0 else "else ifeq", n, BOARDS[n]) for k, n in enumerate(names)
        )
    )
    family = BOARDS[names[0]].family
    sources = [*CORE, *FRONT, *(FROM_FLASH if spram else ())]
    template = Template((HERE / "sim" / "Makefile.template").read_text(encoding="ascii"))
    return template.substitute(
        boards=", ".join(names),
        default=names[0],
        cases=f"{cases}\nelse\n$$(error BOARD=$$(BOARD); allowed are {', '.join(names)})\nendif".replace(
            "$$", "$"
        ),
        sources=" ".join(sources),
        core=" ".join(CORE),
        device=device,
        family=family,
        pip=PIP,
        **_FLOWS[family],
    )


_FLOWS = {
    "ice40": {
        "synth": "synth_ice40 -dsp -abc9 -device u",
        "logic": "synth_ice40 -abc9 -device u",
        "models": "cells_sim.v",
        "more": "",
        "nextpnr": "nextpnr-ice40",
        "pins": "--pcf",
        "routed": "--asc top.routed",
        "pack": "icepack",
        "packed": "top.routed top.bin",
        "bitstream": "top.bin",
        "frequency": "24",
    },
    "ecp5": {
        "synth": "synth_ecp5 -abc9",
        "logic": "synth_ecp5 -nodsp -abc9",
        "models": "common_sim.vh",
        "more": "$(CELLS)/ccu2c_sim.vh",
        "nextpnr": "nextpnr-ecp5",
        "pins": "--lpf",
        "routed": "--textcfg top.routed",
        "pack": "ecppack",
        "packed": "--compress top.routed top.bit",
        "bitstream": "top.bit",
        "frequency": "75",
    },
}
