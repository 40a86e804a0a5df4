"""The command line of `train`."""

from __future__ import annotations

if __name__ == "__main__":  # before the imports below, which take a moment
    from ..base import exit_when_interrupted

    exit_when_interrupted()

import argparse
import sys
from pathlib import Path

from ..base import Command, Execute, main, whole_number
from ..data import DATASETS
from ..nn import MPBN_GAINS, MPBN_KINDS, SURROGATE_NAMES
from ..nn.zoo import ARCHITECTURES
from .settings import (
    DEFAULT_ARCHITECTURE,
    DEFAULT_TIMESTEPS,
    FINE_TUNING_RATE,
    FULL_RATE_BITS,
    NEURON_DEFAULTS,
    QUANTIZED_RATE,
    Training,
)

USUAL = Training()


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_data_arguments(parser.add_argument_group("data"))
    _add_network_arguments(parser.add_argument_group("network"))
    _add_optimization_arguments(parser.add_argument_group("optimization"))
    _add_start_arguments(parser.add_argument_group("start from a trained network"))
    _add_output_arguments(parser.add_argument_group("output"))


def _add_data_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        default="digits",
        metavar="NAME",
        help=f"data set to train on: {', '.join(DATASETS)} (default %(default)s)",
    )
    group.add_argument(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="folder with the files of the data set, if it needs one",
    )
    group.add_argument(
        "--no-augmentation",
        action="store_true",
        help="train on the samples as they are, without random crops and flips",
    )


def _add_network_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--arch",
        metavar="NAME",
        help=f"network to build: {', '.join(ARCHITECTURES)}; or package.module:factory, a function of "
        "your own code (which is imported and runs), called with input_shape, classes and mpbn, and with "
        f"mpbn_gain and surrogate if you set them (default {DEFAULT_ARCHITECTURE})",
    )
    group.add_argument(
        "--timesteps",
        type=whole_number(1),
        metavar="N",
        help=f"time steps per sample (default {DEFAULT_TIMESTEPS}; for recordings, their number of frames)",
    )
    group.add_argument(
        "--mpbn",
        choices=MPBN_KINDS,
        help="membrane-potential batch norm: one gain and shift per channel, one per element (neuron), "
        "or none (default channel)",
    )
    group.add_argument(
        "--mpbn-gain",
        choices=MPBN_GAINS,
        help="positive: keep all gains above zero, so that thresholds can be folded for every chip; "
        f"free: as in the paper (default {NEURON_DEFAULTS['mpbn_gain']})",
    )
    group.add_argument(
        "--surrogate",
        choices=SURROGATE_NAMES,
        help="surrogate gradient of a spike: rectangle, as printed in the paper, or tanh, as in the paper's "
        f"code (default {NEURON_DEFAULTS['surrogate']})",
    )


def _add_optimization_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--epochs",
        type=whole_number(1),
        default=USUAL.epochs,
        metavar="N",
        help="passes over the training samples (default %(default)s)",
    )
    group.add_argument(
        "--batch",
        type=whole_number(2),
        default=USUAL.batch,
        metavar="N",
        help="samples per step of SGD (default %(default)s)",
    )
    group.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help="learning rate of the first epoch, from which it falls to zero along a cosine "
        f"(default {USUAL.learning_rate}; with --init {FINE_TUNING_RATE}; with --quantize {QUANTIZED_RATE}, "
        f"and more below {FULL_RATE_BITS} bits)",
    )
    group.add_argument(
        "--weight-decay",
        type=float,
        default=USUAL.weight_decay,
        metavar="RATE",
        help="weight decay of SGD, for weights only, not for norms and biases (default %(default)s)",
    )
    group.add_argument(
        "--seed",
        type=whole_number(0),
        default=USUAL.seed,
        metavar="N",
        help="seed of all random numbers: the same seed gives the same network (default %(default)s)",
    )
    group.add_argument(
        "--device", default="cpu", help="torch device: cpu, cuda, cuda:1, ... (default %(default)s)"
    )


def _add_start_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--init", type=Path, metavar="MODEL", help="a checkpoint to start from, instead of a new network"
    )
    group.add_argument(
        "--quantize",
        metavar="TARGET",
        help="quantization-aware training: turn the --init network into the integers of this target, and "
        "train the integers; `export` writes them as they are",
    )
    group.add_argument(
        "--weight-bits",
        type=whole_number(1),
        metavar="N",
        help="with --quantize: bits per weight, including the sign (default: the most the target supports)",
    )


def _add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--out",
        type=Path,
        default=Path("model.pt"),
        metavar="MODEL",
        help="checkpoint to write; the best checkpoint, the log and the curves go beside it "
        "(default %(default)s)",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted training after its last epoch; give the same options as before",
    )


def _load() -> Execute:
    from .command import execute

    return execute


COMMAND = Command(
    name="train",
    summary="Train a spiking network and write model.pt.",
    details=(
        "example: python -m mpbn_deploy.train --data digits --arch digits-cnn --epochs 8 --out model.pt\n"
        "         python -m mpbn_deploy.train --init model.pt --quantize loihi2 --out integers.pt"
    ),
    add_arguments=_add_arguments,
    load=_load,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
