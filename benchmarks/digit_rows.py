"""Digits row by row: recurrent networks, float against integer, and every execution against the reference.

python benchmarks/digit_rows.py [--seeds 3]      prints the tables of docs/results
"""

import argparse
import platform
import time
from datetime import date

import numpy as np
import torch

from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.emulator import Emulator, emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fit import fit, measure
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.train import Training, train
from mpbn_deploy.verify import compare, trained_spikes

EPOCHS, LEAK, FROZEN, COMPARED, REPEATS = 40, 0.5, 0.5, 64, 5
VARIANTS = {  # label: architecture, MPBN, last epochs with frozen statistics, further options of the neuron
    "no loop": ("digits-mlp", "channel", FROZEN, {}),
    "loop": ("digits-rnn", "channel", FROZEN, {}),
    "loop, statistics of each step to the end": ("digits-rnn", "channel", 0.0, {}),
    "loop, no MPBN": ("digits-rnn", "none", 0.0, {}),
    "loop, soft reset": ("digits-rnn", "channel", FROZEN, {"reset": "subtract"}),
    "loop, current leak 0.5": ("digits-rnn", "channel", FROZEN, {"current_leak": 0.5}),
}


def trained(dataset, variant, seed):
    arch, mpbn, frozen, neuron = VARIANTS[variant]
    training = Training(epochs=EPOCHS, seed=seed, freeze_mpbn=frozen, clip_gradient=1.0)
    return train(dataset, arch, training, mpbn=mpbn, **{"leak": LEAK, **neuron})


def accuracy(network, dataset):
    predictions = emulate(network, dataset.test.inputs, keep_trace=False).predictions
    return 100 * np.mean(predictions == dataset.test.labels)


def print_accuracies(dataset, seeds):
    """One line per variant: mean and deviation over seeds, and what the last network takes on Loihi 2."""
    profile, models = load_profile("loihi2"), {}
    print("| network | float | 8 bits | 4 bits, calibrated | neurons | cores | energy per sample |")
    print("|---" * 7 + "|")
    for variant in VARIANTS:
        rows = []
        for seed in range(seeds):
            model = models[variant] = trained(dataset, variant, seed)
            folded = fold(trace(model))
            network = quantize(folded, profile).network
            four = quantize(folded, profile, dataset.train.inputs[:256], weight_bits=4).network
            rows.append([accuracy(each, dataset) for each in (folded, network, four)])
        cells = [f"{m:.2f} ± {s:.2f}" for m, s in zip(np.mean(rows, 0), np.std(rows, 0), strict=True)]
        report = fit(network, profile, measure(network, dataset.test.inputs[:COMPARED]))
        size = sum(population.size for population in network.layers)
        energy = 1e-6 * report.energy.energy.value
        print(f"| {variant} | {' | '.join(cells)} | {size} | {report.cores} | {energy:.1f} µJ |", flush=True)
    return models


def print_executions(dataset, models):
    """Spikes of PyTorch, reference, emulator and Lava on the same samples; the emulator's speed."""
    inputs = dataset.test.inputs[:COMPARED]
    print("\n| network | folding changes | emulator | Lava | of spikes | emulator | PyTorch |")
    print("|---" * 7 + "|")
    for variant, model in models.items():
        folded = fold(trace(model))
        spikes, _ = trained_spikes(model, inputs)
        real = simulate(folded, inputs)
        changed = sum(int((found != real.spikes[name]).sum()) for name, found in spikes.items())
        network = quantize(folded, load_profile("loihi2")).network
        expected = simulate(network, inputs)
        found = [compare(name, expected, run(network, inputs)) for name, run in EXECUTIONS.items()]
        assert all(each.voltages_mismatched == 0 for each in found)
        counts = " | ".join(str(each.spikes_mismatched) for each in found)
        speeds = " | ".join(f"{1000 * each:.1f} ms" for each in seconds(network, model, dataset))
        print(f"| {variant} | {changed} | {counts} | {found[0].spikes_compared:,} | {speeds} |", flush=True)


EXECUTIONS = {"emulator": emulate, "Lava": lava_sim.run}


def seconds(network, model, dataset):
    """Return the fastest runs over the test split: the emulator, and the float model in PyTorch."""
    emulator, inputs = Emulator(network), dataset.test.inputs
    batch = torch.tensor(np.asarray(inputs)).float()
    with torch.no_grad():
        return [
            min(timed(run) for _ in range(REPEATS))
            for run in (lambda: emulator.run(inputs, keep_trace=False), lambda: model.eval()(batch))
        ]


def timed(run):
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, seeds {options.seeds}\n"
    )
    dataset = load_dataset("digits-rows")
    print_executions(dataset, print_accuracies(dataset, options.seeds))


if __name__ == "__main__":
    main()
