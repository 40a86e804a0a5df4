"""The epochs of a training: each is one pass over the training split, then evaluated and saved.

One step augments a batch of raw samples, runs the network on all time steps at once, and applies the
optimizer to the cross entropy of the logits, which are averaged over time. In an epoch with one time step,
the network is trained, evaluated and saved as a network of one time step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import cos, isfinite, pi
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, pad

from ..base import OptionError, announce, did_you_mean, record, track
from ..data import POLICY_DRAWS, DataSet, Split, autoaugmented, center_crop
from ..nn import MPBN, SpikingNetwork
from ..quantize import QuantizedBody
from .files import TrainingFiles, TrainingState
from .optimizer import SINGLE_PROCESS, ProcessGroup, model_to_train
from .settings import Epoch, Training

EVALUATION_BATCH = 256
TEACHER_TEMPERATURE = 2.0  # divides logits, so that what a teacher says of wrong classes counts too
# Entries of the card that describe the initial network.
KEPT_NOTES = ("quantize", "weight_bits", "input_offset", "init")
QUIET_EPOCH_SECONDS = 30.0  # an epoch shorter than this prints no progress in a pipe


def run_epochs(
    state: TrainingState,
    dataset: DataSet,
    validation: Split | None,
    training: Training,
    processes: ProcessGroup,
    files: TrainingFiles | None,
) -> None:
    """Run the remaining epochs; after each, save everything to disk."""
    with model_to_train(state.network, processes) as model:
        for number in range(len(state.history) + 1, training.epochs + 1):
            with _timesteps_of_epoch(state.network, number, training):
                epoch = _run_epoch(model, state, dataset, validation, training, processes, number)
                state.history.append(epoch)
                note_on_card(state, dataset, training)
                if processes.first:
                    if files is not None:
                        files.save_epoch(state)
                    announce(_line(epoch, training))


def _run_epoch(
    model: nn.Module,
    state: TrainingState,
    dataset: DataSet,
    validation: Split | None,
    training: Training,
    processes: ProcessGroup,
    number: int,
) -> Epoch:
    """Train and evaluate one epoch; with a validation split, the test split is kept for the last."""
    started, processor_started = time.perf_counter(), time.process_time()
    loss, right, gradients = _train_batches(model, state, dataset, training, processes, number)
    if isinstance(state.network.body, QuantizedBody):
        state.network.body.prevent_overflow(state.network.timesteps)
    check_health(state.network, gradients)
    found: dict[str, float] = {}
    if validation is None or number == training.epochs:
        found["test_loss"], found["test_accuracy"] = evaluate(state.network, dataset.test, processes)
    if validation is not None:
        found["validation_loss"], found["validation_accuracy"] = evaluate(
            state.network, validation, processes
        )
    return Epoch(
        epoch=number,
        timesteps=state.network.timesteps,
        learning_rate=_learning_rate(number - 1, training),
        train_loss=loss,
        train_accuracy=right,
        **found,
        median_gradient=gradients.median,
        largest_gradient=gradients.largest,
        seconds=round(time.perf_counter() - started, 3),
        processor_seconds=round(time.process_time() - processor_started, 3),
    )


@contextmanager
def _timesteps_of_epoch(network: SpikingNetwork, number: int, training: Training) -> Iterator[None]:
    full = network.timesteps
    if number <= training.single_step_epochs:
        network.timesteps = 1
    try:
        yield
    finally:
        network.timesteps = full


def _line(epoch: Epoch, training: Training) -> str:
    parts = [f"loss {epoch.train_loss:.4f}", f"train {epoch.train_accuracy:.2%}"]
    for name, found in (("validation", epoch.validation_accuracy), ("test", epoch.test_accuracy)):
        parts += [f"{name} {found:.2%}"] if found is not None else []
    return f"epoch {epoch.epoch}/{training.epochs}: {', '.join(parts)}, {epoch.seconds:.1f} s"


def note_on_card(state: TrainingState, dataset: DataSet, training: Training) -> None:
    """Record on the network's card how it was trained so far."""
    card, last = state.network.card, state.history[-1]
    assert card is not None
    notes = {
        **{name: card.training[name] for name in KEPT_NOTES if name in card.training},
        "data": dataset.name,
        **asdict(training),
        "epoch": last.epoch,
        "test_accuracy": last.test_accuracy,
        **({} if last.validation_accuracy is None else {"validation_accuracy": last.validation_accuracy}),
    }
    state.network.card = replace(card, training=notes)


def _train_batches(
    model: nn.Module,
    state: TrainingState,
    dataset: DataSet,
    training: Training,
    processes: ProcessGroup,
    number: int,
) -> tuple[float, float, GradientNorms]:
    """Train one epoch; return mean loss and accuracy over its batches, each before its update."""
    state.network.train()
    if number > training.free_epochs:
        for module in state.network.modules():
            if isinstance(module, MPBN):
                module.eval()
    # Seed, epoch and process determine what dropout draws, so that resuming needs no generator state.
    torch.manual_seed(
        int(np.random.SeedSequence([training.seed, number, processes.rank]).generate_state(1)[0])
    )
    count = len(dataset.train) // training.batch
    sums, norms = torch.zeros(2, dtype=torch.float64), []
    taken = batches(
        dataset,
        training.batch,
        seed=training.seed,
        epoch=number,
        augmentation=dataset.augmentation if training.augmentation is None else training.augmentation,
        share=processes.share,
    )
    if processes.first:
        taken = track(taken, f"epoch {number}/{training.epochs}", count, quiet_seconds=QUIET_EPOCH_SECONDS)
    device = next(state.network.parameters()).device
    for batch, (inputs, labels) in enumerate(taken):
        rate = _learning_rate(number - 1 + batch / count, training)
        for group in state.optimizer.param_groups:
            group["lr"] = rate * group["relative_rate"]
        state.optimizer.zero_grad()
        labels = labels.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
            logits = model(inputs.to(device))
            taught = None if state.teacher is None else _outputs(state.teacher, inputs.to(device))
        loss = _loss(logits, labels, taught, training)
        if not loss.isfinite():
            raise OptionError("the loss is not finite; train with a lower --learning-rate.")
        loss.backward()  # type: ignore[no-untyped-call]
        norms.append(_clip(state.network, training.clip_gradient))
        state.optimizer.step()
        if number > training.epochs - training.averaged_epochs:
            state.mean.add(state.network)
        right = (logits.detach().argmax(1) == labels).double().mean()
        sums += torch.stack([loss.detach().double(), right]).cpu()
    loss_sum, right_sum = (processes.total(sums) / processes.count).tolist()
    gradients = GradientNorms(median=float(np.median(norms)), largest=float(np.max(norms)))
    return loss_sum / count, right_sum / count, gradients


@torch.no_grad()
def _outputs(teacher: SpikingNetwork, inputs: Tensor) -> Tensor:
    logits: Tensor = teacher(inputs)
    return logits


def _loss(logits: Tensor, labels: Tensor, taught: Tensor | None, training: Training) -> Tensor:
    """(1 - part) * cross entropy + part * temperature^2 * KL(softmax(taught / temperature) | the network's)

    (Hinton, Vinyals and Dean, 2015); `part` is that of the teacher, whose logits are `taught`.
    """
    by_labels = cross_entropy(logits, labels, label_smoothing=training.label_smoothing)
    if taught is None or training.distillation is None:
        return by_labels
    theirs, ours = (log_softmax(each.float() / TEACHER_TEMPERATURE, dim=1) for each in (taught, logits))
    by_teacher = kl_div(ours, theirs, reduction="batchmean", log_target=True) * TEACHER_TEMPERATURE**2
    return (1 - training.distillation) * by_labels + training.distillation * by_teacher


def _clip(network: SpikingNetwork, limit: float | None) -> float:
    """Scale the gradient down to a norm, if there is a limit; return the norm that it had."""
    if limit is not None:
        return float(nn.utils.clip_grad_norm_(network.parameters(), limit))
    norms = [p.grad.norm() for p in network.parameters() if p.grad is not None]
    return float(torch.stack(norms).norm())


def _learning_rate(epochs_done: float, training: Training) -> float:
    """The rate when a fraction f of the training is done:

    cosine      learning_rate * (1 + cos(pi * f)) / 2
    one-cycle   learning_rate * (f / warmup, then (1 - f) / (1 - warmup))
    """
    done = epochs_done / training.epochs
    if training.schedule == "cosine":
        return training.learning_rate * (1 + cos(pi * done)) / 2
    if done < training.warmup:
        return training.learning_rate * done / training.warmup
    return training.learning_rate * (1 - done) / (1 - training.warmup)


def evaluate(
    network: SpikingNetwork, split: Split, processes: ProcessGroup = SINGLE_PROCESS
) -> tuple[float, float]:
    """Return the mean loss and the accuracy on a split."""
    network.eval()
    device = next(network.parameters()).device
    sums = torch.zeros(2, dtype=torch.float64)
    starts = range(0, len(split), EVALUATION_BATCH)[processes.rank :: processes.count]
    with torch.no_grad():
        for start in starts:
            inputs, labels = read_samples(split, slice(start, start + EVALUATION_BATCH))
            inputs = center_crop(inputs, network.input_format.shape)
            logits, labels = network(inputs.to(device)).double(), labels.to(device)
            right = (logits.argmax(1) == labels).double().sum()
            sums += torch.stack([cross_entropy(logits, labels, reduction="sum"), right]).cpu()
    loss, correct = (processes.total(sums) / len(split)).tolist()
    return loss, correct


def accuracy(network: SpikingNetwork, split: Split) -> float:
    """Return the fraction of samples whose largest logit belongs to their class."""
    return evaluate(network, split)[1]


@contextmanager
def deterministic() -> Iterator[None]:
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # slow, and nothing here reads uninitialized memory
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]


# Stop a training run that has diverged, before it reports success.
#
# Norms hide the damage: a network whose running variance is 1e23 still classifies, but cannot be deployed.


LARGEST = 1e6
STATISTICS = {"running_mean": LARGEST, "running_var": LARGEST**2}


@record
class GradientNorms:
    """The norms of the gradients of an epoch's steps."""

    median: float
    largest: float

    @property
    def remedy(self) -> str:
        """The limit that would clip only steps far from usual, if there were any."""
        limit = 10 * self.median
        if not limit < self.largest:
            return ""
        return (
            f", or with --clip-gradient {limit:.2g}: of this epoch's gradients, the largest has a norm of "
            f"{self.largest:.3g}, and half have less than {self.median:.2g}"
        )


def check_health(network: SpikingNetwork, gradients: GradientNorms) -> None:
    """Raise an error that names the first parameter or statistic that is not finite or too large."""
    statistics = [
        (name, buffer) for name, buffer in network.body.named_buffers() if name.endswith(tuple(STATISTICS))
    ]
    has_mpbn = any(isinstance(module, MPBN) for module in network.modules())
    norms = ", a larger --mpbn-epsilon" if has_mpbn else ""
    for name, tensor in [*network.body.named_parameters(), *statistics]:
        largest = float(tensor.detach().abs().max()) if tensor.numel() else 0.0  # nan if any is
        allowed = STATISTICS.get(name.rpartition(".")[2], LARGEST)
        if not largest <= allowed:
            found = f"the largest magnitude is {largest:.3g}" if isfinite(largest) else "not finite"
            raise OptionError(
                f"{name}: {found} after this epoch; above {allowed:g}, training has diverged. "
                f"Train with a lower --learning-rate{norms} or --reset-gradient detached{gradients.remedy}."
            )


# Batches of a training split: shuffled for every epoch, augmented, and split over processes.


def batches(
    dataset: DataSet,
    size: int,
    *,
    seed: int,
    epoch: int,
    augmentation: str,
    share: Callable[[Tensor], Tensor],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield raw samples and labels of each batch of an epoch, or this process's share of them.

    Seed and epoch determine order and augmentation. Samples that do not fill a batch are dropped; they
    differ from epoch to epoch.
    """
    split = dataset.train
    random = np.random.default_rng([seed, epoch])
    order = torch.from_numpy(random.permutation(len(split)))
    draws = torch.from_numpy(random.random((len(split), DRAWS), dtype=np.float32))
    for start in range(0, len(split) - size + 1, size):
        chosen = share(order[start : start + size])
        inputs, labels = read_samples(split, chosen.numpy())
        yield augment(augmentation, inputs, draws[chosen], *dataset.input_format.shape[1:]), labels


def read_samples(split: Split, chosen: Any) -> tuple[Tensor, Tensor]:
    """Return the samples and labels that a slice or an array of indices selects."""
    return torch.from_numpy(np.array(split.inputs[chosen])), torch.from_numpy(np.array(split.labels[chosen]))


# The paper's augmentation: random crop, flip, AutoAugment and cutout of images, roll of event frames.
#
# Each sample of each epoch gets its own row of DRAWS random numbers in 0..1, which alone determine its
# augmentation: neither the batch nor the process that computes it matters.


DRAWS = 5 + POLICY_DRAWS  # two for the crop, one for the flip, two for the cutout, and AutoAugment's
PADDING = 4  # zeros around an image before it is cropped to its original size
HOLE = 16  # side of the cutout in pixels, for an image of 32 x 32
ROLL = 5  # maximum shift of event frames in pixels


def augment(kind: str, samples: Tensor, draws: Tensor, *size: int) -> Tensor:
    """Augment samples [batch, ..., channels, *, *] to [batch, ..., channels, height, width]."""
    if kind not in KINDS:
        raise OptionError(f"no augmentation named {kind!r}. {did_you_mean(kind, KINDS)}")
    for change in KINDS[kind]:
        samples = change(samples, draws, *size)
    return samples


def _center(samples: Tensor, _draws: Tensor, *size: int) -> Tensor:
    """Crop the window in the middle."""
    return cast(Tensor, center_crop(samples, (1, *size)))


def _crop(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Crop a random window; images of the window's size are padded with zeros first."""
    if samples.shape[-2:] == (height, width):
        samples = pad(samples, [PADDING] * 4)
    top = _choose(draws[:, 0], samples.shape[-2] - height + 1)
    left = _choose(draws[:, 1], samples.shape[-1] - width + 1)
    return _gather(samples, top[:, None] + torch.arange(height), left[:, None] + torch.arange(width))


def _flip(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Mirror half of the samples horizontally."""
    turned = (draws[:, 2] < 0.5).view(-1, *[1] * (samples.dim() - 1))
    return torch.where(turned, samples.flip(-1), samples)


def _cutout(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Zero a square around a random pixel; the square may extend beyond the image."""
    rows = _inside(_choose(draws[:, 3], height), height, HOLE * height // 32)
    columns = _inside(_choose(draws[:, 4], width), width, HOLE * width // 32)
    hole = rows[:, :, None] & columns[:, None, :]
    return samples.masked_fill(hole.view(len(hole), *[1] * (samples.dim() - 3), height, width), 0)


def _autoaugment(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Apply AutoAugment to color pictures of bytes."""
    if samples.dtype != torch.uint8 or samples.dim() != 4 or samples.shape[1] != 3:
        raise OptionError(
            f"AutoAugment changes color pictures, bytes of shape (3, {height}, {width}); samples are "
            f"{samples.dtype} of shape {tuple(samples.shape[1:])}. Choose another --augmentation."
        )
    rows = zip(samples.numpy(), draws[:, -POLICY_DRAWS:].numpy(), strict=True)
    return torch.from_numpy(np.stack([autoaugmented(picture, chances) for picture, chances in rows]))


def _roll(samples: Tensor, draws: Tensor, height: int, width: int) -> Tensor:
    """Shift all frames of a sample cyclically by the same offset of up to ROLL pixels."""
    down = _choose(draws[:, 0], 2 * ROLL + 1) - ROLL
    right = _choose(draws[:, 1], 2 * ROLL + 1) - ROLL
    rows = (torch.arange(height) - down[:, None]) % height
    columns = (torch.arange(width) - right[:, None]) % width
    return _gather(samples, rows, columns)


KINDS: dict[str, tuple[Callable[[Tensor, Tensor, int, int], Tensor], ...]] = {
    "none": (_center,),
    "flip": (_center, _flip),
    "crop-flip": (_crop, _flip),
    "crop-flip-cutout": (_crop, _flip, _cutout),
    "crop-flip-autoaugment-cutout": (_crop, _flip, _autoaugment, _cutout),
    "roll-flip": (_roll, _flip),
}


def _choose(draws: Tensor, count: int) -> Tensor:
    """Map draws in 0..1 to integers 0 .. count - 1, uniformly."""
    return (draws * count).long().clamp_(max=count - 1)


def _inside(center: Tensor, size: int, hole: int) -> Tensor:
    """Return a mask [batch, size] of the pixels in center - hole / 2 .. center + hole / 2 - 1."""
    distance = torch.arange(size) - center[:, None]
    return (distance >= -(hole // 2)) & (distance < hole - hole // 2)


def _gather(samples: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Select rows [batch, height] and columns [batch, width], different for each sample."""
    batch = torch.arange(len(samples))
    middle = samples.flatten(1, -3)
    chosen = middle[
        batch[:, None, None, None],
        torch.arange(middle.shape[1])[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]
    return chosen.view(*samples.shape[:-2], rows.shape[1], columns.shape[1])
