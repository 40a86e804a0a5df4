"""Run an integer network in one of the executors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base import HANG_SECONDS, Array, OptionError, announce, did_you_mean, progress_bar
from ..data import Samples
from ..execute import AUTO, EXECUTORS, ExecutionOptions, ListedExecutor, chip_of, fastest
from ..execute.cluster import Cluster
from ..ir import IntNetwork, Trace, as_steps, count_overflows, join_overflows

Predicted = tuple[Array, Mapping[str, Array]]  # predictions, and the overflows of a trace
WITH_STOCK = {"lava": "lava-stock", AUTO: "lava-stock"}  # the executor that --stock selects instead


def run(
    network: IntNetwork,
    samples: Samples,
    backend: str,
    *,
    stock: bool = False,
    netx: str | Path | None = None,
    patience: float = HANG_SECONDS,
    cluster: Cluster | None = None,
    port: str | None = None,
) -> dict[str, Any]:
    """Run the samples; return predictions, speed and, if the samples have labels, accuracy.

    `backend` is a key of `EXECUTORS`, or "auto": the fastest one. `netx` is the network's file,
    needed by executors that read it. If a block of time steps takes Lava longer than `patience` seconds, it
    counts as hanging. A `cluster` distributes the samples over its workers; the predictions are the same.
    `port` is that of a board.
    """
    option = "--stock" if stock else f"--backend {backend}"
    backend = _backend(backend, stock)
    if backend == AUTO:  # workers may have no compiler
        backend = fastest(network, samples.inputs) if cluster is None else "emulator"
    executor = EXECUTORS[backend]
    if (obstacle := executor.obstacle(network)) is not None:
        raise OptionError(f"{option} cannot run this network: {obstacle}.")
    file = Path(netx) if netx is not None and executor.reads_file else None
    options = ExecutionOptions(keep_trace=False, netx=file, patience=patience, port=port)
    started = time.perf_counter()
    predictions, overflows = _predict(network, samples.inputs, backend, executor, options, cluster)
    seconds = time.perf_counter() - started
    counted = count_overflows(overflows, 24 if chip_of(network) == "loihi" else 16)
    accuracy = None if samples.labels is None else float(np.mean(predictions == samples.labels))
    return {
        "backend": backend,
        "data": samples.name,
        "samples": len(predictions),
        "predictions": predictions.tolist(),
        "accuracy": accuracy,
        "samples_per_second": len(predictions) / seconds,
        "overflows": {name: asdict(found) for name, found in counted.items()},
    }


def _backend(backend: str, stock: bool) -> str:
    if stock and backend not in WITH_STOCK:
        raise OptionError(
            f"--stock selects Lava's own process models; --backend {backend} has none. Use --backend lava."
        )
    if backend not in (AUTO, *EXECUTORS):
        raise OptionError(f"no backend {backend!r}. {did_you_mean(backend, [AUTO, *EXECUTORS])}")
    return WITH_STOCK[backend] if stock else backend


def _predict(
    network: IntNetwork,
    inputs: Array,
    backend: str,
    executor: ListedExecutor,
    options: ExecutionOptions,
    cluster: Cluster | None,
) -> Predicted:
    announce(f"{backend}: {len(inputs)} samples of {network.timesteps} steps")
    if cluster is None:
        progress = progress_bar(f"{backend}, {executor.parts}")
        return _predictions(executor.run(network, inputs, replace(options, progress=progress)))
    announce(f"cluster: {cluster}")
    as_steps(inputs[:1], network.input.shape, network.timesteps)  # reject wrong shapes before sending samples
    common = executor, network, options.portable()
    parts = cluster.share_out(_predict_shard, common, inputs, f"{backend}, shards of samples")
    found = [part for _, part in parts]
    return np.concatenate([predictions for predictions, _ in found]), join_overflows(o for _, o in found)


def _predict_shard(common: tuple[ListedExecutor, IntNetwork, ExecutionOptions], inputs: Array) -> Predicted:
    executor, network, options = common
    return _predictions(executor.run(network, inputs, options))


def _predictions(trace: Trace) -> Predicted:
    return trace.predictions, trace.overflows
