"""How the cost of a run grows with depth, width, time steps and samples: emulator and Lava.

    python benchmarks/cost_growth.py --figure docs/cost_growth.png      prints a table of docs/results

Chains of 3 x 3 convolutions at 16 x 16 with a dense readout; one of the four numbers grows, the others stay.
Everything is made ready before it is timed: the emulator's weights, Lava's processes (a session of our
process models, so many lanes each). The fastest of five runs counts; all runs of a row take turns. Times
are relative to the smallest of their row. "Products" is how many multiplications the network stands for.
"""

import argparse
import os
import platform
import time
from contextlib import ExitStack
from datetime import date
from math import prod
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.emulator import Emulator
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, Readout

SIZE = 16  # pixels of a side
LANES = 16
REPEATS = 5
BASE = {"depth": 4, "width": 32, "time steps": 4, "samples": 128}
GROWTH = {
    "depth": (2, 4, 8, 16),
    "width": (16, 32, 64, 128),
    "time steps": (2, 4, 8, 16),
    "samples": (64, 128, 256, 512),
}
LABELS = {
    "depth": "convolutions",
    "width": "channels of each",
    "time steps": "time steps",
    "samples": "samples",
}


def chain(depth, width, timesteps):
    """Pictures of 3 channels through `depth` convolutions of `width` channels to 10 outputs."""
    generator = np.random.default_rng(0)
    populations = [Population(name="input", shape=(3, SIZE, SIZE), neuron=Input(minimum=0, maximum=255))]
    connections = []
    for number in range(depth):
        before, name = populations[-1], f"layer{number}"
        neuron = Lif(
            threshold=generator.integers(5, 40, size=(width, 1, 1)),
            bias=generator.integers(-5, 5, size=(width, 1, 1)),
            decay_voltage=3072,
        )
        weight = generator.integers(-7, 8, size=(width, before.shape[0], 3, 3))
        synapse = Conv2d(weight=weight, padding=(1, 1))
        connections.append(Connection(source=before.name, target=name, synapse=synapse))
        populations.append(Population(name=name, shape=(width, SIZE, SIZE), neuron=neuron))
    weight = generator.integers(-7, 8, size=(10, populations[-1].size))
    connections.append(Connection(source=populations[-1].name, target="output", synapse=Dense(weight=weight)))
    populations.append(Population(name="output", shape=(10,), neuron=Readout(bias=np.zeros(10, int))))
    return IntNetwork(
        populations=tuple(populations), connections=tuple(connections), timesteps=timesteps, scales={}
    )


def products(network, samples):
    """Weights times the places where each is used, in all steps of all samples."""
    shapes = {population.name: population.shape for population in network.populations}
    places = [prod(shapes[c.target][1:]) for c in network.connections]
    weights = [c.synapse.weight.size for c in network.connections]
    return sum(map(prod, zip(places, weights, strict=True))) * network.timesteps * samples


def measured(name):
    """Of each value of a row: products, and the fastest seconds of the emulator and of Lava."""
    rows, runs = [], []
    with ExitStack() as sessions:
        for value in GROWTH[name]:
            given = {**BASE, name: value}
            network = chain(given["depth"], given["width"], given["time steps"])
            inputs = np.random.default_rng(1).integers(0, 256, size=(given["samples"], 3, SIZE, SIZE))
            emulator = Emulator(network)
            session = sessions.enter_context(lava_sim.Session(network, probe=(), lanes=LANES))
            runs.append(
                (
                    lambda e=emulator, x=inputs: e.run(x, keep_trace=False),
                    lambda s=session, x=inputs: s.run(x),
                )
            )
            expected, got = (run().outputs for run in runs[-1])  # also warms both up
            assert np.array_equal(expected, got), (name, value)
            rows.append([products(network, given["samples"]), float("inf"), float("inf")])
        for _ in range(REPEATS):
            for row, pair in zip(rows, runs, strict=True):
                for place, run in enumerate(pair, start=1):
                    started = time.perf_counter()
                    run()
                    row[place] = min(row[place], time.perf_counter() - started)
    return rows


def print_row(name, rows):
    for value, row in zip(GROWTH[name], rows, strict=True):
        relative = [f"{now / first:.2f} x" for now, first in zip(row, rows[0], strict=True)]
        cells = [LABELS[name], value, *relative, f"{1000 * row[1]:.1f}", f"{1000 * row[2]:.1f}"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def draw(found, path):
    figure = Figure(figsize=(12, 3.4), dpi=100, layout="constrained")
    panels = figure.subplots(1, len(found))
    styles = (("products", "0.6", "--"), ("emulator", "tab:blue", "o-"), ("Lava", "tab:orange", "s-"))
    for panel, (name, rows) in zip(panels, found.items(), strict=True):
        for place, (label, color, style) in enumerate(styles):
            values = [row[place] / rows[0][place] for row in rows]
            panel.plot(GROWTH[name], values, style, color=color, label=label)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(GROWTH[name], map(str, GROWTH[name]))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_xlabel(LABELS[name])
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("time relative to the smallest")
    panels[0].legend(frameon=False)
    figure.savefig(path)
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(64).save(path, optimize=True)  # a third of the bytes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figure", type=Path, help="where to draw it")
    options = parser.parse_args()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{date.today()}, {platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}, "
          f"Lava {lava_sim.lava_version()} in {LANES} lanes, load before {load}; but for what grows: "
          f"{', '.join(f'{value} {LABELS[name]}' for name, value in BASE.items())}\n")  # fmt: skip
    print("| what grows | | products | emulator | Lava | emulator, ms | Lava, ms |")
    print("|---" * 7 + "|", flush=True)
    found = {}
    for name in GROWTH:
        found[name] = measured(name)
        print_row(name, found[name])
    if options.figure is not None:
        draw(found, options.figure)


if __name__ == "__main__":
    main()
