"""The 1-D loss landscape of trained networks (paper: Fig. 3), after Li et al., 2018.

    python examples/landscape.py none.pt channel.pt --data cifar10 --data-dir FOLDER

Walks from a network's weights w along random directions d, where each filter of d is as long as that
filter of w: loss(w + alpha * d) for alpha in -1..1, on training samples, with norms in evaluation mode.
A flat valley rises slowly. Writes the picture landscape.png and prints the rises as a table.
"""

import copy
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from matplotlib import style
from matplotlib.figure import Figure

from mpbn_deploy.base import Command, Outcome, check_writable, main, track, whole_number, write_atomically
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.data import Split, load_dataset
from mpbn_deploy.train import COLORS, MUTED, STYLE, as_png, evaluate

SUMMARY, _, DETAILS = __doc__.partition("\n\n")


def direction(network, seed):
    """One random direction per weight, filter by filter as long as the weight; none for norms and biases."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, weight in network.body.named_parameters():
        if weight.dim() > 1:
            random = torch.randn(weight.shape, generator=generator).flatten(1)
            length = weight.detach().flatten(1).norm(dim=1, keepdim=True)
            found[name] = (random * length / random.norm(dim=1, keepdim=True)).view_as(weight)
    return found


def losses(network, split, alphas, seed):
    """loss(w + alpha * d) for each alpha"""
    moved = copy.deepcopy(network)
    start, way = dict(network.body.named_parameters()), direction(network, seed)
    found = []
    for alpha in alphas:
        with torch.no_grad():
            for name, weight in moved.body.named_parameters():
                if name in way:
                    weight.copy_(start[name] + alpha * way[name])
        found.append(evaluate(moved, split)[0])
    return found


def draw(alphas, landscapes):
    """Every direction a thin line, the mean of a network a thick one."""
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(6.0, 3.6), layout="constrained")
        axes = figure.subplots()
        for color, (name, walks) in zip(cycle(COLORS), landscapes.items(), strict=False):
            for walk in walks:
                axes.plot(alphas, walk, color=color, alpha=0.35, linewidth=0.8)
            axes.plot(alphas, np.mean(walks, axis=0), color=color, linewidth=2, label=name)
        axes.set_xlabel("distance along the direction, in lengths of the filters")
        axes.set_ylabel("loss")
        axes.set_ylim(0, min(axes.get_ylim()[1], 4 * np.log(10)))  # far out it says nothing of the valley
        axes.grid(visible=True)
        axes.legend(frameon=False, labelcolor=MUTED)
        return as_png(figure)


def table(alphas, landscapes):
    shown = [alpha for alpha in (0.1, 0.25, 0.5, 1.0) if np.isclose(alphas, alpha).any()]
    lines = [
        "| network | loss | " + " | ".join(f"rise at ±{alpha}" for alpha in shown) + " |",
        "|---" * (2 + len(shown)) + "|",
    ]
    for name, walks in landscapes.items():
        mean = np.mean(walks, axis=0)
        here = mean[len(alphas) // 2]
        rises = [mean[np.isclose(np.abs(alphas), alpha)].mean() - here for alpha in shown]
        lines.append(f"| {name} | {here:.3f} | " + " | ".join(f"{rise:.3f}" for rise in rises) + " |")
    return "\n".join(lines)


def add_arguments(parser):
    parser.add_argument("models", nargs="+", type=Path, help="checkpoints")
    parser.add_argument("--arch", help="package.module:factory of networks of your own")
    parser.add_argument("--data", default="digits", help="data set (default %(default)s)")
    parser.add_argument("--data-dir", type=Path, help="folder of the data set, where it needs one")
    parser.add_argument(
        "--samples", type=whole_number(1), default=512, help="of the training split (default %(default)s)"
    )
    parser.add_argument(
        "--points",
        type=whole_number(3),
        default=41,
        help="along a direction, an odd number (default %(default)s)",
    )
    parser.add_argument("--directions", type=whole_number(1), default=3, help="(default %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("landscape.png"), help="the picture (default %(default)s)"
    )


def execute(options):
    check_writable(options.out)
    dataset = load_dataset(options.data, options.data_dir).train
    split = Split(inputs=dataset.inputs[: options.samples], labels=dataset.labels[: options.samples])
    alphas = np.linspace(-1, 1, options.points | 1)  # odd, so that the network itself is among them
    names = [path.stem for path in options.models]
    networks = {
        path.stem if names.count(path.stem) == 1 else str(path): load_model(path, arch=options.arch)
        for path in options.models
    }
    landscapes = {name: [] for name in networks}
    walks = [(name, seed) for name in networks for seed in range(options.directions)]
    for name, seed in track(walks, "landscape", len(walks)):
        landscapes[name].append(losses(networks[name], split, alphas, seed))
    write_atomically(options.out, draw(alphas, landscapes))
    return Outcome(data={"alphas": alphas.tolist(), "losses": landscapes}, text=table(alphas, landscapes))


COMMAND = Command(
    name="landscape.py",
    summary=SUMMARY,
    details=DETAILS,
    add_arguments=add_arguments,
    load=lambda: execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND, program="python examples/"))
