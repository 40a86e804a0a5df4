"""The command line of `run`."""

from __future__ import annotations

import argparse
import sys

from ..base.arguments import (
    add_execution_arguments,
    add_network_arguments,
    add_sample_arguments,
)
from ..base.commands import Command, Outcome, main
from ..data import DATASETS, RANDOM
from ..execute import EXECUTORS


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser)
    add_sample_arguments(parser, (*DATASETS, RANDOM))
    parser.add_argument("--backend", choices=tuple(EXECUTORS), default="lava", help="default: lava")
    parser.add_argument("--stock", action="store_true", help="Lava's own process models, which are slow")
    add_execution_arguments(parser)


def _execute(options: argparse.Namespace) -> Outcome:
    from .command import execute

    return execute(options)


COMMAND = Command(
    name="run",
    summary="Run an exported network in Lava's CPU simulator, or in the emulator.",
    details=(
        "Both give the same integers; the emulator needs no Lava and is much faster.\n\n"
        "example: python -m mpbn_deploy.run model.loihi2 --backend emulator --samples all\n"
        "         python -m mpbn_deploy.run network.net --backend emulator --data random\n"
        "         python -m mpbn_deploy.run model.loihi2 --samples all --cluster local:4"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
