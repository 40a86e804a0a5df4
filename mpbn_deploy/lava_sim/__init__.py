"""Lava's CPU simulator: the judge of our integers. The only place that imports Lava.

    compat        makes Lava importable on Pythons it was not released for, and its processes mortal
    plans         what each process has to do, and when
    tapes         memory shared with Lava's processes: inputs and traces
    processes     our Lava processes: inputs, layers, delay lines
    models        process models of the small ones
    stock_layers  a layer as a graph of Lava's own processes
    products, neurons, fast_layers   a layer as one process model of ours, in NumPy
    graph         network -> connected processes
    execute       start, run, stop
    session       Session: compiled once, run many times
    floating      the folded network in Lava's floating-point models, against the reference
    stock_netx    run network.net in lava-dl's own reader instead

Importing this package imports no Lava; entering a `Session` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..graph import Trace
from ..int_ir import IntNetwork
from ..progress import Watch, unwatched
from ..records import Array
from .compat import INSTALL_LAVA, LavaFailedError, lava_version
from .plans import AnyNetwork
from .session import PATIENCE, Session, best_lanes, checked_steps

__all__ = [
    "INSTALL_LAVA",
    "PATIENCE",
    "LavaFailedError",
    "Session",
    "lava_version",
    "run",
    "run_stock_netx",
]


def run(
    network: AnyNetwork,
    inputs: Array,
    *,
    probe: Iterable[str] | None = None,
    lanes: int | None = None,
    stock: bool = False,
    patience: float = PATIENCE,
    watch: Watch = unwatched,
) -> Trace:
    """Run a network in Lava's simulator; inputs as for `simulate`, options as for `Session`.

    An integer network runs in fixed-point models, a folded one in floating-point models.
    """
    steps = checked_steps(network, inputs)  # refused before any process is started
    if lanes is None and not stock:
        lanes = best_lanes(network, len(steps))
    with Session(network, probe=probe, lanes=lanes, stock=stock, patience=patience) as session:
        return session.run(steps, watch=watch)


def run_stock_netx(
    path: Path,
    network: IntNetwork,
    inputs: Array,
    *,
    patience: float = PATIENCE,
    watch: Watch = unwatched,
) -> Trace:
    """Run the file network.net, which holds `network`, in lava-dl's own reader; the trace has no voltages.

    A sample that takes longer than `patience` seconds is taken to hang. `watch` sees the samples go by, to
    show progress.
    """
    from .stock_netx import execute_stock_netx

    return execute_stock_netx(path, network, inputs, patience, watch)
