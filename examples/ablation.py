"""The paper's ablation for any network and data set: accuracy with and without MPBN, over seeds.

    python examples/ablation.py --data digits --arch digits-cnn --seeds 3 --epochs 8
    python examples/ablation.py --data cifar10 --data-dir FOLDER --arch resnet20-slim --seeds 3 --epochs 10

Trains one network per kind of MPBN and seed, all with the same budget, into --out: the table
ablation.md (paper: Table 1 and 6), the curves ablation.png (Fig. 2) and every network with its log.
Started again with the same options, it goes on where it was interrupted. Recipes and their parts are those
of `python -m mpbn_deploy.train`.
"""

import argparse
import json
import platform
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path
from statistics import mean, stdev

import torch

from mpbn_deploy.base import Command, OptionError, Outcome, announce, main, whole_number, write_atomically
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.data import dataset_name
from mpbn_deploy.nn import MPBN_KINDS, NEURON_DEFAULTS
from mpbn_deploy.train import Epoch, Training, resume_file, training_curves
from mpbn_deploy.train.__main__ import COMMAND as TRAIN
from mpbn_deploy.train.command import execute as train, settings_of

SUMMARY, _, DETAILS = __doc__.partition("\n\n")


def add_arguments(parser):
    study = parser.add_argument_group("study")
    study.add_argument("--kinds", nargs="+", default=["none", "channel"], choices=MPBN_KINDS, help="of MPBN")
    study.add_argument("--seeds", type=whole_number(1), default=3, help="how many (default %(default)s)")
    study.add_argument("--label", help="what to call the data set in the table (default: its name)")
    TRAIN.add_arguments(parser)
    parser.set_defaults(out=Path("ablation"))


def is_finished(path, options):
    """Whether this very training was done before; another one under its name is rejected."""
    if not path.exists():
        return False
    network = load_model(path, options.arch)
    card = network.card
    found = {
        "architecture": card.architecture,
        **NEURON_DEFAULTS,
        **asdict(Training()),
        **card.arguments,
        **card.training,
        "timesteps": network.timesteps,
    }
    asked = {"data": dataset_name(options.data), "mpbn": options.mpbn, **settings_of(options)}
    compared = asked.keys() | {"width", "clip_gradient", "augmentation"}  # which may have no value
    other = [
        f"{name} {found.get(name)} (now {asked.get(name)})"
        for name in sorted(compared)
        if found.get(name) != asked.get(name)
    ]
    if other:
        raise OptionError(f"{path}: belongs to a study with {', '.join(other)}. Choose another --out.")
    return found["epoch"] == found["epochs"] and not resume_file(path).exists()


def train_one(options, kind, seed):
    """The history of one training; of a finished one it is read from its log."""
    path = options.out / f"{kind}-{seed}.pt"
    one = argparse.Namespace(
        **{**vars(options), "mpbn": kind, "seed": seed, "out": path, "resume": resume_file(path).exists()}
    )
    if kind == "none":
        one.freeze_mpbn = one.mpbn_epsilon = None  # which it does not have
    if not is_finished(path, one):
        announce(f"{kind}, seed {seed}")
        train(one)
    lines = path.with_suffix(".log.jsonl").read_text().splitlines()
    return [Epoch(**json.loads(line)) for line in lines]


def table(options, histories):
    """Mean and deviation over seeds: accuracy half-way, and of the final network on the test split."""
    count = len(next(iter(histories.values())))
    half = (count + 1) // 2 - 1
    judged = "test" if next(iter(histories.values()))[0].validation_accuracy is None else "validation"
    lines = [
        f"| MPBN | seeds | {judged} accuracy, epoch {half + 1} | final test accuracy "
        "| training loss | seconds per epoch |",
        "|---|---|---|---|---|---|",
    ]
    for kind in options.kinds:
        runs = [history for name, history in histories.items() if name.startswith(f"{kind}/")]
        early = [100 * run[half].accuracy for run in runs]
        last = [100 * final_accuracy(options, kind, seed) for seed in range(options.seeds)]
        loss = mean(run[-1].train_loss for run in runs)
        seconds = mean(epoch.seconds for run in runs for epoch in run)
        lines.append(
            f"| {kind} | {len(runs)} | {spread(early)} | {spread(last)} | {loss:.3f} | {seconds:.0f} |"
        )
    return lines


def final_accuracy(options, kind, seed):
    """The accuracy on the test split of a finished network, recalibrated or not."""
    return load_model(options.out / f"{kind}-{seed}.pt", options.arch).card.training["test_accuracy"]


def spread(values):
    deviation = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):.2f}{deviation}%"


def execute(options):
    if len(set(options.kinds)) < len(options.kinds):
        raise OptionError(f"--kinds {' '.join(options.kinds)}: each kind once.")
    if options.mpbn is not None or options.init is not None or options.resume:
        raise OptionError("a study has --kinds instead of --mpbn, starts new networks, and always resumes.")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{options.out}: no folder can be made there ({error.strerror}).") from error
    histories = {
        f"{kind}/{seed}": train_one(options, kind, seed)
        for seed in range(options.seeds)
        for kind in options.kinds
    }
    card = load_model(options.out / f"{options.kinds[0]}-0.pt", options.arch).card
    left_out = {"seed", "architecture", *(() if options.mpbn_epsilon else ("mpbn_epsilon",))}
    settings = {name: value for name, value in settings_of(options).items() if name not in left_out}
    about = (
        f"{options.label or options.data}, {card.architecture}, "
        + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
        + f"; {date.today()}, {platform.machine()}, threads {torch.get_num_threads()}, "
        + f"torch {torch.__version__}"
    )
    text = "\n".join([about, "", *table(options, histories)]) + "\n"
    write_atomically(options.out / "ablation.md", text.encode())
    write_atomically(options.out / "ablation.png", training_curves(histories))
    data = {name: [asdict(epoch) for epoch in history] for name, history in histories.items()}
    return Outcome(data={"about": about, "histories": data}, text=text.rstrip())


COMMAND = Command(
    name="ablation.py",
    summary=SUMMARY,
    details=DETAILS,
    add_arguments=add_arguments,
    load=lambda: execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND, program="python examples/"))
