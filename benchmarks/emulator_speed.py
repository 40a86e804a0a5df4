"""The emulator against the float PyTorch model, and against Lava's own process models.

    python benchmarks/emulator_speed.py [--arch resnet20-slim vgg16]      prints tables of docs/results
    python benchmarks/emulator_speed.py --against lava [--stock-samples 4]

A processor without AVX512 and VNNI is simulated by the environment variables of oneDNN and of torch:

    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 python benchmarks/emulator_speed.py --against float

Networks have random weights and statistics of two batches; the float model runs in eval mode under
torch.no_grad with the same batch and threads. Both take turns, and the fastest of several runs counts, by
the clock and by the processor seconds of all threads, which other processes disturb less. The limit is the
time of the convolutions of spikes alone, as the emulator calls them, without neurons and other layers. The
integers are those of the reference simulator on some samples. Memory is the highest resident size of a
process that runs one of the two, less what it had when the network was ready.

Lava's own process models (`stock=True`) run in a session that is built already, without probes: building and
starting are not counted. Their samples are streamed, so that the pipeline is filled and emptied once for
all of them; that is counted, for one sample and for several. Outputs must be equal.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
from fold_zoo import lively_network

from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.emulator import Emulator, parts
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import read_netx, write_netx
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import Conv2d
from mpbn_deploy.quantize import quantize

REPEATS = 5
LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")  # of the instructions that are used
COMPARED = 2  # samples on which the reference is run


def float_runner(architecture, options):
    """The float model and a function that runs it on the whole batch."""
    torch.manual_seed(0)
    model = lively_network(architecture, "channel", options.timesteps).eval()
    given = torch.tensor(batch(model.input_format.shape, options), dtype=torch.float32)

    def run():
        with torch.no_grad():
            return model(given)

    return model, run


def emulator_runner(network, options):
    """A function that runs the emulator on the same batch."""
    emulator, inputs = Emulator(network), batch(network.input.shape, options)
    return lambda: emulator.run(inputs, keep_trace=False)


def convolutions_runner(network, options):
    """A function that only convolves spikes, as often and on as many samples at once as the emulator does."""
    layers, generator = Emulator(network).layers, torch.Generator().manual_seed(0)
    calls = []
    for layer in layers:
        for current in layer.currents:
            connection = current.connection
            if isinstance(connection.synapse, Conv2d) and connection.source != network.input.name:
                channels, height, width = network.shapes[connection.source]
                sizes = [part.stop - part.start for part in parts([layer], options.batch, network.timesteps)]
                random = torch.rand(
                    max(sizes) * network.timesteps, height, width, channels, generator=generator
                )
                calls.append((current.product, (random < 0.2).movedim(-1, 1), sizes))

    def run():
        with torch.no_grad():
            for product, spikes, sizes in calls:
                for size in sizes:
                    product(spikes[: size * network.timesteps])

    return run


def batch(shape, options):
    return np.random.default_rng(0).integers(0, 256, size=(options.batch, *shape))


def seconds(functions):
    """The fastest run of each, taking turns: by the clock, and in processor seconds."""
    best = {name: (float("inf"), float("inf")) for name in functions}
    for _ in range(REPEATS):
        for name, run in functions.items():
            started = time.perf_counter(), time.process_time()
            run()
            taken = time.perf_counter() - started[0], time.process_time() - started[1]
            best[name] = tuple(map(min, best[name], taken))
    return best


def gigabytes(architecture, file, options):
    """What running adds to the memory of a process of its own: the network in a file, or the float model."""
    command = [sys.executable, __file__, "--arch", architecture, "--memory", file]
    command += ["--batch", str(options.batch), "--timesteps", str(options.timesteps)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory(options):
    if options.memory == "float":
        _, run = float_runner(options.arch[0], options)
    else:
        run = emulator_runner(read_netx(options.memory, timesteps=options.timesteps), options)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize() / 2**30
    run()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20 - before)


def print_stock_table(options):
    print_setting(options)
    print("| network | samples in stock Lava | stock Lava, s | stock Lava, samples/s | emulator, samples/s "
          "| ratio | outputs equal |")  # fmt: skip
    print("|---" * 7 + "|", flush=True)
    for architecture in options.arch:
        model, _ = float_runner(architecture, options)
        network = quantize(fold(trace(model)), load_profile("loihi2")).network
        run = emulator_runner(network, options)
        before = seconds({"emulator": run})["emulator"][0]
        inputs, outputs = batch(network.input.shape, options), run().outputs
        for count in (1, options.stock_samples):
            taken, found = in_stock_lava(network, inputs[:count])
            emulated = min(before, seconds({"emulator": run})["emulator"][0])
            rates = count / taken, options.batch / emulated
            equal = "yes" if np.array_equal(found, outputs[:count]) else "NO"
            print(f"| {architecture} | {count} | {taken:.1f} | {rates[0]:.4f} | {rates[1]:.0f} "
                  f"| {rates[1] / rates[0]:,.0f} x | {equal} |", flush=True)  # fmt: skip


def in_stock_lava(network, inputs):
    """Seconds that Lava's own models take for a stream of samples, and their outputs."""
    with lava_sim.Session(network, probe=(), stock=True) as session:
        started = time.perf_counter()
        outputs = session.run(inputs).outputs
        return time.perf_counter() - started, outputs


def print_setting(options):
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch "
          f"{torch.__version__}, Lava {lava_sim.lava_version()}, {torch.get_num_threads()} threads; "
          f"batch {options.batch}, T = {options.timesteps}; load before "
          f"{' '.join(f'{value:.1f}' for value in os.getloadavg())}\n")  # fmt: skip


def print_table(options):
    print_setting(options)
    limits = {name: value for name, value in os.environ.items() if name in LIMITS}
    instructions = torch.backends.cpu.get_cpu_capability()
    print(f"torch uses {instructions}; {limits or 'no limit is set'}\n")
    print("| instructions | network | float, samples/s | emulator, samples/s | ratio "
          "| ratio of processor time | convolutions alone, samples/s "
          "| share of the limit |"
          + ("" if options.no_memory else " float, GB | emulator, GB | ratio |"))  # fmt: skip
    print("|---" * (8 if options.no_memory else 11) + "|")
    for architecture in options.arch:
        cells = [instructions, architecture, *measured(architecture, options)]
        print("| " + " | ".join(cells) + " |", flush=True)


def measured(architecture, options):
    """The cells of a row."""
    model, float_model = float_runner(architecture, options)
    network = quantize(fold(trace(model)), load_profile("loihi2")).network
    functions = {
        "float": float_model,
        "emulator": emulator_runner(network, options),
        "limit": convolutions_runner(network, options),
    }
    expected = simulate(network, batch(network.input.shape, options)[:COMPARED]).outputs
    assert np.array_equal(expected, functions["emulator"]().outputs[:COMPARED])
    times = seconds(functions)
    clock, processor = ({name: taken[which] for name, taken in times.items()} for which in (0, 1))
    rates = {name: options.batch / taken for name, taken in clock.items()}
    return [
        f"{rates['float']:.0f}", f"{rates['emulator']:.0f}", f"{rates['emulator'] / rates['float']:.2f} x",
        f"{processor['float'] / processor['emulator']:.2f} x", f"{rates['limit']:.0f}",
        f"{processor['limit'] / processor['emulator']:.0%}",
        *([] if options.no_memory else memory_cells(network, architecture, options)),
    ]  # fmt: skip


def memory_cells(network, architecture, options):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.net"
        write_netx(network, file)
        model, emulator = (gigabytes(architecture, which, options) for which in ("float", str(file)))
    return [f"{model:.2f}", f"{emulator:.2f}", f"{emulator / model:.2f} x"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=["resnet20-slim", "vgg16"])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--timesteps", type=int, default=4)
    parser.add_argument("--against", choices=("float", "lava"), help="only this one (default: both)")
    parser.add_argument(
        "--stock-samples", type=int, default=4, help="streamed through Lava's own models (default 4)"
    )
    parser.add_argument("--no-memory", action="store_true", help="measure speed only")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print_memory(options)
        return
    if options.against != "lava":
        print_table(options)
    if options.against != "float":
        print_stock_table(options)


if __name__ == "__main__":
    main()
