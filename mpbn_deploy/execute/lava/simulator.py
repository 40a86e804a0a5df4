"""Run a network once in Lava's CPU simulator."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...base import HANG_SECONDS, Array, Watch, unwatched
from ...ir import AnyNetwork, IntNetwork, Trace
from .session import Session, best_lanes, checked_steps


def run(
    network: AnyNetwork,
    inputs: Array,
    *,
    probe: Iterable[str] | None = None,
    lanes: int | None = None,
    stock: bool = False,
    patience: float = HANG_SECONDS,
    watch: Watch = unwatched,
) -> Trace:
    """Run a network in Lava's simulator; inputs as for `simulate`, options as for `Session`.

    An IntNetwork runs in fixed-point models, a FoldedNetwork in floating-point models.
    """
    steps = checked_steps(network, inputs)  # before any process is started
    if lanes is None and not stock:
        lanes = best_lanes(network, len(steps))
    with Session(network, probe=probe, lanes=lanes, stock=stock, patience=patience) as session:
        return session.run(steps, watch=watch)


def run_stock_netx(
    path: Path,
    network: IntNetwork,
    inputs: Array,
    *,
    patience: float = HANG_SECONDS,
    watch: Watch = unwatched,
) -> Trace:
    """Run the file network.net, which holds `network`, in lava-dl's own reader; the trace has no voltages.

    `patience` is the time limit, in seconds, for one sample. `watch` shows progress over samples.
    """
    from .stock_netx import execute_stock_netx

    return execute_stock_netx(path, network, inputs, patience, watch)
