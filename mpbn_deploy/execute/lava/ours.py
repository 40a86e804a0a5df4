"""An executor: Lava's simulator with our process models."""

from __future__ import annotations

from importlib import metadata

from ...base import Array
from ...ir import IntNetwork, Trace
from .. import lava
from ..options import ExecutionOptions
from ..trial import check_one_neuron

opened = lava.opened


def run(network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
    probe = None if options.keep_trace else ()
    return lava.run(network, inputs, probe=probe, patience=options.patience, progress=options.progress)


def check() -> str:
    result = check_one_neuron("Lava", run)
    return f"{metadata.version('lava-nc')}, {result}"
