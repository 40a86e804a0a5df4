"""Every network of the zoo on every target: cores, chips, verdict, what blocks, and energy.

    python benchmarks/zoo_on_chips.py                        prints tables of docs/results, one per target
    python benchmarks/zoo_on_chips.py --arch vgg16 --target loihi2

Networks are untrained: random weights (seed 0), 10 classes, 8-bit pixels, 4 time steps, and 10 % of neurons
are assumed to fire in a step. Integers are quantized in the formats of the chip, or of `unbounded` where its
formats are not known. For chips with few thresholds per core, all channels of a population then get its
lowest positive threshold: choosing good ones takes minutes, and changes neither cores nor assumed activity.
Every network is placed twice: with pooling as part of the kernels, and with the relays that `--pooling auto`
chooses. As many chips are allowed as the largest public system of the target has. Where the chip takes no
pixels, the host computes the first layer. Rows are stored as they are found (--store), so that an interrupted
run of the same code and profiles continues; each network has a process of its own.
"""

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
from fold_zoo import SHAPES

from mpbn_deploy.base import OptionError
from mpbn_deploy.hardware import export_profile, load_profile, profile_names
from mpbn_deploy.nn.zoo import ARCHITECTURES

TIMESTEPS, CLASSES, RATE = 4, 10, 0.1
FORMS = ("composed", "auto")
HOST_CURES = {"input_values_fit_message", "input_values_fit_network", "inputs_are_few_enough"}
NUMBERS = ("formats.weight_bits", "formats.weight_exponent_minimum", "formats.weight_exponent_maximum",
           "formats.threshold_maximum", "formats.bias_mantissa_bits", "formats.bias_exponent_maximum",
           "formats.decay_bits", "formats.decay_current_offset", "formats.decay_voltage_offset",
           "formats.state_bits", "formats.delay_maximum", "formats.message_bits")  # fmt: skip
MOST_RULES = 2  # named in a row
ROOT = Path(__file__).parents[1]
COLUMNS = ("network", "cores", "chips", "fits", "rules not met", "energy per sample",
           "relays", "cores", "chips", "fits", "energy per sample")  # fmt: skip


def store_of_this_code():
    """Return the folder for rows, named after the code and profiles that they depend on."""
    digest = hashlib.sha256()
    for file in sorted([*(ROOT / "mpbn_deploy").rglob("*.py"), *(ROOT / "hw_profiles").glob("*.toml")]):
        digest.update(file.read_bytes())
    return ROOT / "build" / "zoo_on_chips" / digest.hexdigest()[:12]


def described(architecture):
    from mpbn_deploy.fit.measurement import UntrainedNetwork

    return UntrainedNetwork(
        arch=architecture, input_shape=SHAPES.get(architecture, (3, 32, 32)), timesteps=TIMESTEPS,
        input_range=(0, 255), classes=CLASSES, firing_rate=RATE,
    )  # fmt: skip


# ---- one network, in a process of its own ---------------------------------------------------------


def rows_of(architecture, targets):
    """Yield target -> row of one network; integers in the same formats are quantized once."""
    from mpbn_deploy.quantize import quantize
    from mpbn_deploy.quantize.pooling import express_pooling

    untrained = described(architecture)
    folded, quantized = untrained.folded(), {}
    for target in targets:
        started = time.process_time()
        profile = load_profile(target)
        formats = export_profile(profile)
        numbers = replace(formats, limits={k: v for k, v in formats.limits.items() if k in NUMBERS})
        key = tuple(sorted((name, limit.value) for name, limit in numbers.limits.items()))
        if key not in quantized:
            quantized[key] = quantize(folded, numbers).network
        row = {"target": target, "network": architecture}
        for form in FORMS:
            network = express_pooling(quantized[key], formats, form)
            if formats.limit("core.thresholds") is not None:
                network = with_shared_thresholds(network)
            row[form] = cells(untrained, network, profile)
        yield {**row, "seconds": round(time.process_time() - started, 1)}


def with_shared_thresholds(network):
    """Return the network with one threshold per population."""
    from mpbn_deploy.ir import firing

    lowest = {}
    for population in firing(network):
        thresholds = population.neuron.threshold
        least = min((int(value) for value in thresholds.flat if value > 0), default=1)
        lowest[population.name] = replace(population.neuron, threshold=np.full_like(thresholds, least))
    populations = tuple(p.with_neuron(lowest[p.name]) if p.name in lowest else p for p in network.populations)
    return replace(network, populations=populations)


def cells(untrained, network, profile):
    """Return what a table shows of one network on one target."""
    from mpbn_deploy.fit import fit_on_chip
    from mpbn_deploy.fit.stage import blocking_severities, by_rule, short_verdict
    from mpbn_deploy.ir import relay_names

    activity = untrained.activity(network)
    most = max(profile.systems.values(), default=1)
    report = fit_on_chip(network, profile, activity, chips=most)
    if HOST_CURES & {finding.rule for finding in report.found("error")}:
        with suppress(OptionError):  # no such layer, as in recurrent networks
            report = fit_on_chip(network, profile, activity, chips=most, first_layer="host")
    energy = report.energy
    return {
        "relays": len(relay_names(network)),
        "cores": report.cores,
        "chips": report.chips,
        "fits": short_verdict(report),
        "host": report.first_layer == "host",
        "blocked": [group.rule for group in by_rule(report, blocking_severities(report))],
        "energy": None if energy is None or energy.energy is None else
                  [energy.energy.value, energy.energy.low, energy.energy.high],
        "incomplete": bool(energy and (energy.dynamic.missing or energy.static.missing)),
    }  # fmt: skip


# ---- the tables -----------------------------------------------------------------------------------


def energy_text(cell):
    from mpbn_deploy.fit.energy import Range
    from mpbn_deploy.fit.text import JOULES, spread

    if cell["energy"] is None:
        return "?"
    value, low, high = cell["energy"]
    more = "> " if cell["incomplete"] else ""
    return more + spread(Range(value=value, low=low, high=high), *JOULES)


def number(value):
    return "?" if value is None else f"{value:,}"


def blocked(cell):
    """Return the first rules that are broken, and the number of others."""
    some, more = cell["blocked"][:MOST_RULES], len(cell["blocked"]) - MOST_RULES
    return "; ".join(some) + (f"; {more} more" if more > 0 else "")


def fits_text(cell):
    return cell["fits"] + (", first layer on the host" if cell["host"] and cell["fits"] != "no" else "")


def shown(row):
    """Return the cells of a line; the second half is empty where no relay is inserted."""
    plain, relays = row["composed"], row["auto"]
    line = [row["network"], number(plain["cores"]), number(plain["chips"]), fits_text(plain), blocked(plain),
            energy_text(plain), str(relays["relays"])]  # fmt: skip
    if not relays["relays"]:
        return [*line, "", "", "", ""]
    fits = f"no; not met: {blocked(relays)}" if relays["fits"] == "no" else fits_text(relays)
    return [*line, number(relays["cores"]), number(relays["chips"]), fits, energy_text(relays)]


def print_tables(options, found):
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")
    for target in options.target:
        rows = [found[target, name] for name in options.arch if (target, name) in found]
        system = max(load_profile(target).systems.items(), key=lambda item: item[1], default=None)
        size = f" ({system[1]:,} chips: {system[0].replace('_', ' ')})" if system else ""
        print(f"**{target}**{size}\n\n| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
        for row in rows:
            print("| " + " | ".join(shown(row)) + " |")
        print()
    print(f"{len(found)} rows, {sum(row['seconds'] for row in found.values()):,.0f} processor seconds")


def load(store):
    """Return the rows that earlier runs stored, by target and network."""
    rows = [
        json.loads(line) for file in sorted(store.glob("*.jsonl")) for line in file.read_text().splitlines()
    ]
    return {(row["target"], row["network"]): row for row in rows}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    chips = [name for name in profile_names() if load_profile(name).is_chip]
    parser.add_argument("--arch", nargs="+", default=list(ARCHITECTURES), choices=ARCHITECTURES)
    parser.add_argument("--target", nargs="+", default=chips)
    parser.add_argument("--store", type=Path, default=store_of_this_code())
    parser.add_argument("--stored", action="store_true", help="print only what is stored")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    if options.rows:
        (architecture,) = options.arch
        with (options.store / f"{architecture}.jsonl").open("a", encoding="utf-8") as file:
            for row in rows_of(architecture, options.target):
                print(json.dumps(row), file=file, flush=True)
        return 0
    for architecture in options.arch:
        missing = [target for target in options.target if (target, architecture) not in load(options.store)]
        if missing and not options.stored:
            print(f"{architecture}: {', '.join(missing)}", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--rows", "--arch", architecture, "--target", *missing]
            subprocess.run([*command, "--store", str(options.store)], check=True)
    found = load(options.store)
    print_tables(
        options,
        {key: row for key, row in found.items() if key[0] in options.target and key[1] in options.arch},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
