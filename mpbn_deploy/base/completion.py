"""Completion of a program's commands, options and values in a shell, as one script made of its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
