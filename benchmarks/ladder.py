"""What each part of the fast recipe brings: short trainings on CIFAR-10, each with one part more.

    python benchmarks/ladder.py --data-dir DIR --out ladder               every rung, then the table
    python benchmarks/ladder.py --data-dir DIR --out ladder --only Dirac  one rung, beside another process

Each rung changes one thing in the rung it builds on; all are judged on the same tenth of the training split.
They train at one time step for the same number of epochs, and those at two for about the same time. Networks
are small, so that a rung takes minutes. Interrupted rungs go on where they
stopped, finished ones are not trained again. Seconds are those of the processor, whatever else runs on the
machine.
"""

import argparse
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from mpbn_deploy.api import ModelCard, SpikingNetwork, Training, load_dataset, train
from mpbn_deploy.base import keep_freed_memory
from mpbn_deploy.checkpoint import build_body
from mpbn_deploy.data import DataSet, Split
from mpbn_deploy.nn import SpikePool

ARCHITECTURE = "cifar-cnn-steep"
BASE = Training(batch=128, augmentation="crop-flip", validation=0.1, recalibration="off")
PICTURES = 5000  # whose patches give the whitening filters
LOOKAHEAD_STEPS, LOOKAHEAD_PART = 5, 0.5
LOW_EPOCHS = 2  # the time of as many whole ones, in which four times as many of quarter pictures are trained


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One training: what it changes in another one."""

    name: str
    on: str | None = None
    settings: dict[str, object] = field(default_factory=dict)
    neuron: dict[str, object] = field(default_factory=dict)
    architecture: str = ARCHITECTURE
    timesteps: int = 1
    prepare: Callable[[SpikingNetwork, DataSet, Training], None] | None = None
    spike_pools: bool = False  # whose gradients go to the highest membranes; else those of torch
    shorter: int = 0  # epochs, for what `prepare` or a second time step takes
    lookahead: bool = False


# ---- parts that are not options of `train` ------------------------------------------------------


def dirac(network, _dataset, _training):
    """Let each convolution pass on its first channels, as far as there are so many."""
    for convolution in convolutions(network)[1:]:
        nn.init.dirac_(convolution.weight[: convolution.in_channels])


def whitening(network, dataset, _training):
    """Take the principal components of the pictures' patches, and their negatives, as the first filters."""
    convolution = convolutions(network)[0]
    mean, deviation = (
        torch.tensor(values)[:, None, None]
        for values in (network.input_format.mean, network.input_format.deviation)
    )
    pictures = (torch.tensor(dataset.train.inputs[:PICTURES]) - mean) / deviation
    patches = nn.functional.unfold(pictures, convolution.kernel_size).transpose(0, 1).flatten(1)
    values, vectors = torch.linalg.eigh(torch.cov(patches))
    filters = (vectors / values.clamp(min=1e-12).sqrt()).T.flip(0)[: convolution.out_channels // 2]
    filters = torch.cat([filters, -filters])
    with torch.no_grad():
        convolution.weight.copy_(filters.view_as(convolution.weight))


def low_resolution(network, dataset, training):
    """Start from the weights of a network that was trained on pictures of half the height and width."""
    small = replace(
        dataset,
        train=halved(dataset.train),
        test=halved(dataset.test),
        input_format=replace(dataset.input_format, shape=(3, 16, 16)),
    )
    first = build(small, network.card, 1, training.seed)
    train(small, network.card.architecture, training=replace(training, epochs=4 * LOW_EPOCHS), init=first)
    network.body.load_state_dict(first.body.state_dict())


def halved(split):
    pictures = np.asarray(split.inputs[:])
    means = pictures.reshape(len(pictures), 3, 16, 2, 16, 2).mean((3, 5))
    return Split(inputs=np.rint(means).astype(np.uint8), labels=split.labels)


def convolutions(network):
    return [module for module in network.modules() if isinstance(module, nn.Conv2d)]


class Lookahead:
    """Every few steps, go back a part of the way: weights = slow = slow + part * (weights - slow)."""

    def __init__(self):
        self.steps, self.slow = 0, {}

    def __call__(self, optimizer, _arguments, _keywords):
        self.steps += 1
        if self.steps % LOOKAHEAD_STEPS:
            return
        for weights in (p for group in optimizer.param_groups for p in group["params"]):
            slow = self.slow.setdefault(weights, weights.detach().clone())
            slow.lerp_(weights.detach(), LOOKAHEAD_PART)
            weights.data.copy_(slow)


RUNGS = {
    rung.name: rung
    for rung in (
        Rung(name="cosine from 0.1"),
        Rung(
            name="one-cycle to 0.2, Nesterov",
            on="cosine from 0.1",
            settings={"schedule": "one-cycle", "learning_rate": 0.2, "nesterov": True},
        ),
        Rung(name="label smoothing 0.1", on="one-cycle to 0.2, Nesterov", settings={"label_smoothing": 0.1}),
        Rung(name="tanh surrogate", on="label smoothing 0.1", neuron={"surrogate": "tanh"}),
        Rung(name="wide surrogate", on="label smoothing 0.1", neuron={"surrogate": "wide"}),
        Rung(name="without MPBN", on="wide surrogate", neuron={"mpbn": "none"}),
        Rung(name="two time steps", on="wide surrogate", timesteps=2, shorter=3),
        Rung(
            name="one time step first",
            on="two time steps",
            timesteps=2,
            settings={"single_step": 0.8},
            shorter=1,
        ),
        Rung(name="whitening", on="wide surrogate", prepare=whitening),
        Rung(name="Dirac", on="wide surrogate", prepare=dirac),
        Rung(name="norm rate 4", on="wide surrogate", settings={"norm_rate": 4.0}),
        Rung(name="lookahead", on="wide surrogate", lookahead=True),
        Rung(name="low resolution first", on="wide surrogate", prepare=low_resolution, shorter=LOW_EPOCHS),
        Rung(name="cifar-cnn", on="wide surrogate", architecture="cifar-cnn"),
        Rung(
            name="cifar-cnn-lean of width 32",
            on="wide surrogate",
            architecture="cifar-cnn-lean",
            neuron={"width": 32},
        ),
        Rung(
            name="gradients of pools by membranes",
            on="cifar-cnn-lean of width 32",
            architecture="cifar-cnn-lean",
            spike_pools=True,
        ),
        Rung(
            name="Muon",
            on="gradients of pools by membranes",
            settings={"optimizer": "muon"},
            architecture="cifar-cnn-lean",
            spike_pools=True,
        ),
        Rung(name="rate 0.1", on="wide surrogate", settings={"learning_rate": 0.1}),
        Rung(name="rate 0.4", on="wide surrogate", settings={"learning_rate": 0.4}),
        Rung(name="batch 64", on="wide surrogate", settings={"batch": 64, "learning_rate": 0.1}),
    )
}  # fmt: skip


# ---- training -------------------------------------------------------------------------------------


def whole(rung):
    """Return all settings and neuron arguments of a rung, with those that it builds on."""
    settings, neuron = whole(RUNGS[rung.on]) if rung.on else ({}, {})
    return {**settings, **rung.settings}, {**neuron, **rung.neuron}


def run(rung, dataset, options):
    """Train a rung unless it is trained; return its log."""
    out = options.out / f"{rung.name.replace(' ', '-').replace(',', '')}-seed{options.seed}.pt"
    log = out.with_suffix(".log.jsonl")
    resume = out.with_suffix(".resume.pt").exists()
    if resume or not log.exists():
        settings, neuron = whole(rung)
        training = replace(
            BASE,
            epochs=options.epochs - rung.shorter,
            seed=options.seed,
            precision=options.precision,
            **settings,
        )
        hook = register_optimizer_step_post_hook(Lookahead()) if rung.lookahead else None
        print(f"{rung.name}: {training}", flush=True)
        arguments = {"mpbn": "channel", "width": options.width, **neuron}
        card = ModelCard(architecture=rung.architecture, arguments=arguments)
        network = build(dataset, card, rung.timesteps, options.seed, spike_pools=rung.spike_pools)
        if rung.prepare is not None:
            rung.prepare(network, dataset, training)
        train(dataset, card.architecture, training=training, init=network, out=out, resume=resume)
        if hook is not None:
            hook.remove()
    return [json.loads(line) for line in log.read_text().splitlines()]


def with_torch_pools(body):
    """Replace each SpikePool, which is a direct child of a chain, by the max pool of torch."""
    for name, layer in list(body.named_children()):
        if isinstance(layer, SpikePool):
            setattr(body, name, nn.MaxPool2d(layer.kernel_size))


def build(dataset, card, timesteps, seed, *, spike_pools=False):
    """Return the network of a card, fitted to a data set."""
    arguments = {
        **card.arguments,
        "input_shape": list(dataset.input_format.shape),
        "classes": len(dataset.class_names),
    }
    torch.manual_seed(seed)
    card = replace(card, arguments=arguments, class_names=dataset.class_names)
    body = build_body(card.architecture, arguments)
    if not spike_pools:
        with_torch_pools(body)
    return SpikingNetwork(body, timesteps=timesteps, input_format=dataset.input_format, card=card)


def table(logs):
    yield "| step | builds on | validation | to that | processor seconds |"
    yield "|---|---|---|---|---|"
    found = {name: log[-1]["validation_accuracy"] for name, log in logs.items()}
    for name, log in logs.items():
        on = RUNGS[name].on
        change = f"{100 * (found[name] - found[on]):+.1f}" if on in found else ""
        seconds = sum(epoch["processor_seconds"] for epoch in log)
        yield f"| {name} | {on or ''} | {found[name]:.1%} | {change} | {seconds:.0f} |"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--out", type=Path, default=Path("ladder"), help="folder for networks and logs")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--only", nargs="+", choices=RUNGS, default=list(RUNGS), metavar="RUNG")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    keep_freed_memory()
    dataset = load_dataset("cifar10", options.data_dir)
    logs = {name: run(RUNGS[name], dataset, options) for name in options.only}
    print(
        f"\n{date.today()}, {platform.machine()}, torch {torch.__version__}, {options.precision}, "
        f"{ARCHITECTURE} of width {options.width}, {options.epochs} epochs, seed {options.seed}\n"
    )
    print("\n".join(table(logs)))


if __name__ == "__main__":
    main()
