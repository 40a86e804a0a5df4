"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable
from math import inf, nan
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import OptionError

LOCAL = "local:"  # --cluster local:2
SCHEMES = ("tcp", "tls")
MOST_WORKERS = 1024  # on one machine; a larger number is probably a typing error
HANG_SECONDS = 1800.0  # after which a block of Lava's time steps counts as hanging
WIDEST_INPUT = 2**23  # larger values overflow every state
USUAL_SAMPLES = 16
USUAL_BUDGET = 60.0  # seconds for Lava's own process models
OWN_DATA = "a .npz or .npy file, a folder with one sub-folder per class, or package.module:function"


def option_name(field: str) -> str:
    """Return the option of a field: --weight-bits of weight_bits."""
    return f"--{field.replace('_', '-')}"


def whole_number(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """Return an argparse type for a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            several = re.findall(r"-?\d+", text) if "," in text else []
            hint = f"; separate numbers by spaces: {' '.join(several)}" if several else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number{hint}") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is too small; at least {least}")
        if number > most:
            raise argparse.ArgumentTypeError(f"{number} is too large; at most {most}")
        return number

    return parse


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}; a number from 0 to 1 is needed")
    return value


def input_value(text: str) -> int:
    """Parse an end of the range of the network's input."""
    return whole_number(-WIDEST_INPUT, WIDEST_INPUT)(text)


def _count_or_all(least: int) -> Callable[[str], int | None]:
    """Return an argparse type for a number of samples, or `all`, which is None."""

    def parse(text: str) -> int | None:
        return None if text == "all" else whole_number(least)(text)

    return parse


def add_network_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the network to open, and what a .net file of another tool may leave out."""
    network = parser.add_argument_group("network")
    network.add_argument(
        "network",
        type=Path,
        nargs="?" if optional else None,
        help="a folder that `export` wrote, or a .net file of lava-dl (netx)",
    )
    missing = parser.add_argument_group("network files", "Facts that a .net file may lack.")
    missing.add_argument("--timesteps", type=whole_number(1), metavar="N", help="time steps per sample")
    missing.add_argument(
        "--input-range",
        type=input_value,
        nargs=2,
        metavar=("LOWEST", "HIGHEST"),
        help="range of the integer input values (default: 0 1, spikes)",
    )
    missing.add_argument(
        "--input-shape",
        type=whole_number(1),
        nargs="+",
        metavar="SIZE",
        help="shape of the input, if the file has no input layer: channels height width, or features",
    )


def network_facts(options: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_network_arguments` was given about a .net file; None where nothing was."""
    return {
        "timesteps": options.timesteps,
        "input_range": options.input_range and tuple(options.input_range),
        "input_shape": options.input_shape and tuple(options.input_shape),
    }


def add_sample_arguments(
    group: argparse._ArgumentGroup,
    datasets: Iterable[str],
    purpose: str,
    *,
    least: int = 1,
    otherwise: str = "",
    also: str = "",
) -> None:
    """Add --samples, --data and --data-dir; the last two texts end the help of the last two options."""
    group.add_argument(
        "--samples",
        type=_count_or_all(least),
        default=USUAL_SAMPLES,
        metavar="N",
        help=f"number of test samples, or `all`, {purpose} (default %(default)s)",
    )
    group.add_argument(
        "--data",
        metavar="NAME",
        help=f"data set of these samples: {', '.join(datasets)}; or your own, {OWN_DATA} (default: the data "
        f"set the model was trained on{otherwise})",
    )
    group.add_argument(
        "--data-dir",
        type=Path,
        metavar="FOLDER",
        help=f"folder with the files of the data set, if it needs one{also}",
    )


def add_budget_argument(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--budget",
        type=seconds,
        default=USUAL_BUDGET,
        metavar="SECONDS",
        help="time for Lava's own process models, which are slow: as many samples and populations are "
        "compared as fit into it; lava-dl's reader gets a quarter of it; 0: neither runs (default "
        "%(default)g)",
    )


def add_witness_argument(group: argparse._ArgumentGroup, witnesses: Collection[str]) -> None:
    group.add_argument(
        "--witness",
        action="append",
        choices=witnesses,
        default=[],
        help="also compare with this third-party simulator, for about --budget seconds; may be repeated",
    )


def seconds(text: str) -> float:
    """Parse a time that is finite and not negative."""
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not 0 <= found < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; at least 0")
    return found


def add_chips_argument(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--chips",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="number of chips that the network may occupy (default %(default)s)",
    )


def add_tiling_argument(group: argparse._ArgumentGroup, tilings: Collection[str]) -> None:
    group.add_argument(
        "--tiling",
        choices=tilings,
        default="compiler",
        help="how layers are partitioned into cores: compiler, as the chip's own tools do it; best, a "
        "search for the fewest cores (default %(default)s)",
    )


def add_side_arguments(group: argparse._ArgumentGroup, sides: Collection[str]) -> None:
    """Add --first-layer and --readout."""
    group.add_argument(
        "--first-layer",
        choices=sides,
        default="chip",
        help="where the first layer runs: chip; or host, which sends the layer's spikes to the chip, for "
        "chips that accept no graded input (default %(default)s)",
    )
    group.add_argument(
        "--readout",
        choices=sides,
        default="chip",
        help="where the readout runs, which never fires: chip; or host, which sums the spikes that reach it, "
        "in the same integers (default %(default)s)",
    )


def add_execution_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --cluster and --patience."""
    group = parser.add_argument_group("execution")
    group.add_argument(
        "--cluster",
        type=_address,
        metavar="ADDRESS",
        help="distribute the samples over Dask workers: the address of a scheduler (tcp://host:8786), or "
        "local:2 for two workers on this machine",
    )
    group.add_argument(
        "--patience",
        type=whole_number(1),
        default=HANG_SECONDS,
        metavar="SECONDS",
        help="time limit for one block of Lava's time steps (a hundredth of a run), after which it counts as "
        f"hanging (default {HANG_SECONDS:g})",
    )


def _address(text: str) -> str:
    """Parse the address of a scheduler, or local:N."""
    if text.startswith(LOCAL):
        whole_number(1, MOST_WORKERS)(text.removeprefix(LOCAL))
    elif host_and_port(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address; give tcp://host:8786, or local:2")
    return text


def local_workers(address: str) -> int:
    """Return N for local:N."""
    try:
        return whole_number(1, MOST_WORKERS)(address.removeprefix(LOCAL))
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"cluster {address}: {error}.") from error


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return ('host', 8786) for tcp://host:8786, and None for anything else."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if parts.scheme not in SCHEMES or not host or not port else (host, port)
