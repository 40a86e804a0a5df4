"""An executor: Lava's simulator with our process models."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import metadata

from ...base import Array
from ...ir import IntNetwork, Trace
from .. import lava
from ..options import ExecutionOptions
from ..trial import check_one_neuron


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    probe = None if options.keep_trace else ()
    return lava.run(network, inputs, probe=probe, patience=options.patience, progress=options.progress)


def opened(
    network: IntNetwork, samples: int, options: ExecutionOptions
) -> AbstractContextManager[Callable[[Array], Trace]]:
    return lava.opened(network, samples, options)


def check() -> str:
    result = check_one_neuron("Lava", run)
    return f"{metadata.version('lava-nc')}, {result}"
