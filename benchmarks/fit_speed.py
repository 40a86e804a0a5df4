"""How long `fit` takes for a large network, and in how much memory.

    python benchmarks/fit_speed.py [--arch resnet34] [--samples 1]

The network has random weights, 224 x 224 pixels and 4 time steps; it is folded, quantized without data, and
put on each target: cores, rules, spikes between cores, chips, energy. The activity is measured once.
"""

import argparse
import platform
import resource
import time
from datetime import date

import numpy as np
import torch
from fold_zoo import lively_network

from mpbn_deploy.fit import fit, measure
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize


def gigabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="resnet34")
    parser.add_argument("--timesteps", type=int, default=4)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--targets", nargs="+", default=["loihi1", "loihi2"])
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch "
          f"{torch.__version__}, {torch.get_num_threads()} threads, {options.arch}\n")  # fmt: skip
    torch.manual_seed(0)
    folded = fold(trace(lively_network(options.arch, "channel", options.timesteps)))
    network = quantize(folded, load_profile("loihi2")).network
    generator = np.random.default_rng(0)
    started = time.process_time()
    activity = measure(network, generator.integers(0, 256, size=(options.samples, *folded.input.shape)))
    print(f"activity of {options.samples} samples: {time.process_time() - started:.1f} processor seconds, "
          f"at most {gigabytes():.2f} GB until here\n")  # fmt: skip
    print("| target | tiling | activity | cores | at least | chips | processor seconds | GB at most |")
    print("|---" * 8 + "|")
    for target in options.targets:
        for tiling in ("compiler", "best"):
            for seen in (None, activity):
                started = time.process_time()
                report = fit(network, load_profile(target), seen, tiling=tiling)
                seconds = time.process_time() - started
                print(f"| {target} | {tiling} | {'no' if seen is None else 'yes'} | {report.cores:,} | "
                      f"{report.lower_bound:,} | {report.chips} | {seconds:.1f} | {gigabytes():.2f} |",
                      flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
