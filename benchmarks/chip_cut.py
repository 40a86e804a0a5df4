"""Partitions of cores into chips: messages between chips by METIS, greedily, in core order and at random.

    python benchmarks/chip_cut.py                                       prints a table of docs/RESULTS.md
    python benchmarks/chip_cut.py --arch resnet34 --input-shape 3 224 224 --target loihi1

Networks are untrained, with random weights (seed 0); 10 % of neurons fire in each of 4 time steps. A spike is
one message to each chip that reads it. METIS partitions are repaired and, unless they are large, improved.
"""

import argparse
import platform
import time
from datetime import date

import numpy as np

from mpbn_deploy.fit.chips import assign_chips, other_partitions
from mpbn_deploy.fit.spike_traffic import chip_messages, traffic
from mpbn_deploy.fit.untrained import UntrainedNetwork
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place

CASES = (("vgg16", (3, 32, 32), "loihi2"), ("resnet20", (3, 32, 32), "loihi1"))


def untrained(arch, shape):
    return UntrainedNetwork(
        arch=arch, input_shape=shape, timesteps=4, input_range=(0, 255), classes=10, firing_rate=0.1
    )


def print_case(arch, shape, target):
    profile, described = load_profile(target), untrained(arch, shape)
    network = described.quantized_for(profile).network
    activity, placement = described.activity(network), place(network, profile)
    sent, capacity = traffic(network, placement, activity), profile.value("chip.cores")
    started = time.perf_counter()
    best = assign_chips(
        sent,
        sent.cores,
        profile,
        lambda chip, chips: chip_messages(network, placement, activity, chip, chips),
    )
    seconds = {best.method: time.perf_counter() - started}
    cuts = dict(other_partitions(sent, sent.cores, capacity))
    cuts[f"`fit` ({best.method})"] = best.chip
    for name, chip in cuts.items():
        messages = chip_messages(network, placement, activity, chip, best.chips)
        between = messages - np.diag(np.diag(messages))
        loads = between.sum(axis=0) + between.sum(axis=1)
        print(f"| {arch} {'x'.join(map(str, shape))} | {target} | {sent.cores:,} | {best.chips} | {name} | "
              f"{between.sum() / messages.sum():.1%} | {between.max():,.0f} | {loads.max():,.0f} |",
              flush=True)  # fmt: skip
    print(f"partition by {best.method}: {seconds[best.method]:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch")
    parser.add_argument("--input-shape", type=int, nargs="+", default=(3, 32, 32))
    parser.add_argument("--target", default="loihi2")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")
    print("| network | target | cores | chips | partition | messages that cross | busiest link "
          "| busiest chip |\n|" + "---|" * 8)  # fmt: skip
    given = ((options.arch, tuple(options.input_shape), options.target),) if options.arch else CASES
    for case in given:
        print_case(*case)


if __name__ == "__main__":
    main()
