"""COMMAND: run an exported network, or a .net file, in Lava's simulator or in the emulator."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..base import Array, OptionError, announce, watched
from ..base.arguments import HANG_SECONDS
from ..data import Samples
from ..execute import lava as lava_sim
from ..execute.cluster import Cluster
from ..execute.emulator import emulate
from ..ir import IntNetwork, Trace, as_steps

PARTS = {"lava": "blocks of steps", "emulator": "chunks of samples"}  # of a run, as progress shows them


def run(
    network: IntNetwork,
    samples: Samples,
    backend: str,
    *,
    stock: bool = False,
    patience: float = HANG_SECONDS,
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
