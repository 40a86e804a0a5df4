"""The command line of `fit`."""

from __future__ import annotations

import argparse
import sys

from ..base import Command, Execute, Options, add_network, add_options, main, option, share
from ..formats.options import CLASSES, FIRING_RATE, Details, FileFacts, Placing, Pooling, Sampling

KEPT = "the network of an export stays as it is for its own target, and a .net file for all"


class Untrained(Options):
    """A network before training."""

    arch: str | None = option(
        None,
        "check a network before training, by its shape: a network of `train --arch`, or "
        "package.module:function that returns a torch module",
    )
    classes: int | None = option(None, "its classes", least=1, otherwise=f"{CLASSES}")
    firing_rate: float | None = option(
        None,
        "the assumed fraction of neurons that fire in a time step",
        metavar="FRACTION",
        parse=share,
        otherwise=f"{FIRING_RATE}",
    )


class Targets(Options):
    """Which chips to check."""

    target: tuple[str, ...] = option(
        (),
        "the chip: the name of a profile, or a .toml file; repeat it to compare chips",
        otherwise="the one the network was exported for",
    )
    targets: bool = option(False, "list the known targets and stop")
    strict: bool = option(False, "count what is not known about the chip, or not checked, as not fitting")


class Showing(Details):
    """What to look for, and to show."""

    energy: bool = option(False, "show how energy and time were estimated, term by term")
    compare_thresholds: bool = option(
        False,
        "quantize again with one threshold per core and per population, and show accuracy and cores beside "
        "those of thresholds per channel",
    )
    search: bool = option(
        False,
        "search for the fewest cores with equal integers: tilings, storage of weights, relays, split sums, "
        "and layers on the host; show them beside the compiler's cut and a lower bound",
    )
    advise: bool = option(
        False,
        "if the network does not fit, try changes (fewer bits, shared thresholds, more chips, ...) and print "
        "the commands that make it fit",
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network(parser, FileFacts, optional=True)
    needed = "Also needed: --input-shape, --timesteps and --target."
    add_options(parser.add_argument_group("untrained networks", needed), Untrained)
    chip = parser.add_argument_group("target")
    add_options(chip, Targets)
    add_options(chip, Placing)
    add_options(chip, Pooling, pooling={"also": KEPT})
    add_options(
        parser.add_argument_group("activity", "Energy and time are estimated from how often neurons fire."),
        Sampling,
        samples={
            "help": "number of test samples, or `all`, to count spikes on; with 0, energy and time are not "
            "estimated",
            "least": 0,
        },
    )
    add_options(parser.add_argument_group("output"), Showing)


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
