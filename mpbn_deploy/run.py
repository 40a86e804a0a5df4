"""COMMAND: run an exported network, or a .net file, in Lava's simulator or in the emulator."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from . import lava_sim
from .cli import Command, Outcome, main
from .cluster import Cluster, add_execution_arguments, chosen_cluster
from .emulate import emulate
from .errors import OptionError
from .folder import Samples, add_network_arguments, add_sample_arguments, open_network
from .graph import Trace, as_steps
from .int_ir import IntNetwork
from .progress import announce, watched
from .records import Array

PARTS = {"lava": "blocks of steps", "emulator": "chunks of samples"}  # of a run, as progress shows them
BACKENDS = tuple(PARTS)


def run(
    network: IntNetwork,
    samples: Samples,
    backend: str,
    *,
    stock: bool = False,
    patience: float = lava_sim.PATIENCE,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Run the samples; predictions, and where labels are known the accuracy.

    Lava is taken to hang when a block of steps takes longer than `patience` seconds. Workers of a `cluster`
    share the samples out among them; the predictions are the same.
    """
    if stock and backend != "lava":
        raise OptionError(f"--stock chooses Lava's own process models; --backend {backend} has none.")
    started = time.perf_counter()
    if backend == "lava":
        execute = partial(lava_sim.run, probe=(), stock=stock, patience=patience)
    else:
        execute = partial(emulate, keep_trace=False)
    predictions = _predict(network, samples, backend, execute, cluster)
    seconds = time.perf_counter() - started
    accuracy = None if samples.labels is None else float(np.mean(predictions == samples.labels))
    return {
        "backend": backend,
        "data": samples.name,
        "samples": len(predictions),
        "predictions": predictions.tolist(),
        "accuracy": accuracy,
        "samples_per_second": len(predictions) / seconds,
    }


def _predict(
    network: IntNetwork,
    samples: Samples,
    backend: str,
    execute: Callable[..., Trace],
    cluster: Cluster | None,
) -> Array:
    inputs = samples.inputs
    announce(f"{backend}: {len(inputs)} samples of {network.timesteps} steps")
    if cluster is None:
        return execute(network, inputs, watch=watched(f"{backend}, {PARTS[backend]}")).predictions
    announce(f"cluster: {cluster}")
    as_steps(inputs[:1], network.input.shape, network.timesteps)  # refuses another shape before it is sent
    parts = cluster.share_out(execute, network, inputs, f"{backend}, shards of samples")
    return np.concatenate([trace.predictions for _, trace in parts])


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser)
    add_sample_arguments(parser)
    parser.add_argument("--backend", choices=BACKENDS, default="lava", help="default: lava")
    parser.add_argument("--stock", action="store_true", help="Lava's own process models, which are slow")
    add_execution_arguments(parser)


def _execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options)
    samples = opened.samples(options.samples, options.data, options.data_dir)
    with chosen_cluster(options.cluster) as cluster:
        result = run(
            opened.network,
            samples,
            options.backend,
            stock=options.stock,
            patience=options.patience,
            cluster=cluster,
        )
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
        "         python -m mpbn_deploy.run network.net --backend emulator --data random\n"
        "         python -m mpbn_deploy.run model.loihi2 --samples all --cluster local:4"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
