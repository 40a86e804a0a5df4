"""NIR files of other tools: which are read, under which assumptions, and what keeps the others from it.

    git clone https://github.com/neuromorphs/NIR
    python benchmarks/nir_files.py NIR [--timesteps 16] [--dt 1e-4]     prints a table of docs/results

With --target, each file that can be read is exported and verified too.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from mpbn_deploy.api import export
from mpbn_deploy.base import DeployError
from mpbn_deploy.formats.nir import open_nir


def described(path, options):
    """Return what a file holds and what was assumed; or the obstacle."""
    try:
        read = open_nir(path, timesteps=options.timesteps, dt=options.dt)
    except DeployError as error:
        return "not read", str(error).removeprefix(f"{path}: ")
    neurons = sum(population.size for population in read.folded.layers)
    assumed = [f"assuming {assumption.what}" for assumption in read.assumptions]
    return str(neurons), "; ".join([*assumed, *read.notes]) or "nothing assumed"


def verdict(path, options):
    with tempfile.TemporaryDirectory() as folder:
        given = {"timesteps": options.timesteps, "dt": options.dt}
        return export(path, options.target, Path(folder) / "out", samples=4, **given).verified.verdict


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="every .nir file below it is read")
    parser.add_argument("--timesteps", type=int, default=16)
    parser.add_argument("--dt", type=float)
    parser.add_argument("--target", metavar="NAME", help="export each file for this chip")
    options = parser.parse_args()
    files = sorted(options.folder.rglob("*.nir"), key=lambda path: path.name)
    if not files:
        sys.exit(f"{options.folder}: no .nir file in it")
    print("| file | neurons | verdict |\n|---|---|---|")
    for path in files:
        found, remark = described(path, options)
        if options.target and found != "not read":
            remark = verdict(path, options)
        print(f"| `{path.name}` | {found} | {remark} |", flush=True)


if __name__ == "__main__":
    main()
