"""Everything that can go wrong because of what a user gave us.

    DeployError              the commands print it, without a traceback, and exit with code 2
    ├── OptionError          an option that cannot be: no such target, time steps below one
    ├── CheckpointError      model.pt is not what it should be
    ├── DataError            a data set that is absent, damaged or of another shape
    ├── FrontendError        a layer of the user's module that we do not know
    ├── FoldError            a layer that has no exact fold
    ├── NetworkError         a network that contradicts itself; lists all that is wrong
    ├── QuantizeError        numbers that the target's formats cannot hold
    ├── FormatError          a NIR, netx or export-folder file that cannot be read
    ├── ProfileError         a hardware profile with a wrong key or value
    ├── SimulationError      inputs a network cannot take, or a state that left its width
    └── MissingPackageError  an optional package is absent; says how to get it

A message says who, what was found, what is allowed, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class DeployError(Exception):
    """A fault in what was given to us, told in words that help."""


class OptionError(DeployError):
    """An option with an impossible value."""


class CheckpointError(DeployError):
    """A file that is not a checkpoint we can read."""


class DataError(DeployError):
    """A data set that is absent, damaged, or does not suit the network."""


class FrontendError(DeployError):
    """A module or operation that has no counterpart in a TrainedNetwork."""


class FoldError(DeployError):
    """A layer that cannot be folded exactly."""


class NetworkError(DeployError):
    """A network that contradicts itself: every problem on a line of its own."""

    def __init__(self, kind: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{kind} is not consistent:", *(f"  - {p}" for p in problems)]))


class QuantizeError(DeployError):
    """Numbers that the target's formats cannot hold."""


class FormatError(DeployError):
    """A file of an exchange format that cannot be read or written."""


class ProfileError(DeployError):
    """A hardware profile with a wrong key or value."""


class SimulationError(DeployError):
    """Inputs that do not suit the network, or a state that left its width."""


class MissingPackageError(DeployError):
    """An optional package is not installed."""


MOST_NAMES = 40  # that a message lists


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'Known: a, b.' with a suggestion in front when `word` looks like one of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1)
    suggestion = f"Did you mean {close[0]!r}? " if close else ""
    shown = names if len(names) <= MOST_NAMES else get_close_matches(word, names, n=8, cutoff=0.3)
    more = "" if len(shown) == len(names) else f" and {len(names) - len(shown)} more"
    return f"{suggestion}Known: {', '.join(shown)}{more}."
