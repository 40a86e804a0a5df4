"""The command line of `verify`."""

from __future__ import annotations

import argparse
import sys

from ..base import (
    Command,
    Execute,
    add_budget_argument,
    add_execution_arguments,
    add_network_arguments,
    add_sample_arguments,
    add_witness_argument,
    main,
)
from ..data import DATASETS, RANDOM
from ..execute.outside import ASKED
from .certificate import LAVA_CLAIM


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser)
    add_sample_arguments(parser.add_argument_group("samples"), (*DATASETS, RANDOM), "to compare on")
    comparison = parser.add_argument_group("comparison")
    add_budget_argument(comparison)
    comparison.add_argument(
        "--stock",
        action="store_true",
        help="compare Lava's own process models on all samples, however long it takes",
    )
    add_witness_argument(comparison, ASKED)
    comparison.add_argument(
        "--check",
        action="store_true",
        help="repeat the verification that the folder's verify.json reports, on the same samples; exit "
        "code 1 if any number differs",
    )
    add_execution_arguments(parser)


def _load() -> Execute:
    from .command import execute

    return execute


COMMAND = Command(
    name="verify",
    summary="Compare all executors of an exported network bit by bit, and integer with float.",
    details=(
        "The NumPy reference is the definition; the torch emulator, Lava's CPU simulator with our process\n"
        "models and with Lava's own, and lava-dl's own netx reader must equal it in every spike, voltage\n"
        f"and output. Where Lava's own models agree, the network is {LAVA_CLAIM}.\n"
        "Exit code 0: bit-exact. 1: not bit-exact (the first difference is printed with its coordinates),\n"
        "Lava failed during a run, or the integers lost the accuracy of the float network.\n\n"
        "example: python -m mpbn_deploy.verify model.loihi2 --samples 16\n"
        "         python -m mpbn_deploy.verify network.net --samples 2\n"
        "         python -m mpbn_deploy.verify model.loihi2 --check\n"
        "         python -m mpbn_deploy.verify model.loihi2 --witness nengo-loihi\n"
        "         python -m mpbn_deploy.verify model.loihi2 --samples all --cluster local:4"
    ),
    add_arguments=_add_arguments,
    load=_load,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
