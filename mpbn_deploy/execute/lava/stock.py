"""An executor: Lava's simulator with Lava's own process models, one sample at a time.

`run_alone` runs one population, fed with recorded spikes of its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from ...base import Array
from ...ir import IntNetwork, Trace
from .. import lava
from ..options import ExecutionOptions


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    probe = None if options.keep_trace else ()
    return lava.run(
        network, inputs, probe=probe, stock=True, patience=options.patience, progress=options.progress
    )


def opened(
    network: IntNetwork, samples: int, options: ExecutionOptions
) -> AbstractContextManager[Callable[[Array], Trace]]:
    return lava.opened(network, samples, options, stock=True)


def run_alone(
    network: IntNetwork, name: str, recorded: Mapping[str, Array], options: ExecutionOptions
) -> lava.Replay:
    """Run one population on recorded spikes of its sources, [samples, timesteps, *shape]."""
    with lava.Session(network, alone=name, stock=True, patience=options.patience) as session:
        return session.replay(recorded, progress=options.progress)


def obstacle(network: IntNetwork) -> str | None:
    return lava.stock_obstacle(network)
