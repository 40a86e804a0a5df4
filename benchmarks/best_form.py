"""The best form of every network of the zoo on Loihi 2, and what finding it costs.

    python benchmarks/best_form.py [--arch vgg16 resnet19] [--target loihi2] [--chips 64]

Each network is checked by the command `fit --arch` twice, in turns: in the form that "auto" chooses, and with
pooling composed, the compiler's tiling, and all layers on the chip. Networks are untrained (10 classes, 8-bit
pixels, 4 time steps). Processor seconds are those of the whole command, imports included. The last row has
the sum of both and their ratio.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import date

from fold_zoo import SHAPES

from mpbn_deploy.nn.zoo import ARCHITECTURES

PLAIN = ["--pooling", "composed", "--tiling", "compiler", "--first-layer", "chip", "--readout", "chip"]


def asked(architecture, options, form):
    """What `fit --json` says, and its processor seconds."""
    shape = map(str, SHAPES.get(architecture, (3, 32, 32)))
    command = [sys.executable, "-m", "mpbn_deploy.fit", "--arch", architecture, "--input-shape", *shape,
               "--timesteps", "4", "--target", options.target, "--chips", str(options.chips),
               "--json"]  # fmt: skip
    before = os.times()
    done = subprocess.run([*command, *form], capture_output=True, text=True, check=False)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(done.stdout), seconds


def cells(report):
    return f"{report['cores']:,} | {report['chips']} | {'yes' if report['fits'] else 'no'}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--target", default="loihi2")
    parser.add_argument("--chips", type=int, default=64)
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
          f"load {os.getloadavg()[0]:.1f}\n")  # fmt: skip
    print("| network | cores, plain | chips | fits | s | cores, auto | chips | fits | s | what auto chose |")
    print("|---" * 10 + "|", flush=True)
    totals = [0.0, 0.0]
    for architecture in options.arch:
        (plain, usual), (best, taken) = (asked(architecture, options, form) for form in (PLAIN, []))
        totals = [totals[0] + usual, totals[1] + taken]
        chosen = ", ".join(choice["chosen"] for choice in best["choices"])
        print(f"| {architecture} | {cells(plain)} | {usual:.1f} | {cells(best)} | {taken:.1f} | {chosen} |",
              flush=True)  # fmt: skip
    print(f"| all | | | | {totals[0]:.1f} | | | | {totals[1]:.1f} | {totals[1] / totals[0]:.2f} times |")


if __name__ == "__main__":
    main()
