"""How the cost of each stage grows with the number of layers: 200, 1,000 and 5,000.

    python benchmarks/depth.py [--layers 200 1000 5000]      prints a table

Chains of linear layers of eight neurons each, with random weights (seed 0), for Loihi 2. Processor seconds of
this process; "x" is the growth from one column to the next, where linear cost grows as the layers do.
"""

import argparse
import os
import platform
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fit import fit_on_chip, measure
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import write_netx
from mpbn_deploy.formats.nir import write_nir
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import InputFormat, count_spikes
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.quantize import quantize

WIDTH, CHIPS = 8, 1000


def chain(layers):
    torch.manual_seed(0)
    body = nn.Sequential()
    for _ in range(layers):
        body.append(nn.Linear(WIDTH, WIDTH))
        body.append(LIF((WIDTH,)))
    body.append(nn.Linear(WIDTH, 4))
    given = InputFormat(shape=(WIDTH,), minimum=0, maximum=16, mean=[8.0], deviation=[8.0])
    return SpikingNetwork(body, timesteps=2, input_format=given).eval()


def seconds_of(layers, folder):
    """Stage -> processor seconds."""
    found, profile = {}, load_profile("loihi2")

    def timed(stage, work):
        started = time.process_time()
        result = work()
        found[stage] = time.process_time() - started
        return result

    model = chain(layers)
    traced = timed("trace", lambda: trace(model))
    folded = timed("fold", lambda: fold(traced))
    network = timed("quantize", lambda: quantize(folded, profile, pooling="auto", tiling="auto").network)
    inputs = np.random.default_rng(0).integers(0, 17, (2, WIDTH)).astype(np.uint8)
    ran = timed("reference", lambda: simulate(network, inputs))
    activity = measure(network, inputs, counted=count_spikes(ran))
    timed("fit", lambda: fit_on_chip(network, profile, activity, chips=CHIPS))
    timed("write network.net", lambda: write_netx(network, folder / "network.net"))
    timed("write network.nir", lambda: write_nir(folded, folder / "network.nir"))
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, nargs="+", default=[200, 1000, 5000])
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores, torch "
          f"{torch.__version__}, load {os.getloadavg()[0]:.1f}\n")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        columns = [seconds_of(layers, Path(folder)) for layers in options.layers]
    print("| processor seconds | " + " | ".join(f"{layers:,}" for layers in options.layers) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for stage, first in columns[0].items():
        cells, before = [f"{first:.2f}"], first
        for column in columns[1:]:
            cells.append(f"{column[stage]:.2f} ({column[stage] / before:.1f} x)")
            before = column[stage]
        print(f"| {stage} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
