"""Values of options, read from words: argparse types that say what is allowed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from math import inf, nan
from urllib.parse import urlsplit

from .errors import OptionError

LOCAL = "local:"  # --cluster local:2
SCHEMES = ("tcp", "tls")
MAX_WORKERS = 1024  # on one machine; a larger number is probably a typing error
HANG_SECONDS = 1800.0  # after which a block of Lava's time steps counts as hanging
WIDEST_INPUT = 2**23  # larger values overflow every state
USUAL_SAMPLES = 16
USUAL_BUDGET = 60.0  # seconds for Lava's own process models
OWN_DATA = "a .npz or .npy file, a folder with one sub-folder per class, or package.module:function"


def whole_number(least: int = -(2**63), most: int = 2**63 - 1) -> Callable[[str], int]:
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


def seconds(text: str) -> float:
    """Parse a time that is finite and not negative."""
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not 0 <= found < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; at least 0")
    return found


def cluster_address(text: str) -> str:
    """Parse the address of a scheduler, or local:N."""
    if text.startswith(LOCAL):
        whole_number(1, MAX_WORKERS)(text.removeprefix(LOCAL))
    elif host_and_port(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address; give tcp://host:8786, or local:2")
    return text


def local_workers(address: str) -> int:
    """Return N for local:N."""
    try:
        return whole_number(1, MAX_WORKERS)(address.removeprefix(LOCAL))
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
