"""Executors that run in Lava: our process models, Lava's own models, and lava-dl's reader of network.net.

`run_alone` runs one population in Lava's own models, fed with recorded spikes of its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from pathlib import Path

from ...base import Array, record, temporary_folder
from ...formats.netx import stock_reader_obstacle, write_netx
from ...ir import IntNetwork, Trace
from .. import lava
from ..options import ExecutionOptions
from ..trial import check_one_neuron


@record
class InLava:
    """Lava's simulator, with our process models or with Lava's own, one sample at a time."""

    stock: bool

    def obstacle(self, network: IntNetwork) -> str | None:
        return lava.stock_obstacle(network) if self.stock else None

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        probe, patience = None if options.keep_trace else (), options.patience
        return lava.run(
            network, inputs, probe=probe, stock=self.stock, patience=patience, progress=options.progress
        )

    def opened(
        self, network: IntNetwork, samples: int, options: ExecutionOptions
    ) -> AbstractContextManager[Callable[[Array], Trace]]:
        return lava.opened(network, samples, options, stock=self.stock)

    def check(self) -> str:
        return f"{metadata.version('lava-nc')}, {check_one_neuron('Lava', self.run)}"


class InReader:
    """The file network.net in lava-dl's own reader; the trace has no voltages."""

    def obstacle(self, network: IntNetwork) -> str | None:
        return stock_reader_obstacle(network)

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        with _file(network, options.netx) as path:
            return lava.run_stock_netx(
                path, network, inputs, patience=options.patience, progress=options.progress
            )

    def check(self) -> str:
        reader = lava.load_netx().Network
        return f"{metadata.version('lava-dl')}, {reader.__module__}.{reader.__name__}"


OURS, STOCK, NETX = InLava(stock=False), InLava(stock=True), InReader()


def run_alone(
    network: IntNetwork, name: str, recorded: Mapping[str, Array], options: ExecutionOptions
) -> lava.Replay:
    """Run one population on recorded spikes of its sources, [samples, timesteps, *shape]."""
    with lava.Session(network, alone=name, stock=True, patience=options.patience) as session:
        return session.replay(recorded, progress=options.progress)


@contextmanager
def _file(network: IntNetwork, given: Path | bytes | None) -> Iterator[Path]:
    """Yield the given path, or a temporary file with the given content or the network."""
    if isinstance(given, Path):
        yield given
        return
    with temporary_folder() as folder:
        path = Path(folder) / "network.net"
        if given is None:
            write_netx(network, path)
        else:
            path.write_bytes(given)
        yield path
