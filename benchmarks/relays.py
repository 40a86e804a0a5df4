"""Cores of the zoo's networks with pooling composed into kernels, as relays, and as `--pooling auto` decides.

    python benchmarks/relays.py [--arch vgg16 ...] [--target loihi2]     prints a table of docs/results
    python benchmarks/relays.py --run vgg16 --samples 2                  runs the relays in Lava
    python benchmarks/relays.py --run vgg16 --samples 1 --stock 300      and Lava's own models, for 300 s

Weights are random. For cores, networks are folded as they are initialized. `--run` sets gains of both signs
and statistics from two batches first, so that neurons fire, and compares every integer of the emulator and of
Lava (our models) with the reference; with `--stock`, Lava's own models too, population by population, each
fed what the reference sent, as many as the seconds allow. "Over" counts the layers of
which a part exceeds its core; "seconds" are those of the processor, from quantization to the last placement.
"""

import argparse
import platform
import sys
import time
from datetime import date

import numpy as np
import torch
from fold_zoo import SHAPES, lively_network

from mpbn_deploy.execute import EXECUTORS, ExecutionOptions, lava
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fit import fit
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import InputFormat, relay_names
from mpbn_deploy.nn import SpikingNetwork
from mpbn_deploy.nn.zoo import ARCHITECTURES
from mpbn_deploy.quantize import quantize
from mpbn_deploy.verify.lava_models import compare_within_budget

# Name, pooling, and the tiling for which relays are chosen; the last is the search of `fit --search`.
FORMS = (
    ("composed", "composed", "compiler"),
    ("relay", "relay", "compiler"),
    ("auto", "auto", "compiler"),
    ("auto, best tiling", "auto", "best"),
)
NETWORKS = ("vgg16", "vgg16-slim", "resnet19", "resnet20", "resnet34")
COLUMNS = "network | pooling | relays | cores | best tiling | at least | chips | over | seconds"


def folded_network(architecture, timesteps):
    """A network as it is initialized, folded."""
    shape = SHAPES.get(architecture, (3, 32, 32))
    given = InputFormat(shape=shape, minimum=0, maximum=255, mean=[120.0], deviation=[60.0])
    body = ARCHITECTURES[architecture](shape, 10)
    return fold(trace(SpikingNetwork(body, timesteps=timesteps, input_format=given).eval()))


def count_cores(options):
    profile = load_profile(options.target)
    print(f"| {COLUMNS} |")
    print("|---" * (1 + COLUMNS.count("|")) + "|", flush=True)
    for architecture in options.arch:
        torch.manual_seed(options.seed)
        folded = folded_network(architecture, options.timesteps)
        for form, pooling, tiling in FORMS:
            started = time.process_time()
            network = quantize(folded, profile, pooling=pooling, tiling=tiling).network
            report = fit(network, profile)
            over = {f.where for f in report.found("error") if f.rule == "layers_fit_on_cores"}
            cells = [
                architecture, form, len(relay_names(network)), f"{report.cores:,}",
                f"{fit(network, profile, tiling='best').cores:,}", f"{report.lower_bound:,}",
                report.chips, len(over), f"{time.process_time() - started:.0f}",
            ]  # fmt: skip
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return 0


def run_in_lava(options):
    """Compare spikes, messages, voltages and outputs with the reference; return the exit code."""
    torch.manual_seed(options.seed)
    folded = fold(trace(lively_network(options.run, "channel", options.timesteps)))
    network = quantize(folded, load_profile(options.target), pooling="relay").network
    shape = (options.samples, *network.input.shape)
    inputs = np.random.default_rng(options.seed).integers(0, 256, shape)
    traces, seconds = {}, {}
    runs = {
        "reference": lambda: simulate(network, inputs),
        "emulator": lambda: emulate(network, inputs),
        "Lava": lambda: lava.run(network, inputs),
    }
    for name, execute in runs.items():
        started = time.perf_counter()
        traces[name] = execute()
        seconds[name] = time.perf_counter() - started
    relays = relay_names(network)
    expected = traces.pop("reference")
    sent = sum(np.count_nonzero(expected.spikes[name]) for name in relays)
    largest = max(int(expected.spikes[name].max()) for name in relays)
    print(
        f"{options.run}: {len(relays)} relays, {sent:,} messages up to {largest}, {options.samples} samples"
    )
    wrong = 0
    for name, got in traces.items():
        pairs = [(expected.outputs, got.outputs)]
        for kind in ("spikes", "voltages"):
            first, second = getattr(expected, kind), getattr(got, kind)
            pairs += [(first[population], second[population]) for population in first]
        compared = sum(values.size for values, _ in pairs)
        different = sum(int(np.count_nonzero(values != others)) for values, others in pairs)
        wrong += different
        print(f"{name}: {compared:,} integers compared, {different} different, {seconds[name]:.0f} s")
    return 1 if wrong + run_stock(options, network, inputs) else 0


def run_stock(options, network, inputs):
    """Compare Lava's own models with the reference; return the number of differences."""
    if not options.stock:
        return 0
    started = time.perf_counter()
    stock = EXECUTORS["lava-stock"]
    found = compare_within_budget(stock, network, inputs, None, options.stock, ExecutionOptions())
    compared = found.spikes_compared + found.voltages_compared + found.outputs_compared
    different = found.spikes_mismatched + found.voltages_mismatched + found.outputs_mismatched
    print(f"{found.execution} ({found.extent or 'the whole network'}): {compared:,} integers compared, "
          f"{different} different, {time.perf_counter() - started:.0f} s")  # fmt: skip
    return different


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=NETWORKS, choices=ARCHITECTURES)
    parser.add_argument("--target", default="loihi2")
    parser.add_argument("--run", choices=ARCHITECTURES)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--stock", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--timesteps", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, numpy {np.__version__}\n")
    return count_cores(options) if options.run is None else run_in_lava(options)


if __name__ == "__main__":
    sys.exit(main())
