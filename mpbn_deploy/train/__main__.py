"""The command line of `train`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from ..base import OWN_DATA, Command, Execute, main, whole_number
from ..data import DATASETS
from ..nn import MPBN_GAINS, MPBN_KINDS, NEURON_DEFAULTS, RESET_GRADIENTS, RESETS, SURROGATE_NAMES
from ..nn.zoo import ARCHITECTURES
from .settings import (
    AUGMENTATIONS,
    DEFAULT_ARCHITECTURE,
    DEFAULT_TIMESTEPS,
    FINE_TUNING_RATE,
    FULL_RATE_BITS,
    NEURONS,
    OPTIMIZERS,
    PRECISIONS,
    QUANTIZED_RATE,
    RECALIBRATIONS,
    RECIPES,
    SCHEDULES,
    Training,
    mpbn_epsilon,
)

USUAL = {**asdict(Training()), **NEURON_DEFAULTS}


def _usual(name: str) -> str:
    """Return the defaults of an option, for its help text: "default 8; paper 400; fast 28"."""
    others = [f"{recipe} {parts[name]}" for recipe, parts in RECIPES.items() if name in parts]
    return "; ".join([f"default {USUAL[name]}", *others])


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe",
        choices=tuple(RECIPES),
        default="standard",
        help="a set of defaults for the options below: paper, the settings of the paper's code; fast, for "
        "CIFAR-10 on two CPU cores; standard, for small data sets (default %(default)s)",
    )
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
        help=f"data set to train on: {', '.join(DATASETS)}; or your own, {OWN_DATA} (default %(default)s)",
    )
    group.add_argument(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help="folder with the files of the data set, if it needs one",
    )
    group.add_argument(
        "--validation",
        type=float,
        metavar="FRACTION",
        help="fraction of the training samples to hold out: epochs are judged on them, and the test samples "
        f"are used once, at the end ({_usual('validation')})",
    )
    augmentation = group.add_mutually_exclusive_group()
    augmentation.add_argument(
        "--augmentation",
        choices=AUGMENTATIONS,
        help="random changes of the training samples (default: the data set's own; paper "
        f"{RECIPES['paper']['augmentation']}; fast {RECIPES['fast']['augmentation']})",
    )
    augmentation.add_argument(
        "--no-augmentation",
        action="store_const",
        const="none",
        dest="augmentation",
        help="the same as --augmentation none: train on the samples as they are",
    )


def _add_network_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--arch",
        metavar="NAME",
        help=f"network to build: {', '.join(ARCHITECTURES)}; or package.module:factory, a function of "
        "your own code (which is imported and runs), called with input_shape, classes and mpbn, and with "
        "the other options of this group only if you set them "
        f"(default {DEFAULT_ARCHITECTURE}; paper {RECIPES['paper']['arch']}; fast {RECIPES['fast']['arch']})",
    )
    group.add_argument(
        "--neuron",
        choices=NEURONS,
        default="lif",
        help="lif: the paper's; xylo: that of SynSense's Xylo, which subtracts its threshold up to 31 times "
        "in a step, with decays of 1 - 2^-k; it means --recipe xylo, and inputs are spike counts of 0..15 "
        "(default %(default)s)",
    )
    group.add_argument(
        "--width",
        type=whole_number(1),
        metavar="N",
        help="channels of the first layer, in networks that can be scaled (default: the network's own; "
        f"fast {RECIPES['fast']['width']})",
    )
    group.add_argument(
        "--timesteps",
        type=whole_number(1),
        metavar="N",
        help=f"time steps per sample (default {DEFAULT_TIMESTEPS}; fast {RECIPES['fast']['timesteps']}; for "
        "recordings, their number of frames; with --init, that of the network)",
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
        f"free: as in the paper ({_usual('mpbn_gain')})",
    )
    group.add_argument(
        "--mpbn-epsilon",
        type=float,
        metavar="NUMBER",
        help="number added to the variance of MPBN; larger values keep gradients of neurons with almost "
        f"constant membranes small (default {mpbn_epsilon('channel')}; with --mpbn element "
        f"{mpbn_epsilon('element')})",
    )
    group.add_argument(
        "--surrogate",
        choices=SURROGATE_NAMES,
        help="surrogate gradient of a spike: rectangle, as printed in the paper; tanh, as in the paper's "
        f"code; or wide, a rectangle of twice the width ({_usual('surrogate')})",
    )
    group.add_argument(
        "--reset",
        choices=RESETS,
        help="what a spike does to the membrane: set it to zero, as in the paper, or subtract the threshold "
        f"({_usual('reset')})",
    )
    group.add_argument(
        "--reset-gradient",
        choices=RESET_GRADIENTS,
        help="whether gradients pass through the reset; detached, they do not, and cannot grow there from "
        f"step to step ({_usual('reset_gradient')})",
    )
    group.add_argument(
        "--leak",
        type=float,
        metavar="FACTOR",
        help=f"what a membrane keeps from one time step to the next, 0 to 1 ({_usual('leak')})",
    )
    group.add_argument(
        "--current-leak",
        type=float,
        metavar="FACTOR",
        help="what a synaptic current keeps from one time step to the next, 0 to 1; 0: no such current "
        f"({_usual('current_leak')})",
    )
    group.add_argument(
        "--threshold",
        type=float,
        metavar="NUMBER",
        help=f"membrane above which a neuron fires ({_usual('threshold')})",
    )


def _add_optimization_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        help="sgd, with momentum; muon, which keeps the norms of weights, for layers with a batch norm "
        "behind them, and sgd for the rest; or adam; with --init, sgd unless you set it "
        f"({_usual('optimizer')})",
    )
    group.add_argument(
        "--epochs",
        type=whole_number(1),
        metavar="N",
        help=f"passes over the training samples ({_usual('epochs')})",
    )
    group.add_argument(
        "--single-step",
        type=float,
        metavar="FRACTION",
        help="fraction of the epochs, the first ones, that run one time step per sample, which is faster "
        f"({_usual('single_step')})",
    )
    group.add_argument(
        "--freeze-mpbn",
        type=float,
        metavar="FRACTION",
        help="fraction of the epochs, the last ones, in which MPBN uses its running statistics, as in "
        f"inference; for inputs that change over time ({_usual('freeze_mpbn')})",
    )
    group.add_argument(
        "--batch", type=whole_number(2), metavar="N", help=f"samples per step ({_usual('batch')})"
    )
    group.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help=f"highest learning rate ({_usual('learning_rate')}; with --init {FINE_TUNING_RATE}; with "
        f"--quantize {QUANTIZED_RATE}, and more below {FULL_RATE_BITS} bits)",
    )
    group.add_argument(
        "--norm-rate",
        type=float,
        metavar="FACTOR",
        help=f"learning rate of norms and biases, relative to that of weights ({_usual('norm_rate')})",
    )
    group.add_argument(
        "--schedule",
        choices=SCHEDULES,
        help="cosine: the rate falls to zero along a cosine; one-cycle: it rises from zero during the "
        f"warmup, then falls to zero along a line ({_usual('schedule')})",
    )
    group.add_argument(
        "--warmup",
        type=float,
        metavar="FRACTION",
        help=f"fraction of a one-cycle schedule in which the rate rises ({_usual('warmup')})",
    )
    group.add_argument(
        "--momentum", type=float, metavar="FACTOR", help=f"momentum of the optimizer ({_usual('momentum')})"
    )
    group.add_argument(
        "--nesterov",
        action=argparse.BooleanOptionalAction,
        default=None,
        help=f"Nesterov's form of momentum ({_usual('nesterov')})",
    )
    group.add_argument(
        "--weight-decay",
        type=float,
        metavar="RATE",
        help=f"decay of the weights that sgd moves; norms and biases have none ({_usual('weight_decay')})",
    )
    group.add_argument(
        "--label-smoothing",
        type=float,
        metavar="FRACTION",
        help=f"part of each label that is spread over all classes ({_usual('label_smoothing')})",
    )
    group.add_argument(
        "--clip-gradient",
        type=float,
        metavar="NORM",
        help="scale the gradient of a step down to this norm where it is larger (default: no limit)",
    )
    group.add_argument(
        "--precision",
        choices=(*PRECISIONS, "auto"),
        help="arithmetic of convolutions in training; auto: bfloat16 if a trial on this machine is clearly "
        f"faster; evaluation and export always use float32 ({_usual('precision')})",
    )
    group.add_argument(
        "--recalibration",
        choices=RECALIBRATIONS,
        help="re-estimate the running statistics of all norms after training, layer by layer in inference "
        "mode; auto: keep them if the validation split (or else other training samples) is classified "
        f"clearly better ({_usual('recalibration')})",
    )
    group.add_argument(
        "--seed",
        type=whole_number(0),
        default=USUAL["seed"],
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
        type=whole_number(2),
        metavar="N",
        help="with --quantize: bits per weight, including the sign (default: the most the target supports)",
    )
    group.add_argument(
        "--input-offset",
        type=int,
        metavar="N",
        help="with --quantize: let the network take inputs minus N, as in `export` (default 0)",
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
        "         python -m mpbn_deploy.train --data cifar10 --data-dir FOLDER --recipe fast\n"
        "         python -m mpbn_deploy.train --init model.pt --quantize loihi2 --out integers.pt"
    ),
    add_arguments=_add_arguments,
    load=_load,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
