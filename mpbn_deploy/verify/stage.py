"""Verify an integer network: compare executors bit by bit, and the integer with the float network.

The reference simulator is the definition. Every other executor must equal it in every output, and in every
spike and voltage that it reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..base import HANG_SECONDS, USUAL_BUDGET, Array, announce, no_progress, progress_bar, record
from ..data import RANDOM, Split
from ..execute import EXECUTORS, ExecutionOptions, chunks
from ..execute.cluster import Cluster
from ..execute.outside import Witness
from ..execute.reference import simulate
from ..formats.netx import stock_reader_obstacle
from ..formats.nir import Assumption
from ..ir import (
    STATE_LIMIT,
    FoldedNetwork,
    IntNetwork,
    Overflow,
    SpikeCounts,
    Trace,
    as_steps,
    bounds,
    count_overflows,
    counting,
    shift_rules,
)
from ..nn import SpikingNetwork
from ..quantize import QuantizedBody
from .accuracy import Accuracy, measure_accuracy
from .certificate import LAVA_CLAIM
from .comparison import COUNTS, Comparison, Comparisons, join_samples
from .drift import Drift, DriftMeter, measure_drift
from .executions import (
    Executions,
    Seen,
    chosen_executors,
    compare_executions,
    compare_here,
    compare_shard,
    join_executors,
)
from .floating import FloatingCheck, FloatingRun, check_floating_point, join_floating_checks
from .folding import FoldCheck, check_fold, join_fold_checks
from .lava_models import LAVA_STOCK
from .twin import TwinExecutor

MAKERS = EXECUTORS["xylosim"]


@record
class VerifyReport:
    """The result of `verify`."""

    samples: int
    comparisons: tuple[Comparison, ...]
    bounds: Mapping[str, int]  # by population: the largest magnitude a state can reach
    overflows: Mapping[str, Overflow] = field(default_factory=dict)  # of networks that we did not quantize
    data: str = ""  # the name of the data set, or "random"
    failed: tuple[str, ...] = ()  # executors that failed during the run
    stock_reader_obstacle: str | None = None  # why lava-dl's own reader did not run
    drift: Drift | None = None
    accuracy: Accuracy | None = None
    fold: FoldCheck | None = None
    floating: FloatingCheck | None = None
    assumptions: tuple[Assumption, ...] = ()  # under which the verdict holds
    trace: Trace | None = None  # the reference's of the first samples, without voltages; None on a cluster
    counted: SpikeCounts | None = None  # the reference's spikes on all samples

    @property
    def bit_exact(self) -> bool:
        """Whether every executor that ran equals the reference; `executed` counts them."""
        return all(comparison.exact for comparison in self.comparisons)

    @property
    def passed(self) -> bool:
        """Whether folding kept the PyTorch model, all executors agree, and accuracy did not collapse.

        Executors that could not run are ignored.
        """
        collapsed = self.accuracy is not None and self.accuracy.collapsed
        folds = self.fold is None or self.fold.agrees
        return folds and self.bit_exact and not self.failed and not collapsed

    @property
    def executed(self) -> int:
        """The number of executors that ran."""
        return sum(not comparison.not_run for comparison in self.comparisons)

    @property
    def verdict(self) -> str:
        """Whether folding kept the PyTorch model, all executors agree, and under which assumptions."""
        assumed = " and ".join(assumption.what for assumption in self.assumptions)
        agreement = f"{self._agreement}, assuming {assumed}" if assumed else self._agreement
        changed = "" if self.fold is None else self.fold.verdict
        return f"{changed}; the integers: {agreement}" if changed else agreement

    @property
    def _agreement(self) -> str:
        wanted = len(self.comparisons)
        if not self.bit_exact:
            return "not bit-exact"
        if not self.executed:
            return "bit-exactness not tested"
        if self.executed < wanted:
            few = {1: "the one execution", 2: "both executions"}
            ran = few.get(self.executed, f"all {self.executed} executions")
            return f"bit-exact in {ran} that ran; {self._gaps}"
        if self.makers_own is not None:
            return "bit-exact to xylosim, the simulator of the chip's maker"
        if self.lavas_own is None:
            return "bit-exact to the reference; Lava's own models not run"
        return "bit-exact to Lava's own models"

    @property
    def _gaps(self) -> str:
        """Which executions failed, and which did not run."""
        absent = [c.execution for c in self.comparisons if c.not_run and c.execution not in self.failed]
        gaps = {"failed": self.failed, "not run": absent}
        return "; ".join(f"{', '.join(names)} {what}" for what, names in gaps.items() if names)

    @property
    def lavas_own(self) -> Comparison | None:
        """The comparison with Lava's own process models, if they were asked for."""
        return next((c for c in self.comparisons if c.execution == LAVA_STOCK.name), None)

    @property
    def makers_own(self) -> Comparison | None:
        """The comparison with the simulator of Xylo's maker, if it was asked for."""
        return next((c for c in self.comparisons if c.execution == MAKERS.name), None)

    @property
    def maker_claim(self) -> str | None:
        """What the comparison with the maker's simulator supports."""
        own = self.makers_own
        if own is None or own.not_run or not own.exact:
            return None
        return f"every spike and membrane is equal to the maker's simulator on all {self.samples} samples"

    @property
    def lava_claim(self) -> str | None:
        """What the comparison with Lava's own models supports; it says nothing about a chip."""
        own = self.lavas_own
        if own is None or own.not_run or not own.exact:
            return None
        return f"{LAVA_CLAIM}: Lava's own models agree on {own.extent or f'all {self.samples} samples'}"

    @property
    def sample_kind(self) -> str:
        """Return "samples", or "random inputs"."""
        return "random inputs" if self.data == RANDOM else "samples"

    def total(self, count: str) -> int:
        return sum(getattr(comparison, count) for comparison in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        first = next((c.first_mismatch for c in self.comparisons if c.first_mismatch is not None), None)
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "bit_exact": self.bit_exact,
            "assumptions": [asdict(assumption) for assumption in self.assumptions],
            "executions_wanted": len(self.comparisons),
            "executions_run": self.executed,
            "executions_failed": list(self.failed),
            "samples": self.samples,
            "data": self.data or None,
            **{count: self.total(count) for count in COUNTS},
            "first_mismatch": None if first is None else asdict(first),
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            "stock_reader_obstacle": self.stock_reader_obstacle,
            "overflows": {name: asdict(found) for name, found in self.overflows.items()},
            "populations": _populations_json(self),
            **_drift_json(self.drift),
            "accuracy": None if self.accuracy is None else self.accuracy.to_json(),
            "fold": None if self.fold is None else self.fold.to_json(),
            "lava_floating_point": None if self.floating is None else asdict(self.floating),
        }


def verify(
    network: IntNetwork,
    inputs: Array,
    *,
    folded: FoldedNetwork | None = None,
    netx: str | Path | None = None,
    labels: Array | None = None,
    test: Split | None = None,
    data_name: str = "",
    model: SpikingNetwork | None = None,
    assumptions: tuple[Assumption, ...] = (),
    budget: float | None = USUAL_BUDGET,
    witnesses: tuple[Witness, ...] = (),
    patience: float = HANG_SECONDS,
    cluster: Cluster | None = None,
) -> VerifyReport:
    """Compare all executors of a network on some samples.

    Optional arguments add checks:

        folded    integer against float (with `labels`: which changed predictions became right), and the
                  folded network in Lava's floating-point models
        netx      lava-dl's stock reader of this file, if the network is a chain
        test      accuracy on this whole labelled split; needs `folded`
        model     the PyTorch model that was folded: spikes changed by folding, and its accuracy; or the
                  model of quantization-aware training: its spikes and outputs
        witnesses simulators of others, population by population, each for about `budget` seconds

    Lava's own process models are slow; they run on as many samples and populations as they can in about
    `budget` seconds (0: not at all; None: on all samples), and lava-dl's reader in a quarter of it. If a
    block of time steps takes Lava longer than `patience` seconds, it counts as hanging. A `cluster`
    distributes the samples over its workers; the report is the same. `assumptions` are those under which the
    network was read, and become part of the verdict.
    """
    own = shift_rules(network) is None  # else lava-dl's reader is not expected to know its neurons
    obstacle = stock_reader_obstacle(network) if netx is not None and own else None
    twin = model if model is not None and isinstance(model.body, QuantizedBody) else None
    listed = chosen_executors(network, slow=budget != 0, netx=netx is not None and obstacle is None)
    executions = Executions(
        network=network,
        executors=(*listed, *([] if twin is None else [TwinExecutor(model=twin)])),
        options=ExecutionOptions(netx=None if netx is None else Path(netx), patience=patience),
        budget=budget,
        witnesses=witnesses,
    )
    meter = DriftMeter(folded, network) if folded is not None and cluster is None else None
    compared = _compare(executions, inputs, cluster, None if meter is None else meter.add)
    report = VerifyReport(
        samples=len(inputs),
        data=data_name,
        comparisons=compared.comparisons,
        failed=compared.failed,
        bounds={name: bound.magnitude for name, bound in bounds(network).items()},
        overflows=count_overflows(compared.overflows, 24 if shift_rules(network) is None else 16),
        stock_reader_obstacle=obstacle,
        assumptions=assumptions,
        trace=compared.trace,
        counted=compared.counted,
    )
    if folded is None:
        return report
    trained = None if twin else model
    drift = measure_drift(folded, network, inputs, labels) if meter is None else meter.drift(labels)
    accuracy = None if test is None else measure_accuracy(folded, network, test, data_name, trained, cluster)
    fold, floating = _check_folded(trained, folded, inputs, patience, cluster)
    return replace(report, drift=drift, accuracy=accuracy, fold=fold, floating=floating)


def _compare(
    executions: Executions, inputs: Array, cluster: Cluster | None, seen: Seen | None
) -> Comparisons:
    if cluster is None:
        return compare_executions(executions, inputs, seen=seen)
    network = executions.network
    as_steps(inputs[:1], network.input.shape, network.timesteps)  # reject wrong shapes before sending samples
    announce(f"verify: reference against all executors, {len(inputs)} samples, on {cluster}")
    parts = cluster.share_out(compare_shard, executions.portable(), inputs, "verify: comparisons, shards")
    shared = join_samples(network, parts)
    both = join_executors([shared, compare_here(executions, inputs)])
    order = [executor.name for executor in EXECUTORS.values()]
    listed = {name: place for place, name in enumerate(order)}
    return replace(
        both,
        counted=shared.counted,
        comparisons=tuple(sorted(both.comparisons, key=lambda c: listed.get(c.execution, len(order)))),
    )


def _check_folded(
    trained: SpikingNetwork | None,
    folded: FoldedNetwork,
    inputs: Array,
    patience: float,
    cluster: Cluster | None,
) -> tuple[FoldCheck | None, FloatingCheck | None]:
    """Compare PyTorch, if there is a model, and Lava's floating-point models with the folded network."""
    if trained is not None:
        announce(f"verify: PyTorch against the folded network, {len(inputs)} samples")
    if any(counting(p.neuron) is not None for p in folded.layers):
        folds = [
            check_fold(trained, folded, inputs[part])
            for part in (chunks(folded, len(inputs)) if trained is not None else ())
            if trained is not None
        ]
        return join_fold_checks(folds) if folds else None, None
    announce(f"verify: the folded network against Lava (floating point), {len(inputs)} samples")
    parts = chunks(folded, len(inputs))
    whole = "Lava (floating point), blocks of steps" if len(parts) == 1 else None
    bar = no_progress if whole else progress_bar("verify: the folded network, chunks of samples")
    progress = no_progress if whole is None else progress_bar(whole)
    folds, floats = [], []
    with FloatingRun(folded, parts[0].stop, patience, progress) as lava:
        for index in bar(range(len(parts))):
            given = inputs[parts[index]]
            folded_trace = cache(partial(simulate, folded, given))  # shared by both checks
            if trained is not None:
                folds.append(check_fold(trained, folded, given, folded_trace))
            if cluster is None:
                floats.append(lava.check(given, folded_trace))
    if cluster is not None:
        check = partial(check_floating_point, patience=patience)
        shards = cluster.share_out(check, folded, inputs, "Lava (floating point), shards")
        floats = [part for _, part in shards]
    return join_fold_checks(folds) if folds else None, join_floating_checks(floats)


# ---- JSON -------------------------------------------------------------------------------------


def _populations_json(report: VerifyReport) -> list[dict[str, Any]]:
    """Return, per population, the drift from the float network and the proved bound on its states."""
    drifts = {} if report.drift is None else {p.name: p.to_json() for p in report.drift.populations}
    return [
        {
            "name": name,
            **drifts.get(name, {"spike_agreement": None}),
            "state_bound": bound,
            "state_limit": STATE_LIMIT,
            "overflow_proved_absent": bound <= STATE_LIMIT,
        }
        for name, bound in report.bounds.items()
    ]


def _drift_json(drift: Drift | None) -> dict[str, Any]:
    first = None if drift is None else drift.first_flip
    return {
        "first_flip": None if first is None else first.to_json(),
        "predictions": None if drift is None else drift.predictions.to_json(),
        "prediction_agreement": None if drift is None else drift.predictions.agreement,
    }
