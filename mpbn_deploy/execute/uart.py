"""EXECUTOR: the core on an FPGA board, at a serial port.

The protocol is in formats/verilog/front/mpbn_front.v. The board must hold the same network: its identity, a
checksum of all memories, is compared before the first sample.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..base import Array, OptionError, SimulationError, record
from ..formats.verilog import Tables, core_tables, input_memory, obstacle as obstacle
from ..ir import IntNetwork, Trace, check_input_values
from .reference import ExecutionOptions

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


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
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
