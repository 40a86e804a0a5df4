"""The command line of `fit`."""

from __future__ import annotations

import argparse
import sys
from typing import get_args

from ..base.arguments import (
    add_network_arguments,
    add_sample_arguments,
    whole_number,
)
from ..base.commands import Command, Outcome, main
from ..data import DATASETS, RANDOM
from ..hardware.place import Tiling
from .host_layer import PLACES


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser, optional=True)
    parser.add_argument(
        "--target",
        action="append",
        help="profile name or .toml file; again for each chip to compare (default: what the folder is for)",
    )
    parser.add_argument("--chips", type=whole_number(1), default=1, help="how many there are (default 1)")
    parser.add_argument(
        "--tiling",
        choices=get_args(Tiling),
        default="compiler",
        help="cut layers as the chip's own tools do, or search for fewer cores (default %(default)s)",
    )
    parser.add_argument(
        "--first-layer",
        choices=PLACES,
        default="chip",
        help="where it runs; on the host, its spikes are what the chip is sent (default %(default)s)",
    )
    parser.add_argument("--energy", action="store_true", help="show how energy and time were estimated")
    parser.add_argument(
        "--advise", action="store_true", help="search what makes it fit, try each, and print its command"
    )
    parser.add_argument("--targets", action="store_true", help="list the known targets and stop")
    add_sample_arguments(parser, (*DATASETS, RANDOM))


def _execute(options: argparse.Namespace) -> Outcome:
    from .command import execute

    return execute(options)


COMMAND = Command(
    name="fit",
    summary="Check an exported network against chips: formats, memory, cores, energy and time.",
    details=(
        "Exit code 0: it fits. 1: it does not, and every reason is listed.\n\n"
        "example: python -m mpbn_deploy.fit model.loihi2 --target loihi1 --target loihi2 --target speck\n"
        "         python -m mpbn_deploy.fit model.loihi2 --target loihi1 --advise\n"
        "         python -m mpbn_deploy.fit network.net --target loihi2 --data random"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
