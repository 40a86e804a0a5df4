"""The command line of `train`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..base.arguments import (
    whole_number,
)
from ..base.commands import Command, Outcome, main
from ..data import DATASETS
from ..nn import MPBN_GAINS, MPBN_KINDS, SURROGATE_NAMES
from ..nn.zoo import ARCHITECTURES
from .settings import (
    DEFAULT_ARCHITECTURE,
    DEFAULT_TIMESTEPS,
    FINE_TUNING_RATE,
    FULL_RATE_BITS,
    QUANTIZED_RATE,
    Training,
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", default="digits", help=f"data set: {', '.join(DATASETS)} (default %(default)s)"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument(
        "--arch",
        help=f"network: {', '.join(ARCHITECTURES)}; or package.module:factory (imported, so its code runs);"
        " it is called with input_shape, classes, mpbn, and mpbn_gain and surrogate where you choose them"
        f" (default {DEFAULT_ARCHITECTURE})",
    )
    _add_neuron_arguments(parser)
    _add_optimization_arguments(parser)
    parser.add_argument("--init", type=Path, help="a checkpoint to start from, instead of a new network")
    parser.add_argument(
        "--quantize",
        metavar="TARGET",
        help="train the integers of the --init network for this profile (quantization-aware training)",
    )
    parser.add_argument(
        "--weight-bits", type=whole_number(1), help="of --quantize; default: as many as the target holds"
    )
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
        help="membrane-potential batch norm (default channel)",
    )
    parser.add_argument(
        "--mpbn-gain",
        choices=MPBN_GAINS,
        help="positive: gains above zero by construction, so that thresholds fold for every chip "
        "(default free)",
    )
    parser.add_argument(
        "--surrogate",
        choices=SURROGATE_NAMES,
        help="gradient of a spike: as the paper prints, or as its code does (default rectangle)",
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
        help="of SGD, falling to zero in a cosine "
        f"(default {usual.learning_rate}; with --init {FINE_TUNING_RATE}, with --quantize {QUANTIZED_RATE}, "
        f"more below {FULL_RATE_BITS} bits)",
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
    from .command import execute

    return execute(options)


COMMAND = Command(
    name="train",
    summary="Train a spiking network and write model.pt.",
    details="example: python -m mpbn_deploy.train --data digits --arch digits-cnn --epochs 8 --out model.pt",
    add_arguments=_add_arguments,
    execute=_execute,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
