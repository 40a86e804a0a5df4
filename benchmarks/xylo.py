"""Train networks for Xylo with and without MPBN, export them, and verify them by the maker's simulator.

    python benchmarks/xylo.py --out FOLDER [--data digits-rows japanese-vowels] [--seeds 0 1 2]

Runs the commands of a user: `train --neuron xylo` and `export --target xylo-a3`. Models that are in the
folder are not trained again. Prints the table of docs/results/xylo.md.
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np


def run(module, *words):
    done = subprocess.run(
        [sys.executable, "-m", f"mpbn_deploy.{module}", *map(str, words)], capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr + done.stdout)


def measured(folder):
    """Return the figures of one export."""
    verify, fit = (json.loads((folder / name).read_text()) for name in ("verify.json", "fit.json"))
    with np.load(folder / "xylo.npz") as numbers:
        synapses = sum(int(np.count_nonzero(numbers[f"weights_{part}"])) for part in ("in", "rec", "out"))
    chip = next(c for c in verify["comparisons"] if c["execution"] == "xylosim")
    rates = [p["rate_integer"] for p in verify["populations"]]
    compared = chip["spikes_compared"] + chip["voltages_compared"]
    different = chip["spikes_mismatched"] + chip["voltages_mismatched"]
    assert not chip["not_run"], chip["not_run"]
    return {
        "float": 100 * verify["accuracy"]["float"],
        "integer": 100 * verify["accuracy"]["integer"],
        "fits": fit["fits"],
        "synapses": synapses,
        "hidden": rates[0],
        "outputs": rates[-1],
        "compared": compared,
        "different": different,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=["digits-rows", "japanese-vowels"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--target", default="xylo-a3")
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"target {options.target}, {options.epochs} epochs, {platform.machine()}")
    print("| data | MPBN | seed | folded % | integer = xylosim % | synapses | rate | compared | different |")
    print("|---|---|---|---|---|---|---|---|---|")
    for data in options.data:
        for mpbn in ("channel", "none"):
            for seed in options.seeds:
                model = options.out / f"{data}-{mpbn}-{seed}.pt"
                if not model.exists():
                    words = ("--data", data, "--neuron", "xylo", "--mpbn", mpbn, "--seed", seed)
                    run("train", *words, "--epochs", options.epochs, "--out", model)
                folder = model.with_suffix(f".{options.target}")
                run("export", model, "--target", options.target, "--out", folder)
                row = measured(folder)
                words = (
                    data,
                    mpbn,
                    seed,
                    f"{row['float']:.2f}",
                    f"{row['integer']:.2f}",
                    f"{row['synapses']:,}",
                )
                ends = (f"{row['hidden']:.3f}", f"{row['compared']:,}", row["different"])
                print(f"| {' | '.join(map(str, (*words, *ends)))} |", flush=True)


if __name__ == "__main__":
    main()
