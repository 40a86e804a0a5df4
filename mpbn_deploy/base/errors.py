"""The exceptions raised for invalid input.

    DeployError              commands print the message without a traceback and exit with code 2
    ├── OptionError          an invalid option: an unknown target, fewer than one time step
    ├── CheckpointError      an invalid or unreadable model.pt
    ├── DataError            a data set that is damaged or of the wrong shape
    │   └── MissingDataError     that is not on this machine
    ├── FrontendError        an unsupported layer or operation in the user's module
    ├── FoldError            a layer that has no exact fold
    ├── NetworkError         an inconsistent network; lists every problem
    ├── QuantizeError        numbers that do not fit the target's formats
    ├── FormatError          a NIR, netx or export-folder file that cannot be read
    ├── ProfileError         a hardware profile with an invalid key or value
    ├── SimulationError      inputs that do not match the network, or a state that overflowed
    └── MissingPackageError  an optional package is not installed; says how to install it

A message names the object at fault, what was found, what is allowed, and what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


class DeployError(Exception):
    """Base class of all errors that invalid input can cause."""


class OptionError(DeployError):
    """An option or argument with an invalid value."""


class CheckpointError(DeployError):
    """A checkpoint that is invalid or cannot be read."""


class DataError(DeployError):
    """A data set that is missing, damaged, or does not match the network."""


class MissingDataError(DataError):
    """A data set by name whose files are not on this machine."""


class FrontendError(DeployError):
    """A module or operation that cannot be expressed in a TrainedNetwork."""


class FoldError(DeployError):
    """A layer that cannot be folded exactly."""


class NetworkError(DeployError):
    """An inconsistent network; the message lists every problem on its own line."""

    def __init__(self, kind: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{kind} is not consistent:", *(f"  - {p}" for p in problems)]))


class QuantizeError(DeployError):
    """Numbers that do not fit the target's formats."""


class FormatError(DeployError):
    """An exchange file that cannot be read or written."""


class ProfileError(DeployError):
    """A hardware profile with an invalid key or value."""


class SimulationError(DeployError):
    """Inputs that do not match the network, or a state that overflowed its width."""


class MissingPackageError(DeployError):
    """An optional package is not installed."""


def layer_name(path: str, kind: str = "") -> str:
    """Name a layer in a message: 'conv1', or 'layer "2"' if it has only a number, and its class if given."""
    shown = f'layer "{path}"' if path[:1].isdigit() else path
    return f"{shown} ({kind})" if kind else shown


def class_of(value: object) -> str:
    """Name the class of a value in a message: 'an int', 'a Tensor'; 'None' for None."""
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


MAX_NAMES, MAX_PROBLEMS = 40, 12  # listed in one message


def and_more(shown: Sequence[str], total: int) -> str:
    """Return 'a, b and 9 more': the names that are shown, of `total`."""
    more = total - len(shown)
    return f"{', '.join(shown)}{f' and {more} more' if more > 0 else ''}"


def problem_lines(problems: Sequence[str]) -> str:
    """Return each problem on a line of its own, up to `MAX_PROBLEMS`, and the number of the others."""
    more = len(problems) - MAX_PROBLEMS
    shown = [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
    return "".join(f"\n  - {problem}" for problem in shown)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return 'Known: a, b.', preceded by a suggestion if `word` is close to one of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1)
    suggestion = f"Did you mean {close[0]!r}? " if close else ""
    shown = names if len(names) <= MAX_NAMES else get_close_matches(word, names, n=8, cutoff=0.3)
    return f"{suggestion}Known: {and_more(shown, len(names))}."


# Import what a user names as `package.module:function`, which runs that package's code.


def _import_hint(module_name: str, attribute: str) -> str:
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").replace("/", ".").strip(".")
        return f"Name the module, not its file: {dotted}:{attribute}."
    if (module := sys.modules.get(module_name)) is not None:
        package = module_name.partition(".")[0]
        return did_you_mean(
            attribute, [name for name, value in vars(module).items() if _is_of(value, package)]
        )
    return "Run the command in the folder that holds the module, or set PYTHONPATH."


def _is_of(value: Any, package: str) -> bool:
    """Whether a function or class was written in a package, and not imported from another one."""
    return callable(value) and (getattr(value, "__module__", None) or "").partition(".")[0] == package


def import_function(name: str, kind: str) -> Callable[..., Any]:
    """Return the function `package.module:function`; `kind` says in messages what it is for."""
    module_name, _, attribute = name.partition(":")
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, "")  # as `python -m` has it; only here, so that no library is shadowed elsewhere
    try:
        found = getattr(import_module(module_name), attribute)
    except (Exception, SystemExit) as error:  # a user's module can raise anything on import
        reason = f"{type(error).__name__}: {error}"
        raise OptionError(
            f"{kind} {name!r} cannot be imported ({reason}). {_import_hint(module_name, attribute)}"
        ) from error
    if not callable(found):
        raise OptionError(
            f"{kind} {name!r} is {class_of(found)}, which cannot be called. Name a function or a class."
        )
    return found  # type: ignore[no-any-return]
