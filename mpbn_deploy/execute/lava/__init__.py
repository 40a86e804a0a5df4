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
    simulator     the same for a single run
    stock_netx    run network.net in lava-dl's own reader instead
    ours, stock, netx   the executors: our process models, Lava's own, lava-dl's reader

Importing this package imports no Lava; entering a `Session` does.
"""

from typing import TYPE_CHECKING

from ...base.doors import door

if TYPE_CHECKING:
    from .compat import (
        INSTALL_LAVA as INSTALL_LAVA,
        LavaFailedError as LavaFailedError,
        installed_version as installed_version,
        lava_version as lava_version,
        load_netx as load_netx,
        signals_kept_for_later as signals_kept_for_later,
    )
    from .fast_layers import Current as Current
    from .neurons import Neurons as Neurons
    from .plans import (
        pipeline_depths as pipeline_depths,
        plan_layer as plan_layer,
    )
    from .session import MOST_LANES as MOST_LANES, Session as Session, best_lanes as best_lanes
    from .simulator import run as run, run_stock_netx as run_stock_netx
else:
    __getattr__, __dir__ = door(__name__, __file__)
