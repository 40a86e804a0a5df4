"""STAGE + COMMAND: data set + architecture -> model.pt"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .checkpoint import build_body, save_model
from .cli import Command, Outcome, main, whole_number
from .data import DATASETS, DataSet, Split, load_dataset
from .errors import FoldError, FrontendError, OptionError
from .files import refuse_unwritable
from .fold import fold
from .frontend import trace
from .nn import MPBN_KINDS, ModelCard, SpikingNetwork
from .progress import announce, track
from .records import record
from .zoo import ARCHITECTURES

EVALUATION_BATCH = 256


@record
class Training:
    """How to train: SGD with momentum, a cosine from `learning_rate` to zero, as in the paper."""

    epochs: int = 8
    batch: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0


def train(
    dataset: DataSet, architecture: str, *, mpbn: str = "channel", timesteps: int = 4, training: Training
) -> SpikingNetwork:
    """Train a network; the same arguments give the same network, bit by bit, on one machine."""
    _check(training, dataset)
    torch.manual_seed(training.seed)
    arguments = {"input_shape": dataset.input_format.shape, "classes": len(dataset.class_names), "mpbn": mpbn}
    network = SpikingNetwork(
        build_body(architecture, arguments), timesteps=timesteps, input_format=dataset.input_format
    )
    _try_out(network, dataset)
    with _deterministic():
        _optimize(network, dataset.train, training)
    network.card = ModelCard(
        architecture=architecture,
        arguments={**arguments, "input_shape": list(dataset.input_format.shape)},
        class_names=dataset.class_names,
        training={
            "data": dataset.name,
            "epochs": training.epochs,
            "batch": training.batch,
            "learning_rate": training.learning_rate,
            "seed": training.seed,
            "test_accuracy": accuracy(network, dataset.test),
        },
    )
    return network


def _check(training: Training, dataset: DataSet) -> None:
    if training.batch > len(dataset.train):
        raise OptionError(
            f"batch {training.batch}; {dataset.name} has {len(dataset.train)} samples to train with."
        )
    if not (isfinite(training.learning_rate) and training.learning_rate > 0):
        raise OptionError(f"learning rate {training.learning_rate}; a number above zero is needed.")


def _try_out(network: SpikingNetwork, dataset: DataSet) -> None:
    """Find out before training whether the network takes the data, and whether it could be exported."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise OptionError("the network has no parameters to train.")
    inputs, classes = _tensors(dataset.train)[0][:2], len(dataset.class_names)
    try:
        with torch.no_grad():
            found = tuple(network.eval()(inputs).shape)
    except Exception as error:  # whatever a network of somebody else does with inputs it cannot take
        raise OptionError(f"the network cannot take samples of {dataset.name}: {error}") from error
    if found != (2, classes):
        raise OptionError(
            f"the network gives outputs {found} for 2 samples; {dataset.name} needs (2, {classes})."
        )
    try:
        fold(trace(network))
    except (FrontendError, FoldError) as error:
        announce(f"note: as it is, this network can be trained, but not exported: {error}")


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def accuracy(network: SpikingNetwork, split: Split) -> float:
    """The share of samples whose largest logit is that of their class."""
    network.eval()
    inputs, labels = _tensors(split)
    with torch.no_grad():
        right = sum(
            int(
                (
                    network(inputs[i : i + EVALUATION_BATCH]).argmax(1) == labels[i : i + EVALUATION_BATCH]
                ).sum()
            )
            for i in range(0, len(labels), EVALUATION_BATCH)
        )
    return right / len(labels)


def _optimize(network: SpikingNetwork, split: Split, training: Training) -> None:
    network.train()
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=training.learning_rate,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
    )
    batches = len(split) // training.batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=training.epochs * batches)
    for inputs, labels in track(_batches(split, training), "training", training.epochs * batches):
        optimizer.zero_grad()
        loss = cross_entropy(network(inputs), labels)
        if not loss.isfinite():
            raise OptionError("the loss is no longer a number; train with a lower --learning-rate.")
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def _batches(split: Split, training: Training) -> Iterator[tuple[Tensor, Tensor]]:
    """Every epoch in another order; the rest that does not fill a batch waits for the next epoch."""
    inputs, labels = _tensors(split)
    shuffle = np.random.default_rng(training.seed)
    for _ in range(training.epochs):
        order = torch.from_numpy(shuffle.permutation(len(labels)))
        for start in range(0, len(labels) - training.batch + 1, training.batch):
            chosen = order[start : start + training.batch]
            yield inputs[chosen], labels[chosen]


def _tensors(split: Split) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(split.inputs.astype(np.float32)), torch.from_numpy(split.labels.copy())


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", default="digits", help=f"data set: {', '.join(DATASETS)} (default %(default)s)"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument(
        "--arch",
        default="digits-cnn",
        help=f"network: {', '.join(ARCHITECTURES)}; or package.module:factory (imported, so its code runs);"
        " it is called with input_shape, classes and mpbn (default %(default)s)",
    )
    parser.add_argument(
        "--mpbn",
        choices=MPBN_KINDS,
        default="channel",
        help="membrane-potential batch norm (default %(default)s)",
    )
    parser.add_argument(
        "--timesteps", type=whole_number(1), default=4, help="per sample (default %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=whole_number(1), default=8, help="passes over the data (default %(default)s)"
    )
    parser.add_argument(
        "--batch", type=whole_number(2), default=32, help="samples per step of SGD (default %(default)s)"
    )
    parser.add_argument(
        "--learning-rate",
        type=float,
        default=0.1,
        help="of SGD, falling to zero in a cosine (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, help="same seed, same network (default %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("model.pt"), help="the checkpoint to write (default %(default)s)"
    )


def _execute(options: argparse.Namespace) -> Outcome:
    refuse_unwritable(options.out)
    dataset = load_dataset(options.data, options.data_dir)
    training = Training(
        epochs=options.epochs, batch=options.batch, learning_rate=options.learning_rate, seed=options.seed
    )
    network = train(dataset, options.arch, mpbn=options.mpbn, timesteps=options.timesteps, training=training)
    save_model(options.out, network)
    assert network.card is not None
    record_ = network.card.training
    data = {
        "model": str(options.out),
        "architecture": options.arch,
        "timesteps": options.timesteps,
        **record_,
    }
    text = f"{options.out}: {options.arch}, test accuracy {record_['test_accuracy']:.2%} on {options.data}"
    return Outcome(data=data, text=text)


COMMAND = Command(
    name="train",
    summary="Train a spiking network and write model.pt.",
    details="example: python -m mpbn_deploy.train --data digits --arch digits-cnn --epochs 8 --out model.pt",
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
