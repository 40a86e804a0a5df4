"""EXECUTOR: the Verilog core in a simulator of hardware, Verilator or Icarus Verilog.

Verilator compiles the core to C++, once per network, and runs millions of cycles per second. Icarus Verilog
starts at once and is slow; it also simulates a synthesized netlist. Both run the files that `export` writes.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from ..base import Array, OptionError, SimulationError, record
from ..formats.verilog import (
    CORE,
    FRONT,
    Tables,
    core_files,
    core_tables,
    find_tool,
    input_memory,
    obstacle as obstacle,
)
from ..ir import IntNetwork, Trace, check_input_values
from .reference import ExecutionOptions, chunks, join_traces

Run = Callable[[Array], Trace]
Simulator = Literal["verilator", "iverilog"]
CLOCKS = 4  # cycles of a bit of a simulated serial port
SECONDS = 3600.0  # more than any simulation should take
TAIL = 800  # characters of a tool's last words, for messages


@record
class Answer:
    """Outputs as the reference has them, the cycles of each sample, and a trace if requested."""

    outputs: Array
    cycles: Array
    spikes: dict[str, Array]
    voltages: dict[str, Array]


@record
class Simulation:
    """A core that has been built in a folder, for inputs that are static or given for each time step."""

    network: IntNetwork
    tables: Tables
    folder: Path
    simulator: Simulator
    static: bool

    def run(self, inputs: Array, *, trace: bool = True) -> Answer:
        """Run samples [samples, timesteps, *shape] or [samples, *shape]."""
        check_input_values(self.network, np.asarray(inputs), fractions=False)
        values = input_memory(self.network, inputs, static=self.static)
        run = self._run_verilator if self.simulator == "verilator" else self._run_icarus
        answers, traced = run(values, trace)
        cycles, scores = answers[:, 0], answers[:, 1:]
        last = self.tables.populations[-1]
        pixels = scores.reshape(len(scores), last.height * last.width, -1)[:, :, : last.channels]
        outputs = pixels.swapaxes(1, 2).reshape(len(scores), *self.network.output.shape)
        spikes, voltages = self._traces(traced) if trace else ({}, {})
        return Answer(outputs=outputs, cycles=cycles, spikes=spikes, voltages=voltages)

    def _run_verilator(self, values: Array, trace: bool) -> tuple[Array, Array]:
        numbers = self.tables.numbers
        values.tofile(self.folder / "samples.bin")
        sizes = [str(numbers[name]) for name in ("INPUTS", "OUTPUTS", "STATE_BITS")]
        files = ["samples.bin", "answers.bin", *(["trace.bin"] if trace else [])]
        call(["obj_dir/Vmpbn_network", *sizes, *files], self.folder)
        answers = np.fromfile(self.folder / "answers.bin", np.int32).reshape(len(values), -1).astype(np.int64)
        traced = (
            np.fromfile(self.folder / "trace.bin", np.int32).astype(np.int64)
            if trace
            else np.zeros(0, np.int64)
        )
        return answers, np.stack([traced >> 1, traced & 1], axis=-1).reshape(len(values), -1, 2)

    def _run_icarus(self, values: Array, trace: bool) -> tuple[Array, Array]:
        (self.folder / "samples.txt").write_text("\n".join(map(str, values.ravel().tolist())))
        words = [
            "vvp",
            "bench.vvp",
            "+samples=samples.txt",
            "+answers=answers.txt",
            *(["+trace"] if trace else []),
        ]
        call(words, self.folder)
        lines = [line.split() for line in (self.folder / "answers.txt").read_text().splitlines()]
        if any(not line[1].lstrip("-").isdigit() for line in lines):
            raise SimulationError("Icarus Verilog: a number of the core is undefined (x).")
        answers = np.array([int(line[1]) for line in lines if line[0] in "cs"], np.int64)
        traced = np.array([line[1:] for line in lines if line[0] == "t"], np.int64)
        return answers.reshape(len(values), -1), traced.reshape(len(values), -1, 2)

    def _traces(self, traced: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Sort [samples, neurons and steps in the order of the core, (voltage, spike)] by population."""
        samples, steps = len(traced), self.network.timesteps
        states = {p.name: np.zeros((samples, steps, p.size, 2), np.int64) for p in self.network.layers}
        at = 0
        for number, span in self.tables.schedule(steps):
            where, population = self.tables.populations[number], self.network.layers[number]
            shape = (samples, where.height * where.width, where.words, len(span), where.unit, 2)
            size = int(np.prod(shape[1:5]))
            part = traced[:, at : at + size].reshape(shape).transpose(0, 3, 2, 4, 1, 5)
            channels = part.reshape(samples, len(span), where.words * where.unit, -1, 2)[
                :, :, : where.channels
            ]
            states[population.name][:, span.start : span.stop] = channels.reshape(samples, len(span), -1, 2)
            at += size
        shapes = {p.name: (samples, steps, *p.shape) for p in self.network.layers}
        return (
            {name: found[..., 1].reshape(shapes[name]).astype(bool) for name, found in states.items()},
            {name: found[..., 0].reshape(shapes[name]) for name, found in states.items()},
        )


def build(
    network: IntNetwork,
    folder: Path,
    simulator: Simulator = "verilator",
    *,
    lanes: int = 8,
    static: bool = True,
) -> Simulation:
    """Write a network's files and build the simulation."""
    found = core_tables(network, lanes=lanes, static=static)
    for name, text in {**core_files(), **found.files()}.items():
        (folder / name).write_text(text, encoding="ascii")
    if simulator == "verilator":
        flags = f"-O2 -DMPBN_VALUE_BITS={found.numbers['VALUE_BITS']}"
        options = [
            "--cc",
            "--exe",
            "--build",
            "-O3",
            "-Wall",
            "--language",
            "1364-2005",
            "--top-module",
            "mpbn_network",
        ]
        call([find_tool("verilator"), *options, "-CFLAGS", flags, *CORE, "bench.cpp"], folder)
    else:
        call([find_tool("iverilog"), "-g2005", "-o", "bench.vvp", "bench.v", *CORE], folder)
    return Simulation(network=network, tables=found, folder=folder, simulator=simulator, static=static)


@contextmanager
def simulated_board(
    network: IntNetwork, folder: Path, *, lanes: int = 8, static: bool = True
) -> Iterator[str]:
    """Build the core with its serial front in Verilator, run it, and yield the name of its serial port."""
    found = core_tables(network, lanes=lanes, static=static)
    for name, text in {**core_files(), **found.files()}.items():
        (folder / name).write_text(text, encoding="ascii")
    options = ["--cc", "--exe", "--build", "-O3", "-Wall", "--language", "1364-2005", f"-GCLOCKS={CLOCKS}"]
    sources = [*CORE, *FRONT, "board.cpp"]
    call([find_tool("verilator"), *options, "--top-module", "mpbn_front", "-CFLAGS", "-O1", *sources], folder)
    words = [str(folder / "obj_dir" / "Vmpbn_front"), str(CLOCKS)]
    with subprocess.Popen(
        words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as board:
        assert board.stdin is not None and board.stdout is not None
        yield board.stdout.readline().strip()
        board.stdin.close()  # ends the simulation


def call(words: Sequence[str], folder: Path) -> str:
    """Run a tool in a folder and return what it prints; raise SimulationError if it fails."""
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise SimulationError(f"{Path(words[0]).name} did not end within {SECONDS:.0f} s.") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-TAIL:]
        raise SimulationError(f"{Path(words[0]).name} failed with exit code {done.returncode}:\n{said}")
    return done.stdout


# ---- as an executor ---------------------------------------------------------------------------


def version() -> str:
    """Return the version of Verilator; raise MissingPackageError if it is not installed."""
    return call([find_tool("verilator"), "--version"], Path.cwd()).strip()


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    with opened(network, len(inputs), options) as prepared:
        return prepared(inputs)


@contextmanager
def opened(network: IntNetwork, samples: int, options: ExecutionOptions) -> Iterator[Run]:
    """Build the simulation when the first samples arrive, once for each kind of input."""
    with tempfile.TemporaryDirectory(prefix="mpbn_verilog_") as name:
        built: dict[bool, Simulation] = {}

        def prepared(inputs: Array) -> Trace:
            static = np.asarray(inputs).ndim == 1 + len(network.input.shape)
            if static not in built:
                folder = Path(name) / ("static" if static else "steps")
                folder.mkdir()
                built[static] = build(network, folder, static=static)
            parts = [_trace(built[static], inputs[part], options) for part in chunks(network, len(inputs))]
            return join_traces(parts)

        yield prepared


def _trace(simulation: Simulation, inputs: Array, options: ExecutionOptions) -> Trace:
    answer = simulation.run(inputs, trace=options.keep_trace)
    return Trace(spikes=answer.spikes, voltages=answer.voltages, outputs=answer.outputs)


# EXECUTOR: the core on an FPGA board, at a serial port.
#
# The protocol is in formats/verilog/front/mpbn_front.v. The board must hold the same network: its identity, a
# checksum of all memories, is compared before the first sample.


BAUD = 115_200
PATIENCE = 10.0  # seconds without a byte, after which a board counts as silent
LANES = (8, 16, 4)  # of the cores that our targets hold


@record
class Reply:
    """A board's answer to one sample."""

    predicted: int
    cycles: int
    scores: Array


class Line:
    """A serial port, raw, at 115,200 baud."""

    def __init__(self, port: str, patience: float = PATIENCE) -> None:
        if sys.platform == "win32":
            raise OptionError("--backend uart needs Linux or macOS: it uses their terminals.")
        import termios
        import tty

        self.port, self.patience = port, patience
        try:
            self.file = os.open(port, os.O_RDWR | os.O_NOCTTY)
            tty.setraw(self.file)
            settings = termios.tcgetattr(self.file)
            settings[4] = settings[5] = termios.B115200
            termios.tcsetattr(self.file, termios.TCSANOW, settings)
            termios.tcflush(self.file, termios.TCIOFLUSH)
        except (OSError, termios.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise OptionError(f"--port {port}: cannot be opened as a serial port ({reason}).") from error

    def close(self) -> None:
        os.close(self.file)

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.file, data) :]

    def receive(self, count: int) -> bytes:
        """Return so many bytes; raise SimulationError if the board is silent for too long."""
        found, last = b"", time.monotonic()
        while len(found) < count:
            ready, _, _ = select.select(
                [self.file], [], [], max(0.0, last + self.patience - time.monotonic())
            )
            part = os.read(self.file, count - len(found)) if ready else b""
            if not part:
                raise SimulationError(
                    f"{self.port}: no answer within {self.patience:g} s ({len(found)} of {count} bytes). "
                    "Is the board programmed with this export (make prog), and is this its port?"
                )
            found, last = found + part, time.monotonic()
        return found

    def ask(self, command: bytes, sign: bytes, count: int) -> bytes:
        """Send a command and return the bytes after the sign that begins its answer."""
        self.send(command)
        if (first := self.receive(1)) != sign:
            raise SimulationError(
                f"{self.port}: answered {first!r}, expected {sign!r}; reset the board and try again."
            )
        return self.receive(count)


class Board:
    """A board that holds the core with a network."""

    def __init__(self, network: IntNetwork, line: Line, *, static: bool = True) -> None:
        self.network, self.line, self.static = network, line, static
        identity = int.from_bytes(line.ask(b"?", b"M", 3), "little")
        possible = {lanes: core_tables(network, lanes=lanes, static=static) for lanes in LANES}
        found = [tables for tables in possible.values() if tables.identity == identity]
        if not found:
            raise SimulationError(
                f"{line.port}: the board holds another network (identity {identity:06x}); "
                "program it with this export: make prog"
            )
        self.tables: Tables = found[0]

    def classify(self, values: Array) -> Reply:
        """Run one sample, given as its input memory."""
        scores = self.tables.numbers["SCORES"]
        data = self.line.ask(b"I" + values.astype("<i2").tobytes(), b"A", 5 + 4 * scores)
        return Reply(
            cycles=int.from_bytes(data[:3], "little"),
            predicted=int.from_bytes(data[3:5], "little"),
            scores=np.frombuffer(data[5:], "<i4").astype(np.int64),
        )

    def spikes(self) -> dict[str, Array]:
        """Return the spikes of the last sample, [timesteps, *shape], of every population that fires."""
        numbers, lanes = self.tables.numbers, self.tables.lanes
        size = -(-lanes // 8)
        data = np.frombuffer(self.line.ask(b"S", b"S", size * numbers["SPIKE_WORDS"]), np.uint8).reshape(
            -1, size
        )
        bits = np.unpackbits(data, axis=1, bitorder="little")[:, :lanes]
        found = {}
        for layer, where, population in zip(
            self.tables.layers, self.tables.populations, self.network.layers, strict=True
        ):
            if layer["fires"]:
                words = bits[where.base : where.base + self.network.timesteps * where.size]
                channels = words.reshape(self.network.timesteps, where.height * where.width, -1)[
                    :, :, : where.channels
                ]
                whole = channels.swapaxes(1, 2).reshape(self.network.timesteps, *population.shape)
                found[population.name] = whole.astype(bool)
        return found

    def outputs(self, scores: Array) -> Array:
        """Return scores in the shape of the output; a map has them pixel by pixel."""
        last = self.tables.populations[-1]
        pixels = scores.reshape(last.height * last.width, -1)[:, : last.channels]
        return pixels.T.reshape(self.network.output.shape)


@contextmanager
def connected(network: IntNetwork, port: str | None, *, static: bool = True) -> Iterator[Board]:
    if port is None:
        raise OptionError(
            "--backend uart needs the serial port of the board: add --port, such as --port /dev/ttyUSB1."
        )
    line = Line(port)
    try:
        yield Board(network, line, static=static)
    finally:
        line.close()


def run_on_board(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    """Send samples one by one; the trace holds outputs only."""
    check_input_values(network, np.asarray(inputs), fractions=False)
    static = np.asarray(inputs).ndim == 1 + len(network.input.shape)
    with connected(network, options.port, static=static) as board:
        memory = input_memory(network, inputs, static=static)
        outputs = [
            board.outputs(board.classify(memory[index]).scores)
            for index in options.progress(range(len(memory)))
        ]
    return Trace(spikes={}, voltages={}, outputs=np.stack(outputs))


class _OnBoard:
    """EXECUTOR: the core on an FPGA at a serial port."""

    run = staticmethod(run_on_board)
    obstacle = staticmethod(obstacle)


ON_BOARD = _OnBoard()
