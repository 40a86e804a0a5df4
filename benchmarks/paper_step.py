"""One training step of the paper's own code and of ours: loss, gradients and running statistics side by side.

python benchmarks/paper_step.py --paper-code PATH      prints a table of docs/results

PATH is a copy of the paper's repository (the folder of main_train.py). Each of its networks gets random
weights and gains of either sign; ours gets the same, and the tanh surrogate of their code. Both see the same
random pictures and labels in float64. Relative differences are divided by the largest value of the same
tensor, and for gradients of the same layer: before a norm, the gradient of a bias is zero but for rounding.
Exit code 1 where a relative difference exceeds 1e-9.
"""

import argparse
import platform
import sys
from datetime import date

import torch
from paper_code import (
    FUNCTIONS,
    as_ours,
    import_paper_code,
    lively_network,
    normalized,
    paper_folder,
    raw_pictures,
)
from torch import nn

from mpbn_deploy.checkpoint import paper_names
from mpbn_deploy.nn import LIF

LARGEST_DIFFERENCE = 1e-9
CLASSES = 10
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
COLUMNS = "network of the paper's code | what | values | largest difference | relative"


# ---- one step ---------------------------------------------------------------------------------


def training_step(network, inputs, labels):
    """The loss of one step and, by name, the gradient of each parameter and the new running statistics."""
    network.train().zero_grad()
    loss = nn.functional.cross_entropy(network(inputs), labels)
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    return {"loss": loss.detach(), **gradients, **dict(network.named_buffers())}


def under_our_names(step, body, arch):
    """A step of their SpikeModel, its tensors named as in our SpikingNetwork; unknown names stay."""
    ours = {theirs: f"body.{name}" for name, theirs in paper_names(body, arch).items()}
    return {ours.get(name, name): value for name, value in step.items()}


# ---- the comparison ---------------------------------------------------------------------------


def differences(theirs, ours):
    """[(what, values compared, largest absolute difference, largest relative difference)] of two steps."""
    if alone := theirs.keys() ^ ours.keys():
        raise ValueError(f"tensors without a counterpart: {', '.join(sorted(alone))}")
    scales, groups = {}, {}
    for name, value in theirs.items():
        scales.setdefault(scale_of(name), []).append(value.abs().max().double())
        groups.setdefault(what(name), []).append(name)
    rows = []
    for label, names in groups.items():
        absolute = torch.stack([(theirs[name] - ours[name]).abs().max().double() for name in names])
        scale = torch.stack([torch.stack(scales[scale_of(name)]).max() for name in names])
        relative = torch.where(absolute == 0, 0.0, absolute / scale)
        values = sum(theirs[name].numel() for name in names)
        rows.append((label, values, absolute.max().item(), relative.max().item()))
    return rows


def what(name):
    """The row of the table that a tensor belongs to."""
    layer, _, value = name.rpartition(".")
    if not layer:
        return name
    norm = "MPBN" if ".mpbn." in name else "batch norms" if "norm" in layer.rpartition(".")[2] else None
    if value in STATISTICS:
        return f"running statistics of {norm}"
    return f"gradients of {norm or 'convolutions and readout'}"


def scale_of(name):
    """What a difference is relative to: a layer for gradients, else a tensor."""
    layer, _, value = name.rpartition(".")
    return name if value in STATISTICS else layer


def print_row(arch, label, values, absolute, relative):
    print(f"| {arch} | {label} | {values:,} | {absolute:.1e} | {relative:.1e} |", flush=True)


# ---- theirs and ours --------------------------------------------------------------------------


def compare(models, arch, options):
    """Print the rows of one network; whether all of its differences are small."""
    torch.manual_seed(options.seed)
    theirs = lively_network(models, arch, CLASSES, options.mpbn, options.timesteps)
    ours = as_ours(theirs, arch, options.timesteps).double()
    for module in ours.modules():
        if isinstance(module, LIF):
            module.surrogate = "tanh"
    raw, labels = raw_pictures(options.batch).double(), torch.randint(CLASSES, (options.batch,))
    step = training_step(theirs.double(), normalized(raw, CLASSES), labels)
    rows = differences(under_our_names(step, ours.body, arch), training_step(ours, raw, labels))
    for row in rows:
        print_row(arch, *row)
    return all(relative <= LARGEST_DIFFERENCE for *_, relative in rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--paper-code", type=paper_folder, required=True, help="folder of the paper's main_train.py"
    )
    parser.add_argument("--arch", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--mpbn", choices=("channel", "none"), default="channel")
    parser.add_argument("--timesteps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    models = import_paper_code(options.paper_code)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, seed {options.seed}, "
          f"{options.timesteps} time steps, batch {options.batch}, MPBN {options.mpbn}\n")  # fmt: skip
    print(f"| {COLUMNS} |")
    print("|---" * (1 + COLUMNS.count("|")) + "|", flush=True)
    results = [compare(models, arch, options) for arch in options.arch]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
