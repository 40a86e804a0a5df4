"""mpbn-deploy <command>, also as python -m mpbn_deploy <command>"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import __version__
from .base.commands import Command, execute
from .doctor import COMMAND as DOCTOR
from .export.__main__ import COMMAND as EXPORT
from .fit.__main__ import COMMAND as FIT
from .run.__main__ import COMMAND as RUN
from .train.__main__ import COMMAND as TRAIN
from .verify.__main__ import COMMAND as VERIFY

COMMANDS: dict[str, Command] = {
    command.name: command for command in (TRAIN, EXPORT, RUN, VERIFY, FIT, DOCTOR)
}


def console_script(arguments: Sequence[str] | None = None) -> int:
    """Run `mpbn-deploy <command>`; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="mpbn-deploy",
        description="Deploy spiking networks, trained with membrane-potential batch norm, to chips.",
    )
    parser.add_argument("--version", action="version", version=f"mpbn_deploy {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS.values():
        command.complete(subparsers.add_parser(command.name, help=command.summary))
    sys.path.insert(0, "")  # as `python -m` has it, so that --arch finds modules of the current folder
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    return execute(COMMANDS[options.command], options)


if __name__ == "__main__":
    sys.exit(console_script())
