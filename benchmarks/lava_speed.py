"""Lava's simulator: our process models against Lava's own, side by side, with equal outputs.

python benchmarks/lava_speed.py [--samples 16] [--only convolutions | digits]

    convolutions  three of 64 to 128 channels at 32 x 32: one build-run-stop each, all samples streamed
    digits        the digits CNN, 64 samples streamed, against one build-run-stop per sample in stock Lava

Each time is a whole run, from building the processes to stopping them, with spikes and voltages of all
populations kept. A running session, which is built once, is timed too. Lava runs its processes on all
cores; two are enough. Ours are run before and after Lava's own, and the median is shown.
"""

import argparse
import os
import platform
import time
from datetime import date
from itertools import pairwise
from statistics import median

import numpy as np

from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import Connection, Conv2d, Input, IntNetwork, Lif, Population, Trace
from mpbn_deploy.quantize import quantize
from mpbn_deploy.train import Training, train

CHANNELS = (64, 64, 128, 128)
DIGITS = 64
REPEATS = 3


def three_convolutions(timesteps=4):
    """Spikes of 64 channels -> 64 -> 128 -> 128 channels at 32 x 32, in kernels of 3 x 3."""
    generator = np.random.default_rng(0)
    populations = [Population(name="input", shape=(64, 32, 32), neuron=Input(minimum=0, maximum=1))]
    connections = []
    for before, channels in pairwise(CHANNELS):
        neuron = Lif(
            threshold=generator.integers(100, 400, size=(channels, 1, 1)),
            bias=generator.integers(-30, 30, size=(channels, 1, 1)),
            decay_voltage=3072,
        )
        name = f"layer{len(populations)}"
        weight = generator.integers(-40, 41, size=(channels, before, 3, 3))
        synapse = Conv2d(weight=weight, padding=(1, 1))
        connections.append(Connection(source=populations[-1].name, target=name, synapse=synapse))
        populations.append(Population(name=name, shape=(channels, 32, 32), neuron=neuron))
    return IntNetwork(
        populations=tuple(populations), connections=tuple(connections), timesteps=timesteps, scales={}
    )


def timed(work):
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def side_by_side(ours, stock):
    """Median seconds of ours, of runs before and after the one of stock; its seconds; both results."""
    before = [timed(ours) for _ in range(REPEATS)]
    stock_seconds, expected = timed(stock)
    runs = before + [timed(ours) for _ in range(REPEATS)]
    return median(seconds for seconds, _ in runs), stock_seconds, runs[-1][1], expected


def same(first, second):
    """Whether two traces are equal in every spike, voltage and output."""
    pairs = [(first.outputs, second.outputs)]
    pairs += [(first.spikes[name], second.spikes[name]) for name in first.spikes]
    pairs += [(first.voltages[name], second.voltages[name]) for name in first.voltages]
    return all(np.array_equal(*pair) for pair in pairs)


def in_session(network, inputs):
    with lava_sim.Session(network) as session:
        session.run(inputs)
        return median(timed(lambda: session.run(inputs))[0] for _ in range(REPEATS))


def convolutions(samples):
    """Stock Lava and ours on the same stream."""
    network = three_convolutions()
    inputs = (np.random.default_rng(1).random((samples, network.timesteps, 64, 32, 32)) < 0.2).astype(int)
    lava_sim.run(network, inputs[:1])  # imports
    ours, stock, got, expected = side_by_side(
        lambda: lava_sim.run(network, inputs), lambda: lava_sim.run(network, inputs, stock=True)
    )
    return f"3 convolutions, {samples} samples", stock, ours, in_session(network, inputs), same(expected, got)


def digits():
    """Stock Lava, built, run and stopped for each sample, and ours in one stream."""
    dataset = load_dataset("digits")
    model = train(dataset, "digits-cnn", training=Training(epochs=2))
    network = quantize(fold(trace(model)), load_profile("loihi2"), dataset.train.inputs[:256]).network
    inputs = dataset.test.inputs[:DIGITS]
    lava_sim.run(network, inputs[:1])  # imports
    ours, stock, got, alone = side_by_side(
        lambda: lava_sim.run(network, inputs),
        lambda: [lava_sim.run(network, inputs[i : i + 1], stock=True) for i in range(DIGITS)],
    )
    expected = Trace(
        spikes={name: np.concatenate([one.spikes[name] for one in alone]) for name in got.spikes},
        voltages={name: np.concatenate([one.voltages[name] for one in alone]) for name in got.voltages},
        outputs=np.concatenate([one.outputs for one in alone]),
    )
    return f"digits CNN, {DIGITS} samples", stock, ours, in_session(network, inputs), same(expected, got)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=16, help="of the convolutions (default 16)")
    parser.add_argument("--only", choices=("convolutions", "digits"))
    options = parser.parse_args()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"Lava {lava_sim.lava_version()}, {date.today()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, load before {load}\n"
    )
    print("| network | stock Lava, s | ours, s | ratio | ours in a session, s | ratio | all equal |")
    print("|---" * 7 + "|")
    benchmarks = {"convolutions": lambda: convolutions(options.samples), "digits": digits}
    for name, measure in benchmarks.items():
        if options.only in (None, name):
            label, stock, ours, session, equal = measure()
            times = [f"{stock:.1f}", f"{ours:.2f}", f"{stock / ours:.0f} x"]
            times += [f"{session:.3f}", f"{stock / session:.0f} x", "yes" if equal else "NO"]
            print(f"| {label} | {' | '.join(times)} |", flush=True)


if __name__ == "__main__":
    main()
