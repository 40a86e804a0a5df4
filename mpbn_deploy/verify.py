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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from torch import nn

from . import lava_sim
from .bounds import bounds
from .cli import Command, Outcome, main
from .data import Split
from .emulate import emulate
from .errors import MissingPackageError, SimulationError
from .float_ir import FoldedNetwork
from .folder import add_network_arguments, add_sample_arguments, open_network
from .graph import Trace
from .int_ir import STATE_LIMIT, IntNetwork
from .netx_io import stock_reader_loads
from .nn import LIF, SpikingNetwork
from .progress import announce
from .records import Array, record
from .simulate import simulate

COUNTS = (
    "spikes_compared",
    "spikes_mismatched",
    "voltages_compared",
    "voltages_mismatched",
    "outputs_compared",
    "outputs_mismatched",
)
SAMPLES_AT_ONCE = 1024
LAVA_CLAIM = "bit-accurate to Lava's fixed-point model"


@record
class Mismatch:
    """The first place where two executions differ."""

    quantity: str  # spike, voltage or output
    population: str
    sample: int
    time_step: int | None  # None for an output
    index: tuple[int, ...]
    expected: int
    got: int


@record
class Comparison:
    """One execution against the reference; `not_run` says why it did not happen."""

    execution: str
    spikes_compared: int = 0
    spikes_mismatched: int = 0
    voltages_compared: int = 0
    voltages_mismatched: int = 0
    outputs_compared: int = 0
    outputs_mismatched: int = 0
    first_mismatch: Mismatch | None = None
    not_run: str | None = None

    @property
    def exact(self) -> bool:
        return not (self.spikes_mismatched or self.voltages_mismatched or self.outputs_mismatched)


@record
class FoldCheck:
    """The trained PyTorch model against the folded network, both in float64."""

    spikes_compared: int
    spikes_mismatched: int
    largest_output_difference: float


@record
class Drift:
    """How far the integer network is from the float one on these samples."""

    spike_agreement: Mapping[str, float]
    prediction_agreement: float


@record
class Accuracy:
    """On a whole labelled split, through the emulator."""

    data: str
    samples: int
    float_network: float
    integer_network: float


@record
class VerifyReport:
    """What was compared, and what came out."""

    samples: int
    comparisons: tuple[Comparison, ...]
    bounds: Mapping[str, int]
    drift: Drift | None = None
    accuracy: Accuracy | None = None
    fold: FoldCheck | None = None

    @property
    def bit_exact(self) -> bool:
        """Whether every execution that ran equals the reference; `verdict` says how many ran."""
        return all(comparison.exact for comparison in self.comparisons)

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
            "samples": self.samples,
            **{count: self.total(count) for count in COUNTS},
            "first_mismatch": None if first is None else asdict(first),
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            "populations": _populations_json(self),
            "prediction_agreement": None if self.drift is None else self.drift.prediction_agreement,
            "accuracy": None if self.accuracy is None else _accuracy_json(self.accuracy),
            "fold": None if self.fold is None else asdict(self.fold),
        }


def verify(
    network: IntNetwork,
    inputs: Array,
    *,
    folded: FoldedNetwork | None = None,
    netx: Path | None = None,
    test: Split | None = None,
    data_name: str = "",
) -> VerifyReport:
    """Compare all executions of a network on some samples.

    With `folded`, also integer against float; with the file `netx`, also lava-dl's stock reader of
    it, if it is a chain; with a labelled split, also the accuracies on all of it.
    """
    reference = simulate(network, inputs)
    executions: dict[str, Callable[[], Trace]] = {
        "emulator": lambda: emulate(network, inputs),
        "Lava": lambda: lava_sim.run(network, inputs),
    }
    if netx is not None and stock_reader_loads(network):
        executions["lava-dl netx"] = lambda: lava_sim.run_stock_netx(netx, network, inputs)
    comparisons = []
    for name, execute in executions.items():
        announce(f"verify: reference against {name}, {len(inputs)} samples")
        try:
            comparisons.append(compare(name, reference, execute()))
        except (MissingPackageError, SimulationError) as error:
            comparisons.append(Comparison(execution=name, not_run=str(error)))
    return VerifyReport(
        samples=len(inputs),
        comparisons=tuple(comparisons),
        bounds={name: bound.magnitude for name, bound in bounds(network).items()},
        drift=None if folded is None else measure_drift(emulate(folded, inputs), reference),
        accuracy=None
        if folded is None or test is None
        else measure_accuracy(folded, network, test, data_name),
    )


def compare(name: str, expected: Trace, got: Trace) -> Comparison:
    """Count what differs between two traces; populations that `got` does not show are not counted."""
    pairs = [("spike", name, expected.spikes[name], values) for name, values in got.spikes.items()]
    pairs += [("voltage", name, expected.voltages[name], values) for name, values in got.voltages.items()]
    pairs.append(("output", "output", expected.outputs, got.outputs))
    compared = dict.fromkeys(("spike", "voltage", "output"), 0)
    mismatched = dict(compared)
    for quantity, _, left, right in pairs:
        compared[quantity] += left.size
        mismatched[quantity] += int(np.count_nonzero(left != right))
    return Comparison(
        execution=name,
        spikes_compared=compared["spike"],
        spikes_mismatched=mismatched["spike"],
        voltages_compared=compared["voltage"],
        voltages_mismatched=mismatched["voltage"],
        outputs_compared=compared["output"],
        outputs_mismatched=mismatched["output"],
        first_mismatch=_first_mismatch(pairs),
    )


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


def measure_drift(real: Trace, integer: Trace) -> Drift:
    """The share of equal spikes per population, and of equal predictions."""
    agreement = {
        name: float(np.mean(real.spikes[name] == spikes))
        for name, spikes in integer.spikes.items()
        if spikes.any() or real.spikes[name].any()
    }
    same = np.mean(real.predictions == integer.predictions)
    return Drift(spike_agreement=agreement, prediction_agreement=float(same))


def measure_accuracy(folded: FoldedNetwork, network: IntNetwork, test: Split, name: str) -> Accuracy:
    announce(f"verify: accuracy on all {len(test)} test samples")
    real, integer = (
        emulate(which, test.inputs[:], keep_trace=False).predictions for which in (folded, network)
    )
    return Accuracy(
        data=name,
        samples=len(test),
        float_network=float(np.mean(real == test.labels)),
        integer_network=float(np.mean(integer == test.labels)),
    )


def _predictions(network: FoldedNetwork | IntNetwork, test: Split) -> Array:
    """Of all test samples, in parts: a whole data set of pictures may not fit in memory."""
    starts = range(0, len(test), SAMPLES_AT_ONCE)
    samples = (test.inputs[start : start + SAMPLES_AT_ONCE] for start in starts)
    return np.concatenate([emulate(network, part, keep_trace=False).predictions for part in samples])


def _first_mismatch(pairs: list[tuple[str, str, Array, Array]]) -> Mismatch | None:
    """The earliest in time; among equals, in the first population, of the first sample."""
    found = []
    for order, (quantity, population, expected, got) in enumerate(pairs):
        where = np.argwhere(expected != got)
        if not len(where):
            continue
        timed = quantity != "output"
        at = tuple(where[where[:, 1].argmin()] if timed else where[0])
        step = int(at[1]) if timed else None
        mismatch = Mismatch(
            quantity=quantity,
            population=population,
            sample=int(at[0]),
            time_step=step,
            index=tuple(int(i) for i in at[2 if timed else 1 :]),
            expected=int(expected[at]),
            got=int(got[at]),
        )
        found.append((np.inf if step is None else step, order, mismatch))
    return min(found, key=lambda entry: entry[:2])[2] if found else None


# ---- JSON and text ----------------------------------------------------------------------------


def _populations_json(report: VerifyReport) -> list[dict[str, Any]]:
    """Per population: agreement with the float network, and the proof that no state overflows."""
    agreement = {} if report.drift is None else report.drift.spike_agreement
    return [
        {
            "name": name,
            "spike_agreement": agreement.get(name),
            "state_bound": bound,
            "state_limit": STATE_LIMIT,
            "overflow_proved_absent": bound <= STATE_LIMIT,
        }
        for name, bound in report.bounds.items()
    ]


def _accuracy_json(accuracy: Accuracy) -> dict[str, Any]:
    return {
        "data": accuracy.data,
        "samples": accuracy.samples,
        "float": accuracy.float_network,
        "integer": accuracy.integer_network,
    }


def report_text(report: VerifyReport) -> RenderableType:
    """The report for people."""
    table = Table("execution", title=f"{report.verdict}, {report.samples} samples", title_justify="left",
                  box=SIMPLE_HEAD)  # fmt: skip
    for heading in ("spikes", "different", "voltages", "different", "outputs", "different"):
        table.add_column(heading, justify="right")
    for comparison in report.comparisons:
        table.add_row(comparison.execution, *_cells(comparison))
    lines = [f"{c.execution} not run: {c.not_run}" for c in report.comparisons if c.not_run]
    lines += [_mismatch_text(c) for c in report.comparisons if c.first_mismatch]
    if report.fold is not None:
        changed, compared = report.fold.spikes_mismatched, report.fold.spikes_compared
        counts = f"{changed} of {compared}" if compared else "not compared, it has no LIF of ours"
        lines.append(f"spikes changed by folding, against the PyTorch model: {counts}")
    if report.drift is not None:
        shares = ", ".join(f"{name} {share:.2%}" for name, share in report.drift.spike_agreement.items())
        lines.append(f"spikes equal to the float network: {shares}")
        lines.append(f"predictions equal to the float network: {report.drift.prediction_agreement:.2%}")
    if report.accuracy is not None:
        accuracy = report.accuracy
        lines.append(
            f"accuracy on all {accuracy.samples} test samples of {accuracy.data}: "
            f"float {accuracy.float_network:.2%}, integer {accuracy.integer_network:.2%}"
        )
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


def _execute(options: argparse.Namespace) -> Outcome:
    opened = open_network(options)
    samples = opened.samples(options.samples, options.data, options.data_dir)
    report = verify(
        opened.network,
        samples.inputs,
        folded=opened.folded,
        netx=opened.netx,
        test=samples.test,
        data_name=samples.name,
    )
    return Outcome(data=report.to_json(), text=report_text(report), exit_code=0 if report.bit_exact else 1)


COMMAND = Command(
    name="verify",
    summary="Compare all executions of an exported network bit by bit, and integer against float.",
    details=(
        "The NumPy reference is the definition; the torch emulator, Lava's CPU simulator and lava-dl's\n"
        f"stock netx reader must equal it in every spike, voltage and output ({LAVA_CLAIM}).\n"
        "Exit code 0: bit-exact. 1: not; the first difference is shown with all its coordinates.\n\n"
        "example: python -m mpbn_deploy.verify model.loihi2 --samples 16\n"
        "         python -m mpbn_deploy.verify network.net --samples 2"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
