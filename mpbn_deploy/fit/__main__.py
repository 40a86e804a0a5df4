"""The command line of `fit`."""

from __future__ import annotations

import argparse
import sys
from typing import get_args

from ..base import (
    Command,
    Execute,
    add_chips_argument,
    add_network_arguments,
    add_sample_arguments,
    add_side_arguments,
    add_tiling_argument,
    main,
    share,
    whole_number,
)
from ..data import DATASETS, RANDOM
from ..formats.options import Side
from ..hardware.place import Tiling
from .assumed import CLASSES, FIRING_RATE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_arguments(parser, optional=True)
    _add_untrained_arguments(
        parser.add_argument_group(
            "untrained networks", "Also needed: --input-shape, --timesteps and --target."
        )
    )
    _add_target_arguments(parser.add_argument_group("target"))
    activity = parser.add_argument_group(
        "activity", "Energy and time are estimated from how often neurons fire."
    )
    purpose = "to count spikes on; with 0, energy and time are not estimated"
    add_sample_arguments(activity, (*DATASETS, RANDOM), purpose, least=0)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--energy", action="store_true", help="show how energy and time were estimated, term by term"
    )
    output.add_argument(
        "--compare-thresholds",
        action="store_true",
        help="quantize again with one threshold per core and per population, and show accuracy and cores "
        "beside those of thresholds per channel",
    )
    output.add_argument(
        "--search",
        action="store_true",
        help="search for the fewest cores with equal integers: tilings, storage of weights, relays, split "
        "sums, and layers on the host; show them beside the compiler's cut and a lower bound",
    )
    output.add_argument(
        "--advise",
        action="store_true",
        help="if the network does not fit, try changes (fewer bits, shared thresholds, more chips, ...) and "
        "print the commands that make it fit",
    )


def _add_untrained_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--arch",
        metavar="NAME",
        help="check a network before training, by its shape: a network of `train --arch`, or "
        "package.module:function that returns a torch module",
    )
    group.add_argument(
        "--classes", type=whole_number(1), metavar="N", help=f"its classes (default {CLASSES})"
    )
    group.add_argument(
        "--firing-rate",
        type=share,
        metavar="SHARE",
        help=f"the assumed share of neurons that fire in a time step (default {FIRING_RATE})",
    )


def _add_target_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="the chip: the name of a profile, or a .toml file; repeat it to compare chips (default: the one "
        "the network was exported for)",
    )
    group.add_argument("--targets", action="store_true", help="list the known targets and stop")
    group.add_argument(
        "--strict",
        action="store_true",
        help="count what is not known about the chip, or not checked, as not fitting",
    )
    add_chips_argument(group)
    add_tiling_argument(group, get_args(Tiling))
    add_side_arguments(group, get_args(Side))


def _load() -> Execute:
    from .command import execute

    return execute


COMMAND = Command(
    name="fit",
    summary="Check an exported network against chips: formats, memory, cores, energy and time.",
    details=(
        "Exit code 0: the network fits. 1: it does not, and every reason is listed.\n\n"
        "example: python -m mpbn_deploy.fit model.loihi2 --target loihi1 --target loihi2 --target speck\n"
        "         python -m mpbn_deploy.fit model.loihi2 --target loihi1 --advise\n"
        "         python -m mpbn_deploy.fit network.net --target loihi2 --data random"
    ),
    add_arguments=_add_arguments,
    load=_load,
)


if __name__ == "__main__":
    sys.exit(main(COMMAND))
