"""The paper's ablation for any network and data set: accuracy with and without MPBN, over seeds.

    python examples/ablation.py --data digits --arch digits-cnn --seeds 3 --epochs 8
    python examples/ablation.py --data cifar10 --data-dir FOLDER --arch resnet20-slim --seeds 3 --epochs 10

Trains one network per kind of MPBN and seed, all with the same budget, into --out: the table
ablation.md (paper: Table 1 and 6), the curves ablation.png (Fig. 2) and every network with its log.
Started again with the same options, it goes on where it was interrupted.
"""

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
from mpbn_deploy.data import DATASETS, load_dataset
from mpbn_deploy.nn import MPBN_GAINS, MPBN_KINDS, SURROGATES
from mpbn_deploy.train import NEURON_DEFAULTS, Epoch, Training, resume_file, train, training_curves

SUMMARY, _, DETAILS = __doc__.partition("\n\n")


def add_arguments(parser):
    usual = Training()
    parser.add_argument(
        "--data", default="digits", help=f"one of {', '.join(DATASETS)} (default %(default)s)"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument("--label", help="what to call the data set in the table (default: its name)")
    parser.add_argument("--arch", default="digits-cnn", help="as for train (default %(default)s)")
    parser.add_argument("--kinds", nargs="+", default=["none", "channel"], choices=MPBN_KINDS, help="of MPBN")
    parser.add_argument("--mpbn-gain", default="free", choices=MPBN_GAINS, help="as for train")
    parser.add_argument("--surrogate", default="rectangle", choices=tuple(SURROGATES), help="as for train")
    parser.add_argument("--timesteps", type=whole_number(1), help="as for train")
    parser.add_argument("--seeds", type=whole_number(1), default=3, help="how many (default %(default)s)")
    parser.add_argument("--epochs", type=whole_number(1), default=usual.epochs, help="(default %(default)s)")
    parser.add_argument("--batch", type=whole_number(2), default=usual.batch, help="(default %(default)s)")
    parser.add_argument(
        "--learning-rate", type=float, default=usual.learning_rate, help="(default %(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="as for train (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("ablation"), help="folder (default %(default)s)")


def is_finished(path, dataset, options, kind, seed):
    """Whether this very training was done before; another one under its name is refused."""
    if not path.exists():
        return False
    network = load_model(path)
    card = network.card
    found = {**NEURON_DEFAULTS, "architecture": card.architecture, "timesteps": network.timesteps}
    found |= {**card.arguments, **card.training}
    asked = {
        "data": dataset.name, "architecture": options.arch, "mpbn": kind, "seed": seed,
        "epochs": options.epochs, "batch": options.batch, "learning_rate": options.learning_rate,
        "mpbn_gain": options.mpbn_gain, "surrogate": options.surrogate,
        "timesteps": options.timesteps or network.timesteps,
    }  # fmt: skip
    other = [f"{name} {found[name]} (now {value})" for name, value in asked.items() if found[name] != value]
    if other:
        raise OptionError(f"{path}: belongs to a study with {', '.join(other)}. Choose another --out.")
    return card.training["epoch"] == options.epochs and not resume_file(path).exists()


def train_one(dataset, options, kind, seed):
    """The history of one training; of a finished one it is read from its log."""
    path = options.out / f"{kind}-{seed}.pt"
    if not is_finished(path, dataset, options, kind, seed):
        announce(f"{kind}, seed {seed}")
        training = Training(
            epochs=options.epochs, batch=options.batch, learning_rate=options.learning_rate, seed=seed
        )
        train(
            dataset,
            options.arch,
            mpbn=kind,
            timesteps=options.timesteps,
            training=training,
            neuron={"mpbn_gain": options.mpbn_gain, "surrogate": options.surrogate},
            out=path,
            resume=resume_file(path).exists(),
            device=options.device,
        )
    lines = path.with_suffix(".log.jsonl").read_text().splitlines()
    return [Epoch(**json.loads(line)) for line in lines]


def table(options, histories):
    """Mean and deviation over seeds of the test accuracy: after the last epoch, and half-way."""
    half = (options.epochs + 1) // 2 - 1
    lines = [
        f"| MPBN | seeds | test accuracy, epoch {half + 1} | test accuracy, epoch {options.epochs} "
        "| training loss | seconds per epoch |",
        "|---|---|---|---|---|---|",
    ]
    for kind in options.kinds:
        runs = [history for name, history in histories.items() if name.startswith(f"{kind}/")]
        early, last = ([100 * run[epoch].test_accuracy for run in runs] for epoch in (half, -1))
        loss = mean(run[-1].train_loss for run in runs)
        seconds = mean(epoch.seconds for run in runs for epoch in run)
        lines.append(
            f"| {kind} | {len(runs)} | {spread(early)} | {spread(last)} | {loss:.3f} | {seconds:.0f} |"
        )
    return lines


def spread(values):
    deviation = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):.2f}{deviation} %"


def execute(options):
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{options.out}: no folder can be made there ({error.strerror}).") from error
    dataset = load_dataset(options.data, options.data_dir)
    histories = {
        f"{kind}/{seed}": train_one(dataset, options, kind, seed)
        for seed in range(options.seeds)
        for kind in options.kinds
    }
    timesteps = load_model(options.out / f"{options.kinds[0]}-0.pt").timesteps
    about = (
        f"{options.label or options.data}, {options.arch}, {timesteps} time steps, {options.epochs} epochs, "
        f"batch {options.batch}, learning rate {options.learning_rate}, {options.surrogate} surrogate, "
        f"{date.today()}, {platform.machine()}, threads {torch.get_num_threads()}, torch {torch.__version__}"
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
