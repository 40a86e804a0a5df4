"""Run a command: parse its options, execute it, show the outcome.

Exit codes: 0 done; 1 done, but the network does not fit, is not bit-exact, or lost its weights or accuracy to
rounding; 2 bad input, one message on standard error (with --json also as {"error": ...}); 70 a bug of this
tool, two lines and a traceback in a file (`log_fault`); 130 interrupted, 143 terminated, 129 if its terminal
was closed. With --json, the key "schema" names the schema of the object (schemas.py).

Only the standard library is imported here, so that options are parsed before slow imports: a command's
`load` imports the rest.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import DeployError, OptionError
from .terminal import EXIT_INTERRUPTED, MESSAGE, Interrupts, one_line, show_beyond_encoding

if TYPE_CHECKING:
    from rich.console import RenderableType


EXIT_BAD_INPUT, EXIT_BUG = 2, 70  # 70 is EX_SOFTWARE of sysexits.h
JSON, JSON_HELP = "--json", "print one JSON object and nothing else on stdout"
SURPLUS = "unrecognized arguments: "  # how argparse begins to list words that it knows no option for


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a command: for programs, for people, and as an exit code."""

    data: dict[str, Any]
    text: RenderableType
    exit_code: int = 0


Execute = Callable[[argparse.Namespace], Outcome]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: its options, and how to import the function that executes it."""

    name: str
    summary: str
    details: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    load: Callable[[], Execute]
    # Adds the words of a file that the command line names: `--config run.toml`.
    expand: Callable[[Sequence[str]], Sequence[str]] | None = None
    # Fills in options, or raises OptionError, before anything heavy is imported.
    check: Callable[[argparse.Namespace], None] | None = None

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's description and options to a parser."""
        parser.description = f"{self.summary}\n\n{self.details}"
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        self.add_arguments(parser)
        parser.add_argument(JSON, action="store_true", help=JSON_HELP)


class CommandParser(argparse.ArgumentParser):
    """A parser that suggests the nearest option or choice for a wrong one.

    It reports wrong arguments as JSON, too, if the command line asks for JSON.
    """

    def __init__(self, *arguments: Any, as_json: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})
        self.as_json = as_json

    def error(self, message: str) -> NoReturn:
        message += self._nearest_options(message)
        if self.as_json:
            _show(Outcome(data={"error": message}, text=""), as_json=True)
        self.exit(2, f"{self.prog}: error: {message} ({self.prog} --help lists all options)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Suggest the nearest of the choices of an option for a value that is none of them."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += suggestion(str(value), map(str, action.choices or ()))
            raise

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        """Name the values of an option that got another number of them."""
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError as error:
            if isinstance(action.metavar, tuple):
                error.message += f": {' '.join(action.metavar)}"
            raise

    def _nearest_options(self, message: str) -> str:
        """Return suggestions for the options that argparse lists as not recognized."""
        _, found, words = message.partition(SURPLUS)
        known = [name for action in self._actions for name in action.option_strings]
        typed = [word.partition("=")[0] for word in words.split() if found and word.startswith("--")]
        repeated = [a for a in self._actions if isinstance(a, argparse._AppendAction) and not a.choices]
        if found and repeated and not typed:
            name = repeated[0].option_strings[0]
            return f"; an option is repeated for several values: {name} ONE {name} ANOTHER"
        return "".join(suggestion(word, known, name=len(typed) > 1) for word in typed)


class StrictParser(CommandParser):
    """A parser that raises OptionError for wrong arguments, for words that are not typed by hand."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(message + self._nearest_options(message))


def suggestion(word: str, known: Iterable[str], *, name: bool = False) -> str:
    """Return '; did you mean --json?', or nothing if no known word is near; `name` repeats the wrong word."""
    words = list(known)
    initials = [each for each in words if _initials(each) == word.lower()]
    close = initials or get_close_matches(word.lower(), words, n=1)
    return f"; {f'for {word}, ' if name else ''}did you mean {close[0]}?" if close else ""


def _initials(option: str) -> str:
    """Return --lr for --learning-rate."""
    return f"--{''.join(word[:1] for word in option.split('-'))}"


def main(
    command: Command, arguments: Sequence[str] | None = None, program: str = "python -m mpbn_deploy."
) -> int:
    """Run `python -m mpbn_deploy.<command>`, or another program of that name; return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = CommandParser(prog=f"{program}{command.name}", as_json=JSON in words)
    command.configure(parser)
    return run_command(command, parser, words)


def run_command(command: Command, parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Parse the words of a command, execute it, show its outcome; return the exit code."""
    show_beyond_encoding()
    try:
        expanded = words if command.expand is None else command.expand(words)
    except DeployError as error:
        return _bad_input(str(error), JSON in words)
    except Exception as error:
        return _failed(error, JSON in words)
    return execute(command, parser.parse_args(expanded))


def execute(command: Command, options: argparse.Namespace) -> int:
    """Execute a command with parsed options and show its outcome; return the exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, _terminate)
    interrupts = Interrupts()
    try:
        if command.check is not None:
            command.check(options)
        with _quiet_stdout(options.json):
            run = command.load()
            with interrupts.noticed():
                outcome = run(options)
    except KeyboardInterrupt:
        return _interrupted()
    except DeployError as error:
        config = getattr(options, "config", None)
        return _bad_input(f"{error}{f' (options from {config})' if config else ''}", options.json)
    except Exception as error:
        if interrupts.arrived:  # a library may turn an interrupt into any error
            return _interrupted()
        return _failed(error, options.json)
    try:
        return _show(outcome, options.json, command.name)
    except Exception as error:
        return _failed(error, options.json)


def _failed(error: Exception, as_json: bool) -> int:
    """Show an error that is no DeployError: of the machine, or else of this tool."""
    if (message := _message(error)) is not None:
        return _bad_input(message, as_json)

    what, whose = log_fault(error)
    print(what, whose, sep="\n", file=sys.stderr)
    outcome = Outcome(data={"error": what, "bug": whose}, text="", exit_code=EXIT_BUG)
    return _show(outcome, as_json) if as_json else EXIT_BUG


def _message(error: Exception) -> str | None:
    """Return the message of an error that input or the machine can cause anywhere; None for any other."""
    match error:
        case OSError():
            where = "" if error.filename is None else f"{error.filename}: "
            advice = "; check its permissions" if isinstance(error, PermissionError) else ""
            return f"{where}{error.strerror or error}{advice}."
        case RecursionError():
            return "the input is nested too deeply; no network needs that."
        case MemoryError():
            return f"not enough memory ({error}); use a smaller network or fewer samples."
        case _:
            return None


def _terminate(number: int, frame: Any) -> None:
    """Exit through every `finally`, so that no partial file and no process is left behind."""
    sys.exit(128 + number)


def _interrupted() -> int:
    print(MESSAGE, end="", file=sys.stderr)
    return EXIT_INTERRUPTED


def _bad_input(message: str, as_json: bool) -> int:
    from .terminal import printable, shortened

    message = shortened(message)
    print(f"error: {printable(message)}", file=sys.stderr)
    outcome = Outcome(data={"error": message}, text="", exit_code=EXIT_BAD_INPUT)
    return _show(outcome, as_json) if as_json else EXIT_BAD_INPUT


def _show(outcome: Outcome, as_json: bool, schema: str = "error") -> int:
    try:
        if as_json:
            from .records import marked_json

            sys.stdout.write(marked_json(schema, outcome.data))
        else:
            from .terminal import show_text

            show_text(outcome.text)
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  so that Python does not try again at exit
        print(f"error: standard output cannot be written ({error.strerror}).", file=sys.stderr)
        return EXIT_BAD_INPUT
    return outcome.exit_code


@contextmanager
def _quiet_stdout(active: bool) -> Iterator[None]:
    """Redirect stdout, also of child processes, to stderr, so that only JSON reaches stdout."""
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


# Completion of a program's commands, options and values in a shell, as one script made of its parsers.


SHELLS = ("bash", "zsh")

# Files are offered where nothing else is known (-o default). zsh reads completions of bash.
SCRIPT = """\
_{function}() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}" known=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        known="{commands}"
    else
        case "${{COMP_WORDS[1]}} $before" in
{values}
        *) case "${{COMP_WORDS[1]}} $word" in
{options}
        esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$known" -- "$word"))
}}
complete -o default -F _{function} {program}
"""


class PrintCompletion(argparse.Action):
    """Prints a script for bash or zsh that completes the program of its parser, and exits.

    `words` returns the words known for the values of some options.
    """

    def __init__(self, *, words: Callable[[], Mapping[str, Sequence[str]]], **given: Any) -> None:
        super().__init__(**given, choices=SHELLS)
        self.words = words

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, shell: Any, option: Any = None
    ) -> None:
        (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
        print(completion_script(shell, parser.prog, commands.choices, self.words()), end="")
        parser.exit()


def completion_script(
    shell: str,
    program: str,
    commands: Mapping[str, argparse.ArgumentParser],
    values: Mapping[str, Sequence[str]],
) -> str:
    """Return a script that completes `program`; `values` are words for options that accept others too."""
    options, choices = [], []
    for name, parser in commands.items():
        actions = [action for action in parser._actions if action.option_strings]
        known = " ".join(option for action in actions for option in action.option_strings)
        options.append(f'        "{name} -"*) known="{known}" ;;')
        for action in actions:
            words = action.choices or values.get(action.option_strings[-1], ())
            if words:
                pattern = "|".join(f'"{name} {option}"' for option in action.option_strings)
                choices.append(f'        {pattern}) known="{" ".join(map(str, words))}" ;;')
    script = SCRIPT.format(
        function=program.replace("-", "_"),
        program=program,
        commands=" ".join([*commands, "--help", "--version", "--completion"]),
        values="\n".join(choices),
        options="\n".join(options),
    )
    return "autoload -U +X bashcompinit && bashcompinit\n" + script if shell == "zsh" else script


# Report an exception that no input should cause: two lines for the user, the traceback in a file.


def log_fault(error: Exception) -> tuple[str, str]:
    """Write the traceback to a new file; return what happened, and whose fault it is with the file's path."""
    what = one_line(f"error: {type(error).__name__}: {error}")
    told = "this is a bug of mpbn_deploy, not of your input; please report it"
    try:
        number, path = tempfile.mkstemp(prefix="mpbn-deploy-", suffix=".log")
    except OSError:  # no folder can be written: show the traceback at least
        traceback.print_exception(error)
        return what, f"{told}, with the lines above"
    with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{shlex.join(sys.argv)}\nPython {platform.python_version()}, {platform.platform()}\n\n")
        traceback.print_exception(error, file=file)
    return what, f"{told}, with {path}"
