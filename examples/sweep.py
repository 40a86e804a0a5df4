"""Quantize one network for several chips and widths, over Dask workers, and print what fits where.

python examples/sweep.py [tcp://SCHEDULER:8786]
"""

import sys
from itertools import product
from pathlib import Path

from distributed import Client

from mpbn_deploy.api import FoldedNetwork, fit, fold, load_model, load_profile, quantize, trace

HERE = Path(__file__).parent
TARGETS, BITS = ("loihi1", "loihi2"), (8, 4)


def attempt(folded: FoldedNetwork, target: str, bits: int) -> str:
    """Return one line of the table; runs on a worker."""
    profile = load_profile(target)
    report = fit(quantize(folded, profile, weight_bits=bits).network, profile)
    broken = ", ".join(sorted({finding.rule for finding in report.found("error")}))
    return f"{target} at {bits} bits: {report.cores} cores, " + (f"breaks {broken}" if broken else "fits")


def main(scheduler: str | None) -> None:
    folded = fold(trace(load_model(HERE / "models" / "digits.pt")))
    here = {"processes": False, "dashboard_address": None}  # threads of this process
    with Client(scheduler) if scheduler else Client(**here) as client:
        shared = client.scatter(folded, broadcast=True)
        lines = client.gather([client.submit(attempt, shared, *each) for each in product(TARGETS, BITS)])
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
