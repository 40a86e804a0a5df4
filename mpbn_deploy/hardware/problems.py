"""Find every problem in a hardware profile, each reported with its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any

from ..base import and_more, did_you_mean, printable
from .keys import (
    BASES,
    CORE_LISTS,
    COST_KEYS,
    EXTENDS,
    FLAGS,
    HEADINGS,
    KEYS,
    LIST_KEYS,
    PLACEMENT,
    PLACEMENTS,
    RANGES,
    SCHEMA,
    SIGNED_KEYS,
    SIMULATOR,
    SYSTEMS,
    WITHOUT,
    ZERO_KEYS,
)

Content = Mapping[str, Any]  # a parsed TOML file
TABLES = tuple(dict.fromkeys(key.split(".")[0] for key in KEYS))
WIDEST_FORMAT = 32  # bits of a number
WIDEST_MEMORY = 1024  # bits of a word
LARGEST_NUMBER = 2**40
MAX_KEYS = 8  # of a table, listed for an unknown one
ENTRY = '{ value = NUMBER, source = "WHERE FROM", basis = "published" }'


def profile_problems(content: Content) -> list[str]:
    """Return the problems of headings, of entries, and between entries; an empty list if there are none."""
    entries = dict(profile_entries(content))
    problems = [*_heading_problems(content), *_table_problems(entries)]
    return [*problems, *_range_problems(entries), *_list_problems(entries)]


def profile_entries(content: Content) -> Iterator[tuple[str, Any]]:
    """Yield every entry of every table with its dotted key."""
    for table, entries in content.items():
        if isinstance(entries, dict):
            yield from ((f"{table}.{name}", entry) for name, entry in entries.items())


def _heading_problems(content: Content) -> Iterator[str]:
    if content.get("schema") != SCHEMA:
        yield f"schema {content.get('schema')!r}; this version reads schema = {SCHEMA}"
    for heading in HEADINGS:
        if not _is_text(content.get(heading)):
            yield f"{heading}: missing; a printable string is needed"
    if content.get(PLACEMENT, PLACEMENTS[0]) not in PLACEMENTS:
        yield f"{PLACEMENT}: {content[PLACEMENT]!r}; allowed are {', '.join(PLACEMENTS)}"
    if type(content.get(SIMULATOR, False)) is not bool:
        yield f"{SIMULATOR}: {content[SIMULATOR]!r}; true or false is needed"
    known = ("schema", *HEADINGS, PLACEMENT, EXTENDS, WITHOUT, SIMULATOR)
    for key, value in content.items():
        if key not in known and not isinstance(value, dict):
            yield f"{key}: unknown key. {did_you_mean(key, known)}{_table_of(key, known)}"


def _table_problems(entries: Content) -> Iterator[str]:
    for key, entry in entries.items():
        if key in KEYS or key.startswith(f"{SYSTEMS}."):
            yield from (f"{key}: {problem}" for problem in _entry_problems(key, entry))
        elif key.endswith(".value"):
            name = key.removesuffix(".value")
            yield f"{name}: is in no table; a header such as [{TABLES[0]}] is missing before it"
        elif not (key.endswith((".source", ".basis")) and f"{key.partition('.')[0]}.value" in entries):
            yield f"{key}: unknown key. {_suggestion(key)}"


def _table_of(key: str, headings: Iterable[str]) -> str:
    """Return how an entry of a table is written, unless the key is a misspelt heading."""
    if get_close_matches(key, headings, n=1):
        return ""
    table, _, name = (_nearest(key) or "chip.cores").partition(".")
    return f" Numbers belong in tables: [{table}] {name} = {ENTRY}"


def _nearest(key: str) -> str | None:
    """Return the known key whose name is closest to that of a key, of the same table where two are."""
    table, _, name = key.rpartition(".")
    own_last = sorted(KEYS, key=lambda known: known.split(".")[0] == table)
    by_name = {known.split(".")[1]: known for known in own_last}
    close = get_close_matches(name, by_name, n=1)
    return by_name[close[0]] if close else None


def _suggestion(key: str) -> str:
    """Suggest the nearest key of any table, and list the nearest of the same table, or all tables."""
    table, _, name = key.partition(".")
    names = sorted(known.split(".")[1] for known in KEYS if known.startswith(f"{table}."))
    nearest = _nearest(key)
    suggestion = f"Did you mean {nearest!r}? " if nearest else ""
    if not names:
        return f"{suggestion}Known tables: {', '.join(TABLES)}."
    shown = names if len(names) <= MAX_KEYS else get_close_matches(name, names, n=MAX_KEYS, cutoff=0.0)
    return f"{suggestion}Known in [{table}]: {and_more(shown, len(names))} (hw_profiles/README.md)."


def _entry_problems(key: str, entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{_shown(entry)}; write it as {ENTRY}"
        return
    names = ("value", "low", "high", "source", "basis") if key in COST_KEYS else ("value", "source", "basis")
    if unknown := entry.keys() - set(names):
        yield f"unknown {', '.join(sorted(unknown))}; an entry holds {', '.join(names)}"
    yield from _value_problems(key, entry)
    if not _is_text(entry.get("source")):
        yield "no source; state where the number comes from"
    if entry.get("basis") not in BASES:
        yield f"basis {entry.get('basis')!r}; allowed are {', '.join(BASES)}"


def _value_problems(key: str, entry: Content) -> Iterator[str]:
    value = entry.get("value")
    if key in COST_KEYS:
        yield from _cost_problems(value, entry.get("low", value), entry.get("high", value))
    elif key not in LIST_KEYS:
        yield from _number_problems(key, value)
    elif isinstance(value, list) and value:
        for number in value:
            yield from _number_problems(key, number)
    else:
        yield f"value {value!r}; a list of integers is needed"


def _number_problems(key: str, number: Any) -> Iterator[str]:
    least = 0 if key in ZERO_KEYS else 1
    if type(number) is not int:  # a TOML boolean is an int to isinstance
        yield f"value {_shown(number)}; an integer is needed"
    elif key in FLAGS and number not in (0, 1):
        yield f"value {number}; 0 (no) or 1 (yes) is needed"
    elif abs(number) > (most := _most(key)):
        yield f"value beyond {most}, which no chip reaches"
    elif key not in SIGNED_KEYS and number < least:
        yield f"value {number}; at least {least} is needed"


def _most(key: str) -> int:
    """Return the largest magnitude of a number; others are computed from numbers of bits and exponents."""
    if key.startswith("formats.") and key.endswith(("_bits", "_exponent_minimum", "_exponent_maximum")):
        return WIDEST_FORMAT
    return WIDEST_MEMORY if key.endswith(("_bits", "_shift_maximum")) else LARGEST_NUMBER


def _cost_problems(value: Any, low: Any, high: Any) -> Iterator[str]:
    numbers = (low, value, high)
    if not all(type(n) in (int, float) and isfinite(n) and n >= 0 for n in numbers):
        yield f"value {value!r}, low {low!r}, high {high!r}; non-negative numbers are needed"
    elif not low <= value <= high:
        yield f"value {value} is outside its range {low}..{high}"


def _range_problems(entries: Content) -> Iterator[str]:
    for name in (*RANGES, "formats.bias_exponent"):
        low, high = (_value(entries, f"{name}_{end}") for end in ("minimum", "maximum"))
        if type(low) is int and type(high) is int and low > high:
            yield f"{name}: the range {low}..{high} is empty"


def _list_problems(entries: Content) -> Iterator[str]:
    """Check that lists of per-core numbers have one number per core."""
    lists = {key: value for key in sorted(CORE_LISTS) if isinstance(value := _value(entries, key), list)}
    stated = _value(entries, "chip.cores")
    cores = stated if type(stated) is int else max(map(len, lists.values()), default=0)
    for key, values in lists.items():
        if len(values) != cores:
            yield f"{key}: {len(values)} numbers for {cores} cores; one per core is needed"


def _value(entries: Content, key: str) -> Any:
    entry = entries.get(key)
    return entry.get("value") if isinstance(entry, dict) else None


def _shown(value: Any) -> str:
    """Return a value as its author wrote it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and printable(value) == value
