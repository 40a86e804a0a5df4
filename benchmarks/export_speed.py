"""How long an export of the paper's networks takes, phase by phase.

    python benchmarks/export_speed.py [--arch vgg16 resnet20] [--budget 60]     prints a table

Networks have random weights and statistics of two batches, and are exported for Loihi 2 by the command, with
16 random inputs. A phase begins with the message that announces it. Processor seconds are those of the
command and of its children that have ended, on all cores, so they depend little on other work on the
machine; seconds by the clock do. The longest silence is the longest time without a line of progress.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from itertools import pairwise
from pathlib import Path

import torch
from fold_zoo import SHAPES, lively_network

from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.nn import ModelCard

STARTING = "start: imports and checks"


def save(architecture, path, options):
    torch.manual_seed(0)
    network = lively_network(architecture, "channel", options.timesteps)
    arguments = {"input_shape": SHAPES.get(architecture, (3, 32, 32)), "classes": 10, "mpbn": "channel"}
    names = tuple(f"class {index}" for index in range(10))
    network.card = ModelCard(architecture=architecture, arguments=arguments, class_names=names)
    save_model(path, network)


def processor_seconds(process):
    """User and system time of a running process and of its children that have ended."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def begins_phase(line):
    """Whether a message announces a phase, and does not count its progress, as in "verify: drift: 1/2"."""
    return (
        line.startswith(("fold:", "quantize:", "write:", "verify:", "fit:")) and "/" not in line.split()[-1]
    )


def measured(command):
    """[phase, seconds, processor seconds] in order, the longest silence, and the exit code."""
    phases, silence = [[STARTING, time.perf_counter(), 0.0]], 0.0
    last = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        now, used = time.perf_counter(), processor_seconds(process)
        silence, last = max(silence, now - last), now
        if begins_phase(line):
            phases.append([line.strip(), now, used])
    before = os.times()
    code = process.wait()
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    phases.append(["end", time.perf_counter(), used])
    spent = [
        (name, end - start, used_after - used_before)
        for (name, start, used_before), (_, end, used_after) in pairwise(phases)
    ]
    return spent, silence, code


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=["vgg16", "resnet20"])
    parser.add_argument("--timesteps", type=int, default=4)
    parser.add_argument("--budget", default="60", help="seconds for witnesses (default 60)")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores, torch "
          f"{torch.__version__}; T = {options.timesteps}; load {os.getloadavg()[0]:.1f}\n")  # fmt: skip
    print("| network | phase | s | processor, s |\n|---|---|---|---|", flush=True)
    for architecture in options.arch:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / f"{architecture}.pt"
            save(architecture, model, options)
            command = [sys.executable, "-m", "mpbn_deploy.export", str(model), "--target", "loihi2"]
            spent, silence, code = measured([*command, "--budget", options.budget])
        for name, seconds, used in spent:
            print(f"| {architecture} | {name.replace(folder + '/', '')} | {seconds:.1f} | {used:.1f} |")
        total, used = (sum(each[column] for each in spent) for column in (1, 2))
        print(f"| {architecture} | **all** (exit {code}, longest silence {silence:.0f} s) | {total:.1f} "
              f"| {used:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
