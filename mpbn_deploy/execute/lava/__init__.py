"""Lava's CPU simulator: an independent check of our integers. The only package that imports Lava.

Network + inputs -> Trace. `run` compiles a network and runs it once, a `Session` runs it many times, and
`run_stock_netx` runs a file network.net in lava-dl's own reader.

    session       `run` and Session: samples as streams through a compiled network; how much Lava's own
                  models can run in a given time; the executors: our process models, Lava's own, lava-dl's
                  reader
    graph         network -> connected Lava processes; starts, runs and stops them
    plans         what each process computes, and when, and the memory it shares; needs no Lava
    processes     our Lava processes (inputs, layers, delay lines) and models of the small ones
    fast_layers   a layer as one process model of ours, in NumPy
    stock_layers  a layer as a graph of Lava's own processes
    stock_netx    `run_stock_netx`, for sigma-delta networks as well
    compat        imports Lava on Python versions it was not released for

Importing this package does not import Lava; entering a `Session` does.
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .compat import (
        INSTALL_LAVA as INSTALL_LAVA,
        LavaFailedError as LavaFailedError,
        children_exit_with_parent as children_exit_with_parent,
        deferred_signals as deferred_signals,
        installed_version as installed_version,
        lava_version as lava_version,
        load_netx as load_netx,
    )
    from .fast_layers import Current as Current, Neurons as Neurons
    from .plans import (
        pipeline_depths as pipeline_depths,
        plan_layer as plan_layer,
        stock_obstacle as stock_obstacle,
    )
    from .session import (
        MOST_LANES as MOST_LANES,
        BudgetShare as BudgetShare,
        Replay as Replay,
        Session as Session,
        best_lanes as best_lanes,
        opened as opened,
        reader_samples as reader_samples,
        run as run,
        run_alone as run_alone,
        stock_share as stock_share,
    )
    from .stock_netx import run_stock_netx as run_stock_netx
else:
    __getattr__, __dir__ = door(__name__, __file__)
