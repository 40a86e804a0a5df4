"""Lava's CPU simulator: the judge of our integers. The only place that imports Lava.

    compat      makes Lava importable on Pythons it was not released for
    processes   our Lava processes: inputs and neurons on tapes, delay lines
    models      their fixed-point process models
    graph       IntNetwork -> connected processes
    execute     run them, and gather a Trace
    stock_netx  run network.net in lava-dl's own reader instead

Importing this package imports no Lava; calling `run` does.
"""

from __future__ import annotations

from pathlib import Path

from ..graph import Trace
from ..int_ir import IntNetwork
from ..records import Array
from .compat import INSTALL_LAVA, lava_version

__all__ = ["INSTALL_LAVA", "lava_version", "run", "run_stock_netx"]


def run(network: IntNetwork, inputs: Array) -> Trace:
    """Run a network in Lava's fixed-point simulator; inputs as for `simulate`.

    Samples are streamed back to back, and every population is reset in the step in which the
    first step of a sample reaches it.
    """
    from .execute import execute

    return execute(network, inputs)


def run_stock_netx(path: Path, network: IntNetwork, inputs: Array) -> Trace:
    """Run the file network.net, which holds `network`, in lava-dl's own reader; the trace has no voltages."""
    from .stock_netx import execute_stock_netx

    return execute_stock_netx(path, network, inputs)
