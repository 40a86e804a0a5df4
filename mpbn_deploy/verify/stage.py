"""Verify an integer network: compare executors bit by bit, and the integer with the float network.

The reference simulator is the definition. Every other executor must equal it in every output, and in every
spike and voltage that it reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..base import (
    HANG_SECONDS,
    Array,
    Color,
    Report,
    Summarized,
    Summary,
    announce,
    changed,
    no_progress,
    progress_bar,
    record,
)
from ..data import RANDOM, Samples, Split
from ..execute import EXECUTORS, ExecutionOptions, ListedExecutor, chunks
from ..execute.cluster import Cluster
from ..execute.outside import Witness, chosen_witnesses
from ..execute.reference import simulate
from ..formats.netx import stock_reader_obstacle
from ..formats.nir import Assumption
from ..formats.options import Verifying
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
    firing,
    shift_rules,
)
from ..nn import SpikingNetwork
from ..quantize import QuantizedBody
from .accuracy import Accuracy, Predictions, TwinExecutor, measure_accuracy
from .comparison import LAVA_CLAIM, Comparison, Comparisons, Mismatch, join_samples
from .drift import Drift, DriftMeter, PopulationDrift, measure_drift
from .executions import (
    Executions,
    Seen,
    chosen_executors,
    compare_executions,
    compare_here,
    compare_shard,
    compared_beside,
    join_executors,
)
from .flips import Flip
from .folding import (
    FloatingCheck,
    FloatingRun,
    FoldCheck,
    check_floating_point,
    check_fold,
    join_floating_checks,
    join_fold_checks,
)
from .lava_models import LAVA_STOCK

MAKERS = EXECUTORS["xylosim"]
MAX_SUSPECTS = 64  # test samples whose spikes are compared because PyTorch predicts another class


@record
class PopulationCheck(Report):
    """Integer against float, and the proof that no state overflows."""

    JSON = "name state_bound state_limit overflow_proved_absent"

    name: str
    drift: PopulationDrift | None  # None if the float network is not known
    state_bound: int  # no input can make a state larger

    @property
    def state_limit(self) -> int:
        return STATE_LIMIT

    @property
    def overflow_proved_absent(self) -> bool:
        return self.state_bound <= STATE_LIMIT

    def to_json(self) -> dict[str, Any]:
        name, *proof = Report.to_json(self).items()
        drift = {"spike_agreement": None} if self.drift is None else self.drift.to_json()
        return {**dict([name]), **drift, **dict(proof)}


def _total(count: str) -> Any:
    """Return a property of a report: the sum of a count over all comparisons."""

    def total(report: VerifyReport) -> int:
        return report.total(count)

    return property(total)


@record
class VerifyReport(Report, Summarized):
    """The result of `verify`."""

    JSON = """passed? verdict? bit_exact assumptions silent? executions_wanted executions_run=executed
        executions_failed=failed samples data=data_name spikes_compared spikes_mismatched voltages_compared
        voltages_mismatched outputs_compared outputs_mismatched first_mismatch comparisons
        stock_reader_obstacle overflows populations first_flip predictions prediction_agreement accuracy fold
        lava_floating_point=floating"""

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
    silent: tuple[str, ...] = ()  # populations that never fired, if the outputs get no input or no spike

    @property
    def bit_exact(self) -> bool:
        """Whether every executor that ran equals the reference; `executed` counts them."""
        return all(comparison.exact for comparison in self.comparisons)

    @property
    def passed(self) -> bool:
        """Whether folding kept the PyTorch model, all executors agree, outputs fire and accuracy was kept.

        Executors that could not run are ignored.
        """
        lost = self.accuracy is not None and self.accuracy.lost
        folds = self.fold is None or self.fold.agrees
        return folds and self.bit_exact and not self.failed and not lost and not self.silent

    @property
    def executed(self) -> int:
        """The number of executors that ran."""
        return sum(not comparison.not_run for comparison in self.comparisons)

    @property
    def color(self) -> Color:
        """Yellow if it passed, but an execution did not run, a convention is assumed, or no maker agreed."""
        if not self.passed:
            return "red"
        confirmed = self.lava_claim is not None or self.maker_claim is not None
        complete = confirmed and self.executed == len(self.comparisons)
        return "green" if complete and not self.assumptions else "yellow"

    @property
    def summary(self) -> Summary:
        return Summary(color=self.color, verdict=self.verdict, rows=()).with_rows(
            accuracy="" if self.accuracy is None else self.accuracy.line,
            folding=self._folding,
            rounding=self._rounding,
            exact=self._exactness,
            skipped="; ".join(f"{c.execution}: {c.not_run}" for c in self.comparisons if c.not_run),
            overflow=self._overflow,
            assuming="; ".join(assumption.what for assumption in self.assumptions),
        )

    @property
    def remedy(self) -> str:
        """What to do about the first fault; '' if there is none."""
        if self.failed or not self.bit_exact:
            return "report this bug: executions must agree (--verbose prints the first difference)"
        if self.fold is not None and not self.fold.agrees:
            return "report this bug: folding must change no spike"
        if self.silent:
            assumed = any(each.what.startswith("time steps") for each in self.assumptions)
            step = "--dt, which was assumed, " * assumed
            return f"check {step}--input-range and --normalize: inputs may be smaller than in training"
        return "" if self.accuracy is None else self.accuracy.remedy

    @property
    def _folding(self) -> str:
        fold = self.fold
        if fold is None or not fold.compared:
            return ""
        undecided = f", {fold.samples_undecided} samples undecided by float64" * (fold.samples_undecided > 0)
        return (
            f"{fold.spikes_mismatched} of {fold.spikes_compared:,} spikes differ from PyTorch's, on "
            f"{fold.samples} {self.sample_kind}{undecided}"
        )

    @property
    def _rounding(self) -> str:
        """How many predictions rounding changed: on the whole test split, if it is known."""
        found = (self.accuracy and self.accuracy.predictions) or self.predictions
        return f"predictions that differ from the folded network's: {found}" if found else ""

    @property
    def _exactness(self) -> str:
        """How many values differ between the reference and others; what each of them ran."""
        ran = [c for c in self.comparisons if not c.not_run]
        if not ran:
            return ""
        different, compared = (
            sum(self.total(f"{kind}_{count}") for kind in ("spikes", "voltages", "outputs"))
            for count in ("mismatched", "compared")
        )
        listed = ", ".join(c.execution + (f" ({c.extent})" if c.extent else "") for c in ran)
        return f"{different:,} of {compared:,} values differ, on {self.samples} {self.sample_kind}: {listed}"

    @property
    def _overflow(self) -> str:
        if self.overflows:
            return f"happened in {', '.join(self.overflows)}"
        largest = max(self.bounds.values(), default=0)
        return (
            "impossible: proved for every input in range" if largest <= STATE_LIMIT else "not proved absent"
        )

    @property
    def verdict(self) -> str:
        """Whether folding kept the PyTorch model, all executors agree, and under which assumptions."""
        assumed = " and ".join(assumption.what for assumption in self.assumptions)
        agreement = f"{self._agreement}, assuming {assumed}" if assumed else self._agreement
        faults = [] if self.fold is None or not self.fold.verdict else [self.fold.verdict]
        if self.silent:
            faults.append(f"silent: {', '.join(self.silent)} never fired, and no spike reaches the outputs")
        if self.accuracy is not None and self.accuracy.lost:
            faults.append(f"{100 * self.accuracy.loss:.1f} points of accuracy lost by quantization")
        return "; ".join([*faults, f"the integers: {agreement}"]) if faults else agreement

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
        if self.lavas_own.extent:
            return f"bit-exact to the reference; Lava's own models on {self.lavas_own.extent}"
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

    spikes_compared, spikes_mismatched = _total("spikes_compared"), _total("spikes_mismatched")
    voltages_compared, voltages_mismatched = _total("voltages_compared"), _total("voltages_mismatched")
    outputs_compared, outputs_mismatched = _total("outputs_compared"), _total("outputs_mismatched")

    @property
    def executions_wanted(self) -> int:
        return len(self.comparisons)

    @property
    def data_name(self) -> str | None:
        """The name of the data set."""
        return self.data or None

    @property
    def first_mismatch(self) -> Mismatch | None:
        return next((c.first_mismatch for c in self.comparisons if c.first_mismatch is not None), None)

    @property
    def first_flip(self) -> Flip | None:
        return None if self.drift is None else self.drift.first_flip

    @property
    def predictions(self) -> Predictions | None:
        return None if self.drift is None else self.drift.predictions

    @property
    def prediction_agreement(self) -> float | None:
        return None if self.drift is None else self.drift.predictions.agreement

    @property
    def populations(self) -> tuple[PopulationCheck, ...]:
        """Each population: its drift from the float network, and the proved bound on its states."""
        drifts = {} if self.drift is None else {p.name: p for p in self.drift.populations}
        return tuple(
            PopulationCheck(name=name, drift=drifts.get(name), state_bound=bound)
            for name, bound in self.bounds.items()
        )


def verify(
    network: IntNetwork,
    samples: Samples | Array,
    options: Verifying | None = None,
    *,
    folded: FoldedNetwork | None = None,
    netx: str | Path | None = None,
    model: SpikingNetwork | None = None,
    unrounded: FoldedNetwork | None = None,
    assumptions: tuple[Assumption, ...] = (),
    patience: float = HANG_SECONDS,
    cluster: Cluster | None = None,
    **changes: Any,
) -> VerifyReport:
    """Compare all executors of a network on samples, or on arrays of inputs.

    Keyword arguments are fields of `Verifying`: verify(network, inputs, budget=0). Others add checks:

        folded    integer against float (with labels: which changed predictions became right; with a test
                  split: accuracy on the whole of it), and the folded network in Lava's floating-point models
        netx      lava-dl's stock reader of this file, if the network is a chain
        model     the PyTorch model that was folded: spikes changed by folding, and its accuracy; or the
                  model of quantization-aware training: its spikes and outputs
        unrounded the folded network before a file rounded it to float32, to compare with `model`
        witness   simulators of others, population by population, each for about `budget` seconds; or the
                  Verilog core

    Lava's own process models are slow; they run on as many samples and populations as they can in about
    `budget` seconds (0: not at all; None: on all samples), and lava-dl's reader in a quarter of it. If a
    block of time steps takes Lava longer than `patience` seconds, it counts as hanging. A `cluster`
    distributes the samples over its workers; the report is the same. `assumptions` are those under which the
    network was read, and become part of the verdict.
    """
    if not isinstance(samples, Samples):
        samples = Samples(name="", inputs=samples, labels=None, test=None)
    inputs, asked = samples.inputs, changed(options, Verifying, changes)
    own = shift_rules(network) is None  # else lava-dl's reader is not expected to know its neurons
    obstacle = stock_reader_obstacle(network) if netx is not None and own else None
    twin = model if model is not None and isinstance(model.body, QuantizedBody) else None
    read = netx is not None and obstacle is None
    listed = chosen_executors(network, slow=asked.budget != 0, netx=read)
    named = chosen_witnesses(asked.witness, installed=False)
    requested = (each for each in named if isinstance(each, ListedExecutor))
    executions = Executions(
        network=network,
        executors=(*listed, *requested, *([] if twin is None else [TwinExecutor(model=twin)])),
        options=ExecutionOptions(netx=None if netx is None else Path(netx), patience=patience),
        budget=asked.budget,
        witnesses=tuple(each for each in named if isinstance(each, Witness)),
    )
    with ExitStack() as running:
        beside = None
        if cluster is None and len(inputs):
            beside = running.enter_context(compared_beside(executions, inputs))
            executions = beside.others(executions)
        report = _verified(
            executions,
            samples,
            folded,
            trained=None if twin else model,
            exact=unrounded or folded,
            cluster=cluster,
        )
        report = replace(report, stock_reader_obstacle=obstacle, assumptions=assumptions)
        return report if beside is None else _with_more(report, beside.result())


def _with_more(report: VerifyReport, found: Comparisons) -> VerifyReport:
    """Return the report with more comparisons, in the order of the executors."""
    return replace(
        report,
        comparisons=_ordered((*report.comparisons, *found.comparisons)),
        failed=(*report.failed, *found.failed),
    )


def _verified(
    executions: Executions,
    samples: Samples,
    folded: FoldedNetwork | None,
    *,
    trained: SpikingNetwork | None,
    exact: FoldedNetwork | None,
    cluster: Cluster | None,
) -> VerifyReport:
    """Compare executors that run in this process or on a cluster, and the integer with the folded network."""
    network, patience, inputs = executions.network, executions.options.patience, samples.inputs
    meter = DriftMeter(folded, network) if folded is not None and cluster is None else None
    compared = _compare(executions, inputs, cluster, None if meter is None else meter.add)
    report = VerifyReport(
        samples=len(inputs),
        data=samples.name,
        comparisons=compared.comparisons,
        failed=compared.failed,
        bounds={name: bound.magnitude for name, bound in bounds(network).items()},
        overflows=count_overflows(compared.overflows, 24 if shift_rules(network) is None else 16),
        trace=compared.trace,
        counted=compared.counted,
        silent=() if compared.counted is None else silent_populations(network, compared.counted),
    )
    if folded is None or exact is None:
        return report
    labels, test, name = samples.labels, samples.test, samples.name
    drift = measure_drift(folded, network, inputs, labels) if meter is None else meter.drift(labels)
    accuracy = None if test is None else measure_accuracy(folded, network, test, name, trained, cluster)
    fold, floating = _check_folded(trained, exact, folded, inputs, patience, cluster)
    if trained is not None and fold is not None and test is not None and accuracy is not None:
        fold = _with_suspects(fold, trained, exact, test, accuracy.suspects)
    return replace(report, drift=drift, accuracy=accuracy, fold=fold, floating=floating)


def silent_populations(network: IntNetwork, counted: SpikeCounts) -> tuple[str, ...]:
    """Return the populations that never fired, if no input reaches the outputs or no hidden neuron fired."""
    fires = {population.name for population in firing(network)}
    mute = fires & {name for name, spikes in counted.per_neuron.items() if not spikes.any()}
    hidden = fires - {network.output.name}
    targets = defaultdict[str, list[str]](list)
    for connection in network.connections:
        targets[connection.source].append(connection.target)
    met, waiting = {network.input.name}, [network.input.name]
    while waiting:
        found = [name for name in targets[waiting.pop()] if name not in met]
        met.update(found)
        waiting += [name for name in found if name not in mute]
    if network.output.name in met - mute and not (hidden and hidden <= mute):
        return ()
    return tuple(population.name for population in network.layers if population.name in met & mute)


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
    return replace(both, counted=shared.counted, comparisons=_ordered(both.comparisons))


def _ordered(comparisons: Iterable[Comparison]) -> tuple[Comparison, ...]:
    """Return comparisons in the order of the executors, others behind them."""
    listed = {executor.name: place for place, executor in enumerate(EXECUTORS.values())}
    return tuple(sorted(comparisons, key=lambda c: listed.get(c.execution, len(listed))))


def _with_suspects(
    fold: FoldCheck, trained: SpikingNetwork, folded: FoldedNetwork, test: Split, suspects: Sequence[int]
) -> FoldCheck:
    """Add test samples that PyTorch classifies otherwise, in float32: float64 tells changes from rounding."""
    chosen = suspects[:MAX_SUSPECTS]
    parts = (chosen[part] for part in chunks(folded, len(chosen)))
    checks = [check_fold(trained, folded, np.array([test.inputs[i] for i in part])) for part in parts]
    return join_fold_checks([fold, *checks])


def _check_folded(
    trained: SpikingNetwork | None,
    exact: FoldedNetwork,
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
            check_fold(trained, exact, inputs[part])
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
                folds.append(check_fold(trained, exact, given, folded_trace if exact is folded else None))
            if cluster is None:
                floats.append(lava.check(given, folded_trace))
    if cluster is not None:
        check = partial(check_floating_point, patience=patience)
        shards = cluster.share_out(check, folded, inputs, "Lava (floating point), shards")
        floats = [part for _, part in shards]
    return join_fold_checks(folds) if folds else None, join_floating_checks(floats)
