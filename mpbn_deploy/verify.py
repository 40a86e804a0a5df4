"""STAGE + COMMAND: executions compared bit by bit, and float against integer.

The reference simulator is the definition. The emulator, Lava and lava-dl's stock reader of
network.net are held against it in every spike, every voltage they show and every output.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from torch import nn

from . import lava_sim
from .accuracy import Accuracy, accuracy_text, measure_accuracy
from .bounds import bounds
from .certificate import check, read_certificate
from .cli import Command, Outcome, main
from .cluster import Cluster, add_execution_arguments, chosen_cluster
from .comparison import (
    COUNTS,
    Compared,
    Comparison,
    Executions,
    compare_executions,
    compare_shard,
    join_comparisons,
)
from .comparison import Mismatch as Mismatch
from .comparison import compare as compare
from .data import Split
from .drift import Drift, drift_table, drift_text, measure_drift
from .errors import OptionError
from .float_ir import FoldedNetwork
from .folder import (
    VERIFY_FILE,
    ExportFolder,
    NetworkFile,
    add_network_arguments,
    add_sample_arguments,
    open_network,
)
from .graph import as_steps
from .int_ir import STATE_LIMIT, IntNetwork
from .lava_sim.floating import FloatingCheck, check_floating_point, join_floating_checks
from .netx_io import stock_reader_obstacle
from .nn import LIF, QuantizedBody, SpikingNetwork
from .progress import announce, watched
from .records import Array, record
from .simulate import simulate

LAVA_CLAIM = "bit-accurate to Lava's fixed-point model"


@record
class FoldCheck:
    """The trained PyTorch model against the folded network, both in float64."""

    spikes_compared: int
    spikes_mismatched: int
    largest_output_difference: float


@record
class VerifyReport:
    """What was compared, and what came out."""

    samples: int
    comparisons: tuple[Comparison, ...]
    bounds: Mapping[str, int]
    failed: tuple[str, ...] = ()  # executions that broke off in the middle
    stock_reader_obstacle: str | None = None  # why lava-dl's own reader was not asked
    drift: Drift | None = None
    accuracy: Accuracy | None = None
    fold: FoldCheck | None = None
    floating: FloatingCheck | None = None

    @property
    def bit_exact(self) -> bool:
        """Whether every execution that ran equals the reference; `verdict` says how many ran."""
        return all(comparison.exact for comparison in self.comparisons)

    @property
    def passed(self) -> bool:
        """Whether nothing differs and nothing broke off; what never ran (`not_run`) proves nothing."""
        return self.bit_exact and not self.failed

    @property
    def executed(self) -> int:
        """How many executions ran; one that did not proves nothing."""
        return sum(not comparison.not_run for comparison in self.comparisons)

    @property
    def verdict(self) -> str:
        wanted = len(self.comparisons)
        if not self.bit_exact:
            return "not bit-exact"
        if not self.executed:
            return "bit-exactness not tested"
        if self.failed:
            return f"bit-exact in {self.executed} of {wanted} executions; {', '.join(self.failed)} broke off"
        if self.executed < wanted:
            return f"bit-exact in {self.executed} of {wanted} executions, the others not run"
        return "bit-exact"

    def total(self, count: str) -> int:
        return sum(getattr(comparison, count) for comparison in self.comparisons)

    def to_json(self) -> dict[str, Any]:
        first = next((c.first_mismatch for c in self.comparisons if c.first_mismatch is not None), None)
        return {
            "bit_exact": self.bit_exact,
            "executions_wanted": len(self.comparisons),
            "executions_run": self.executed,
            "executions_failed": list(self.failed),
            "samples": self.samples,
            **{count: self.total(count) for count in COUNTS},
            "first_mismatch": None if first is None else asdict(first),
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            "stock_reader_obstacle": self.stock_reader_obstacle,
            "populations": _populations_json(self),
            **_drift_json(self.drift),
            "accuracy": None if self.accuracy is None else self.accuracy.to_json(),
            "fold": None if self.fold is None else asdict(self.fold),
            "lava_floating_point": None if self.floating is None else asdict(self.floating),
        }


def verify(
    network: IntNetwork,
    inputs: Array,
    *,
    folded: FoldedNetwork | None = None,
    netx: Path | None = None,
    labels: Array | None = None,
    test: Split | None = None,
    data_name: str = "",
    model: SpikingNetwork | None = None,
    stock: bool = False,
    patience: float = lava_sim.PATIENCE,
    cluster: Cluster | None = None,
) -> VerifyReport:
    """Compare all executions of a network on some samples.

    With `folded`, also integer against float, and which changed predictions the `labels` of the samples call
    right; with the file `netx`, also lava-dl's stock reader of it, if it is a chain; with a labelled split,
    also the accuracies on all of it, and that of the PyTorch `model`. With `stock`, Lava also runs its own
    process models, which takes long; with `folded`, it also runs that, in its floating-point models. Lava is
    taken to hang when a block of steps takes longer than `patience` seconds. Workers of a `cluster` share
    the samples out among them; the report is the same.
    """
    obstacle = None if netx is None else stock_reader_obstacle(network)
    twin = model if model is not None and isinstance(model.body, QuantizedBody) else None
    executions = Executions(
        network=network,
        netx=netx if obstacle is None else None,
        twin=twin,
        stock=stock,
        patience=patience,
    )
    compared = _compare(executions, inputs, cluster)
    return VerifyReport(
        samples=len(inputs),
        comparisons=compared.comparisons,
        failed=compared.failed,
        bounds={name: bound.magnitude for name, bound in bounds(network).items()},
        stock_reader_obstacle=obstacle,
        drift=None if folded is None else measure_drift(folded, network, inputs, labels),
        accuracy=None
        if folded is None or test is None
        else measure_accuracy(folded, network, test, data_name, None if twin else model, cluster),
        floating=None if folded is None else _check_floating_point(folded, inputs, patience, cluster),
    )


def _compare(executions: Executions, inputs: Array, cluster: Cluster | None) -> Compared:
    if cluster is None:
        return compare_executions(executions, inputs)
    network = executions.network
    as_steps(inputs[:1], network.input.shape, network.timesteps)  # refuses another shape before it is sent
    announce(f"verify: reference against all executions, {len(inputs)} samples, by {cluster}")
    parts = cluster.share_out(compare_shard, executions.portable(), inputs, "verify: comparisons, shards")
    return join_comparisons(network, parts)


def _check_floating_point(
    folded: FoldedNetwork, inputs: Array, patience: float, cluster: Cluster | None
) -> FloatingCheck:
    announce(f"verify: the folded network against Lava (floating point), {len(inputs)} samples")
    check = partial(check_floating_point, patience=patience)
    if cluster is None:
        return check(folded, inputs, watch=watched("Lava (floating point), blocks of steps"))
    parts = cluster.share_out(check, folded, inputs, "Lava (floating point), shards")
    return join_floating_checks([part for _, part in parts])


def check_fold(model: SpikingNetwork, folded: FoldedNetwork, inputs: Array) -> FoldCheck:
    """Count the spikes in which the folded network differs from the PyTorch module.

    Modules are known by their paths; one that is called twice shows its last call, and is left out.
    """
    announce(f"verify: PyTorch against the folded network, {len(inputs)} samples")
    spikes, logits = trained_spikes(model, inputs)
    got = simulate(folded, inputs)
    names = [name for name in spikes if name in got.spikes and f"{name}@2" not in got.spikes]
    return FoldCheck(
        spikes_compared=sum(spikes[name].size for name in names),
        spikes_mismatched=sum(int(np.count_nonzero(spikes[name] != got.spikes[name])) for name in names),
        largest_output_difference=float(np.abs(logits - got.outputs).max()),
    )


def trained_spikes(model: SpikingNetwork, inputs: Array) -> tuple[dict[str, Array], Array]:
    """Spikes [samples, timesteps, *shape] of every LIF, by its path, and the logits, in float64."""
    model = copy.deepcopy(model).double().eval()
    spikes: dict[str, Array] = {}

    def watch(name: str) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        def keep(module: nn.Module, given: Any, sent: torch.Tensor) -> None:
            stepped = sent.view(model.timesteps, -1, *sent.shape[1:]).transpose(0, 1)
            spikes[name] = stepped.numpy().astype(bool)

        return keep

    for name, module in model.body.named_modules():
        if isinstance(module, LIF):
            module.register_forward_hook(watch(name))
    with torch.no_grad():
        logits: Array = model(torch.tensor(np.asarray(inputs, np.float64))).numpy()
    return spikes, logits


# ---- JSON and text ----------------------------------------------------------------------------


def _populations_json(report: VerifyReport) -> list[dict[str, Any]]:
    """Per population: what became of the float network's, and the proof that no state overflows."""
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


def report_text(report: VerifyReport) -> RenderableType:
    """The report for people."""
    table = Table("execution", title=f"{report.verdict}, {report.samples} samples", title_justify="left",
                  box=SIMPLE_HEAD)  # fmt: skip
    for heading in ("spikes", "different", "voltages", "different", "outputs", "different"):
        table.add_column(heading, justify="right")
    for comparison in report.comparisons:
        table.add_row(comparison.execution, *_cells(comparison))
    lines: list[RenderableType] = [
        f"{c.execution} {'broke off' if c.execution in report.failed else 'not run'}: {c.not_run}"
        for c in report.comparisons
        if c.not_run
    ]
    if report.stock_reader_obstacle is not None:
        lines.append(f"stock netx reader: not run, {report.stock_reader_obstacle}")
    lines += [_mismatch_text(c) for c in report.comparisons if c.first_mismatch]
    if report.fold is not None:
        changed, compared = report.fold.spikes_mismatched, report.fold.spikes_compared
        counts = f"{changed} of {compared}" if compared else "not compared, it has no LIF of ours"
        lines.append(f"spikes changed by folding, against the PyTorch model: {counts}")
    if report.floating is not None:
        lines.append(str(report.floating))
    if report.drift is not None:
        lines += [drift_table(report.drift), *drift_text(report.drift)]
    if report.accuracy is not None:
        lines += accuracy_text(report.accuracy)
    return Group(table, *lines)


def _cells(comparison: Comparison) -> Iterator[str]:
    """Counts in pairs; where an execution shows nothing to compare, nothing was found equal either."""
    for compared, mismatched in zip(COUNTS[::2], COUNTS[1::2], strict=True):
        shown = getattr(comparison, compared)
        yield from (str(shown), str(getattr(comparison, mismatched))) if shown else ("not shown", "")


def _mismatch_text(comparison: Comparison) -> str:
    first = comparison.first_mismatch
    assert first is not None
    step = "" if first.time_step is None else f", step {first.time_step}"
    where = f"{first.quantity} of {first.population}, sample {first.sample}{step}, neuron {list(first.index)}"
    return f"{comparison.execution}: first difference: {where}: expected {first.expected}, got {first.got}"


# ---- command ----------------------------------------------------------------------------------


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser)
    add_sample_arguments(parser)
    parser.add_argument(
        "--stock", action="store_true", help="also run Lava's own process models, which takes long"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="find again, on the same samples, what verify.json of the folder says; exit code 1 if it is not",
    )
    add_execution_arguments(parser)


def _execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options)
    told = _certificate(opened, options) if options.check else None
    count = options.samples if told is None else told["samples"]
    samples = opened.samples(count, options.data, options.data_dir)
    with chosen_cluster(options.cluster) as cluster:
        report = verify(
            opened.network,
            samples.inputs,
            folded=opened.folded,
            netx=opened.netx,
            labels=samples.labels,
            test=samples.test,
            data_name=samples.name,
            stock=options.stock,
            patience=options.patience,
            cluster=cluster,
        )
    data, text = report.to_json(), report_text(report)
    if told is None:
        return Outcome(data=data, text=text, exit_code=0 if report.passed else 1)
    checked = check(told, data)
    return Outcome(
        data={**data, "certificate": checked.to_json()},
        text=Group(text, *checked.lines()),
        exit_code=0 if report.passed and checked.holds else 1,
    )


def _certificate(opened: ExportFolder | NetworkFile, options: argparse.Namespace) -> dict[str, Any]:
    """What the folder's verify.json says, to be found again on the samples that it was found on."""
    if isinstance(opened, NetworkFile):
        raise OptionError(
            f"{opened.netx}: --check reads the certificate of an export folder; this is a file."
        )
    data = opened.manifest["data"]
    if options.data not in (None, data):
        raise OptionError(f"--check with --data {options.data}: the certificate is about samples of {data}.")
    return read_certificate(opened.path / VERIFY_FILE)


COMMAND = Command(
    name="verify",
    summary="Compare all executions of an exported network bit by bit, and integer against float.",
    details=(
        "The NumPy reference is the definition; the torch emulator, Lava's CPU simulator and lava-dl's\n"
        f"stock netx reader must equal it in every spike, voltage and output ({LAVA_CLAIM}).\n"
        "Exit code 0: bit-exact. 1: not, and the first difference is shown with all its coordinates; or\n"
        "Lava broke off in the middle.\n\n"
        "example: python -m mpbn_deploy.verify model.loihi2 --samples 16\n"
        "         python -m mpbn_deploy.verify network.net --samples 2\n"
        "         python -m mpbn_deploy.verify model.loihi2 --check\n"
        "         python -m mpbn_deploy.verify model.loihi2 --samples all --cluster local:4"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
