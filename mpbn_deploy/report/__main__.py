"""The command line of `report`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..base import Command, Execute, main


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="folders that `export` wrote")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("comparison.html"),
        metavar="FILE",
        help="page to write (default %(default)s)",
    )


def _load() -> Execute:
    from .command import execute

    return execute


COMMAND = Command(
    name="report",
    summary="Compare several exports on one page.",
    details=(
        "The page shows accuracy, cores and energy against the bits of the weights, and a table of all\n"
        "exports. The report of a single export is the report.html in its folder.\n\n"
        "example: python -m mpbn_deploy.report model.loihi2 model-4bit.loihi2 model.loihi1"
    ),
    add_arguments=_add_arguments,
    load=_load,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
