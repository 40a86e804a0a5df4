"""Train a small network on real digits, export it for Loihi 2, run it in Lava, and say what came out.

python examples/demo.py FOLDER
"""

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.export import ExportResult, export
from mpbn_deploy.formats.folder import REPORT_FILE
from mpbn_deploy.train import Training, train


def main(folder: Path) -> int:
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_dataset("digits")
    model = train(digits, "digits-cnn", mpbn="channel", timesteps=4, training=Training(epochs=8, seed=0))
    save_model(folder / "model.pt", model)
    result = export(folder / "model.pt", "loihi2")
    Console().print(summary(result, time.perf_counter() - started))
    print(f"report: {result.folder / REPORT_FILE}")
    return 0 if result.good else 1


def summary(result: ExportResult, seconds: float) -> Table:
    """What was done, in numbers."""
    verified, fitted, accuracy = result.verified, result.fitted, result.verified.accuracy
    assert accuracy is not None  # the demo's data set has labels
    table = Table(title="digits-cnn on Loihi 2", title_justify="left", show_header=False)
    for label, value in {
        "float accuracy": f"{accuracy.float_network:.2%} of {accuracy.samples} test digits",
        "integer accuracy": f"{accuracy.integer_network:.2%} of {accuracy.samples} test digits",
        "executions compared": ", ".join(c.execution for c in verified.comparisons if not c.not_run),
        "spikes compared": f"{verified.total('spikes_compared'):,}",
        "spikes mismatched": f"{verified.total('spikes_mismatched'):,}",
        "voltages compared": f"{verified.total('voltages_compared'):,}",
        "voltages mismatched": f"{verified.total('voltages_mismatched'):,}",
        "fits": f"{'yes' if fitted.fits else 'no'}, on {fitted.cores} cores of {fitted.chips} chip",
        "time": f"{seconds:.0f} s",
    }.items():
        table.add_row(label, value)
    return table


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo")))
