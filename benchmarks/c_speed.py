"""Compiled networks against the emulator and the float PyTorch model: the table of docs/results/c.md.

    python benchmarks/c_speed.py [--data-dir FOLDER] [--march x86-64-v3]

Pretrained networks run on test samples of their data sets; architectures named with --arch have random
weights and statistics of two batches, and run on random images. All take turns in one thread, and the fastest
of several runs counts, in processor seconds of that thread, which other processes disturb least. Float
models run in eval mode under torch.no_grad, in float32 and bfloat16, and the faster one counts. Outputs must
be equal to the emulator's.

Events are spikes (or inputs that are not zero) times the synapses that each passes; the limit is the rate at
which one core adds numbers of 16 bits, measured by a loop in C. An event takes one such addition, and half
of a shift to separate the two weights of a lane.

--march compiles for another processor: x86-64-v3 has AVX2 and no AVX-512.
"""

import argparse
import ctypes
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from fold_zoo import lively_network

from mpbn_deploy.api import load_dataset
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.execute import c
from mpbn_deploy.execute.emulator import Emulator
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import connection_fan_out
from mpbn_deploy.quantize import quantize

MODELS = Path(__file__).parents[1] / "examples" / "models"
SECONDS = 4.0  # for the runs of one cell
MAX_REPEATS = 100
BURST = 3  # runs in a turn: what others left in the caches counts for the first one only
PEAK = """
#include <stdint.h>
typedef int16_t lanes __attribute__((vector_size(64)));
int64_t add(int64_t times) {
    lanes a = {1}, b = {2}, c = {3}, d = {4}, e = {5}, f = {6}, g = {7}, h = {8}, one = {1};
    for (int64_t k = 0; k < times; ++k) { /* the assembler text keeps the compiler from adding all at once */
        a += one; b += one; c += one; d += one; e += one; f += one; g += one; h += one;
        __asm__ volatile("" : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h));
    }
    return a[0] + b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0];
}
"""


def pretrained(name, options):
    """The float model of an example, its integer network, and test samples."""
    model = load_model(MODELS / f"{name}.pt")
    data = {"digits": "digits", "fashion-mnist": "fashion-mnist"}.get(name, "cifar10")
    samples = load_dataset(data, None if data == "digits" else options.data_dir).test.inputs
    return model, samples


def untrained(name):
    torch.manual_seed(0)
    model = lively_network(name, "channel", 4).eval()
    return model, np.random.default_rng(0).integers(0, 256, (128, *model.input_format.shape))


def fastest(functions):
    """The fewest processor seconds of each function, which take turns."""
    best, started = dict.fromkeys(functions, float("inf")), time.perf_counter()
    for repeat in range(MAX_REPEATS):
        if repeat > 1 and time.perf_counter() - started > SECONDS * len(functions):
            break
        for name, run in functions.items():
            for _ in range(BURST):
                before = time.thread_time()
                run()
                best[name] = min(best[name], time.thread_time() - before)
    return best


def float_runs(model, given):
    """Runs of the float model in float32 and bfloat16."""
    single = torch.tensor(given, dtype=torch.float32)

    def run():
        with torch.no_grad():
            return model(single)

    def run_short():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            return model(single)

    return {"float32": run, "bfloat16": run_short}


def events(network, inputs):
    """Synaptic events per sample, and the firing rates of the populations."""
    found = c.Compiled(network).run(inputs[:16])
    total, rates = 0.0, []
    for connection in network.connections:
        fan_out = connection_fan_out(network, connection)
        if connection.source == network.input.name:
            total += float(((inputs[:16] != 0) * fan_out).sum()) / 16
        else:
            sent = found.spikes[connection.source]
            total += float(((sent != 0) * fan_out).sum()) / len(sent)
            rates.append(float((sent != 0).mean()))
    return total, rates


def peak():
    """Additions of 16 bits per second of one core."""
    library = ctypes.CDLL(str(c.built(PEAK)))
    library.add.argtypes, library.add.restype = [ctypes.c_int64], ctypes.c_int64
    times = 20_000_000
    taken = fastest({"add": lambda: library.add(times)})["add"]
    return 8 * 32 * times / taken


def row(name, batch, model, network, samples, limit):
    given = network.input_range.presented(samples[:batch])
    compiled, emulator = c.Compiled(network, threads=1), Emulator(network)
    expected = emulator.run(given, keep_trace=False).outputs
    assert np.array_equal(compiled.run(given, keep_trace=False).outputs, expected), name
    taken = fastest(
        {
            "c": lambda: compiled.run(given, keep_trace=False),
            "emulator": lambda: emulator.run(given, keep_trace=False),
            **float_runs(model, given),
        }
    )
    count, rates = events(network, network.input_range.presented(samples[:16]))
    real = min(taken["float32"], taken["bfloat16"])
    per_second = count * batch / taken["c"]
    spread = f"{min(rates):.0%} to {max(rates):.0%}"
    cells = [name, batch, f"{1e6 * taken['c'] / batch:,.1f}", f"{1e6 * taken['emulator'] / batch:,.1f}",
             f"{1e6 * real / batch:,.1f}", f"{taken['emulator'] / taken['c']:.1f} x",
             f"{real / taken['c']:.1f} x", spread, f"{per_second / 1e9:.1f}",
             f"{per_second / limit:.0%}"]  # fmt: skip
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def threads_row(name, network, samples):
    """How much faster two threads are, by the clock; both take turns."""
    given = network.input_range.presented(samples[:1024])
    one, two = (c.Compiled(network, threads=count) for count in (1, 2))
    best = [float("inf")] * 2
    for _ in range(7):
        for index, compiled in enumerate((one, two)):
            started = time.perf_counter()
            compiled.run(given, keep_trace=False)
            best[index] = min(best[index], time.perf_counter() - started)
    print(f"{name}, {len(given)} samples: two threads {best[0] / best[1]:.2f} times one, by the clock")


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    family = [line.split(":")[1].strip() for line in lines if line.startswith(("model name", "cpu family"))]
    return " family ".join(reversed(family[:2]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["digits", "cifar10-fast"])
    parser.add_argument("--arch", nargs="*", default=["resnet20-slim", "vgg16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[128, 1])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--march", default="native")
    options = parser.parse_args()
    torch.set_num_threads(1)
    c.NATIVE = (f"-march={options.march}",)
    limit = peak()
    print(f"{date.today()}, {processor()}, compiled for {options.march}, torch {torch.__version__}, one "
          f"thread; limit {limit / 1e9:.0f} G additions of 16 bits/s\n")  # fmt: skip
    print("| network | batch | C, us/sample | emulator | float PyTorch | against emulator | against float "
          "| rates | G events/s | of the limit |")  # fmt: skip
    print("|---" * 10 + "|", flush=True)
    profile = load_profile("loihi2")
    for name in options.models + options.arch:
        model, samples = untrained(name) if name in options.arch else pretrained(name, options)
        network = quantize(fold(trace(model)), profile).network
        for batch in options.batches:
            row(name, min(batch, len(samples)), model.eval(), network, samples, limit)
        if name in options.models:
            threads_row(name, network, samples)


if __name__ == "__main__":
    main()
