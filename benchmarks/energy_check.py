"""Energy and time of Loihi 2 as estimated, against what Intel measured for PilotNet on one chip.

    python benchmarks/energy_check.py                      prints tables of docs/results
    python benchmarks/energy_check.py --sdnn FILE          PilotNet SDNN instead, from a clone of lava-dl
    python benchmarks/energy_check.py --zoo resnet34       time and memory of measuring a large network

Measured: the outputs of lava-dl tutorials/lava/lib/dl/netx/pilotnet_snn/benchmark.ipynb, one frame shown over
and over. The network and a picture are those in the lava-dl wheel (tests/lava/lib/dl/netx/gts/pilotnet_lif).
The notebook's "Activity Results" show no synaptic operations in the first convolution and the same number on
all cores of the second: the neurons of its input were silent, and biases alone made the others fire. So the
silent input is what was measured; the picture is shown beside it. Values of the profile are published, or
derived from published ones. The low ends of its energies, and the high end of the time of a synaptic
operation, were chosen so that the six runs of PilotNet LIF lie inside: that is no check. `published_only`
shows what holds without them. PilotNet SDNN was used for no constant but the range of the static power.
"""

import argparse
import platform
import resource
import sys
import time
from dataclasses import replace
from datetime import date
from functools import reduce
from importlib import metadata
from itertools import product

import numpy as np
import torch

from mpbn_deploy.fit import Range, core_loads, estimate, fit_on_chip, measure, operations, quantity, spread
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
# All six runs in the history of netx/pilotnet_sdnn/benchmark.ipynb: 61 cores, one frame of a video per step.
SDNN_STEPS = 9  # in which a picture passes all layers
SDNN_RUNS = {
    "dynamic energy per frame": ([-0.36, 0.29, 0.64, 0.78, 1.34, 2.87], "J", 1e-3),
    "time per frame": ([1e3 / f for f in (16.87, 15.29, 14.22, 13.71, 11.73, 11.18)], "s", 1e-3),
}
# Energy per inference of papers whose networks and activity are not public, in joules. Only the first could
# be read in part; the others are quoted from notes by others.
OTHERS = (
    ("keyword spotting, Loihi 1, with host", "loihi1", 270e-6, "Blouw et al., NICE 2019 (arXiv:1812.01739)"),
    (
        "keyword spotting, Loihi 1, without host",
        "loihi1",
        37e-6,
        "Yan et al. 2021 (arXiv:2009.08921)",
    ),
    (
        "SHD, 1024 recurrent neurons, Loihi 2",
        "loihi2",
        0.50e-3,
        "Shoesmith et al. 2025 (arXiv:2503.04341)",
    ),
    (
        "SHD with delays, Loihi 2 (to 0.46 mJ)",
        "loihi2",
        0.36e-3,
        "Meszaros et al. 2025 (arXiv:2510.13757)",
    ),
)
STEPS_COUNTED = 10_000  # of the activity figure
# What the compiler printed: the part of each population on one core. The notebook says 8 neurons for layer7,
# and 12 cores; 12 hold its 100 neurons if they take 9.
TILES = {
    "layer0": (3, 66, 16), "layer1": (24, 32, 4), "layer2": (36, 15, 4), "layer3": (48, 7, 8),
    "layer4": (64, 4, 8), "layer5": (64, 2, 16), "layer7": (9,), "layer8": (50,), "layer9": (10,),
    "layer10": (1,),
}  # fmt: skip
CORES, SDNN_CORES = 74, 61
# Synaptic operations and neuron updates of the first core of a layer, read off the figure (a pixel: 0.004e9).
FIGURE = {
    "layer1": (0.0, 0.073e9), "layer2": (1.312e9, 0.049e9), "layer3": (1.509e9, 0.057e9),
    "layer4": (0.527e9, 0.043e9), "layer5": (0.51e9, 0.043e9),
}  # fmt: skip


def recorded(name, network="pilotnet_lif"):
    """A file of a recorded network inside the lava-dl wheel."""
    files = metadata.files("lava-dl") or []
    return next(file.locate() for file in files if str(file).endswith(f"gts/{network}/{name}"))


def published_only(profile):
    """Return Loihi 2 without what was fitted: costs of Loihi 1, times divided by Intel's factors."""
    first = load_profile("loihi1")
    faster = {"synaptic_operation": 5, "neuron_update": 2, "spike": 10}
    costs = {key: cost for key, cost in first.costs.items() if key.startswith("energy.")}
    for name, factor in faster.items():
        cost = first.costs[f"time.{name}"]
        ends = {end: getattr(cost, end) / factor for end in ("value", "low", "high")}
        costs[f"time.{name}"] = replace(cost, **ends)
    return replace(profile, costs={**profile.costs, **costs})


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
    """How many runs lie in the range of the estimate, with published figures alone and with the profile."""
    print("\n| silent input | six runs, measured | published figures only | inside | profile | inside |\n|"
          + "---|" * 6)  # fmt: skip
    found = []
    for each in (published_only(profile), profile):
        dynamic, _, energy, step, _ = predictions(network, each, activity)
        found.append((dynamic, energy, step))
    for (name, runs), published, ours in zip(RUNS.items(), *found, strict=True):
        cells = " | ".join(f"{shown(total, runs)} | {inside(total, runs)}" for total in (published, ours))
        print(f"| {name} | {measured_range(runs)} | {cells} |")


def own_scale(unit):
    """The scale of our nanoseconds and picojoules."""
    return 1e-9 if unit == "s" else 1e-12


def shown(found, runs):
    return spread(found, runs[1], own_scale(runs[1]))


def inside(found, runs):
    values, unit, scale = runs
    own = own_scale(unit)
    return f"{sum(found.low * own <= v * scale <= found.high * own for v in values)} of {len(values)}"


def measured_range(runs):
    values, unit, scale = runs
    low = (
        quantity(min(values), unit, scale) if min(values) > 0 else f"{min(values) * scale * 1e3:.2f} m{unit}"
    )
    return f"{low} to {quantity(max(values), unit, scale)}"


def print_sdnn(file):
    """PilotNet SDNN: a still picture, and a new one in each frame, against six runs on a video.

    The file is that of the notebook's folder; the picture is the smaller one of the wheel, enlarged.
    """
    network = read_netx(file, timesteps=SDNN_STEPS, input_range=(-128, 127))
    picture = np.load(recorded("input.npy", "pilotnet_sdnn"))[..., 0].T[None].astype(int)
    picture = picture.repeat(2, axis=-2).repeat(2, axis=-1)
    report = fit_on_chip(network, load_profile("loihi2-2022"), measure(network, picture), first_layer="host")
    assert report.cores == SDNN_CORES, report.cores
    items = {item.name: item.total for item in report.energy.dynamic.items if item.total is not None}
    still = items.pop("neuron updates").times(1 / SDNN_STEPS)
    new = reduce(Range.plus, items.values(), still)
    print("| PilotNet SDNN | six runs, measured | still picture | new picture | inside |\n|" + "---|" * 5)
    energy, time = SDNN_RUNS.items()
    both = Range(value=new.value, low=still.low, high=new.high)
    cells = [energy[0], measured_range(energy[1]), shown(still, energy[1]), shown(new, energy[1])]
    print(f"| {' | '.join(cells)} | {inside(both, energy[1])} |")
    whole = report.energy.time
    cells = [time[0], measured_range(time[1]), "", f"at most {shown(whole, time[1])}", inside(whole, time[1])]
    print(f"| {' | '.join(cells)} |")


def print_others():
    """What other papers measured, and the synaptic operations that would explain it."""
    headings = ("published", "energy per inference", "synaptic operations that explain it", "source")
    print(f"\n| {' | '.join(headings)} |\n|---|---|---|---|")
    for name, target, joules, source in OTHERS:
        cost = load_profile(target).cost("energy.synaptic_operation")
        few, many = (joules * 1e12 / each / 1e6 for each in (cost.high, cost.low))
        print(f"| {name} | {quantity(joules, 'J', 1)} | {few:.1f} to {many:.1f} million | {source} |")


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
    print_others()


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
    parser.add_argument(
        "--sdnn", metavar="FILE", help="PilotNet SDNN instead: netx/pilotnet_sdnn/network.net of lava-dl"
    )
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--timesteps", type=int, default=4)
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, torch "
          f"{torch.__version__}, {torch.get_num_threads()} threads\n")  # fmt: skip
    if options.zoo:
        print_zoo(options.zoo, options.samples, options.timesteps)
    elif options.sdnn:
        print_sdnn(options.sdnn)
    else:
        print_pilotnet()


if __name__ == "__main__":
    sys.exit(main())
