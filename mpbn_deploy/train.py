"""STAGE + COMMAND: data set + architecture -> model.pt

One step of training: a batch of raw samples, augmented; all time steps of it at once through the
network; cross entropy of the mean over time; SGD. What lies beside model.pt is in train_files.py, how
several processes share a training in train_distributed.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import cos, isfinite, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from .checkpoint import build_body
from .cli import Command, Outcome, main, whole_number
from .data import DATASETS, DataSet, Split, load_dataset
from .data.batches import batches, samples
from .errors import DeployError, OptionError
from .files import refuse_unwritable
from .fold import fold
from .foreign import foreign_converters
from .frontend import trace
from .nn import MPBN_GAINS, MPBN_KINDS, SURROGATES, ModelCard, SpikingNetwork
from .progress import announce, track
from .records import record
from .train_distributed import ALONE, Processes, is_first_process, own_device, shared_out, started_by_torchrun
from .train_files import Epoch, Progress, TrainingFiles, files_beside, resume_file
from .zoo import ARCHITECTURES

EVALUATION_BATCH = 256
DEFAULT_TIMESTEPS = 4
NEURON_DEFAULTS = {"mpbn_gain": "free", "surrogate": "rectangle"}
QUIET_SECONDS = 30.0  # between lines about one epoch, where nobody watches a bar


@record
class Training:
    """How to train: SGD with momentum, a cosine from `learning_rate` to zero, as in the paper.

    Weights of convolutions and dense layers decay; norms and biases do not.
    """

    epochs: int = 8
    batch: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    augmentation: bool = True
    seed: int = 0


def train(
    dataset: DataSet,
    architecture: str,
    *,
    mpbn: str = "channel",
    timesteps: int | None = None,
    training: Training,
    neuron: Mapping[str, Any] | None = None,
    out: Path | None = None,
    resume: bool = False,
    device: torch.device | str = "cpu",
    processes: Processes = ALONE,
) -> SpikingNetwork:
    """Train a network.

    The same arguments give the same network, bit by bit, on one machine with as many threads.
    `neuron` are further arguments of the zoo's LIF neurons. With `out`, checkpoints and a log are
    written after every epoch, from which `resume` goes on to the same network as an unbroken training.
    """
    _check(training, dataset, processes)
    arguments = {"mpbn": mpbn, **_unusual(neuron or {})}
    network = _build(dataset, architecture, arguments, _timesteps(dataset, timesteps), training.seed)
    if processes.first:
        _try_out(network, dataset)
    network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    progress = Progress(network=network, optimizer=_optimizer(network, training), history=[])
    files = None if out is None else TrainingFiles(model=out, settings=_settings(dataset, network, training))
    if files is not None and resume:
        files.restore(progress)
        _note_on_card(progress, dataset, training)
        if processes.first:
            announce(f"resuming after epoch {len(progress.history)} of {training.epochs}")
    with _deterministic():
        _epochs(progress, dataset, training, processes, files)
    return network.cpu()


def _build(
    dataset: DataSet, architecture: str, neuron: dict[str, Any], timesteps: int, seed: int
) -> SpikingNetwork:
    """A new network for a data set, with the card that will go into its checkpoints."""
    shape = dataset.input_format.shape
    arguments = {"input_shape": shape, "classes": len(dataset.class_names), **neuron}
    torch.manual_seed(seed)
    body = build_body(architecture, arguments)
    card = ModelCard(
        architecture=architecture,
        arguments={**arguments, "input_shape": list(shape)},
        class_names=dataset.class_names,
    )
    return SpikingNetwork(body, timesteps=timesteps, input_format=dataset.input_format, card=card)


def _unusual(neuron: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the neuron's own defaults: a network of somebody else's may not know the rest."""
    return {name: value for name, value in neuron.items() if NEURON_DEFAULTS.get(name) != value}


def _timesteps(dataset: DataSet, asked: int | None) -> int:
    """As asked; samples that are recordings have as many steps as frames."""
    if dataset.frames is None:
        return DEFAULT_TIMESTEPS if asked is None else asked
    if asked not in (None, dataset.frames):
        raise OptionError(f"{asked} time steps; a sample of {dataset.name} has {dataset.frames} frames.")
    return dataset.frames


def _check(training: Training, dataset: DataSet, processes: Processes) -> None:
    if training.batch > len(dataset.train):
        raise OptionError(
            f"batch {training.batch}; {dataset.name} has {len(dataset.train)} samples to train with."
        )
    if training.batch < 2:
        raise OptionError(f"batch {training.batch}; batch norm needs 2 samples or more.")
    if training.batch % processes.count or training.batch < 2 * processes.count:
        raise OptionError(
            f"batch {training.batch} over {processes.count} processes; equal shares of 2 or more are needed."
        )
    if not (isfinite(training.learning_rate) and training.learning_rate > 0):
        raise OptionError(f"learning rate {training.learning_rate}; a number above zero is needed.")
    if not (isfinite(training.weight_decay) and training.weight_decay >= 0):
        raise OptionError(f"weight decay {training.weight_decay}; zero or a number above it is needed.")


def _settings(dataset: DataSet, network: SpikingNetwork, training: Training) -> dict[str, Any]:
    """All that the network to come depends on: what is trained on what, and how."""
    assert network.card is not None
    return {
        "data": dataset.name,
        "samples": len(dataset.train),
        "architecture": network.card.architecture,
        **NEURON_DEFAULTS,
        **network.card.arguments,
        "timesteps": network.timesteps,
        **asdict(training),
    }


def _try_out(network: SpikingNetwork, dataset: DataSet) -> None:
    """Find out before training whether the network takes the data, and whether it could be exported."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise OptionError("the network has no parameters to train.")
    _refuse_foreign(network)
    inputs, classes = samples(dataset.test, slice(2))[0], len(dataset.class_names)
    try:
        with torch.no_grad():
            found = tuple(network.eval()(inputs).shape)
    except Exception as error:  # whatever a network of somebody else does with inputs it cannot take
        raise OptionError(f"the network cannot take samples of {dataset.name}: {error}") from error
    if found != (len(inputs), classes):
        raise OptionError(
            f"the network gives outputs {found} for {len(inputs)} samples; {dataset.name} needs "
            f"({len(inputs)}, {classes})."
        )
    try:
        fold(trace(network))
    except DeployError as error:
        announce(f"note: as it is, this network can be trained, but not exported: {error}")


def _refuse_foreign(network: SpikingNetwork) -> None:
    """Neurons of other libraries take one time step per call; here all steps lie in the batch."""
    kinds = tuple(foreign_converters())
    foreign = [name for name, module in network.named_modules() if isinstance(module, kinds)]
    if foreign:
        raise OptionError(
            f"{foreign[0]}: a neuron of another library, which takes one time step per call. Train it there, "
            "and fold it with fold(trace(module, input_shape, timesteps))."
        )


@contextmanager
def _deterministic() -> Iterator[None]:
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # a costly safeguard; nothing here reads before it writes
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]


# ---- epochs -----------------------------------------------------------------------------------


def _epochs(
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
            _note_on_card(progress, dataset, training)
            if processes.first:
                if files is not None:
                    files.keep(progress)
                announce(_line(epoch, training))
    if processes.first and files is not None:
        files.finish(progress.history)


def _line(epoch: Epoch, training: Training) -> str:
    numbers = f"loss {epoch.train_loss:.4f}, train {epoch.train_accuracy:.2%}, test {epoch.test_accuracy:.2%}"
    return f"epoch {epoch.epoch}/{training.epochs}: {numbers}, {epoch.seconds:.1f} s"


def _note_on_card(progress: Progress, dataset: DataSet, training: Training) -> None:
    """How the network was trained, as far as it was."""
    card, last = progress.network.card, progress.history[-1]
    assert card is not None
    notes = {
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


def _optimizer(network: SpikingNetwork, training: Training) -> torch.optim.SGD:
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


# ---- command ----------------------------------------------------------------------------------


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", default="digits", help=f"data set: {', '.join(DATASETS)} (default %(default)s)"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument(
        "--arch",
        default="digits-cnn",
        help=f"network: {', '.join(ARCHITECTURES)}; or package.module:factory (imported, so its code runs);"
        " it is called with input_shape, classes, mpbn, and mpbn_gain and surrogate where you choose them"
        " (default %(default)s)",
    )
    _add_neuron_arguments(parser)
    _add_optimization_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("model.pt"),
        help="the checkpoint to write; log, curves and best checkpoint go beside it (default %(default)s)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on after an interruption, with otherwise the same options"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default %(default)s)")


def _add_neuron_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mpbn",
        choices=MPBN_KINDS,
        default="channel",
        help="membrane-potential batch norm (default %(default)s)",
    )
    parser.add_argument(
        "--mpbn-gain",
        choices=MPBN_GAINS,
        default="free",
        help="positive: gains above zero by construction, so that thresholds fold for every chip "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--surrogate",
        choices=tuple(SURROGATES),
        default="rectangle",
        help="gradient of a spike: as the paper prints, or as its code does (default %(default)s)",
    )
    parser.add_argument(
        "--timesteps",
        type=whole_number(1),
        help=f"per sample (default {DEFAULT_TIMESTEPS}, or as many as a recording has frames)",
    )


def _add_optimization_arguments(parser: argparse.ArgumentParser) -> None:
    usual = Training()
    parser.add_argument(
        "--epochs",
        type=whole_number(1),
        default=usual.epochs,
        help="passes over the data (default %(default)s)",
    )
    parser.add_argument(
        "--batch",
        type=whole_number(2),
        default=usual.batch,
        help="samples per step of SGD (default %(default)s)",
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        default=usual.learning_rate,
        help="of SGD, falling to zero in a cosine (default %(default)s)",
    )
    parser.add_argument(
        "--weight-decay", type=float, default=usual.weight_decay, help="of weights (default %(default)s)"
    )
    parser.add_argument(
        "--no-augmentation",
        action="store_true",
        help="train on the samples as they are, not cropped or flipped",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=usual.seed,
        help="same seed, same network (default %(default)s)",
    )


def _execute(options: argparse.Namespace) -> Outcome:
    if not is_first_process():
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  one process speaks for all
    for file in files_beside(options.out):
        refuse_unwritable(file)
    if options.mpbn == "none" and options.mpbn_gain != "free":
        raise OptionError(f"--mpbn-gain {options.mpbn_gain} with --mpbn none: there is no gain to keep so.")
    device = own_device(options.device)
    training = Training(
        epochs=options.epochs,
        batch=options.batch,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        augmentation=not options.no_augmentation,
        seed=options.seed,
    )
    dataset = load_dataset(options.data, options.data_dir)
    with started_by_torchrun(device) as processes, _advice_when_interrupted(options.out):
        network = train(
            dataset,
            options.arch,
            mpbn=options.mpbn,
            timesteps=options.timesteps,
            training=training,
            neuron={"mpbn_gain": options.mpbn_gain, "surrogate": options.surrogate},
            out=options.out,
            resume=options.resume,
            device=device,
            processes=processes,
        )
    assert network.card is not None
    result = network.card.training["test_accuracy"]
    data = {
        "model": str(options.out),
        "architecture": options.arch,
        **NEURON_DEFAULTS,
        **network.card.arguments,
        "timesteps": network.timesteps,
        **network.card.training,
    }
    text = f"{options.out}: {options.arch}, test accuracy {result:.2%} on {options.data}"
    return Outcome(data=data, text=text)


@contextmanager
def _advice_when_interrupted(out: Path) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if is_first_process() and resume_file(out).exists():
            announce("interrupted: the same command with --resume goes on after the last finished epoch.")
        raise


COMMAND = Command(
    name="train",
    summary="Train a spiking network and write model.pt.",
    details="example: python -m mpbn_deploy.train --data digits --arch digits-cnn --epochs 8 --out model.pt",
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
