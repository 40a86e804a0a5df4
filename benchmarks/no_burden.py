"""What MPBN costs on the chip: the same architecture with and without it, exported for Loihi 2, side by side.

    python benchmarks/no_burden.py                             trains both; prints a table of docs/results
    python benchmarks/no_burden.py WITHOUT.pt WITH.pt          of your own checkpoints

MPBN folds into thresholds that the chip stores anyway, so what is stored must be equal. What the networks do
differs, because they learned different weights: other weights round to zero, other neurons fire, and energy
and time follow the spikes. Exit code 1 if what is stored differs, or if an export fails its verification.
"""

import argparse
import platform
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch

from mpbn_deploy.api import (
    DATASETS,
    LIF,
    DeployError,
    OptionError,
    Training,
    export,
    load_dataset,
    load_model,
    save_model,
    train,
)
from mpbn_deploy.fit import JOULES, SECONDS, spread
from mpbn_deploy.ir import connection_synapses, neuron_bias, neuron_threshold

TARGET = "loihi2"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A row of the table; `stored` ones must be equal with and without MPBN."""

    name: str
    without: object
    with_mpbn: object
    stored: bool

    @property
    def good(self):
        return self.without == self.with_mpbn or not self.stored


# ---- what is stored, and what happens ---------------------------------------------------------


def stored(result):
    """What an exported network takes on the chip."""
    network, placement = result.quantized.network, result.fitted.placement
    return {
        "weights": sum(connection.synapse.weight.size for connection in network.connections),
        "biases": sum(neuron_bias(population.neuron).size for population in network.layers),
        "thresholds": sum(threshold.size for threshold in thresholds(network)),
        "neurons": sum(population.size for population in network.layers),
        "words of memory": sum(use["total_words"] for layer in placement.layers for _, use in layer.uses()),
        "cores": result.fitted.cores,
    }


def happening(result):
    """What depends on the values that the network learned."""
    network, energy, accuracy = result.quantized.network, result.fitted.energy, result.verified.accuracy
    (spikes,) = [item.count for item in energy.dynamic.items if item.name == "spikes"]
    return {
        "distinct thresholds": sum(len(np.unique(threshold)) for threshold in thresholds(network)),
        "synapses that are not zero": sum(connection_synapses(network, c) for c in network.connections),
        "spikes per sample": round(spikes),
        "energy per sample": spread(energy.energy, *JOULES),
        "time per step": spread(energy.step.total, *SECONDS),
        "accuracy, integer network": "unknown" if accuracy is None else f"{accuracy.integer_network:.2%}",
    }


def thresholds(network):
    """The thresholds of each population that fires."""
    found = [neuron_threshold(population.neuron) for population in network.layers]
    return [threshold for threshold in found if threshold is not None]


def compare(without, with_mpbn):
    """The rows of two exports."""
    return [
        Quantity(name=name, without=first, with_mpbn=second, stored=describe is stored)
        for describe in (stored, happening)
        for (name, first), second in zip(describe(without).items(), describe(with_mpbn).values(), strict=True)
    ]


# ---- the networks -----------------------------------------------------------------------------


def trained_pair(arch, options, folder):
    """Checkpoints without and with MPBN: the same data, seed and budget."""
    dataset = load_dataset(options.data or "digits", options.data_dir)
    training = Training(epochs=options.epochs, batch=options.batch, seed=options.seed)
    paths = []
    for kind in ("none", "channel"):
        network = train(dataset, arch, mpbn=kind, timesteps=options.timesteps, training=training)
        paths.append(folder / f"{arch}-{kind}.pt")
        save_model(paths[-1], network)
    return paths


def check_pair(paths):
    """Raise an error unless the first has no MPBN, the second has, and they are alike in all else."""
    networks = [load_model(path) for path in paths]
    for path, network, wanted in zip(paths, networks, (False, True), strict=True):
        found = {m.mpbn is not None for m in network.modules() if isinstance(m, LIF)}
        if found != {wanted}:
            raise OptionError(
                f"{path}: {'some neurons lack MPBN' if wanted else 'some neurons have MPBN'}; "
                "give a checkpoint without MPBN first, then one with MPBN in all neurons."
            )
    first, second = (design(network) for network in networks)
    if different := [key for key in first if first[key] != second[key]]:
        raise OptionError(
            f"{paths[0]} and {paths[1]} differ in {', '.join(different)}; the same network is needed twice."
        )


def design(network):
    """All that the two must have in common."""
    arguments = {key: value for key, value in network.card.arguments.items() if not key.startswith("mpbn")}
    return {"architecture": network.card.architecture, "time steps": network.timesteps, **arguments}


# ---- the table --------------------------------------------------------------------------------


def print_pair(label, paths, options, folder):
    """Export both and print their rows; whether MPBN is no burden."""
    check_pair(paths)
    given = {"samples": options.samples, "data": options.data, "data_dir": options.data_dir}
    results = [
        export(path, TARGET, folder / f"{label}-{number}", **given) for number, path in enumerate(paths)
    ]
    rows = compare(*results)
    for row in rows:
        verdict = ("equal" if row.good else "DIFFERENT") if row.stored else "may differ"
        print(f"| {label} | {row.name} | {shown(row.without)} | {shown(row.with_mpbn)} | {verdict} |")
    sys.stdout.flush()
    failed = [str(path) for path, result in zip(paths, results, strict=True) if not result.verified.passed]
    if failed:
        print(f"verification failed: {', '.join(failed)}", file=sys.stderr)
    return not failed and all(row.good for row in rows)


def shown(value):
    return f"{value:,}" if isinstance(value, int) else value


def print_table(options):
    """The whole table; whether all is well."""
    trained = f", seed {options.seed}, {options.epochs} epochs of {options.data or 'digits'}"
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, {TARGET}, "
          f"{options.samples} samples{'' if options.models else trained}\n")  # fmt: skip
    print("| network | what | without MPBN | with MPBN | comparison |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.models:
            return print_pair(options.models[1].stem, options.models, options, folder)
        pairs = {arch: trained_pair(arch, options, folder) for arch in options.arch}
        good = [print_pair(arch, paths, options, folder) for arch, paths in pairs.items()]
        return all(good)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.pt", help="two: without, with MPBN")
    parser.add_argument("--arch", nargs="+", default=["digits-cnn", "resnet20-slim"])
    parser.add_argument("--data", choices=DATASETS, help="default: digits, or what a checkpoint names")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--timesteps", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=Training().batch)
    parser.add_argument("--samples", type=int, default=64, help="of the test split, for spikes and energy")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if len(options.models) not in (0, 2):
        parser.error(f"{len(options.models)} checkpoints; give two, without and with MPBN, or none.")
    try:
        return 0 if print_table(options) else 1
    except DeployError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
