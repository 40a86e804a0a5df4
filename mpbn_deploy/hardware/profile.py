"""HardwareProfile: what a chip can hold, read from hw_profiles/*.toml, every number with its source.

A limit without a public source is absent from the profile: looking it up returns None, and checks that need
it are reported as not checked. A key that keys.py does not list is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..base import OptionError, ProfileError, did_you_mean, problem_lines, read_text, record, shortened
from .keys import (
    CHIP,
    COST_KEYS,
    EXPORT_KEYS,
    EXTENDS,
    HEADINGS,
    KEYS,
    LIST_KEYS,
    PLACEMENT,
    PLACEMENTS,
    SIMULATOR,
    SYSTEMS,
    WITHOUT,
)
from .problems import profile_entries, profile_problems
from .sources import VARIABLE, ProfileFile, broken_packages, missing_folders, profile_files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


UNBOUNDED = "unbounded"  # the profile to quantize for if the number formats of a chip are unknown
LONGEST_PROBLEM = 400  # characters in one message


@record
class Limit:
    """A number with its source and how the source obtained it."""

    value: int
    source: str
    basis: str


@record
class Allowed:
    """A list of numbers: the allowed values, or one per core."""

    values: tuple[int, ...]
    source: str
    basis: str


@record
class Cost:
    """A cost in energy, power or time; `low` and `high` span the values of different sources."""

    value: float
    low: float
    high: float
    source: str
    basis: str


@record
class HardwareProfile:
    """The known limits and costs of a chip, by dotted keys such as "core.neurons".

    `placement` selects how cores are filled: memory `words` (Loihi), a `crossbar` of axons and neurons
    (TrueNorth), one core per layer (`layers`, Speck), one core for the `whole` network (Xylo), our core
    in the `fabric` of an FPGA, or `unknown`.
    """

    name: str
    title: str
    description: str
    limits: Mapping[str, Limit]
    lists: Mapping[str, Allowed] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    placement: str = "words"
    is_chip: bool = True  # False for simulators, such as `unbounded`
    typed: str = ""  # the --target that loads it: a name or a path

    def limit(self, key: str) -> Limit | None:
        """Return a limit, or None if it is unknown."""
        assert key in KEYS.keys() - LIST_KEYS - COST_KEYS, key  # otherwise no profile could hold it
        return self.limits.get(key)

    def allowed(self, key: str) -> Allowed | None:
        """Return the numbers of a list, or None if they are unknown."""
        assert key in LIST_KEYS, key
        return self.lists.get(key)

    def cost(self, key: str) -> Cost | None:
        """Return a cost, or None if no figure is public."""
        assert key in COST_KEYS, key
        return self.costs.get(key)

    def value(self, key: str) -> int:
        """Return a limit's number; raise ProfileError if it is unknown."""
        limit = self.limit(key)
        if limit is None:
            raise ProfileError(self._lack(key))
        return limit.value

    @property
    def target(self) -> str:
        """What to type after --target for this chip: its name, or the path of its file."""
        return self.typed or self.name

    def _lack(self, key: str) -> str:
        """Explain how to proceed without a number; lists all that quantization needs at once."""
        if key not in EXPORT_KEYS:
            return f"{self.name}: the profile lacks {key} ({KEYS[key]}). Add it with its source."
        absent = ", ".join(k for k in EXPORT_KEYS if not self.knows(k))
        exportable = [(file, profile) for file, profile in readable_profiles()[0] if profile.exportable]
        others = ", ".join(file.name for file, profile in exportable if profile.placement != "program")
        return (
            f"{self.name}: networks cannot be quantized for it, because its profile lacks {absent}. Export "
            f"for a target that has them ({others}), then check that export against this chip: "
            f"python -m mpbn_deploy.fit FOLDER --target {self.target}."
        )

    def knows(self, key: str) -> bool:
        """Return whether the profile has a limit, list or cost of this key."""
        assert key in KEYS, key
        return key in self.limits or key in self.lists or key in self.costs

    def says(self, key: str, value: int) -> bool:
        """Return whether the profile gives a key exactly this value; False if it is unknown."""
        limit = self.limit(key)
        return limit is not None and limit.value == value

    @property
    def exportable(self) -> bool:
        """Whether the profile has every number format that quantization needs."""
        return all(self.knows(key) for key in EXPORT_KEYS)

    @property
    def systems(self) -> dict[str, int]:
        """The boards that carry this chip, each with its number of chips."""
        prefix = f"{SYSTEMS}."
        return {k.removeprefix(prefix): v.value for k, v in self.limits.items() if k.startswith(prefix)}


def profile_names() -> list[str]:
    """Return the names of all profiles: of this package, of installed packages, and of the user."""
    return sorted({file.name for file in profile_files()})


def load_profile(name_or_path: str | Path) -> HardwareProfile:
    """Load a profile by name, or from the path of a TOML file."""
    named = [file for file in profile_files() if file.name == str(name_or_path)]
    if len(named) > 1:
        paths = " and ".join(f"{file.path} (from {file.origin})" for file in named)
        raise OptionError(f"two profiles are named {str(name_or_path)!r}: {paths}. Give one by its path.")
    path = named[0].path if named else Path(name_or_path)
    if named or (path.suffix == ".toml" and path.is_file()):
        return replace(_read(path), typed=str(name_or_path))
    raise OptionError(
        f"no hardware profile {str(name_or_path)!r}. {did_you_mean(str(name_or_path), profile_names())} "
        f"{' '.join([*_one_each(str(name_or_path)), 'The path of a .toml file works as well.', *_missing()])}"
    )


def _one_each(names: str) -> list[str]:
    """Say how several targets are given, if that is what was tried."""
    return ["Give each with a --target of its own."] if "," in names else []


def readable_profiles() -> tuple[list[tuple[ProfileFile, HardwareProfile]], list[str]]:
    """Return all profiles that can be read, and one line for each file or folder that cannot."""
    read, unreadable = [], _missing()
    for file in profile_files():
        try:
            read.append((file, load_profile(file.path)))
        except ProfileError as error:
            line = " ".join(part.strip() for part in str(error).splitlines())
            unreadable.append(shortened(line, LONGEST_PROBLEM))
    return read, unreadable


def _missing() -> list[str]:
    """Return a sentence for each folder that is named and does not exist, and for each broken package."""
    missing = [f"{VARIABLE} names {folder}, which is not a folder." for folder in missing_folders()]
    return missing + broken_packages()


def export_profile(profile: HardwareProfile) -> HardwareProfile:
    """Return the profile to quantize for: this chip's, or `unbounded` if its number formats are unknown."""
    return profile if profile.exportable else load_profile(UNBOUNDED)


def _read(path: Path) -> HardwareProfile:
    content = _extended(_parsed(path), path)
    if problems := profile_problems(content):
        listed = problem_lines([shortened(problem, LONGEST_PROBLEM) for problem in problems])
        raise ProfileError(f"{path}: not a valid hardware profile:{listed}")
    entries = dict(profile_entries(content))
    return HardwareProfile(
        **{heading: content[heading] for heading in HEADINGS},
        limits={k: Limit(**e) for k, e in entries.items() if k not in LIST_KEYS | COST_KEYS},
        lists={k: _allowed(**e) for k, e in entries.items() if k in LIST_KEYS},
        costs={k: _cost(**e) for k, e in entries.items() if k in COST_KEYS},
        placement=content.get(PLACEMENT, PLACEMENTS[0]),
        is_chip=not content.get(SIMULATOR, False),
    )


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, ProfileError))
    except (ValueError, RecursionError) as error:  # of tomllib, of numbers with too many digits, of nesting
        raise ProfileError(f"{path}: cannot be read as TOML ({error}).") from error


def _extended(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the tables of the profile that this one extends, without some keys, and with its own entries.

    A profile that changes the chip is on none of the boards of the other one, so it inherits none.
    """
    name = content.get(EXTENDS)
    if name is None:
        return content
    if not isinstance(name, str) or name != Path(name).name:
        raise ProfileError(
            f"{path}: {EXTENDS} = {name!r}; the name of a profile is needed, such as 'loihi2'."
        )
    base = path.with_name(f"{name}.toml")
    if base == path or not base.is_file():
        others = (file.path for file in profile_files() if file.name == name and file.path != path)
        base = next(others, base)
    if base == path:
        raise ProfileError(f"{path}: {EXTENDS} = {name!r}, which is this profile itself. Name another one.")
    if not base.is_file():
        raise ProfileError(
            f"{path}: {EXTENDS} = {name!r}, an unknown profile, and {base} does not exist. "
            f"{did_you_mean(name, profile_names())}"
        )
    inherited, left_out = _parsed(base), content.get(WITHOUT, [])
    if EXTENDS in inherited:
        raise ProfileError(f"{path}: extends {name!r}, which extends another one; extend that one instead.")
    known = dict(profile_entries(inherited))
    if not isinstance(left_out, list) or not set(map(str, left_out)) <= known.keys():
        raise ProfileError(f"{path}: {WITHOUT} = {left_out!r}; a list of keys of {base.name} is needed.")
    merged = dict(content)
    if content.get(CHIP) or any(key.startswith(f"{CHIP}.") for key in left_out):
        inherited.pop(SYSTEMS, None)
    for table, entries in inherited.items():
        if isinstance(entries, dict):
            kept = {key: entry for key, entry in entries.items() if f"{table}.{key}" not in left_out}
            own = content.get(table, {})
            merged[table] = kept | own if isinstance(own, dict) else own
        elif table in (PLACEMENT, SIMULATOR):
            merged.setdefault(table, entries)
    return merged


def _allowed(value: list[int], source: str, basis: str) -> Allowed:
    return Allowed(values=tuple(value), source=source, basis=basis)


def _cost(value: float, source: str, basis: str, low: float | None = None, high: float | None = None) -> Cost:
    """Build a cost; without `low` or `high`, the range ends at the value."""
    return Cost(
        value=float(value),
        low=float(value if low is None else low),
        high=float(value if high is None else high),
        source=source,
        basis=basis,
    )
