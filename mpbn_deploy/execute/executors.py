"""The executor protocol, and the dict of all executors, which is read without importing any of them.

To add an executor, write one module and add one line to `EXECUTORS`; `run --backend`, `verify` and `doctor`
take what the dict holds. The module defines

    run(network, inputs, options) -> Trace    inputs as for the reference simulator
    obstacle(network) -> str | None           what of the network it cannot express (optional)
    check() -> str                            for doctor: what is installed, tried out (optional)

and imports libraries of its own when one of these is called, not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from .lava.compat import INSTALL_LAVA

if TYPE_CHECKING:
    from ..base import Array
    from ..ir import IntNetwork, Trace
    from .options import ExecutionOptions


class Executor(Protocol):
    """A way to execute an integer network, whose integers must be those of the reference.

    `obstacle` is about the network alone. A missing package is a `MissingPackageError` raised by `run`,
    with the line to install it: the process that runs may be a worker on another machine.
    """

    @property
    def name(self) -> str:
        """As reports show it."""

    @property
    def parts(self) -> str:
        """What progress counts."""

    def obstacle(self, network: IntNetwork) -> str | None:
        """Return what of a network it cannot express; None where nothing stands in its way."""

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        """Execute a network on inputs [samples, timesteps, *shape], or [samples, *shape]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedExecutor:
    """An executor in a module of its own, which is imported when it is first needed."""

    name: str
    parts: str
    module: str
    install: str | None = None  # the line to type, where it needs packages of its own: doctor tries it
    slow: bool = False  # verify runs it only on request
    reads_file: bool = False  # verify runs it only where there is a file network.net

    def obstacle(self, network: IntNetwork) -> str | None:
        found = getattr(self._imported(), "obstacle", None)
        return None if found is None else found(network)

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        trace: Trace = self._imported().run(network, inputs, options)
        return trace

    def check(self) -> str:
        """Try it out on this machine; return what was found, or raise what is wrong."""
        found = getattr(self._imported(), "check", None)
        if found is not None:
            return str(found())
        from .trial import one_neuron_fires

        return one_neuron_fires(self.name, self.run)

    def _imported(self) -> Any:
        return import_module(self.module)


_HERE = __package__
EXECUTORS: dict[str, ListedExecutor] = {
    "reference": ListedExecutor(name="reference", parts="chunks of samples", module=f"{_HERE}.reference"),
    "emulator": ListedExecutor(name="emulator", parts="chunks of samples", module=f"{_HERE}.emulator"),
    "lava": ListedExecutor(
        name="Lava", parts="blocks of steps", module=f"{_HERE}.lava.ours", install=INSTALL_LAVA
    ),
    "lava-stock": ListedExecutor(
        name="Lava (stock)", parts="blocks of steps", module=f"{_HERE}.lava.stock", slow=True
    ),
    "netx": ListedExecutor(
        name="lava-dl netx",
        parts="samples",
        module=f"{_HERE}.lava.netx",
        install=INSTALL_LAVA,
        reads_file=True,
    ),
}
