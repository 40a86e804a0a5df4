"""Energy and time of Loihi 1 as estimated, against SANA-FE's model of Loihi: same network, same placement.

    pip install --target FOLDER sanafe                        GPL: it runs in a process of its own
    python benchmarks/energy_sanafe.py --sanafe FOLDER        prints a table of docs/results

Neurons 256 (inputs) - 128 - 64 - 10, dense random weights (seed 0), 100 time steps, a fifth of the inputs
spike in each step. Each layer has a core of its own, and in SANA-FE so have the inputs. SANA-FE
(arch/loihi.yaml, fitted on a Nahuku board by its authors) runs three steps more, because a spike takes a step
to arrive; the spikes of every layer must be equal in number. Terms of SANA-FE are its own sums; updates and
firing, which it adds up, are told apart by counts times the figures of its file.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import numpy as np

SIZES, STEPS, RATE, SEED = (256, 128, 64, 10), 100, 0.2, 0
EXTRA = len(SIZES) - 1  # steps that the last spikes of the input take to reach the last layer
LEAK = 3072  # of 4096
FIRE = 69.3  # picojoules, energy_spike_out of arch/loihi.yaml
GROUPS = [f"layer{number}" for number in range(len(SIZES))]


def drawn():
    """Return the weights of each layer, their thresholds, and the input spikes [steps, inputs]."""
    generator = np.random.default_rng(SEED)
    weights = [generator.integers(-60, 80, (after, before)) for before, after in itertools.pairwise(SIZES)]
    thresholds = [generator.integers(400, 900, size) for size in SIZES[1:]]
    return weights, thresholds, generator.random((STEPS, SIZES[0])) < RATE


# ---- SANA-FE, in a process that imports nothing of this package -----------------------------------


def child():
    """Simulate, and print energy, time and numbers of spikes as JSON."""
    import sanafe

    weights, thresholds, inputs = drawn()
    trains = np.concatenate([inputs, np.zeros((EXTRA, SIZES[0]), bool)])
    architecture, network = sanafe.load_loihi(), sanafe.Network()
    cores = [core for tile in architecture.tiles for core in tile.cores]
    hardware = {
        "default_synapse_hw_name": "loihi_dense_synapse",
        "default_dendrite_hw_name": "loihi_dendrites",
    }
    first = network.create_neuron_group(GROUPS[0], SIZES[0], soma_hw_name="", log_spikes=True)
    for number, neuron in enumerate(first.neurons):
        spikes = {"spikes": trains[:, number].tolist()}
        neuron.set_attributes(soma_hw_name=f"loihi_inputs[{number}]", model_attributes=spikes)
        neuron.map_to_core(cores[0])
    before = first
    for place, (name, weight, threshold) in enumerate(zip(GROUPS[1:], weights, thresholds, strict=True)):
        layer = network.create_neuron_group(
            name, len(weight), soma_hw_name="loihi_lif", log_spikes=True, **hardware
        )
        for neuron, each in zip(layer.neurons, threshold, strict=True):
            common = {"leak_decay": 1 - LEAK / 4096, "reset_mode": "hard", "force_update": True}
            neuron.set_attributes(model_attributes={"threshold": float(each), **common})
            neuron.map_to_core(cores[1 + place])
        pairs = [(source, target) for source in range(weight.shape[1]) for target in range(len(weight))]
        values = [float(weight[target, source]) for source, target in pairs]
        before.connect_neurons_sparse(layer, {"weight": values}, pairs)
        before = layer
    chip = sanafe.SpikingChip(architecture)
    chip.load(network)
    found = chip.sim(STEPS + EXTRA, spike_trace=True, processing_threads=1)
    spikes = dict.fromkeys(GROUPS, 0)
    for spiking in found["spike_trace"]:
        for neuron in spiking:
            spikes[neuron.group_name] += 1
    print(json.dumps({"fired": spikes, "energy": found["energy"], "seconds": found["sim_time"],
                      "updates": found["neurons_updated"], "packets": found["packets_sent"]}))  # fmt: skip


def sana_fe(folder):
    code = "import benchmarks_energy_sanafe as b; b.child()"
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "benchmarks_energy_sanafe.py").write_text(Path(__file__).read_text())
        path = os.pathsep.join([place, str(folder)])
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE, text=True, check=True, cwd=place,
        )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


# ---- ours -----------------------------------------------------------------------------------------


def ours():
    """Return the report on Loihi 1, and the spikes of each layer."""
    from mpbn_deploy.fit import core_loads, estimate, measure
    from mpbn_deploy.hardware import load_profile
    from mpbn_deploy.ir import Connection, Dense, Input, IntNetwork, Lif, Population

    weights, thresholds, inputs = drawn()
    populations = [Population(name=GROUPS[0], shape=SIZES[:1], neuron=Input(minimum=0, maximum=1))]
    for name, threshold in zip(GROUPS[1:], thresholds, strict=True):
        neuron = Lif(
            threshold=threshold, bias=np.zeros(len(threshold), int), decay_voltage=LEAK, decay_current=4096
        )
        populations.append(Population(name=name, shape=threshold.shape, neuron=neuron))
    connections = [
        Connection(source=source, target=target, synapse=Dense(weight=weight))
        for source, target, weight in zip(GROUPS, GROUPS[1:], weights, strict=False)
    ]
    network = IntNetwork(
        populations=tuple(populations), connections=tuple(connections), timesteps=STEPS,
        scales={name: np.ones(size) for name, size in zip(GROUPS[1:], SIZES[1:], strict=True)},
    )  # fmt: skip
    activity = measure(network, inputs[None].astype(np.int64))
    cores = [[(name, (slice(None),))] for name in GROUPS[1:]]
    messages = float(activity.counts(GROUPS[0]).sum())
    report = estimate(
        network, load_profile("loihi1"), activity, cores=len(cores), hops=0.0, input_messages=messages,
        loads=core_loads(network, activity, cores),
    )  # fmt: skip
    return report, {name: int(activity.counts(name).sum()) for name in GROUPS}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sanafe", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    report, spikes = ours()
    theirs = sana_fe(options.sanafe)
    assert theirs["fired"] == spikes, (theirs["fired"], spikes)
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")
    print_terms(report, theirs, spikes)


def print_terms(report, theirs, spikes):
    from mpbn_deploy.fit import JOULES, SECONDS, Range, quantity, spread

    found = {item.name: item for item in report.dynamic.items}
    sent = sum(spikes.values()) - spikes[GROUPS[0]]
    soma, fires = theirs["energy"]["soma"] * 1e12, sent * FIRE
    messages = found["spikes"].total.plus(found["input messages"].total)
    operations, updates = found["synaptic operations"], found["neuron updates"]
    rows = {
        f"synaptic operations ({operations.count:,.0f})": (
            operations.total, theirs["energy"]["synapse"] * 1e12),
        f"neuron updates ({updates.count:,.0f})": (updates.total, soma - fires),
        f"spikes and messages ({sent:,} and {spikes[GROUPS[0]]:,} of the input)": (
            messages, fires + theirs["energy"]["network"] * 1e12),
        "dynamic energy": (report.dynamic.total, theirs["energy"]["total"] * 1e12),
    }  # fmt: skip
    print("| per sample | ours (range) | SANA-FE | inside |\n|---|---|---|---|")
    for name, (total, value) in rows.items():
        print(f"| {name} | {spread(total, *JOULES)} | {quantity(value, *JOULES)} | {inside(total, value)} |")
    time, step = report.time, theirs["seconds"] * 1e9 * STEPS / (STEPS + EXTRA)
    assert isinstance(time, Range)
    print(f"| time | {spread(time, *SECONDS)} | {quantity(step, *SECONDS)} | {inside(time, step)} |")


def inside(found, value):
    return "yes" if found.low <= value <= found.high else "no"


if __name__ == "__main__":
    main()
