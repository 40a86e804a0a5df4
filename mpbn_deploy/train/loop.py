"""The epochs of a training: one pass over the training split after another, each evaluated and kept.

One step: a batch of raw samples, augmented; all time steps of it at once through the network; cross
entropy of the mean over time; SGD.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import cos, pi
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ..base import OptionError, announce, track
from ..data import DataSet, Split
from ..nn import SpikingNetwork
from ..quantize import QuantizedBody
from .batching import batches, samples
from .files import Progress, TrainingFiles
from .processes import ALONE, Processes, shared_out
from .settings import Epoch, Training

EVALUATION_BATCH = 256
KEPT_NOTES = ("quantize", "weight_bits", "init")  # what a training started from
QUIET_SECONDS = 30.0  # between lines about one epoch, where nobody watches a bar


def run_epochs(
    progress: Progress,
    dataset: DataSet,
    training: Training,
    processes: Processes,
    files: TrainingFiles | None,
) -> None:
    """Train until all epochs are in the history; after each, everything is on disk."""
    with shared_out(progress.network, processes) as model:
        for number in range(len(progress.history) + 1, training.epochs + 1):
            started = time.perf_counter()
            rate = _learning_rate(number - 1, training)
            loss, right = _one_epoch(model, progress, dataset, training, processes, number)
            if isinstance(progress.network.body, QuantizedBody):
                progress.network.body.settle(progress.network.timesteps)
            test_loss, test_right = evaluate(progress.network, dataset.test, processes)
            epoch = Epoch(
                epoch=number,
                learning_rate=rate,
                train_loss=loss,
                train_accuracy=right,
                test_loss=test_loss,
                test_accuracy=test_right,
                seconds=round(time.perf_counter() - started, 3),
            )
            progress.history.append(epoch)
            note_on_card(progress, dataset, training)
            if processes.first:
                if files is not None:
                    files.keep(progress)
                announce(_line(epoch, training))
    if processes.first and files is not None:
        files.finish(progress.history)


def _line(epoch: Epoch, training: Training) -> str:
    numbers = f"loss {epoch.train_loss:.4f}, train {epoch.train_accuracy:.2%}, test {epoch.test_accuracy:.2%}"
    return f"epoch {epoch.epoch}/{training.epochs}: {numbers}, {epoch.seconds:.1f} s"


def note_on_card(progress: Progress, dataset: DataSet, training: Training) -> None:
    """How the network was trained, as far as it was."""
    card, last = progress.network.card, progress.history[-1]
    assert card is not None
    notes = {
        **{name: card.training[name] for name in KEPT_NOTES if name in card.training},
        "data": dataset.name,
        **asdict(training),
        "epoch": last.epoch,
        "test_accuracy": last.test_accuracy,
    }
    progress.network.card = replace(card, training=notes)


def _one_epoch(
    model: nn.Module,
    progress: Progress,
    dataset: DataSet,
    training: Training,
    processes: Processes,
    number: int,
) -> tuple[float, float]:
    """Mean loss and accuracy over the batches of an epoch, as they were before each step."""
    progress.network.train()
    # What a dropout draws follows from seed, epoch and process: resuming needs no state of a generator.
    torch.manual_seed(
        int(np.random.SeedSequence([training.seed, number, processes.rank]).generate_state(1)[0])
    )
    count = len(dataset.train) // training.batch
    sums = torch.zeros(2, dtype=torch.float64)
    taken = batches(
        dataset,
        training.batch,
        seed=training.seed,
        epoch=number,
        augmented=training.augmentation,
        share=processes.share,
    )
    if processes.first:
        taken = track(taken, f"epoch {number}/{training.epochs}", count, quiet_seconds=QUIET_SECONDS)
    device = next(progress.network.parameters()).device
    for step, (inputs, labels) in enumerate(taken):
        for group in progress.optimizer.param_groups:
            group["lr"] = _learning_rate(number - 1 + step / count, training)
        progress.optimizer.zero_grad()
        labels = labels.to(device)
        logits = model(inputs.to(device))
        loss = cross_entropy(logits, labels)
        if not loss.isfinite():
            raise OptionError("the loss is no longer a number; train with a lower --learning-rate.")
        loss.backward()  # type: ignore[no-untyped-call]
        progress.optimizer.step()
        right = (logits.detach().argmax(1) == labels).double().mean()
        sums += torch.stack([loss.detach().double(), right]).cpu()
    loss_sum, right_sum = (processes.total(sums) / processes.count).tolist()
    return loss_sum / count, right_sum / count


def _learning_rate(epochs_done: float, training: Training) -> float:
    """learning_rate * (1 + cos(pi * share of the training that is done)) / 2"""
    return training.learning_rate * (1 + cos(pi * epochs_done / training.epochs)) / 2


def make_optimizer(network: SpikingNetwork, training: Training) -> torch.optim.SGD:
    weights = {
        id(module.weight)
        for module in network.modules()
        if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd))
    }
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if id(p) in weights], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if id(p) not in weights], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(
        [group for group in groups if group["params"]], lr=training.learning_rate, momentum=training.momentum
    )


def evaluate(network: SpikingNetwork, split: Split, processes: Processes = ALONE) -> tuple[float, float]:
    """The mean loss, and the share of samples whose largest logit is that of their class."""
    network.eval()
    device = next(network.parameters()).device
    sums = torch.zeros(2, dtype=torch.float64)
    starts = range(0, len(split), EVALUATION_BATCH)[processes.rank :: processes.count]
    with torch.no_grad():
        for start in starts:
            inputs, labels = samples(split, slice(start, start + EVALUATION_BATCH))
            logits, labels = network(inputs.to(device)).double(), labels.to(device)
            right = (logits.argmax(1) == labels).double().sum()
            sums += torch.stack([cross_entropy(logits, labels, reduction="sum"), right]).cpu()
    loss, correct = (processes.total(sums) / len(split)).tolist()
    return loss, correct


def accuracy(network: SpikingNetwork, split: Split) -> float:
    """The share of samples whose largest logit is that of their class."""
    return evaluate(network, split)[1]


@contextmanager
def deterministic() -> Iterator[None]:
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # a costly safeguard; nothing here reads before it writes
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]
