"""Reference pages of the site, generated from what they describe."""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import mpbn_deploy.api
from mpbn_deploy.__main__ import commands
from mpbn_deploy.hardware import KEYS, HardwareProfile, load_profile, profile_names, summarize_profile
from mpbn_deploy.schemas import json_schema, schema_names

COLUMNS = "100"  # of help texts


def pages() -> dict[str, str]:
    """Return every generated page by its path."""
    return {
        "reference/commands.md": commands_page(),
        "reference/api.md": api_page(),
        "reference/json.md": json_page(),
        "reference/targets.md": targets_page(),
    }


def commands_page() -> str:
    """Describe every command by its parser's help."""
    os.environ["COLUMNS"] = COLUMNS
    parts = [
        "# Commands\n\n`python -m mpbn_deploy.NAME` and `mpbn-deploy NAME` are the same command. Exit codes: "
        "0 done; 1 done, but the network does not fit or is not bit-exact; 2 invalid input, explained in one "
        "message; 130 interrupted; 143 terminated. [JSON](json.md) describes what `--json` prints."
    ]
    for command in commands().values():
        parser = argparse.ArgumentParser(prog=f"python -m mpbn_deploy.{command.name}")
        command.configure(parser)
        parts.append(f"## {command.name}\n\n{command.summary}\n\n```text\n{parser.format_help()}```")
    return "\n\n".join(parts) + "\n"


# ---- the API --------------------------------------------------------------------------------------


def api_page() -> str:
    """Describe every name of mpbn_deploy.api by its signature and docstring."""
    parts = ["# Python API\n\nEverything here is imported from `mpbn_deploy.api`."]
    names = sorted(mpbn_deploy.api.__all__, key=str.casefold)
    groups = {"Functions": inspect.isfunction, "Classes": inspect.isclass}
    for title, belongs in groups.items():
        parts.append(f"## {title}")
        found = [(name, getattr(mpbn_deploy.api, name)) for name in names]
        parts += [_entry(name, value) for name, value in found if belongs(value) and not _is_error(value)]
    parts.append("## Exceptions")
    parts += [f"`{name}`: {_summary(getattr(mpbn_deploy.api, name))}" for name in names
              if _is_error(getattr(mpbn_deploy.api, name))]  # fmt: skip
    listed = ", ".join(f"`{name}`" for name in ("ARCHITECTURES", "DATASETS"))
    parts.append(f"## Registries\n\n{listed}: dictionaries of what `--arch` and `--data` take by name.")
    return "\n\n".join(parts) + "\n"


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _entry(name: str, value: Any) -> str:
    keyword = "class " if inspect.isclass(value) else ""
    fields = is_dataclass(value)
    shown = f"{keyword}{name}{_signature(value)}"
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and not fields and text == inspect.getdoc(type(value)):
        text = ""
    parts = [f"### {name}", f"```python\n{shown}\n```", f"```text\n{text}\n```" if text else ""]
    return "\n\n".join(filter(None, [*parts, *_methods(value)]))


def _signature(value: Any) -> str:
    """Return a signature, one argument per line if it is long."""
    signature = inspect.signature(value)
    text = str(signature).replace("'", "")
    if len(text) < 80:
        return text
    listed = ",\n    ".join(_arguments(signature))
    returns = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    return f"(\n    {listed},\n){returns}".replace("'", "")


def _arguments(signature: inspect.Signature) -> list[str]:
    found, starred = [], False
    for argument in signature.parameters.values():
        if argument.kind is argument.VAR_POSITIONAL:
            starred = True
        elif argument.kind is argument.KEYWORD_ONLY and not starred:
            found.append("*")
            starred = True
        found.append(str(argument))
    return found


def _methods(value: Any) -> list[str]:
    """Return the public methods and properties that have a docstring."""
    if not inspect.isclass(value):
        return []
    own = {name: member for name, member in vars(value).items() if not name.startswith("_")}
    lines = [
        f"* `{name}`: {_summary(member)}"
        for name, member in own.items()
        if (callable(member) or isinstance(member, property | classmethod)) and _summary(member)
    ]
    return ["\n".join(lines)] if lines else []


def _summary(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


# ---- JSON -----------------------------------------------------------------------------------------


def json_page() -> str:
    """Describe every schema as a table of its keys."""
    parts = [
        '# JSON\n\nWith `--json`, a command prints one object that states its schema: `"schema": '
        '"mpbn_deploy.fit/1"`. The schemas derive from the records that are written, and '
        '`mpbn_deploy.api.json_schema("fit")` returns one. Within a version, keys may be added; none is '
        "removed, renamed or given another meaning. [Files and formats](../formats.md#json) explains the "
        "numbers."
    ]
    for name in schema_names():
        schema = json_schema(name)
        parts.append(f"## {name}\n\n{schema['title']}.")
        for part in schema.get("anyOf", [schema]):
            parts.append(_keys(part))
        tables = [f"### {name}: {key}\n\n{_keys(inner)}" for key, inner in _objects(schema)]
        parts += dict.fromkeys(tables)
    return "\n\n".join(parts) + "\n"


def _objects(schema: dict[str, Any], key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects within a schema, each after the key that holds it."""
    if key and "properties" in schema:
        yield key, schema
    for name, value in schema.get("properties", {}).items():
        yield from _objects(value, name)
    for value in (*schema.get("anyOf", []), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(value, dict):
            yield from _objects(value, key)


def _keys(schema: dict[str, Any]) -> str:
    """Return the table of an object's keys."""
    required = schema.get("required", [])
    lines = [
        f"| `{key}`{'' if key in required else ' (optional)'} | {_kind(value)} | {_text(value)} |"
        for key, value in schema.get("properties", {}).items()
    ]
    about = schema.get("description", "")
    return "\n".join([*([about, ""] if about else []), "| key | type | |", "|---|---|---|", *lines])


def _text(schema: dict[str, Any]) -> str:
    return str(schema.get("description", ""))


def _kind(schema: dict[str, Any]) -> str:
    match schema:
        case {"const": value}:
            return f"`{value}`"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values if value is not None)
        case {"anyOf": options}:
            return " or ".join(map(_kind, options))
        case {"type": "array", "items": items}:
            return f"list of {_kind(items)}"
        case {"type": list(kinds), "items": items}:
            return " or ".join(f"list of {_kind(items)}" if kind == "array" else kind for kind in kinds)
        case {"type": list(kinds)}:
            return " or ".join(kinds)
        case {"additionalProperties": dict(values)}:
            return f"object of {_kind(values)}"
    return str(schema.get("type", "any"))


# ---- hardware targets -----------------------------------------------------------------------------


def targets_page() -> str:
    """List the chips, and every number of their profiles with its source."""
    profiles = [load_profile(name) for name in profile_names()]
    rows = [summarize_profile(profile).cells() for profile in profiles]
    head = list(rows[0])
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    table += ["| " + " | ".join(row.values()) + " |" for row in rows]
    parts = [
        "# Hardware targets\n\nA limit that was never published is absent from a profile, and checks that "
        "need it are reported as not checked. [Add a chip](../hw_profiles.md) says how to write a profile.",
        "\n".join(table),
        *map(_target, profiles),
    ]
    return "\n\n".join(parts) + "\n"


def _target(profile: HardwareProfile) -> str:
    lines = [
        f"| `{key}` | {value} | {KEYS.get(key, '')} | {basis} | {source} |".replace("\n", " ")
        for key, value, basis, source in _numbers(profile)
    ]
    table = ["| key | value | | basis | source |", "|---|---|---|---|---|", *lines]
    return f"## {profile.name}\n\n{profile.description}\n\n" + "\n".join(table)


def _numbers(profile: HardwareProfile) -> list[tuple[str, str, str, str]]:
    limits = [(key, str(one.value), one.basis, one.source) for key, one in profile.limits.items()]
    lists = [
        (key, ", ".join(map(str, one.values)), one.basis, one.source) for key, one in profile.lists.items()
    ]
    costs = [
        (key, f"{one.value:g} ({one.low:g} to {one.high:g})", one.basis, one.source)
        for key, one in profile.costs.items()
    ]
    return [*limits, *lists, *costs]
