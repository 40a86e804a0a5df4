"""EXECUTOR: Lava's simulator with Lava's own process models, one sample at a time."""

from __future__ import annotations

from ...base import Array
from ...ir import IntNetwork, Trace
from .. import lava
from ..options import ExecutionOptions


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    probe = None if options.keep_trace else ()
    return lava.run(
        network, inputs, probe=probe, stock=True, patience=options.patience, progress=options.progress
    )


def obstacle(network: IntNetwork) -> str | None:
    return lava.stock_obstacle(network)
