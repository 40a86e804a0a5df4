"""mpbn-deploy <command>, also as python -m mpbn_deploy <command>"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import __version__, become_command

if TYPE_CHECKING:
    from .base import Command


def commands() -> dict[str, Command]:
    """Import the command line of every command."""
    from .doctor import COMMAND as DOCTOR
    from .export.__main__ import COMMAND as EXPORT
    from .fit.__main__ import COMMAND as FIT
    from .report.__main__ import COMMAND as REPORT
    from .run.__main__ import COMMAND as RUN
    from .train.__main__ import COMMAND as TRAIN
    from .verify.__main__ import COMMAND as VERIFY

    return {command.name: command for command in (TRAIN, EXPORT, RUN, VERIFY, FIT, REPORT, DOCTOR)}


def console_script(arguments: Sequence[str] | None = None) -> int:
    """Run `mpbn-deploy <command>`; return the exit code."""
    if arguments is None:  # this process is the command
        become_command()
    from .base import JSON, CommandParser, PrintCompletion, run_command

    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = CommandParser(
        prog="mpbn-deploy",
        description="Deploy spiking networks trained with membrane-potential batch norm to neuromorphic "
        "chips.",
        as_json=JSON in words,
    )
    parser.add_argument("--version", action="version", version=f"mpbn_deploy {__version__}")
    parser.add_argument(
        "--completion",
        action=PrintCompletion,
        words=_known_words,
        help="print a script that completes commands and options in your shell, and exit",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    known, parsers = commands(), {}
    for command in known.values():
        parsers[command.name] = subparsers.add_parser(
            command.name, help=command.summary, as_json=JSON in words
        )
        command.configure(parsers[command.name])
    name, *rest = words or [""]
    if name not in known:
        parser.parse_args(words)  # which exits: --help, --version, --completion, or a wrong command
    return run_command(known[name], parsers[name], rest)


def _known_words() -> dict[str, list[str]]:
    """Return the words that complete the value of an option, beside those that the parsers list."""
    from .hardware import profile_names

    return {"--target": profile_names()}


if __name__ == "__main__":
    sys.exit(console_script())
