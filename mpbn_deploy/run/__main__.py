"""The command line of `run`."""

from __future__ import annotations

import argparse
import sys

from ..base import Command, Execute, Options, add_network, add_options, main, option
from ..execute import AUTO, EXECUTORS
from ..formats.options import Executing, FileFacts, Sampling


class Running(Options):
    """What runs the network."""

    backend: str = option(
        AUTO,
        "the executor: auto (c where there is a C compiler, else emulator), reference (NumPy), emulator "
        "(torch), c (compiled, the fastest), lava (Lava's CPU simulator with our process models), lava-stock "
        "(with Lava's own models, slow), netx (lava-dl's own reader of network.net), verilator (the "
        "Verilog core), uart (the same on a board at --port)",
    )
    port: str | None = option(None, "serial port of --backend uart, such as /dev/ttyUSB1", metavar="DEVICE")
    stock: bool = option(False, "the same as --backend lava-stock")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network(parser, FileFacts)
    add_options(parser.add_argument_group("samples"), Sampling)
    add_options(parser.add_argument_group("backend"), Running, backend={"choices": (AUTO, *EXECUTORS)})
    add_options(parser.add_argument_group("execution"), Executing)


def _load() -> Execute:
    from .command import execute

    return execute


COMMAND = Command(
    name="run",
    summary="Run an exported network, compiled, in the emulator or in Lava's CPU simulator.",
    details=(
        "All backends compute the same integers; the fastest that this machine has is the default.\n\n"
        "example: python -m mpbn_deploy.run model.loihi2 --samples all\n"
        "         python -m mpbn_deploy.run model.loihi2 --backend lava\n"
        "         python -m mpbn_deploy.run network.net --data random\n"
        "         python -m mpbn_deploy.run model.loihi2 --samples all --cluster local:4"
    ),
    add_arguments=_add_arguments,
    load=_load,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
