"""run.toml: an export as a file, to write by hand or to repeat.

    model = "model.pt"
    target = "loihi2"
    weight_bits = 4          the options of `export`, with _ for -; those left out have their defaults

Every export writes this file into its folder. Paths are as typed: relative ones start in the current folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..base import FormatError, class_of, did_you_mean, option_name, read_text
from ..data import IN_MEMORY
from .options import ExportOptions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MODEL, BESIDE = "model", ("target", "out")  # what is not in ExportOptions
HEADER = """\
# This export, to repeat from the folder in which it was run:
#   python -m mpbn_deploy.export --config FOLDER/run.toml
# Options of the command line replace those of this file.
"""


def read_config(path: Path) -> dict[str, Any]:
    """Read run.toml: the model and options of `export`, strings, numbers and lists of numbers."""
    try:
        content = tomllib.loads(read_text(path, FormatError))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: cannot be read as TOML ({error}).") from error
    known = [MODEL, *BESIDE, *ExportOptions.declared]
    for name, value in content.items():
        if name not in known:
            raise FormatError(f"{path}: no option {name!r}. {did_you_mean(name, known)}")
        if not _is_plain(value):
            found = str(value).lower() if isinstance(value, bool) else class_of(value)
            raise FormatError(
                f"{path}: {name} is {found}; a string, a number or a list of them is needed, as after "
                f"{option_name(name)}."
            )
    if not isinstance(content.get(MODEL, ""), str):
        raise FormatError(f"{path}: {MODEL} must be a string, the path of a file.")
    return content


def config_words(content: dict[str, Any]) -> list[str]:
    """Return the options of run.toml as words of a command line; the model is not an option.

    Another option must follow: a list would take the next word, too.
    """
    words: list[str] = []
    for name, value in content.items():
        option, known = option_name(name), ExportOptions.declared.get(name)
        if known is not None and known.count == "repeated":  # each has an option of its own
            words += [f"{option}={each}" for each in ([value] if isinstance(value, str) else value)]
        elif isinstance(value, list):
            words += [option, *map(str, value)]
        elif name != MODEL:
            words.append(f"{option}={value}")
    return words


def entry_text(name: str, value: Any) -> str:
    """Return an entry as it stands in run.toml."""
    return f"{name} = {_toml(tuple(value) if isinstance(value, list) else value)}"


def config_text(model: Path | None, target: str, options: ExportOptions) -> str:
    """Return run.toml with every option that has a value; the folder to write is not part of it.

    A model that was in memory is not named, nor are its samples: both are to be given again.
    """
    values: dict[str, Any] = {MODEL: model, "target": target}
    for name, known in ExportOptions.declared.items():
        value = getattr(options, name)
        values[name] = (
            known.option.none if value is None and known.default is not None else value
        )  # TOML has no None
    given = "".join(f"{name} = {_toml(value)}\n" for name, value in values.items() if value is not None)
    absent = ", ".join(name for name, value in values.items() if value is None)
    if model is None:
        given = "".join(line for line in given.splitlines(keepends=True) if IN_MEMORY not in line)
    return f"{HEADER}\n{given}\n# not given: {absent}\n"


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(type(item) in (str, int, float) for item in items)


def _toml(value: Any) -> str:
    """Return a value as TOML: strings, numbers and lists are written as in JSON."""
    match value:
        case str() | Path():
            text = str(value).encode("utf-8", "replace").decode("utf-8")
            return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
        case tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return json.dumps(value)
