"""Peak memory and processor time of `verify` and `run` on few and on many samples.

python benchmarks/streaming.py [--model examples/models/cifar10-fast.pt] [--samples 64 640]

Inputs are random. Each row is a process of its own; its memory is the peak of that process, libraries
included (torch alone takes more than 300 MB), without Lava's processes. `verify` compares the emulator
and, if Lava is installed, our models in Lava with the reference, measures drift, and checks the fold against
PyTorch; Lava's own models do not run.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.data import Samples
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.run import run
from mpbn_deploy.verify import verify

STAGES = ("verify", "run --backend emulator", "run --backend reference", "run --backend lava")


def execute(model, stage, samples):
    """Run one stage in this process and print its peak memory and its seconds."""
    module = load_model(model)
    folded = fold(trace(module))
    network = quantize(folded, load_profile("loihi2")).network
    inputs = np.random.default_rng(0).integers(0, 256, (samples, *network.input.shape)).astype(np.uint8)
    started, begun = time.perf_counter(), time.process_time()
    if stage == "verify":
        assert verify(network, inputs, folded=folded, model=module, budget=0).bit_exact
    else:
        run(network, Samples(name="random", inputs=inputs, labels=None, test=None), stage.split()[-1])
    seconds = time.perf_counter() - started, time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"| {stage} | {samples} | {peak:,.0f} | {seconds[1]:.1f} | {seconds[0]:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="examples/models/cifar10-fast.pt")
    parser.add_argument("--samples", type=int, nargs="+", default=[64, 640])
    parser.add_argument("--stage", nargs="+", default=STAGES)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        execute(options.model, options.stage[0], options.samples[0])
        return
    print(
        "| stage | samples | peak memory (MB) | processor seconds | seconds |\n|---|---|---|---|---|",
        flush=True,
    )
    for stage in options.stage:
        for samples in options.samples:
            arguments = ["--here", "--model", options.model, "--stage", stage, "--samples", str(samples)]
            subprocess.run([sys.executable, __file__, *arguments], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
