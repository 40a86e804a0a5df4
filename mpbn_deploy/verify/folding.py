"""The first question of a verdict: does the folded network fire every spike of the PyTorch model?"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import nn

from ..base import (
    HANG_SECONDS,
    Array,
    MissingPackageError,
    Progress,
    Report,
    SimulationError,
    no_progress,
    record,
)
from ..execute import ExecutionOptions, lava
from ..execute.reference import close_calls, simulate
from ..fold import as_trained
from ..frontend import Player, foreign_neurons, foreign_player, foreign_run, rounding_bounds, trace
from ..ir import FoldedNetwork, Trace, TrainedNetwork, as_steps, firing, picture_shape
from ..nn import LIF, SpikingNetwork, XyloLIF

SURELY_ROUNDING = 64 * np.finfo(np.float64).eps  # of an output: below every bound of `rounding_bounds`


@record
class FoldCheck(Report):
    """The trained PyTorch model compared with the folded network, both in float64.

    Spikes that differ in a sample follow from the first of them. If these are all ties, membranes so near to
    their threshold that rounding decides, float64 cannot say which of both is right: the sample is
    undecided. Otherwise folding changed it.
    """

    JSON = """agrees? samples? spikes_compared spikes_mismatched samples_changed? samples_undecided? ties?
        outputs_compared? outputs_mismatched? predictions_changed? largest_output_difference
        constant_inputs?"""

    samples: int
    spikes_compared: int
    spikes_mismatched: int  # in all samples
    samples_changed: int
    samples_undecided: int
    ties: int  # the first spikes that differ in undecided samples
    outputs_compared: int
    outputs_mismatched: int  # by more than rounding, in samples whose spikes agree
    predictions_changed: int
    largest_output_difference: float | None  # None if no outputs were compared
    constant_inputs: bool = False  # samples change over time, and the module repeats their first step

    @property
    def compared(self) -> bool:
        return self.spikes_compared + self.outputs_compared > 0

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and nothing differs that float64 decides."""
        return self.compared and not self.samples_changed and not self.outputs_mismatched

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any]) -> FoldCheck:
        """Read what an export recorded; earlier releases recorded spikes only."""
        found = {field.name: recorded.get(field.name, 0) for field in fields(cls)}
        if "samples_changed" not in recorded:
            found["samples_changed"] = int(bool(found["spikes_mismatched"]))
            found["outputs_compared"] = int(recorded.get("largest_output_difference") is not None)
        return cls(**{**found, "constant_inputs": bool(found["constant_inputs"])})

    @property
    def verdict(self) -> str:
        """'folding changed the network: ...'; '' if it did not."""
        if self.agrees:
            return ""
        if not self.compared:
            return "folding not tested: nothing of the PyTorch model could be compared"
        counts = [f"{self.spikes_mismatched} of {self.spikes_compared} spikes"] * bool(self.samples_changed)
        counts += [f"{self.outputs_mismatched} of {self.outputs_compared} outputs"] * bool(
            self.outputs_mismatched
        )
        counts += [f"{self.predictions_changed} of {self.samples} predictions"]
        return f"folding changed the network: {', '.join(counts)} differ from the PyTorch model"

    def __str__(self) -> str:
        """Return the line of the printed report."""
        text = (
            f"changed by folding, against the PyTorch model: {self.spikes_mismatched} of "
            f"{self.spikes_compared} spikes, {self.outputs_mismatched} of {self.outputs_compared} outputs, "
            f"{self.predictions_changed} of {self.samples} predictions"
        )
        if self.constant_inputs:
            text += "; the model repeats one input, and got the first time step of each sample"
        if self.samples_undecided:
            text += (
                f"; {self.samples_undecided} of {self.samples} samples undecided: the first spikes that "
                f"differ, {self.ties}, are ties, closer to their threshold than float64 resolves"
            )
        return text


def check_fold(
    model: SpikingNetwork,
    folded: FoldedNetwork,
    inputs: Array,
    folded_trace: Callable[[], Trace] | None = None,
) -> FoldCheck:
    """Count the spikes, outputs and predictions in which the folded network differs from the PyTorch module.

    Layers are matched by their path in the module. `folded_trace` returns the trace of the folded network, to
    avoid computing it twice. Modules without LIFs of ours are run in their own way; one that repeats its
    input gets the first time step of each sample.
    """
    player = None if in_one_run(model, folded) else foreign_player(model)
    constant = player is not None and is_repeated(player, folded, inputs)
    if constant:
        inputs, folded_trace = inputs[:, 0], None
    got = simulate(folded, inputs) if folded_trace is None else folded_trace()
    if player is None:
        spikes, outputs = trained_spikes(model, inputs)
    else:
        spikes, outputs = foreign_run(player, model, inputs)
    trained, fired = trace(model), got.spikes
    names = [name for name in fired if name in spikes]
    if any(spikes[name].shape != fired[name].shape for name in names):
        fired = as_trained(trained, fired)
    steps = as_steps(inputs, folded.input.shape, folded.timesteps)
    epsilon = torch.finfo(torch.float64 if player is None else player.dtype).eps
    run = _Run(trained=trained, inputs=steps, spikes=spikes, epsilon=epsilon)
    differs = {name: spikes[name] != fired[name] for name in names}
    return _compared(run, differs, outputs, got.outputs, constant)


def is_repeated(player: Player, folded: FoldedNetwork, inputs: Array) -> bool:
    """Whether a module repeats one input in all time steps, and the inputs change over time."""
    return player.style == "loop" and np.ndim(inputs) > 1 + len(folded.input.shape)


@record
class _Run:
    """A run of the module: raw inputs and spikes [samples, timesteps, *shape], and its relative precision."""

    trained: TrainedNetwork
    inputs: Array
    spikes: Mapping[str, Array]
    epsilon: float

    def bounds(self, samples: Array) -> tuple[dict[str, Array], Array]:
        """Return the ties [samples, timesteps, *shape] by neuron, and the bounds on errors of outputs."""

        def chosen(values: Array) -> torch.Tensor:
            return torch.tensor(values[samples]).transpose(0, 1)

        spikes = {name: chosen(values) for name, values in self.spikes.items()}
        found = rounding_bounds(self.trained, chosen(self.inputs.astype(np.float64)), spikes, self.epsilon)
        ties = {name: each.transpose(0, 1).numpy() for name, each in found.ties.items()}
        return ties, found.outputs.flatten(1).numpy()


def _compared(
    run: _Run, differs: Mapping[str, Array], theirs: Array, ours: Array, constant: bool
) -> FoldCheck:
    theirs, ours = (each.reshape(len(run.inputs), -1) for each in (theirs, ours))
    apart = np.zeros(len(run.inputs), bool)
    for each in differs.values():
        apart |= each.reshape(len(each), -1).any(axis=1)
    ties = _ties(run, differs, np.flatnonzero(apart)) if apart.any() else []
    difference = np.abs(theirs - ours)[~apart]
    wrong = ~(difference <= SURELY_ROUNDING * np.abs(ours[~apart]))  # NaN is wrong, too
    if wrong.any():
        _, bound = run.bounds(np.flatnonzero(~apart))
        wrong = ~(difference <= bound)
    return FoldCheck(
        samples=len(run.inputs),
        spikes_compared=sum(each.size for each in differs.values()),
        spikes_mismatched=sum(int(np.count_nonzero(each)) for each in differs.values()),
        samples_changed=ties.count(0),
        samples_undecided=len(ties) - ties.count(0),
        ties=sum(ties),
        outputs_compared=difference.size,
        outputs_mismatched=int(np.count_nonzero(wrong)),
        predictions_changed=int(np.count_nonzero(theirs.argmax(axis=1) != ours.argmax(axis=1))),
        largest_output_difference=float(np.abs(theirs - ours).max()),
        constant_inputs=constant,
    )


def _ties(run: _Run, differs: Mapping[str, Array], samples: Array) -> list[int]:
    """Return how many spikes of each sample differ first, by time and layer, if all of them are ties.

    0 for a sample whose first difference is more than rounding.
    """
    ties, _ = run.bounds(samples)
    counts = []
    for place, sample in enumerate(samples):
        first = {name: each[sample].reshape(each.shape[1], -1) for name, each in differs.items()}
        step, name = next(
            (step, name)
            for step in range(run.trained.timesteps)
            for name, each in first.items()
            if each[step].any()
        )
        decided = first[name][step] & ~ties[name][place, step].reshape(-1)
        counts.append(0 if decided.any() else int(first[name][step].sum()))
    return counts


def join_fold_checks(parts: Sequence[FoldCheck]) -> FoldCheck:
    """Join the checks of all parts of the samples."""
    largest = [p.largest_output_difference for p in parts if p.largest_output_difference is not None]
    kept = ("largest_output_difference", "constant_inputs")
    return FoldCheck(
        **{f.name: sum(getattr(p, f.name) for p in parts) for f in fields(FoldCheck) if f.name not in kept},
        largest_output_difference=max(largest, default=None),
        constant_inputs=parts[0].constant_inputs,
    )


def in_one_run(model: SpikingNetwork, folded: FoldedNetwork) -> bool:
    """Whether a model computes all time steps in one call: its neurons are ours, or it has none."""
    ours = any(isinstance(part, LIF) for part in model.body.modules())
    return not foreign_neurons(model.body) and (ours or not any(firing(folded)))


def trained_spikes(model: SpikingNetwork, inputs: Array) -> tuple[dict[str, Array], Array]:
    """Return the spikes [samples, timesteps, *shape] of every LIF, by its path, and the logits in float64.

    The second call of a LIF is PATH@2, as in the traced network.
    """
    model = copy.deepcopy(model).double().eval()
    spikes: dict[str, Array] = {}
    calls: Counter[str] = Counter()

    def recorder(path: str) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        def keep(module: nn.Module, given: Any, sent: torch.Tensor) -> None:
            calls[path] += 1
            name = path if calls[path] == 1 else f"{path}@{calls[path]}"
            stepped = sent.view(model.timesteps, -1, *picture_shape(tuple(sent.shape[1:]))).transpose(0, 1)
            kind = np.int64 if isinstance(module, XyloLIF) else np.bool_
            spikes[name] = stepped.numpy().astype(kind)

        return keep

    for name, module in model.body.named_modules():
        if isinstance(module, LIF):
            module.register_forward_hook(recorder(name))
    with torch.no_grad():
        logits: Array = model(torch.tensor(np.asarray(inputs, np.float64))).numpy()
    return spikes, logits


# Compare the folded network in Lava's floating-point models with the reference simulator in float64.


COUNTS = ("spikes_compared", "spikes_mismatched", "spikes_mismatched_in_doubt", "close_calls")


@record
class FloatingCheck:
    """Counts of differing spikes; `not_run` gives the reason if none were compared.

    A close call is a voltage so close to its threshold that the rounding of float64 decides. Two summation
    orders may then give different spikes, also later in that sample, so the differences in samples with
    close calls are counted separately.
    """

    spikes_compared: int = 0
    spikes_mismatched: int = 0
    spikes_mismatched_in_doubt: int = 0
    close_calls: int = 0
    not_run: str | None = None

    def __str__(self) -> str:
        label = "Lava (floating point), against the folded network"
        if self.not_run is not None:
            return f"{label}: not run, {self.not_run}"
        counts = f"{self.spikes_mismatched} of {self.spikes_compared} spikes different"
        if self.spikes_mismatched_in_doubt:
            counts += f", and {self.spikes_mismatched_in_doubt} in samples with close calls"
        return f"{label}: {counts} ({self.close_calls} close calls)"


def check_floating_point(
    folded: FoldedNetwork, inputs: Array, *, patience: float = HANG_SECONDS, progress: Progress = no_progress
) -> FloatingCheck:
    """Count the spikes in which Lava's floating-point models differ from `simulate`."""
    with FloatingRun(folded, len(inputs), patience, progress) as lava_run:
        return lava_run.check(inputs, lambda: simulate(folded, inputs))


class FloatingRun:
    """Lava's floating-point models, started once, to check one part of the samples after the other."""

    def __init__(
        self, folded: FoldedNetwork, samples: int, patience: float, progress: Progress = no_progress
    ) -> None:
        self.folded, self.samples = folded, samples
        self.options = ExecutionOptions(patience=patience, progress=progress)
        self.started = ExitStack()
        self.run: Callable[[Array], Trace] | None = None
        self.broken: FloatingCheck | None = None

    def __enter__(self) -> FloatingRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.started.close()

    def check(self, inputs: Array, folded_trace: Callable[[], Trace]) -> FloatingCheck:
        """Check some samples; `folded_trace` returns the trace of `simulate`."""
        if self.broken is not None:
            return self.broken
        try:
            if self.run is None:
                self.run = self.started.enter_context(lava.opened(self.folded, self.samples, self.options))
            spikes = self.run(inputs).spikes
        except (MissingPackageError, SimulationError) as error:
            self.broken = FloatingCheck(not_run=str(error))
            return self.broken
        return _compare(self.folded, inputs, folded_trace(), spikes)


def _compare(
    folded: FoldedNetwork, inputs: Array, expected: Trace, got: Mapping[str, Array]
) -> FloatingCheck:
    close = close_calls(folded, inputs, expected)
    samples = len(expected.outputs)
    doubtful = np.zeros(samples, np.bool_)
    for where in close.values():
        doubtful |= where.reshape(samples, -1).any(axis=1)
    different = {name: expected.spikes[name] != spikes for name, spikes in got.items()}
    return FloatingCheck(
        spikes_compared=sum(spikes.size for spikes in got.values()),
        spikes_mismatched=sum(int(np.count_nonzero(where[~doubtful])) for where in different.values()),
        spikes_mismatched_in_doubt=sum(
            int(np.count_nonzero(where[doubtful])) for where in different.values()
        ),
        close_calls=sum(int(np.count_nonzero(where)) for where in close.values()),
    )


def join_floating_checks(parts: Sequence[FloatingCheck]) -> FloatingCheck:
    """Add up the counts of all parts; if one of them did not run, the whole counts as not run."""
    if broken := [part for part in parts if part.not_run is not None]:
        return broken[0]
    return FloatingCheck(**{count: sum(getattr(part, count) for part in parts) for count in COUNTS})
