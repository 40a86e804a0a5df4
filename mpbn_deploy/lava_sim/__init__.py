"""Lava's CPU simulator: the judge of our integers. The only place that imports Lava.

    compat      makes Lava importable on Pythons it was not released for
    processes   our Lava processes: inputs and neurons on tapes, delay lines
    models      their fixed-point process models
    graph       IntNetwork -> connected processes
    execute     run them, and gather a Trace

Importing this package imports no Lava; calling `run` does.
"""

from __future__ import annotations

from ..graph import Trace
from ..int_ir import IntNetwork
from ..records import Array
from .compat import INSTALL_LAVA, lava_version

__all__ = ["INSTALL_LAVA", "lava_version", "run"]


def run(network: IntNetwork, inputs: Array) -> Trace:
    """Run a network in Lava's fixed-point simulator; inputs as for `simulate`.

    Samples are streamed back to back, and every population is reset in the step in which the
    first step of a sample reaches it.
    """
    from .execute import execute

    return execute(network, inputs)
