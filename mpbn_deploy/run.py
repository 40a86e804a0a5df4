"""COMMAND: run an exported network, or a .net file, in Lava's simulator or in the emulator."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import lava_sim
from .cli import Command, Outcome, main
from .emulate import emulate
from .errors import OptionError
from .folder import Samples, add_network_arguments, add_sample_arguments, open_network
from .graph import Trace
from .int_ir import IntNetwork
from .progress import announce, watched

BACKENDS = ("lava", "emulator")


def run(network: IntNetwork, samples: Samples, backend: str, *, stock: bool = False) -> dict[str, Any]:
    """Run the samples; predictions, and where labels are known the accuracy."""
    if stock and backend != "lava":
        raise OptionError(f"--stock chooses Lava's own process models; --backend {backend} has none.")
    started = time.perf_counter()
    trace = _trace(network, samples, backend, stock)
    seconds = time.perf_counter() - started
    predictions = trace.predictions
    accuracy = None if samples.labels is None else float(np.mean(predictions == samples.labels))
    return {
        "backend": backend,
        "data": samples.name,
        "samples": len(predictions),
        "predictions": predictions.tolist(),
        "accuracy": accuracy,
        "samples_per_second": len(predictions) / seconds,
    }


def _trace(network: IntNetwork, samples: Samples, backend: str, stock: bool) -> Trace:
    if backend == "lava":
        announce(f"lava: {len(samples.inputs)} samples of {network.timesteps} steps")
        watch = watched("lava, blocks of steps")
        return lava_sim.run(network, samples.inputs, probe=(), stock=stock, watch=watch)
    watch = watched("emulator, chunks of samples")
    return emulate(network, samples.inputs, keep_trace=False, watch=watch)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser)
    add_sample_arguments(parser)
    parser.add_argument("--backend", choices=BACKENDS, default="lava", help="default: lava")
    parser.add_argument("--stock", action="store_true", help="Lava's own process models, which are slow")


def _execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options)
    samples = opened.samples(options.samples, options.data, options.data_dir)
    result = run(opened.network, samples, options.backend, stock=options.stock)
    return Outcome(data=result, text=_text(result, opened.class_names))


def _text(result: dict[str, Any], class_names: Sequence[str]) -> str:
    names = [class_names[p] if p < len(class_names) else str(p) for p in result["predictions"][:16]]
    more = " ..." if result["samples"] > len(names) else ""
    accuracy = "" if result["accuracy"] is None else f", accuracy {result['accuracy']:.2%}"
    rate = f"{result['samples_per_second']:.1f} samples per second"
    head = f"{result['backend']}: {result['samples']} samples of {result['data']}{accuracy}, {rate}"
    return f"{head}\npredictions: {' '.join(names)}{more}"


COMMAND = Command(
    name="run",
    summary="Run an exported network in Lava's CPU simulator, or in the emulator.",
    details=(
        "Both give the same integers; the emulator needs no Lava and is much faster.\n\n"
        "example: python -m mpbn_deploy.run model.loihi2 --backend emulator --samples all\n"
        "         python -m mpbn_deploy.run network.net --backend emulator --data random"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
