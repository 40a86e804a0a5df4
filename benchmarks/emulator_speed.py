"""The emulator against the float PyTorch model: samples per second and memory, side by side.

    python benchmarks/emulator_speed.py [--arch resnet20-slim vgg16]      prints a table of docs/RESULTS.md

Networks have random weights and statistics of two batches; the float model runs in eval mode under
torch.no_grad with the same batch and threads. Both take turns, and the fastest of several runs counts; the
integers are those of the reference simulator on some samples. Memory is the highest resident size of a
process that runs one of the two, less that of a process that has only built it.
"""

import argparse
import platform
import resource
import subprocess
import sys
import time
from datetime import date

import numpy as np
import torch
from fold_zoo import lively_network

from mpbn_deploy.emulate import Emulator
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.simulate import simulate

REPEATS = 5
COMPARED = 2  # samples on which the reference is run


def runners(architecture, options):
    """The two, as functions of nothing that run the whole batch."""
    torch.manual_seed(0)
    model = lively_network(architecture, "channel", options.timesteps).eval()
    network = quantize(fold(trace(model)), load_profile("loihi2"))
    emulator = Emulator(network)
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, size=(options.batch, *network.input.shape))
    given = torch.tensor(inputs, dtype=torch.float32)

    def float_model():
        with torch.no_grad():
            return model(given)

    def integer_emulator():
        return emulator.run(inputs, keep_trace=False)

    return network, inputs, {"float": float_model, "emulator": integer_emulator}


def seconds(functions):
    """The fastest run of each, taking turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(REPEATS):
        for name, run in functions.items():
            started = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def gigabytes(architecture, which, options):
    """The highest resident size of a process of its own; `which` says what it runs, or nothing."""
    command = [sys.executable, __file__, "--arch", architecture, "--memory", which]
    command += ["--batch", str(options.batch), "--timesteps", str(options.timesteps)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory(options):
    _, _, functions = runners(options.arch[0], options)
    if options.memory in functions:
        functions[options.memory]()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def print_table(options):
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch "
          f"{torch.__version__}, {torch.get_num_threads()} threads; batch {options.batch}, "
          f"T = {options.timesteps}\n")  # fmt: skip
    print("| network | float, samples/s | emulator, samples/s | ratio | float, GB | emulator, GB |")
    print("|---|---|---|---|---|---|")
    for architecture in options.arch:
        network, inputs, functions = runners(architecture, options)
        expected = simulate(network, inputs[:COMPARED]).outputs
        assert np.array_equal(expected, functions["emulator"]().outputs[:COMPARED])
        times = seconds(functions)
        rates = [options.batch / times[name] for name in ("float", "emulator")]
        built = gigabytes(architecture, "nothing", options)
        memory = [gigabytes(architecture, name, options) - built for name in ("float", "emulator")]
        print(f"| {architecture} | {rates[0]:.0f} | {rates[1]:.0f} | {rates[1] / rates[0]:.2f} x "
              f"| {memory[0]:.2f} | {memory[1]:.2f} |", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=["resnet20-slim", "vgg16"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--timesteps", type=int, default=4)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print_memory(options)
    else:
        print_table(options)


if __name__ == "__main__":
    main()
