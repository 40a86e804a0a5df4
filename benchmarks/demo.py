"""The demo of the README as a table: what `make demo` prints, on this machine.

python benchmarks/demo.py      prints the table of docs/RESULTS.md
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from demo import summary, train_digits

from mpbn_deploy.api import export


def spent():
    """Return the processor seconds of this process and of those that it started."""
    return sum(os.times()[:4])


def main():
    before = spent()
    with tempfile.TemporaryDirectory() as folder:
        train_digits(Path(folder) / "model.pt")
        result = export(Path(folder) / "model.pt", "loihi2")
    labels, values = summary("digits-cnn", result, 0).columns
    rows = dict(zip(labels.cells, values.cells, strict=True))
    rows.pop("time")
    rows["processor seconds"] = f"{spent() - before:.0f}"
    print("| what | value |\n|---|---|")
    for label, value in rows.items():
        print(f"| {label} | {value} |")


if __name__ == "__main__":
    main()
