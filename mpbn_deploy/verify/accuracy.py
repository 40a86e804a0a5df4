"""Predictions: how many quantization and folding changed, and accuracy on a whole test split."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import sqrt
from typing import Any

import numpy as np
import torch

from ..base import Array, DataError, Report, announce, progress_bar, record
from ..data import Split
from ..execute import ExecutionOptions
from ..execute.cluster import Cluster
from ..execute.emulator import CHUNK, emulate
from ..frontend import foreign_player, foreign_run
from ..ir import FoldedNetwork, IntNetwork, Trace, as_steps
from ..nn import SpikingNetwork
from ..quantize import QuantizedBody
from .folding import in_one_run, is_repeated

SAMPLES_AT_ONCE = 1024  # read and computed together; a whole data set may not fit in memory
MATRIX_CLASSES = 20  # most classes whose confusion matrix is a readable table
MAX_CONFUSIONS = 20
TOLERATED_LOSS = 0.01  # of accuracy, by rounding
STANDARD_ERRORS = 2  # a loss within so many may be chance
TRAIN_INTEGERS = "python -m mpbn_deploy.train --quantize TARGET --init MODEL"


@record
class Predictions(Report):
    """Counts of samples for which the integer and the float network predict different classes.

    A changed prediction became right, became wrong, or is wrong in both networks. Without labels,
    `became_right` and `became_wrong` are None.
    """

    samples: int
    changed: int
    became_right: int | None = None  # None without labels
    became_wrong: int | None = None

    @property
    def agreement(self) -> float:
        """The share of predictions that did not change."""
        return 1 - self.changed / self.samples

    def __str__(self) -> str:
        """'3 of 360, of which 1 became right and 2 became wrong'"""
        text = f"{self.changed} of {self.samples}"
        if not self.changed or self.became_right is None:
            return text
        return f"{text}, of which {self.became_right} became right and {self.became_wrong} became wrong"


@record
class ClassAccuracy(Report):
    """The fraction of the samples of one class that each network recognizes."""

    JSON = "label samples float=float_network integer=integer_network"

    label: int
    samples: int
    float_network: float
    integer_network: float


@record
class Confusion:
    """Samples of class `label` for which the integer network predicts another class."""

    label: int
    predicted: int
    samples: int


@record
class PerClass(Report):
    """Accuracy per class, and which classes the integer network confuses.

    `matrix[label][predicted]` counts samples; None beyond MATRIX_CLASSES classes. `confusions` are the most
    frequent ones, at most MAX_CONFUSIONS.
    """

    classes: tuple[ClassAccuracy, ...]  # those with samples
    confusions: tuple[Confusion, ...]  # the most frequent ones
    matrix: tuple[tuple[int, ...], ...] | None


@record
class Trial:
    """A command that exports the network with other integers, and the accuracy of these."""

    command: str
    integer_network: float
    keeps: bool  # the accuracy of the folded network


@record
class Accuracy(Report):
    """Accuracy on a whole labelled split, of the folded and the integer network in the emulator.

    `trained_network` is the accuracy of the PyTorch model in its own precision. Folding changes spikes only
    where float32 cannot resolve the distance between voltage and threshold; `changed_by_folding` counts the
    predictions that differ. `tried` are other ways to export a network that lost accuracy.
    """

    JSON = """data samples trained=trained_network float=float_network integer=integer_network lost?
        collapsed tried? changed_by_folding predictions per_class"""

    data: str
    samples: int
    float_network: float
    integer_network: float
    predictions: Predictions | None = None
    trained_network: float | None = None
    changed_by_folding: int | None = None
    per_class: PerClass | None = None
    tried: tuple[Trial, ...] = ()  # exports with other options, until one kept the accuracy
    suspects: tuple[int, ...] = ()  # the samples whose predictions folding changed

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any]) -> Accuracy:
        """Read what an export recorded."""
        found = recorded.get("predictions")
        return cls(
            data=recorded["data"],
            samples=recorded["samples"],
            float_network=recorded["float"],
            integer_network=recorded["integer"],
            trained_network=recorded.get("trained"),
            predictions=None if found is None else Predictions(**found),
            tried=tuple(Trial(**each) for each in recorded.get("tried", ())),
        )

    @property
    def line(self) -> str:
        """'PyTorch 97.8%, folded 97.8%, integer 97.5%, on 360 test samples of digits'"""
        trained = "" if self.trained_network is None else f"PyTorch {self.trained_network:.2%}, "
        return (
            f"{trained}folded {self.float_network:.2%}, integer {self.integer_network:.2%}, on "
            f"{self.samples:,} test samples of {self.data}"
        )

    @property
    def loss(self) -> float:
        """The accuracy that quantization lost."""
        return self.float_network - self.integer_network

    @property
    def standard_error(self) -> float:
        """The standard error of the loss, from the n predictions that both networks made.

        sqrt(wrong + right - (wrong - right)**2 / n) / n, for predictions that became wrong and right
        """
        found = self.predictions
        if found is None or found.became_right is None or found.became_wrong is None:
            return 0.0
        right, wrong = found.became_right, found.became_wrong
        return sqrt(wrong + right - (wrong - right) ** 2 / self.samples) / self.samples

    @property
    def lost(self) -> bool:
        """Whether quantization lost more than a point of accuracy, and more than chance explains."""
        return self.loss > max(TOLERATED_LOSS, STANDARD_ERRORS * self.standard_error)

    @property
    def remedy(self) -> str:
        """The command that keeps the accuracy, or the one that trains the integers; '' if none was lost."""
        kept = (trial.command for trial in self.tried if trial.keeps)
        return next(kept, TRAIN_INTEGERS) if self.lost else ""

    @property
    def collapsed(self) -> bool:
        """Whether quantization also changed most predictions."""
        return self.lost and self.predictions is not None and self.predictions.agreement < 0.5


def compare_classes(real: Array, integer: Array, labels: Array, outputs: int) -> PerClass:
    """Count, per class, the right predictions of both networks and the wrong ones of the integer network."""
    pairs, counts = np.unique(np.stack([labels, integer], axis=1), axis=0, return_counts=True)
    found = [
        Confusion(label=int(label), predicted=int(predicted), samples=int(count))
        for (label, predicted), count in zip(pairs, counts, strict=True)
    ]
    wrong = sorted((each for each in found if each.label != each.predicted), key=lambda each: -each.samples)
    size = max(outputs, int(labels.max()) + 1)
    matrix = np.zeros((size, size) if size <= MATRIX_CLASSES else (0, 0), int)
    if matrix.size:
        np.add.at(matrix, (labels, integer), 1)
    chosen, samples = np.unique(labels, return_counts=True)
    right = [np.bincount(labels[predicted == labels], minlength=size) for predicted in (real, integer)]
    return PerClass(
        classes=tuple(
            ClassAccuracy(
                label=int(label),
                samples=int(count),
                float_network=float(right[0][label] / count),
                integer_network=float(right[1][label] / count),
            )
            for label, count in zip(chosen, samples, strict=True)
        ),
        confusions=tuple(wrong[:MAX_CONFUSIONS]),
        matrix=tuple(map(tuple, matrix.tolist())) if matrix.size else None,
    )


def compare_predictions(real: Array, integer: Array, labels: Array | None = None) -> Predictions:
    """Compare the predictions of the float network with those of the integer network."""
    changed = real != integer
    if labels is None:
        return Predictions(samples=len(real), changed=int(changed.sum()))
    if len(labels) != len(real):
        raise DataError(f"{len(labels)} labels for {len(real)} samples; give one per sample, or none.")
    return Predictions(
        samples=len(real),
        changed=int(changed.sum()),
        became_right=int((changed & (integer == labels)).sum()),
        became_wrong=int((changed & (real == labels)).sum()),
    )


def measure_accuracy(
    folded: FoldedNetwork,
    network: IntNetwork,
    test: Split,
    name: str,
    model: SpikingNetwork | None = None,
    cluster: Cluster | None = None,
) -> Accuracy:
    """Measure the accuracy of each network given.

    A `cluster` distributes the samples over its workers, except for the PyTorch model.
    """
    announce(f"verify: accuracy on all {len(test)} test samples")
    real, integer = predict(folded, test, "float", cluster), predict(network, test, "integer", cluster)
    trained = None if model is None else predict_trained(model, folded, test)
    suspects = () if trained is None else np.flatnonzero(trained != real).tolist()
    return Accuracy(
        data=name,
        samples=len(test),
        float_network=float(np.mean(real == test.labels)),
        integer_network=float(np.mean(integer == test.labels)),
        predictions=compare_predictions(real, integer, test.labels),
        trained_network=None if trained is None else float(np.mean(trained == test.labels)),
        changed_by_folding=None if trained is None else len(suspects),
        suspects=tuple(suspects),
        per_class=compare_classes(real, integer, test.labels, network.output.size),
    )


def predict(
    network: FoldedNetwork | IntNetwork, test: Split, label: str, cluster: Cluster | None = None
) -> Array:
    """Return the predicted class of each test sample."""
    label = f"verify: accuracy, {label}"
    if cluster is not None:
        # Whole chunks of the emulator, so that float64 sums have the same order as without a cluster.
        parts = cluster.share_out(predict_part, network, test.inputs, label, multiple=CHUNK)
        return np.concatenate([predictions for _, predictions in parts])
    starts = range(0, len(test), SAMPLES_AT_ONCE)
    chunks = (test.inputs[start : start + starts.step] for start in progress_bar(label)(starts))
    return np.concatenate([predict_part(network, chunk) for chunk in chunks])


def predict_part(network: FoldedNetwork | IntNetwork, inputs: Array) -> Array:
    """Return the predicted class of each sample."""
    return emulate(network, inputs, keep_trace=False).predictions


def predict_trained(model: SpikingNetwork, folded: FoldedNetwork, test: Split) -> Array | None:
    """Return the class that the PyTorch model predicts for each test sample.

    None for a model that repeats one input, if the samples change over time.
    """
    whole, player = copy.deepcopy(model).eval(), None
    if not in_one_run(model, folded):
        player = foreign_player(model)
        if is_repeated(player, folded, test.inputs[:1]):
            return None
        player = player.of_type(torch.float32)  # as it was trained
    starts = range(0, len(test), SAMPLES_AT_ONCE // 4)  # fewer: the model holds all time steps in memory
    shown = progress_bar("verify: accuracy, PyTorch")(starts)
    predictions: list[Array] = []
    for start in shown:
        chunk = np.array(test.inputs[start : start + starts.step])
        if player is not None:
            _, outputs = foreign_run(player, model, chunk)
        else:
            with torch.no_grad():
                outputs = whole(torch.from_numpy(chunk)).numpy()
        predictions.append(outputs.reshape(len(outputs), -1).argmax(axis=1))
    return np.concatenate(predictions)


def accuracy_text(accuracy: Accuracy) -> list[str]:
    """Return the lines of the printed report."""
    lines = [f"accuracy: {accuracy.line}"]
    if accuracy.predictions is not None:
        lines.append(
            "predictions changed by quantization, against the folded network, on these test samples: "
            f"{accuracy.predictions}"
        )
    lines += _loss_lines(accuracy)
    if accuracy.changed_by_folding:
        lines.append(
            f"predictions changed by folding, against PyTorch in float32: {accuracy.changed_by_folding}"
        )
    return lines


def _loss_lines(accuracy: Accuracy) -> Iterator[str]:
    """Yield what quantization lost, and the command that keeps it, or all that do not."""
    if not accuracy.lost:
        return
    lost, error = 100 * accuracy.loss, 100 * accuracy.standard_error
    yield f"ACCURACY LOST by quantization: {lost:.2f} points, with a standard error of {error:.2f}"
    for trial in accuracy.tried:
        if trial.keeps:
            yield f"this command keeps it (tried: integer {trial.integer_network:.2%}): {trial.command}"
            return
    for trial in accuracy.tried:
        yield f"tried, not enough (integer {trial.integer_network:.2%}): {trial.command}"
    yield f"training can adapt the integers: {TRAIN_INTEGERS}; fewer --timesteps leave more bits to weights"


# An executor that runs the PyTorch model of quantization-aware training.


@record
class TwinExecutor:
    """Runs the PyTorch model that an integer network was taken from; reports spikes and outputs only."""

    model: SpikingNetwork
    name: str = "PyTorch, as trained"
    parts: str = "all samples at once"

    def obstacle(self, network: IntNetwork) -> str | None:
        """Return None: the model can run the network that was taken from it."""
        return None

    def opened(
        self, network: IntNetwork, samples: int, options: ExecutionOptions
    ) -> AbstractContextManager[Callable[[Array], Trace]]:
        return nullcontext(lambda inputs: self.run(network, inputs, options))

    def run(self, network: IntNetwork, inputs: Array, options: ExecutionOptions) -> Trace:
        """Run the model on inputs [samples, ...] and return its trace, without voltages."""
        model, body = self.model, self.model.body
        assert isinstance(body, QuantizedBody)
        stepped = as_steps(np.asarray(inputs, np.float32), model.input_format.shape, model.timesteps)
        with torch.no_grad():
            sent = body.run(torch.from_numpy(stepped.swapaxes(0, 1).copy()).flatten(0, 1))
        arrays = {
            name: values.view(model.timesteps, -1, *values.shape[1:]).transpose(0, 1).numpy()
            for name, values in sent.items()
        }
        *firing, readout = (neurons.population.name for neurons in body.all_neurons)
        spikes = {name: arrays[name].astype(bool) for name in firing}
        return Trace(spikes=spikes, voltages={}, outputs=arrays[readout].sum(axis=1).astype(np.int64))
