"""The emulator against the float PyTorch model, for each kind of neuron in small networks.

    python benchmarks/neuron_speed.py [--samples 256] [--timesteps 8]     prints a table of docs/results

Networks have random weights. The float model runs in eval mode under torch.no_grad with the same batch. Both
run on one thread and take turns, and the least processor time of several runs counts, so that other work on
the machine matters little. The integers are those of the reference simulator on some samples.
"""

import argparse
import platform
import sys
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from networks import enlivened

from mpbn_deploy.execute.emulator import Emulator
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.nn import LIF, RecurrentLIF
from mpbn_deploy.quantize import quantize

REPEATS = 40
COMPARED = 4  # samples on which the reference is run
KINDS = {
    "reset to zero": {},
    "soft reset": {"reset": "subtract"},
    "synaptic current": {"current_leak": 0.5},
    "current, soft reset": {"current_leak": 0.5, "reset": "subtract"},
    "recurrent": {"recurrent": True},
    "recurrent, current": {"recurrent": True, "current_leak": 0.5},
    "recurrent, soft reset": {"recurrent": True, "reset": "subtract"},
}


def neurons(shape, *, recurrent=False, **options):
    if not recurrent:
        return LIF(shape, leak=0.5, **options)
    return RecurrentLIF(shape, kernel=3 if isinstance(shape, tuple) else None, leak=0.5, **options)


def dense(**kind):
    layers = [
        nn.Flatten(),
        nn.Linear(64, 128),
        neurons(128, **kind),
        nn.Linear(128, 128),
        neurons(128, **kind),
    ]
    return nn.Sequential(*layers, nn.Linear(128, 10))


def convolutional(**kind):
    first = [nn.Conv2d(1, 16, 3, padding=1), neurons((16, 8, 8), **kind)]
    second = [nn.Conv2d(16, 16, 3, stride=2, padding=1), neurons((16, 4, 4), **kind)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(256, 10))


def least_seconds(*runs):
    """The least processor time of each function, which take turns."""
    seconds = [np.inf] * len(runs)
    for _ in range(REPEATS):
        for index, run in enumerate(runs):
            started = time.process_time()
            run()
            seconds[index] = min(seconds[index], time.process_time() - started)
    return seconds


def measure(build, kind, options):
    torch.manual_seed(0)
    body = build(**kind)
    model = enlivened(body, shape=(1, 8, 8), timesteps=options.timesteps, maximum=16).float()
    network = quantize(fold(trace(model)), load_profile("loihi2")).network
    inputs = np.random.default_rng(0).integers(0, 17, size=(options.samples, 1, 8, 8))
    emulator, given = Emulator(network), torch.tensor(inputs, dtype=torch.float32)
    found = emulator.run(inputs[:COMPARED], keep_trace=False).outputs
    assert np.array_equal(found, simulate(network, inputs[:COMPARED]).outputs)

    def in_floats():
        with torch.no_grad():
            model(given)

    return least_seconds(lambda: emulator.run(inputs, keep_trace=False), in_floats)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--timesteps", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    processor = platform.processor() or platform.machine()
    print(f"{options.samples} samples, T = {options.timesteps}, {processor}, {date.today()}\n")
    print("| neurons | network | emulator | PyTorch | times as fast |\n|---|---|---|---|---|")
    for kind, given in KINDS.items():
        for build in (dense, convolutional):
            ours, theirs = measure(build, given, options)
            numbers = f"{1000 * ours:.1f} ms | {1000 * theirs:.1f} ms | {theirs / ours:.2f}"
            print(f"| {kind} | {build.__name__} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
