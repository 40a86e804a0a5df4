"""Execute `python -m mpbn_deploy.run`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base import HANG_SECONDS, Array, OptionError, Outcome, announce, did_you_mean, progress_bar
from ..data import RANDOM, Samples
from ..execute import AUTO, EXECUTORS, ExecutionOptions, ListedExecutor, chip_of, fastest
from ..execute.cluster import Cluster, chosen_cluster
from ..formats.folder import open_network
from ..formats.options import FileFacts
from ..ir import IntNetwork, Overflow, Trace, as_steps, count_overflows, join_overflows, overflow_lines


def execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options.network, **asdict(FileFacts.from_arguments(options)))
    samples = opened.samples(options.samples, options.data, options.data_dir)
    with chosen_cluster(options.cluster) as cluster:
        result = run(
            opened.network,
            samples,
            options.backend,
            stock=options.stock,
            netx=opened.netx,
            patience=options.patience,
            cluster=cluster,
            port=options.port,
        )
    return Outcome(data=result, text=_text(result, opened.class_names))


def _text(result: dict[str, Any], class_names: Sequence[str]) -> str:
    names = [class_names[p] if p < len(class_names) else str(p) for p in result["predictions"][:16]]
    more = " ..." if result["samples"] > len(names) else ""
    accuracy = "" if result["accuracy"] is None else f", accuracy {result['accuracy']:.2%}"
    rate = f"{result['samples_per_second']:.1f} samples per second"
    head = f"{result['backend']}: {_inputs(result)}{accuracy}, {rate}"
    overflows = {name: Overflow(**found) for name, found in result["overflows"].items()}
    return "\n".join([head, f"predictions: {' '.join(names)}{more}", *overflow_lines(overflows)])


def _inputs(result: dict[str, Any]) -> str:
    count, data = result["samples"], result["data"]
    return f"{count} random inputs" if data == RANDOM else f"{count} samples of {data}"


# Run an integer network in one of the executors.


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
