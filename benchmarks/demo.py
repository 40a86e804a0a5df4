"""The demo of the README as a table: what `make demo` prints, on this machine.

python benchmarks/demo.py      prints the table of docs/results
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from demo import train_digits

from mpbn_deploy.api import export


def spent():
    """Return the processor seconds of this process and of those that it started."""
    return sum(os.times()[:4])


def main():
    before = spent()
    with tempfile.TemporaryDirectory() as folder:
        train_digits(Path(folder) / "model.pt")
        result = export(Path(folder) / "model.pt", "loihi2")
    rows = [("verdict", result.summary.headline), *result.summary.rows]
    rows.append(("processor seconds", f"{spent() - before:.0f}"))
    print("| what | value |\n|---|---|")
    for label, value in rows:
        print(f"| {label} | {value} |")


if __name__ == "__main__":
    main()
