"""Energy and time of Loihi 2 as estimated, against what Intel measured for PilotNet on one chip.

    python benchmarks/energy_check.py                      prints tables of docs/RESULTS.md
    python benchmarks/energy_check.py --zoo resnet34       time and memory of measuring a large network

Measured: the outputs of lava-dl tutorials/lava/lib/dl/netx/pilotnet_snn/benchmark.ipynb, one frame shown over
and over. The network and a picture are those in the lava-dl wheel (tests/lava/lib/dl/netx/gts/pilotnet_lif).
The notebook's "Activity Results" show no synaptic operations in the first convolution and the same number on
all cores of the second: the neurons of its input were silent, and biases alone made the others fire. So the
silent input is what was measured; the picture is shown beside it. No constant was chosen by these numbers.
"""

import argparse
import platform
import resource
import sys
import time
from datetime import date
from importlib import metadata
from itertools import product

import numpy as np
import torch

from mpbn_deploy.fit import core_loads, estimate, measure, operations, quantity, spread
from mpbn_deploy.formats.netx import read_netx
from mpbn_deploy.hardware import load_profile

STEPS = 16  # per frame
FRAMES_PER_SECOND, TOTAL_WATTS, STATIC_WATTS = 408.91, 0.679234, 0.232078
# All six runs of this network that the notebook's history shows, each sorted; 74 cores in all of them.
RUNS = {
    "dynamic energy per frame": ([0.56, 0.98, 1.07, 1.09, 1.20, 1.39], "J", 1e-3),
    "energy per frame": ([0.99, 1.66, 1.82, 1.90, 2.24, 2.41], "J", 1e-3),
    "time per step": ([1e6 / 16 / f for f in (415.5, 414.7, 413.8, 408.9, 343.3, 342.3)], "s", 1e-6),
}
# SANA-FE's model of Loihi on a network of 256, 128, 64 and 10 neurons in 100 steps, against ours before input
# messages had a term: energy in microjoules.
SANA_FE, OURS, OURS_HIGH = 38.2, 24.5, 37.2
STEPS_COUNTED = 10_000  # of the activity figure
# What the compiler printed: the part of each population on one core. The notebook says 8 neurons for layer7,
# and 12 cores; 12 hold its 100 neurons if they take 9.
TILES = {
    "layer0": (3, 66, 16), "layer1": (24, 32, 4), "layer2": (36, 15, 4), "layer3": (48, 7, 8),
    "layer4": (64, 4, 8), "layer5": (64, 2, 16), "layer7": (9,), "layer8": (50,), "layer9": (10,),
    "layer10": (1,),
}  # fmt: skip
CORES = 74
# Synaptic operations and neuron updates of the first core of a layer, read off the figure (a pixel: 0.004e9).
FIGURE = {
    "layer1": (0.0, 0.073e9), "layer2": (1.312e9, 0.049e9), "layer3": (1.509e9, 0.057e9),
    "layer4": (0.527e9, 0.043e9), "layer5": (0.51e9, 0.043e9),
}  # fmt: skip


def recorded(name):
    """A file of the recorded PilotNet inside the lava-dl wheel."""
    files = metadata.files("lava-dl") or []
    return next(file.locate() for file in files if str(file).endswith(f"gts/pilotnet_lif/{name}"))


def tiles(shape, tile):
    """All parts of a population that are of one size, the last ones perhaps smaller."""
    pairs = zip(shape, tile, strict=True)
    axes = [[slice(start, start + extent) for start in range(0, size, extent)] for size, extent in pairs]
    return product(*axes)


def print_counts(network, activity):
    """What the first core of each convolution does, by our count and by the chip's."""
    firsts = [[(name, next(tiles(TILES[name], TILES[name])))] for name in FIGURE]
    loads = core_loads(network, activity, firsts)
    stored = core_loads(network, activity, firsts, zero_weights=True)
    print(f"One core in {STEPS_COUNTED:,} steps, silent input; the chip's counts are read off a figure:\n")
    print("| core of | synaptic operations, chip | ours | ours, with zero weights "
          "| neuron updates, chip | ours |")  # fmt: skip
    print("|---" * 6 + "|")
    for (name, (operated, updated)), load, zeros in zip(FIGURE.items(), loads, stored, strict=True):
        frames = STEPS_COUNTED / STEPS
        counts = [operated, load.operations * frames, zeros.operations * frames]
        counts += [updated, load.neurons * STEPS_COUNTED]
        print(f"| {name} | " + " | ".join(f"{count / 1e9:.3f}e9" for count in counts) + " |")


def print_costs(network, profile, activities):
    """Predicted over measured, for each activity."""
    seconds = 1 / FRAMES_PER_SECOND
    dynamic, static = (TOTAL_WATTS - STATIC_WATTS) * seconds, STATIC_WATTS * seconds
    measured = {
        "dynamic energy per frame": (dynamic * 1e12, "J", 1e-12),
        "static energy per frame": (static * 1e12, "J", 1e-12),
        "energy per frame": ((dynamic + static) * 1e12, "J", 1e-12),
        "time per step": (seconds / STEPS * 1e9, "s", 1e-9),
        "time per step, average core": (seconds / STEPS * 1e9, "s", 1e-9),
    }
    print("\n| input | quantity | predicted (range) | measured | predicted / measured (range) |")
    print("|---|---|---|---|---|")
    for label, activity in activities.items():
        for (name, (value, *unit)), found in zip(
            measured.items(), predictions(network, profile, activity), strict=True
        ):
            ratio = f"{found.value / value:.2f} ({found.low / value:.2f} to {found.high / value:.2f})"
            print(f"| {label} | {name} | {spread(found, *unit)} | {quantity(value, *unit)} | {ratio} |")


def print_runs(network, profile, activity):
    """Whether every measured run lies in the range of the estimate."""
    dynamic, _, energy, step, _ = predictions(network, profile, activity)
    print("\n| silent input | six runs, measured | predicted (range) | inside |\n|---|---|---|---|")
    for (name, (values, unit, scale)), found in zip(RUNS.items(), (dynamic, energy, step), strict=True):
        own = 1e-9 if unit == "s" else 1e-12
        inside = sum(found.low * own <= value * scale <= found.high * own for value in values)
        runs = f"{quantity(min(values), unit, scale)} to {quantity(max(values), unit, scale)}"
        print(f"| {name} | {runs} | {spread(found, unit, own)} | {inside} of {len(values)} |")


def print_sana_fe():
    """Split the difference to SANA-FE into terms, by the figures of its arch/loihi.yaml."""
    neurons, inputs, steps = 128 + 64 + 10, 256, 100
    operations = (OURS * 1e6 - neurons * steps * 81) / 23.6  # spikes are negligible at 1.7 pJ
    terms = {
        "synaptic operations": (operations * 23.6, operations * 35.5),
        "neuron updates": (neurons * steps * 81, neurons * steps * (51.2 + 21.6)),
        "updates of the input's neurons": (0, inputs * steps * (51.2 + 21.6)),
    }
    rest = SANA_FE * 1e6 - sum(theirs for _, theirs in terms.values())
    terms["spikes and messages (what is left)"] = (0, rest)
    print("\n| microjoules | our value | SANA-FE |\n|---|---|---|")
    for name, (ours, theirs) in terms.items():
        print(f"| {name} | {ours / 1e6:.1f} | {theirs / 1e6:.1f} |")
    print(f"| all | {OURS} (to {OURS_HIGH}) | {SANA_FE} |")


def predictions(network, profile, activity):
    """In the order of the table."""
    shapes = {population.name: population.shape for population in network.populations}
    cores = [[(name, part)] for name, tile in TILES.items() for part in tiles(shapes[name], tile)]
    assert len(cores) == CORES
    loads = core_loads(network, activity, cores)
    report = estimate(network, profile, activity, cores=CORES, loads=loads)
    assert report.missing == ("energy of hops: not counted",)
    average = estimate(network, profile, activity, cores=CORES)
    return report.dynamic.total, report.static.total, report.energy, report.step.total, average.step.total


def print_pilotnet():
    profile = load_profile("loihi2")
    network = read_netx(recorded("network.net"), timesteps=STEPS)
    picture = np.load(recorded("image.npy")).T[None]
    activities = {
        "silent": measure(network, np.zeros_like(picture)),
        "recorded picture": measure(network, picture),
    }
    for label, activity in activities.items():
        total = sum(operations(network, activity).values())
        spikes = sum(activity.spikes[p.name].sum() for p in network.populations[1:])
        print(f"{label}: {total:,.0f} synaptic operations and {spikes:,.0f} spikes per frame.  ")
    print()
    print_counts(network, activities["silent"])
    print_costs(network, profile, activities)
    print_runs(network, profile, activities["silent"])
    print_sana_fe()


def print_zoo(architecture, samples, timesteps):
    """Of a network with random weights, in a process of its own."""
    from fold_zoo import lively_network

    from mpbn_deploy.fold import fold
    from mpbn_deploy.frontend import trace
    from mpbn_deploy.quantize import quantize

    torch.manual_seed(0)
    folded = fold(trace(lively_network(architecture, "channel", timesteps)))
    network = quantize(folded, load_profile("loihi2")).network
    inputs = np.random.default_rng(0).integers(0, 256, (samples, *network.input.shape))
    before, started = gigabytes(), time.perf_counter()
    activity = measure(network, inputs)
    measured = time.perf_counter() - started
    total = sum(operations(network, activity).values())
    taken = time.perf_counter() - started - measured
    print("| network | neurons | T | samples | operations per sample | measuring, s | counting, s "
          "| GB before | GB at most |")  # fmt: skip
    print("|---" * 9 + "|")
    neurons = sum(population.size for population in network.populations[1:])
    print(f"| {architecture} | {neurons:,} | {timesteps} | {samples} | {total:,.0f} | {measured:.1f} "
          f"| {taken:.1f} | {before:.2f} | {gigabytes():.2f} |")  # fmt: skip


def gigabytes():
    """The highest resident size so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--zoo", metavar="ARCHITECTURE", help="measure this network instead")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--timesteps", type=int, default=4)
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch "
          f"{torch.__version__}, {torch.get_num_threads()} threads\n")  # fmt: skip
    if options.zoo:
        print_zoo(options.zoo, options.samples, options.timesteps)
    else:
        print_pilotnet()


if __name__ == "__main__":
    sys.exit(main())
