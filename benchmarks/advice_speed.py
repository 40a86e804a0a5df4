"""How long `fit --advise` takes for the zoo's networks, in processor seconds, and what it finds.

    python benchmarks/advice_speed.py [--arch vgg16-slim ...]        prints a table of docs/results

Networks are untrained, with random weights and statistics (seed 0), and exported for Loihi 2. Time is that of
the advice alone, without export and without the first verdict, on one thread.
"""

import argparse
import platform
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from fold_zoo import SHAPES

from mpbn_deploy.checkpoint import build_untrained, save_model
from mpbn_deploy.export import export
from mpbn_deploy.fit.advice import advise, hopeless
from mpbn_deploy.fit.form import Question
from mpbn_deploy.fit.measurement import randomize_norms
from mpbn_deploy.formats.folder import open_folder
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import InputFormat
from mpbn_deploy.nn import ModelCard, SpikingNetwork
from mpbn_deploy.nn.zoo import ARCHITECTURES

NETWORKS = (
    "digits-mlp",
    "digits-cnn",
    "mnist-cnn",
    "cifar-cnn",
    "vgg16-slim",
    "resnet20-slim",
)  # exported in minutes
TARGETS = ("loihi1", "loihi2", "speck", "truenorth", "xylo-a3")
SAMPLES, CLASSES = 4, 10


def exported(architecture, folder):
    """Export an untrained network for Loihi 2."""
    shape = SHAPES.get(architecture, (3, 32, 32))
    torch.manual_seed(0)
    body = build_untrained(architecture, shape, CLASSES)
    randomize_norms(body)
    middle, half = np.array([120.0]), np.array([60.0])
    given = InputFormat(shape=shape, minimum=0, maximum=255, mean=middle, deviation=half)
    arguments = {"input_shape": list(shape), "classes": CLASSES}
    names = tuple(map(str, range(CLASSES)))
    card = ModelCard(architecture=architecture, arguments=arguments, class_names=names)
    save_model(folder / "model.pt", SpikingNetwork(body, timesteps=4, input_format=given, card=card))
    export(folder / "model.pt", "loihi2", samples=SAMPLES, data="random", budget=0.0)
    return open_folder(folder / "model.loihi2")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=NETWORKS, choices=ARCHITECTURES)
    parser.add_argument("--target", nargs="+", default=TARGETS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, one thread\n")
    print("| network | target | fits | advice | processor seconds |\n|---|---|---|---|---|", flush=True)
    for architecture in options.arch:
        with tempfile.TemporaryDirectory() as place:
            opened = exported(architecture, Path(place))
            samples = opened.samples(SAMPLES, "random", None)
            for target in options.target:
                question = Question(
                    opened=opened, target=target, profile=load_profile(target), samples=samples
                )
                report = question.ask(opened.network)
                started = time.process_time()
                found = advise(question, report)
                seconds = time.process_time() - started
                cells = [architecture, target, "no" if report.fits is False else "yes",
                         said(report, found), f"{seconds:.1f}"]  # fmt: skip
                print("| " + " | ".join(cells) + " |", flush=True)


def said(report, found):
    """Describe the advice in a cell."""
    if report.fits is not False:
        return "none needed"
    if beyond := hopeless(report):
        return f"nothing cures: {beyond[0].rule}"
    fitting = [one for one in found if one.report.fits]
    return fitting[0].description if fitting else "nothing that was tried fits"


if __name__ == "__main__":
    sys.exit(main())
