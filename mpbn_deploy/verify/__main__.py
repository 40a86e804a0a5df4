"""The command line of `verify`."""

from __future__ import annotations

import argparse
import sys

from ..base import Command, Execute, Options, add_network, add_options, main, option
from ..execute.outside import ASKED
from ..formats.options import Details, Executing, FileFacts, Verifying
from .comparison import LAVA_CLAIM


class Repeating(Options):
    """How to repeat a verification."""

    stock: bool = option(False, "the same as --budget all")
    check: bool = option(
        False,
        "repeat the verification that the folder's verify.json reports, on the same samples; exit code 1 if "
        "any number differs",
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network(parser, FileFacts)
    comparison = parser.add_argument_group("comparison")
    add_options(comparison, Verifying, witness={"choices": ASKED})
    add_options(comparison, Repeating)
    add_options(parser.add_argument_group("output"), Details)
    add_options(parser.add_argument_group("execution"), Executing)


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
