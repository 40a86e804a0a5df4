"""NIR files of ours in the libraries that read them: how many spikes differ from our simulator's.

    python benchmarks/nir_readers.py [--networks 20]     prints a table of docs/results

Runs the checks of tests/formats/test_nir_readers.py on more networks. Needs snntorch, norse, spikingjelly and
nirtorch (`make install` installs them); missing libraries are skipped.
"""

import argparse
import contextlib
import io
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "formats"))

import nir_graphs
import test_nir_readers as readers

LOOPS = (nir_graphs.recurrent, nir_graphs.recurrent_picture)
ROWS = (
    ("portable", readers.in_snntorch, [kind for kind in nir_graphs.PORTABLE if kind not in LOOPS]),
    ("portable", readers.in_spikingjelly, nir_graphs.PORTABLE),
    ("portable", readers.in_norse, nir_graphs.PORTABLE),
    ("portable", readers.in_nirtorch, nir_graphs.PORTABLE),
    ("faithful", readers.in_norse, [*nir_graphs.PORTABLE, nir_graphs.own_thresholds]),
    ("faithful", readers.in_nirtorch, [*nir_graphs.PORTABLE, nir_graphs.own_thresholds]),
)


def one_row(dialect, importer, kinds, networks, folder):
    compared = different = equal = 0
    for kind in kinds:
        for seed in range(networks):
            options = {"leak": 0.3, "on_grid": False} if seed % 2 else {}
            network = kind(seed, **options)
            with contextlib.redirect_stdout(io.StringIO()):  # snnTorch's importer prints what it does
                ours, theirs = readers.spikes_of_both(importer, network, folder / "network.nir", dialect)
            wrong = sum(int(np.count_nonzero(ours[name] != theirs[name])) for name in ours)
            compared += sum(spikes.size for spikes in ours.values())
            different += wrong
            equal += wrong == 0
    name = importer.__name__.removeprefix("in_")
    total = len(kinds) * networks
    print(
        f"| {dialect} | {name} | {len(kinds)} | {equal} of {total} | {compared:,} | {different} |", flush=True
    )
    return different


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", type=int, default=20, help="per kind of graph")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    print("| dialect | reader | kinds of graph | networks equal | spikes compared | different |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        return 1 if sum(one_row(*row, options.networks, Path(folder)) for row in ROWS) else 0


if __name__ == "__main__":
    sys.exit(main())
