"""The command line of `train`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Literal

from ..base import OWN_DATA, Command, Execute, Options, add_options, main, option
from ..data import DATASETS
from ..formats.options import Quantizing
from ..nn import NeuronOptions
from .settings import RECIPES, NetworkChoice, Training

OF_DATA = ("validation", "augmentation")
OF_TEACHERS = ("distillation",)


class Recipe(Options):
    """A set of defaults."""

    recipe: str = option(
        "standard",
        "a set of defaults for the options below: paper, the settings of the paper's code; fast, for "
        "CIFAR-10 on two CPU cores in an hour; strong, longer, with cutout and averaged weights; standard, "
        "for small data sets; xylo, for --neuron xylo",
        choices=RECIPES,
    )


class TrainingData(Options):
    """What to train on."""

    data: str = option("digits", f"data set to train on: {', '.join(DATASETS)}; or your own, {OWN_DATA}")
    data_dir: Path | None = option(
        None, "folder with the files of the data set, if it needs one", metavar="FOLDER"
    )


class NeuronChoice(Options):
    """The family of the neurons."""

    neuron: Literal["lif", "xylo"] = option(
        "lif",
        "lif: the paper's; xylo: that of SynSense's Xylo, which subtracts its threshold up to 31 times in a "
        "step, with decays of 1 - 2^-k; it means --recipe xylo, and inputs are spike counts of 0..15",
    )


class Starting(Options):
    """The network to start from."""

    init: Path | None = option(None, "a checkpoint to start from, instead of a new network", metavar="MODEL")
    quantize: str | None = option(
        None,
        "quantization-aware training: turn the --init network into the integers of this target, and train "
        "the integers; `export` writes them as they are",
        metavar="TARGET",
    )
    static_steps: bool = option(
        False,
        "give the norms per time step of the --init network (TEBN, BNTT, TAB) one gain and offset for all "
        "steps, their means, and train on: for chips whose neurons have one set of numbers",
    )


class Teaching(Options):
    """The network to learn from."""

    teacher: Path | None = option(
        None,
        "a trained checkpoint whose outputs are learned beside the labels (distillation): of this package, "
        "with any number of time steps and any layers",
        metavar="MODEL",
    )
    teacher_arch: str | None = option(
        None, "package.module:factory of a teacher of your own code (which is imported and runs)"
    )


class Output(Options):
    """Where training runs, and what it writes."""

    device: str = option("cpu", "torch device: cpu, cuda, cuda:1, ...", metavar="DEVICE")
    out: Path = option(
        Path("model.pt"),
        "checkpoint to write; the best checkpoint, the log and the curves go beside it",
        metavar="MODEL",
    )
    resume: bool = option(
        False, "continue an interrupted training after its last epoch; give the same options as before"
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, Recipe)
    data = parser.add_argument_group("data")
    add_options(data, TrainingData)
    add_options(data, Training, "validation", recipes=RECIPES)
    augmentation = data.add_mutually_exclusive_group()
    add_options(augmentation, Training, "augmentation", recipes=RECIPES)
    augmentation.add_argument(
        "--no-augmentation",
        action="store_const",
        const="none",
        dest="augmentation",
        help="the same as --augmentation none: train on the samples as they are",
    )
    network = parser.add_argument_group("network")
    add_options(network, NeuronChoice)
    add_options(network, NetworkChoice, recipes=RECIPES)
    add_options(network, NeuronOptions, recipes=RECIPES)
    others = [name for name in Training.declared if name not in (*OF_DATA, *OF_TEACHERS)]
    add_options(parser.add_argument_group("optimization"), Training, *others, recipes=RECIPES)
    teaching = parser.add_argument_group("learn from another network")
    add_options(teaching, Teaching)
    add_options(teaching, Training, *OF_TEACHERS, recipes=RECIPES)
    start = parser.add_argument_group("start from a trained network")
    add_options(start, Starting)
    add_options(
        start,
        Quantizing,
        "weight_bits",
        "input_offset",
        recipes={},  # None where it is not given, to say that it needs --quantize
        weight_bits={"help": "with --quantize: bits per weight, including the sign"},
        input_offset={"help": "with --quantize: let the network take inputs minus N, as in `export`"},
    )
    add_options(parser.add_argument_group("output"), Output)


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
