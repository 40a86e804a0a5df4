"""The executor protocol, and the dict of all executors. Reading the dict imports none of them.

To add an executor, write one module and add one line to `EXECUTORS`; `run --backend`, `verify` and `doctor`
use every entry of the dict. The module defines

    run(network, inputs, options) -> Trace    takes the same inputs as the reference simulator
    version() -> str                          if verify runs it on request: raises MissingPackageError
    obstacle(network) -> str | None           a feature of the network it does not support (optional)
    check() -> str                            runs a small test for doctor, returns the version (optional)
    opened(network, samples, options)         context manager: `run`, prepared once for several parts of the
                                              samples, of which `samples` are run at once (optional)

and imports its own libraries inside these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from .lava import INSTALL_LAVA

if TYPE_CHECKING:
    from ..base import Array
    from ..ir import IntNetwork, Trace
    from .reference import ExecutionOptions

    Run = Callable[[Array], Trace]


class Executor(Protocol):
    """An implementation of integer networks that must give the same integers as the reference.

    `obstacle` looks at the network only. If a package is missing, `run` raises a `MissingPackageError` with
    the install command, because `run` may be called by a worker on another machine.
    """

    @property
    def name(self) -> str:
        """The name that reports print."""

    @property
    def parts(self) -> str:
        """The plural noun that progress bars count."""

    def obstacle(self, network: IntNetwork) -> str | None:
        """Return a feature of the network that is not supported, or None if there is none."""

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        """Execute a network on inputs [samples, timesteps, *shape] or [samples, *shape]."""

    def opened(
        self, network: IntNetwork, samples: int, options: ExecutionOptions
    ) -> AbstractContextManager[Run]:
        """Prepare `run` once, to run on several parts of the samples, `samples` at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExecutor:
    """An executor whose module (or `module:name`) is imported on first use."""

    name: str
    parts: str
    module: str
    author: str = "this package"  # of the code that computes
    install: str | None = None  # command that installs its packages; doctor then checks it
    slow: bool = False  # verify runs it only where slow executors are asked for
    reads_file: bool = False  # verify runs it only if there is a file network.net
    requested: bool = False  # verify runs it only if --witness names it; doctor does not
    on_board: bool = False  # only `run` uses it, with --port
    chip: str | None = None  # whose neurons it knows, "loihi" or "xylo"; None: those of both

    def obstacle(self, network: IntNetwork) -> str | None:
        if self.chip not in (None, chip_of(network)):
            return f"its neurons are those of {chip_of(network).capitalize()}"
        found = getattr(self._imported(), "obstacle", None)
        return None if found is None else found(network)

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        trace: Trace = self._imported().run(network, inputs, options)
        return trace

    def opened(
        self, network: IntNetwork, samples: int, options: ExecutionOptions
    ) -> AbstractContextManager[Run]:
        """Prepare `run` once, to run on several parts of the samples, `samples` at once."""
        found = getattr(self._imported(), "opened", None)
        if found is None:
            return nullcontext(lambda inputs: self.run(network, inputs, options))
        prepared: AbstractContextManager[Run] = found(network, samples, options)
        return prepared

    def version(self) -> str:
        """Return the installed version, of an executor that is `requested`; raise if there is none."""
        return str(self._imported().version())

    def check(self) -> str:
        """Run a small test on this machine and return a line for doctor; raise if it fails."""
        found = getattr(self._imported(), "check", None)
        if found is not None:
            return str(found())
        from .reference import check_one_neuron

        return check_one_neuron(self.name, self.run)

    def _imported(self) -> Any:
        module, _, name = self.module.partition(":")
        return getattr(import_module(module), name) if name else import_module(module)


def chip_of(network: IntNetwork) -> str:
    """Return the family of chips whose neurons a network has: "loihi" or "xylo"."""
    from ..ir import shift_rules

    return "loihi" if shift_rules(network) is None else "xylo"


LONG_RUN = 1000  # samples; the choice between executors pays then
TRIED = 64  # of them
AUTO = "auto"  # the fastest executor that runs a network on this machine
_HERE = __package__
EXECUTORS: dict[str, ListedExecutor] = {
    "reference": ListedExecutor(name="reference", parts="chunks of samples", module=f"{_HERE}.reference"),
    "emulator": ListedExecutor(name="emulator", parts="chunks of samples", module=f"{_HERE}.emulator"),
    "c": ListedExecutor(name="C", parts="chunks of samples", module=f"{_HERE}.c", chip="loihi"),
    "lava": ListedExecutor(
        name="Lava (our models)",
        parts="blocks of steps",
        module=f"{_HERE}.lava.session:OURS",
        author="this package, run by Lava",
        install=INSTALL_LAVA,
        chip="loihi",
    ),
    "lava-stock": ListedExecutor(
        name="Lava's own models",
        parts="blocks of steps",
        module=f"{_HERE}.lava.session:STOCK",
        author="Intel, in Lava",
        slow=True,
        chip="loihi",
    ),
    "netx": ListedExecutor(
        name="lava-dl netx",
        parts="samples",
        module=f"{_HERE}.lava.session:NETX",
        author="Intel, in lava-dl and Lava",
        install=INSTALL_LAVA,
        slow=True,
        reads_file=True,
        chip="loihi",
    ),
    "xylosim": ListedExecutor(
        name="xylosim",
        parts="samples",
        module=f"{_HERE}.outside.xylosim:WHOLE",
        author="SynSense, the maker of Xylo",  # doctor checks it as a witness
        chip="xylo",
    ),
    "verilator": ListedExecutor(
        name="Verilog core (Verilator)",
        parts="chunks of samples",
        module=f"{_HERE}.verilog",
        author="this package, simulated by Verilator",
        install="apt-get install verilator",
        requested=True,
    ),
    "uart": ListedExecutor(
        name="FPGA at a serial port",
        parts="samples",
        module=f"{_HERE}.verilog:ON_BOARD",
        author="this package, on an FPGA",
        on_board=True,
    ),
}


def fastest(network: IntNetwork, inputs: Array | None = None) -> str:
    """Return the fastest executor of a network: C where there is a compiler, else the emulator.

    Where many neurons fire, the dense products of the emulator may be faster than C, whose work follows
    spikes. So before a long run, both take turns on some of its inputs.
    """
    from .c import compiler

    if compiler() is None or EXECUTORS["c"].obstacle(network) is not None:
        return "emulator"
    if inputs is None or len(inputs) < LONG_RUN:
        return "c"
    return min(("c", "emulator"), key=lambda name: _seconds(EXECUTORS[name], network, inputs[:TRIED]))


def _seconds(executor: ListedExecutor, network: IntNetwork, inputs: Array) -> float:
    """Return how long an executor takes when it is ready: the shorter of two runs."""
    from .reference import ExecutionOptions

    times = []
    with executor.opened(network, len(inputs), ExecutionOptions(keep_trace=False)) as run:
        run(inputs)
        for _ in range(2):
            started = perf_counter()
            run(inputs)
            times.append(perf_counter() - started)
    return min(times)
