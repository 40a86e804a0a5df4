"""The command line of `run`."""

from __future__ import annotations

import argparse
import sys

from ..base import (
    Command,
    Execute,
    add_execution_arguments,
    add_network_arguments,
    add_sample_arguments,
    main,
)
from ..data import DATASETS, RANDOM
from ..execute import EXECUTORS


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser)
    add_sample_arguments(parser.add_argument_group("samples"), (*DATASETS, RANDOM), "to run")
    backend = parser.add_argument_group("backend")
    backend.add_argument(
        "--backend",
        choices=tuple(EXECUTORS),
        default="lava",
        help="the executor: reference (NumPy), emulator (torch, the fastest), lava (Lava's CPU simulator "
        "with our process models), lava-stock (with Lava's own models, slow), netx (lava-dl's own reader of "
        "network.net), verilator (the Verilog core), uart (the same on a board at --port) "
        "(default %(default)s)",
    )
    backend.add_argument(
        "--port", metavar="DEVICE", help="serial port of --backend uart, such as /dev/ttyUSB1"
    )
    backend.add_argument("--stock", action="store_true", help="the same as --backend lava-stock")
    add_execution_arguments(parser)


def _load() -> Execute:
    from .command import execute

    return execute


COMMAND = Command(
    name="run",
    summary="Run an exported network in Lava's CPU simulator, or in the emulator.",
    details=(
        "All backends compute the same integers; the emulator needs no Lava and is much faster.\n\n"
        "example: python -m mpbn_deploy.run model.loihi2 --backend emulator --samples all\n"
        "         python -m mpbn_deploy.run network.net --backend emulator --data random\n"
        "         python -m mpbn_deploy.run model.loihi2 --samples all --cluster local:4"
    ),
    add_arguments=_add_arguments,
    load=_load,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
