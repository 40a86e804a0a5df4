"""Processor seconds of an export, in the command and in the process beside it that runs Lava's own models.

    python benchmarks/beside.py [--model examples/models/*.pt]      prints a table

Random inputs (16). On two idle cores, an export takes about as long as the larger of the two numbers, and a
second to start. Comparisons are those of the spikes of Lava's own models with the reference.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def seconds(process):
    """User and system time of a running process and of its children that have ended; its parent."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS, int(fields[1])


def tree(root):
    """Process -> (its seconds, its parent), of all descendants of `root` that run."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                found[int(path.name)] = seconds(path.name)
            except (OSError, IndexError):  # it has ended
                continue
    below = {root}
    while more := {one for one, (_, parent) in found.items() if parent in below} - below:
        below |= more
    return {one: found[one] for one in below if one in found}


def measured(model, folder):
    out = Path(folder) / "out"
    command = [sys.executable, "-m", "mpbn_deploy.export", model, "--target", "loihi2", "--data", "random",
               "--out", str(out)]  # fmt: skip
    started, most = time.perf_counter(), {}
    before = os.times()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for one, (used, parent) in tree(process.pid).items():
                most[one] = max(used, most.get(one, (0, 0))[0]), parent
            time.sleep(0.3)
    after = os.times()
    total = after.children_user + after.children_system - before.children_user - before.children_system
    # A child that has children of its own, other than the command: the process beside it.
    parents = {parent for _, parent in most.values()}
    besides = [one for one, (_, parent) in most.items() if parent == process.pid and one in parents]
    beside = sum(most[one][0] for one in besides)
    report = json.loads((out / "verify.json").read_text())
    own = [one for one in report["comparisons"] if one["execution"] == "Lava's own models"]
    return total - beside, beside, time.perf_counter() - started, own[0]["spikes_compared"] if own else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    models = sorted(map(str, (Path(__file__).parents[1] / "examples" / "models").glob("*.pt")))
    parser.add_argument("--model", nargs="+", default=models)
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
          f"load {os.getloadavg()[0]:.1f}\n")  # fmt: skip
    print("| model | command, processor s | beside it, processor s | by the clock, s | spikes compared |")
    print("|---" * 5 + "|", flush=True)
    for model in options.model:
        with tempfile.TemporaryDirectory() as folder:
            command, beside, clock, spikes = measured(model, folder)
        print(f"| {Path(model).stem} | {command:.1f} | {beside:.1f} | {clock:.0f} | {spikes:,} |", flush=True)


if __name__ == "__main__":
    main()
