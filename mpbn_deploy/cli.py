"""What all commands share: --json, one-message errors, exit codes, and `mpbn-deploy` itself.

Exit codes: 0 done; 1 done, but the network does not fit or is not bit-exact; 2 bad input, one
message on standard error (with --json also as {"error": ...}); 130 interrupted, 143 told to end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rich.console import Console, RenderableType

from . import __version__
from .errors import DeployError
from .files import json_text
from .records import record

COMMANDS = ("train", "export", "run", "verify", "fit", "doctor")
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_TOLD_TO_END = 143


@record
class Outcome:
    """What a command has to say: to machines, to people, and as an exit code."""

    data: dict[str, Any]
    text: RenderableType
    exit_code: int = 0


@record
class Command:
    """One of our commands; `execute` gets the parsed options."""

    name: str
    summary: str
    details: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], Outcome]


def main(
    command: Command, arguments: Sequence[str] | None = None, program: str = "python -m mpbn_deploy."
) -> int:
    """Run `python -m mpbn_deploy.<command>`, or another program of that name; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"{program}{command.name}", **_description(command))
    _complete(parser, command)
    return _execute(command, parser.parse_args(arguments))


def console_script(arguments: Sequence[str] | None = None) -> int:
    """Run `mpbn-deploy <command>`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="mpbn-deploy",
        description="Deploy spiking networks, trained with membrane-potential batch norm, to chips.",
    )
    parser.add_argument("--version", action="version", version=f"mpbn_deploy {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.path.insert(0, "")  # as `python -m` has it, so that --arch finds modules of the current folder
    # Only the command that is asked for is imported, so that `doctor` runs where others could not.
    commands = {name: _load(name) for name in [a for a in arguments[:1] if a in COMMANDS] or COMMANDS}
    for command in commands.values():
        _complete(subparsers.add_parser(command.name, help=command.summary, **_description(command)), command)
    options = parser.parse_args(arguments)
    return _execute(commands[options.command], options)


def whole_number(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    """An argparse type: a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is too small; at least {least}")
        if number > most:
            raise argparse.ArgumentTypeError(f"{number} is too large; at most {most}")
        return number

    return parse


def _load(name: str) -> Command:
    command = import_module(f".{name}", __package__).COMMAND
    assert isinstance(command, Command)
    return command


def _description(command: Command) -> dict[str, Any]:
    return {
        "description": f"{command.summary}\n\n{command.details}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _complete(parser: argparse.ArgumentParser, command: Command) -> None:
    command.add_arguments(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else on stdout"
    )


def _execute(command: Command, options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, _end)
    try:
        with _quiet_stdout(options.json):
            outcome = command.execute(options)
    except DeployError as error:
        print(f"error: {error}", file=sys.stderr)
        outcome = Outcome(data={"error": str(error)}, text="", exit_code=EXIT_BAD_INPUT)
        return _show(outcome, options.json) if options.json else EXIT_BAD_INPUT
    except PermissionError as error:
        message = f"{error.filename}: may not be read ({error.strerror})."
        print(f"error: {message}", file=sys.stderr)
        outcome = Outcome(data={"error": message}, text="", exit_code=EXIT_BAD_INPUT)
        return _show(outcome, options.json) if options.json else EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return _show(outcome, options.json)


def _end(number: int, frame: Any) -> None:
    """Leave through every `finally`, so that nothing half-written and no process stays behind."""
    sys.exit(EXIT_TOLD_TO_END)


def _show(outcome: Outcome, as_json: bool) -> int:
    try:
        if as_json:
            sys.stdout.write(json_text(outcome.data))
        else:
            # Names of users' layers and files are shown as they are, never read as markup.
            Console(soft_wrap=True, markup=False, emoji=False, highlight=False).print(outcome.text)
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  so that Python does not try again at exit
        print(f"error: standard output cannot be written ({error.strerror}).", file=sys.stderr)
        return EXIT_BAD_INPUT
    return outcome.exit_code


@contextmanager
def _quiet_stdout(active: bool) -> Iterator[None]:
    """Send everything written to stdout, by child processes too, to stderr, so that JSON stays alone."""
    if not active:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
