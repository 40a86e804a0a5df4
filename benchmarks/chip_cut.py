"""Partitions of cores into chips: messages between chips by METIS, greedily, in core order and at random.

    python benchmarks/chip_cut.py                                       prints a table of docs/results
    python benchmarks/chip_cut.py --arch resnet34 --input-shape 3 224 224 --target loihi1

Networks are untrained, with random weights (seed 0), pooling as `--pooling auto` makes it; 10 % of neurons
fire in each of 4 time steps. A spike is one message to each chip that reads it. Loads of links are those of a
grid of chips as square as possible, which is assumed (mpbn_deploy/fit/chips.py). METIS partitions are
repaired and, unless they are large, improved; "fit" takes the best of all its candidates; "seconds" are those
of the processor. Thresholds do not matter here, so networks are quantized in the formats of Loihi 2.
"""

import argparse
import platform
import time
from datetime import date

import numpy as np

from mpbn_deploy.fit.activity import chip_messages, traffic
from mpbn_deploy.fit.chips import CORE_ORDER, METIS, SEED, core_graph, link_loads, partitions
from mpbn_deploy.fit.measurement import UntrainedNetwork
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place
from mpbn_deploy.quantize.pooling import express_pooling

CASES = (
    ("vgg16", (3, 32, 32), "loihi2"),
    ("resnet20", (3, 32, 32), "loihi1"),
    ("resnet34", (3, 224, 224), "hala-point"),
    ("resnet34", (3, 224, 224), "loihi1"),
)
COLUMNS = (
    "network | target | cores | chips | partition | messages that cross | busiest link | busiest chip "
    "| seconds"
)


def untrained(arch, shape):
    return UntrainedNetwork(
        arch=arch, input_shape=shape, timesteps=4, input_range=(0, 255), classes=10, firing_rate=0.1
    )


def simple_partitions(traffic, cores, capacity):
    """Return partitions by simpler methods than those of `fit`."""
    order = np.arange(cores) // capacity
    return {
        "random": np.random.default_rng(SEED).permutation(order),
        CORE_ORDER: order,
        "greedy": greedy(core_graph(traffic, cores), capacity),
    }


def greedy(graph, capacity):
    """Fill one chip after the other, each time with the core that exchanges most spikes with the chip."""
    cores = graph.shape[0]
    chip, drawn = np.full(cores, -1), np.zeros(cores)
    for position in range(cores):
        if position % capacity == 0:
            drawn = np.zeros(cores)
        core = int(np.where(chip < 0, drawn, -1.0).argmax())
        chip[core] = position // capacity
        around = slice(graph.indptr[core], graph.indptr[core + 1])
        drawn[graph.indices[around]] += graph.data[around]
    return chip


def print_case(arch, shape, target):
    profile, described = load_profile(target), untrained(arch, shape)
    network = described.quantized_for(load_profile("loihi2")).network
    network = express_pooling(network, profile, "auto")
    activity, placement = described.activity(network), place(network, profile)
    sent, capacity = traffic(network, placement, activity), profile.value("chip.cores")
    chips = -(-sent.cores // capacity)

    def crossing(chip):
        messages = chip_messages(network, placement, activity, chip, chips)
        return messages, float(messages.sum() - np.trace(messages))

    cuts = simple_partitions(sent, sent.cores, capacity)
    started = time.process_time()
    candidates = list(partitions(sent, sent.cores, chips, capacity))
    seconds = time.process_time() - started
    metis = [chip for method, chip in candidates if method == METIS]
    if metis:
        cuts["METIS"] = min(metis, key=lambda chip: crossing(chip)[1])
    best = min(candidates, key=lambda candidate: crossing(candidate[1])[1])
    cuts[f"`fit` ({best[0]})"] = best[1]
    for name, chip in cuts.items():
        messages, crosses = crossing(chip)
        loads = link_loads(messages)
        link = max(loads, key=loads.get)
        between = messages - np.diag(np.diag(messages))
        chip_loads = between.sum(axis=0) + between.sum(axis=1)
        cells = [
            f"{arch} {'x'.join(map(str, shape))}", target, f"{sent.cores:,}", chips, name,
            f"{crosses / messages.sum():.1%}", f"{link[0]} to {link[1]}: {loads[link]:,.0f}",
            f"{chip_loads.argmax()}: {chip_loads.max():,.0f}",
            f"{seconds:.1f}" if name.startswith("`fit`") else "",
        ]  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch")
    parser.add_argument("--input-shape", type=int, nargs="+", default=(3, 32, 32))
    parser.add_argument("--target", default="loihi2")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")
    print(f"| {COLUMNS} |\n|" + "---|" * (1 + COLUMNS.count("|")))
    given = ((options.arch, tuple(options.input_shape), options.target),) if options.arch else CASES
    for case in given:
        print_case(*case)


if __name__ == "__main__":
    main()
