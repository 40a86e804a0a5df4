"""Norms side by side on one small network with equal budget: accuracy, stability, cost as integers.

    python benchmarks/norms.py --out norms                       train, fold, quantize and measure
    python benchmarks/norms.py --out norms --table               print the table of docs/results/norms.md
    python benchmarks/norms.py --out norms --picture docs/norms.png

Every network has the same layers, seeds, batches, schedule and detached reset; only the norm of the currents
(`train --norm`) and that of the membranes (`--mpbn`) differ. A finished measurement is a line of
norms/found.jsonl, so that an interrupted run goes on where it was.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mpbn_deploy.api import Training, load_dataset, train
from mpbn_deploy.base import DeployError
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.c import program_size
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place
from mpbn_deploy.ir import varies
from mpbn_deploy.quantize import CALIBRATION_SAMPLES, quantize
from mpbn_deploy.train.settings import Building

NORMS = {
    "batch norm alone": {"mpbn": "none"},
    "tdBN": {"norm": "tdbn", "mpbn": "none"},
    "TEBN": {"norm": "tebn", "mpbn": "none"},
    "BNTT": {"norm": "bntt", "mpbn": "none"},
    "TAB": {"norm": "tab", "mpbn": "none"},
    "PSP-BN": {"norm": "psp", "mpbn": "none"},
    "MPBN": {"mpbn": "channel"},
    "MPBN, element-wise": {"mpbn": "element"},
    "MPBN and TEBN": {"norm": "tebn", "mpbn": "channel"},
}
BITS = (8, 4)
TARGET = "loihi2"  # whose number formats are used; cores are counted where it can hold the network


def integers(folded, dataset, bits):
    """Return accuracy, cores, layers with numbers per step, and bytes of the C program, as integers."""
    profile = load_profile(TARGET)
    calibration = dataset.train.inputs[:CALIBRATION_SAMPLES]
    network = quantize(folded, profile, calibration, weight_bits=bits).network
    got = emulate(network, dataset.test.inputs[:], keep_trace=False).predictions
    try:
        cores = place(network, profile).cores
    except DeployError:
        cores = None
    return {
        f"integer_{bits}": float(np.mean(got == dataset.test.labels)),
        f"cores_{bits}": cores,
        f"bytes_{bits}": program_size(network).flash,
        "layers_per_step": sum(varies(p.neuron) for p in network.layers),
    }


def measure(name, timesteps, seed, dataset, options):
    """Train one network; return its line of found.jsonl."""
    path = options.out / f"{name.replace(' ', '-')}-{timesteps}-{seed}.pt"
    building = Building(arch=options.arch, timesteps=timesteps, reset_gradient="detached", **NORMS[name])
    training = Training(epochs=options.epochs, seed=seed, validation=options.validation, recalibration="off")
    found = {"norm": name, "timesteps": timesteps, "seed": seed}
    try:
        network = train(dataset, building, training, out=path)
    except DeployError as error:
        return found | {"error": str(error)}
    log = [json.loads(line) for line in path.with_suffix(".log.jsonl").read_text().splitlines()]
    found |= {
        "float": log[-1]["test_accuracy"],
        "validation": log[-1]["validation_accuracy"],
        "largest_gradient": max(epoch["largest_gradient"] for epoch in log),
        "seconds": sum(epoch["processor_seconds"] for epoch in log),
    }
    try:
        folded = fold(trace(network))
        for bits in BITS:
            found |= integers(folded, dataset, bits)
    except DeployError as error:
        found["error"] = str(error)
    return found


def read(options):
    file = options.out / "found.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(options):
    dataset = load_dataset(options.data, options.data_dir)
    options.out.mkdir(parents=True, exist_ok=True)
    done = {(line["norm"], line["timesteps"], line["seed"]) for line in read(options)}
    wanted = [(name, t, seed) for seed in range(options.seeds) for t in options.timesteps for name in NORMS]
    for name, timesteps, seed in wanted:
        if (name, timesteps, seed) not in done:
            line = json.dumps(measure(name, timesteps, seed, dataset, options))
            with (options.out / "found.jsonl").open("a") as file:
                print(line, file=file)


def spread(values, form, factor=1.0):
    """Return "mean ± standard deviation", or the value alone."""
    values = [factor * value for value in values if value is not None]
    if not values:
        return ""
    text = form.format(np.mean(values))
    return f"{text} ± {form.format(np.std(values, ddof=1))}" if len(values) > 1 else text


def groups(found):
    """Yield (timesteps, norm, lines of its seeds)."""
    for timesteps in sorted({line["timesteps"] for line in found}):
        for name in NORMS:
            lines = [x for x in found if (x["norm"], x["timesteps"]) == (name, timesteps) and "float" in x]
            if lines:
                yield timesteps, name, lines


def print_table(found):
    print(
        "| T | norm | seeds | float % | 8 bits % | 4 bits % | largest gradient | training s | layers with "
        "numbers per step | cores | C bytes, 8 bits |\n|---" + "|---" * 10 + "|"
    )
    for timesteps, name, lines in groups(found):

        def column(key, lines=lines):
            return [line.get(key) for line in lines]

        cells = [
            str(timesteps), name, str(len(lines)), *(
                spread(column(key), "{:.1f}", 100) for key in ("float", "integer_8", "integer_4")
            ),
            f"{max(column('largest_gradient')):.1f}", spread(column("seconds"), "{:.1f}"),
            *(spread(column(key)[:1], "{:,.0f}") for key in ("layers_per_step", "cores_8", "bytes_8")),
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |")
    for line in found:
        if "error" in line:
            print(f"\n{line['norm']}, T = {line['timesteps']}, seed {line['seed']}: {line['error']}")


def draw(found, path):
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes, listed = figure.subplots(), list(groups(found))
    steps = sorted({timesteps for timesteps, _, _ in listed})
    for index, timesteps in enumerate(steps):
        rows = [(list(NORMS).index(name), lines) for t, name, lines in listed if t == timesteps]
        for key, marker in (("float", "o"), ("integer_4", "x")):
            points = [
                (at + 0.22 * (index - 1), 100 * line[key])
                for at, lines in rows
                for line in lines
                if key in line
            ]
            label = f"T = {timesteps}, {'float' if key == 'float' else '4 bits'}"
            axes.plot(*zip(*points, strict=True), marker, color=f"C{index}", ms=4, label=label)
    axes.set_xticks(range(len(NORMS)), list(NORMS), rotation=25, ha="right", fontsize=7)
    axes.set_ylabel("test accuracy (%)")
    axes.legend(fontsize=6, ncols=3)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--arch", default="digits-cnn")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--timesteps", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--validation", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path("norms"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if not (options.table or options.picture):
        run(options)
    if options.picture:
        draw(read(options), options.picture)
    else:
        print_table(read(options))


if __name__ == "__main__":
    main()
