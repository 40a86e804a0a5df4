"""An executor: the file network.net in lava-dl's own reader; the trace has no voltages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from ...base import Array, temporary_folder
from ...formats.netx import stock_reader_obstacle, write_netx
from ...ir import IntNetwork, Trace
from .. import lava
from ..options import ExecutionOptions


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    with _file(network, options.netx) as path:
        return lava.run_stock_netx(
            path, network, inputs, patience=options.patience, progress=options.progress
        )


def obstacle(network: IntNetwork) -> str | None:
    return stock_reader_obstacle(network)


def check() -> str:
    reader = lava.load_netx().Network
    return f"{metadata.version('lava-dl')}, {reader.__module__}.{reader.__name__}"


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
