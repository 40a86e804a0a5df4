"""What it costs to share thresholds: per channel, per core and per population, side by side.

    python benchmarks/thresholds.py [MODEL.pt]      prints the table of docs/results

Exports a network for Loihi 2 and asks `fit --compare-thresholds --samples all`, whose numbers these are.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from mpbn_deploy.api import export
from mpbn_deploy.fit.search import MEANINGS
from mpbn_deploy.fit.stage import verdict_word

MODEL, TARGET = Path(__file__).parents[1] / "examples" / "models" / "digits.pt", "loihi2"
COLUMNS = "thresholds | most per population | fits | cores | accuracy | predictions changed"


def compared(model):
    """Return what `fit` says of each choice of thresholds."""
    with tempfile.TemporaryDirectory() as folder:
        network = Path(folder) / "network"
        export(model, TARGET, network)
        command = [sys.executable, "-m", "mpbn_deploy.fit", str(network), "--compare-thresholds"]
        command += ["--samples", "all", "--json"]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(found)["thresholds"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", type=Path, default=MODEL)
    options = parser.parse_args()
    print(f"| {COLUMNS} |\n|" + "---|" * (1 + COLUMNS.count("|")))
    for row in compared(options.model):
        fits = verdict_word(row["fits"], row["cores"], row["not_known"])
        print(f"| {MEANINGS[row['thresholds']]} | {row['most_per_population']} | {fits} | {row['cores']} "
              f"| {row['accuracy']:.2%} | {row['predictions_changed']} of {row['samples']} |")  # fmt: skip


if __name__ == "__main__":
    main()
