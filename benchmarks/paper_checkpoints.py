"""Checkpoints of the paper's own code: theirs and ours, side by side, on the same pictures.

python benchmarks/paper_checkpoints.py --paper-code PATH      prints a table of docs/results

PATH is a copy of the paper's repository (the folder of main_train.py). Each of its networks gets random
weights, gains of either sign and statistics of its own; its state dict is saved, read by load_model, and
both networks see the same pictures: raw for ours, normalized for theirs. Exit code 1 where, in float64,
a spike differs or a logit differs by 1e-9 or more.

In float32 a membrane within a rounding of its threshold may decide otherwise, because torch sums in
another order where the layout in memory differs, and because from raw pixels ours normalizes in another
order of operations. With random weights one such spike changes many after it: hence the column of the
first layer that differs.
"""

import argparse
import copy
import sys
from functools import partial

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

from mpbn_deploy.checkpoint import PAPER_ARCHITECTURES
from mpbn_deploy.nn import LIF

LARGEST_DIFFERENCE = 1e-9
KINDS = ((10, "channel"), (100, "channel"), (10, "none"))  # classes, MPBN
COLUMNS = (
    "network of the paper's code | ours | MPBN | classes | parameters | spikes compared | firing "
    "| float64: spikes different | logits differ by "
    "| float32, same normalized numbers: spikes different | logits differ by "
    "| float32, raw pixels: spikes different | in the first layer that differs | logits differ by"
)


def run(network, inputs, neuron):
    """Logits, and the spikes of every layer in the order in which they are computed."""
    spikes = []
    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output: spikes.append(output > 0.5))
        for module in network.modules()
        if isinstance(module, neuron)
    ]
    with torch.no_grad():
        logits = network(inputs)
    for hook in hooks:
        hook.remove()
    return logits, [spike.flatten() for spike in spikes]


def compare(models, theirs, ours, raw, classes, same_numbers=False):
    """What differs between the two, and how much was compared."""
    logits, spikes = run(theirs, normalized(raw, classes), models.spike_layer.LIFAct)
    if same_numbers:
        ours = copy.copy(ours)
        ours.normalize = partial(normalized, classes=classes)
    our_logits, our_spikes = run(ours, raw, LIF)
    flips = [int((a != b).sum()) for a, b in zip(spikes, our_spikes, strict=True)]
    return {
        "flips": sum(flips),
        "first_flips": next((count for count in flips if count), 0),
        "spikes": sum(map(len, spikes)),
        "firing": torch.cat(spikes).float().mean().item(),
        "difference": (logits - our_logits).abs().max().item(),
    }


def row(models, arch, classes, mpbn, options):
    """One line of the table, and whether it is good."""
    torch.manual_seed(options.seed)
    theirs = lively_network(models, arch, classes, mpbn, options.timesteps)
    ours = as_ours(theirs, arch, options.timesteps)
    raw = raw_pictures(options.batch)
    alike = compare(models, theirs, ours, raw, classes, same_numbers=True)
    single = compare(models, theirs, ours, raw, classes)
    double = compare(models, theirs.double(), ours.double(), raw.double(), classes)
    parameters = sum(parameter.numel() for parameter in theirs.parameters())
    assert parameters == sum(parameter.numel() for parameter in ours.parameters())
    print(
        f"| {arch} | {PAPER_ARCHITECTURES[arch]} | {mpbn} | {classes} | {parameters:,} "
        f"| {double['spikes']:,} | {double['firing']:.1%} | {double['flips']} | {double['difference']:.1e} "
        f"| {alike['flips']} | {alike['difference']:.1e} "
        f"| {single['flips']:,} | {single['first_flips']} | {single['difference']:.1e} |",
        flush=True,
    )
    return double["flips"] == 0 and double["difference"] < LARGEST_DIFFERENCE


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--paper-code", type=paper_folder, required=True, help="folder of the paper's main_train.py"
    )
    parser.add_argument("--timesteps", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2, help="pictures to compare on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    models = import_paper_code(options.paper_code)
    print(f"| {COLUMNS} |")
    print("|---" * (1 + COLUMNS.count("|")) + "|")
    results = [row(models, arch, *kind, options) for arch in FUNCTIONS for kind in KINDS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
