"""The command line of `verify`."""

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
from .certificate import LAVA_CLAIM


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser)
    add_sample_arguments(parser, (*DATASETS, RANDOM))
    parser.add_argument(
        "--stock", action="store_true", help="also run Lava's own process models, which takes long"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="find again, on the same samples, what verify.json of the folder says; exit code 1 if it is not",
    )
    add_execution_arguments(parser)


def _execute(options: argparse.Namespace) -> Outcome:
    from .command import execute

    return execute(options)


COMMAND = Command(
    name="verify",
    summary="Compare all executions of an exported network bit by bit, and integer against float.",
    details=(
        "The NumPy reference is the definition; the torch emulator, Lava's CPU simulator and lava-dl's\n"
        f"stock netx reader must equal it in every spike, voltage and output ({LAVA_CLAIM}).\n"
        "Exit code 0: bit-exact. 1: not, and the first difference is shown with all its coordinates; or\n"
        "Lava broke off in the middle.\n\n"
        "example: python -m mpbn_deploy.verify model.loihi2 --samples 16\n"
        "         python -m mpbn_deploy.verify network.net --samples 2\n"
        "         python -m mpbn_deploy.verify model.loihi2 --check\n"
        "         python -m mpbn_deploy.verify model.loihi2 --samples all --cluster local:4"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
