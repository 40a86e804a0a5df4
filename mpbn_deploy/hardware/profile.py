"""HardwareProfile: what a chip can hold, read from hw_profiles/*.toml, every number with its source.

A limit without a public source is absent from the profile: looking it up returns None, and checks that need
it are reported as not checked. A key that keys.py does not list is an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import field, replace
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..base import (
    OptionError,
    ProfileError,
    did_you_mean,
    one_line,
    problem_lines,
    read_text,
    record,
    shortened,
)
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
    profile_entries,
    profile_problems,
)

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


# Find hardware profiles: those of this package, of installed packages, and of the user.
#
# An installed package offers a folder of profiles by an entry point of the group `mpbn_deploy.profiles`,
# whose value is the package that holds the .toml files. The user's folders are those in MPBN_DEPLOY_PROFILES,
# or else ~/.config/mpbn_deploy/profiles. Nothing is executed but the `__init__` of the parents of that
# package.


GROUP = "mpbn_deploy.profiles"
VARIABLE = "MPBN_DEPLOY_PROFILES"
BUILT_IN = "built-in"


@record
class ProfileFile:
    """A profile and its origin: built-in, the name of an installed package, or the folder of the user."""

    name: str
    path: Path
    origin: str


def profile_files() -> list[ProfileFile]:
    """Return all profiles, sorted by name; a name may occur twice, with different origins."""
    folders = [(_own_folder(), BUILT_IN), *_installed_folders()[0], *((f, str(f)) for f in user_folders())]
    found = [
        ProfileFile(name=path.stem, path=path, origin=origin)
        for folder, origin in folders
        for path in folder.glob("*.toml")
    ]
    return sorted(found, key=lambda file: (file.name, file.origin != BUILT_IN, file.origin))


def user_folders() -> list[Path]:
    """Return the folders in which the user keeps profiles."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return [Path(folder) for folder in named.split(os.pathsep) if folder]
    configuration = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [configuration / "mpbn_deploy" / "profiles"]


def missing_folders() -> list[Path]:
    """Return the folders that MPBN_DEPLOY_PROFILES names and that do not exist."""
    return [folder for folder in user_folders() if os.environ.get(VARIABLE) and not folder.is_dir()]


def broken_packages() -> list[str]:
    """Return a line for each installed package whose entry point leads to no folder of profiles."""
    return _installed_folders()[1]


def _own_folder() -> Path:
    """Return the folder of profiles: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "hw_profiles"
    return inside if inside.is_dir() else package.with_name("hw_profiles")


def _installed_folders() -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the folders of installed packages, each with its package's name; a line for each broken one."""
    folders: list[tuple[Path, str]] = []
    broken: list[str] = []
    for entry in entry_points(group=GROUP):
        origin = entry.name if entry.dist is None else entry.dist.name
        try:
            spec, failure = find_spec(entry.value), ""
        except Exception as error:  # the `__init__` of a parent can raise anything
            spec, failure = None, f" ({type(error).__name__}: {one_line(str(error))})"
        if spec is None or not spec.submodule_search_locations:
            broken.append(
                f"{origin}: its entry point {entry.name!r} ({GROUP}) names {entry.value!r}, which is not an "
                f"importable package{failure}. It must be the package that holds the .toml files."
            )
        else:
            folders += ((Path(folder), origin) for folder in spec.submodule_search_locations)
    return folders, broken


# Summarize hardware profiles: each chip as a row of the table that `fit --targets` prints.


@record
class ProfileSummary:
    """A row of the table of chips; None marks unknown numbers."""

    target: str
    title: str
    placement: str
    cores: int | None
    neurons: tuple[int, int] | None  # of the smallest and the largest core
    weights: str | None  # bits
    thresholds: str | None
    messages: str | None
    synaptic_operation: Cost | None  # picojoules
    exportable: bool
    is_chip: bool
    origin: str = BUILT_IN  # where the profile comes from

    def cells(self) -> dict[str, str]:
        """Return heading -> text of each column, with "?" for unknown numbers."""
        least, most = self.neurons or (None, None)
        energy = self.synaptic_operation
        found = {
            "target": self.target,
            "chip": self.title,
            "cores": self.cores,
            "neurons per core": most if least == most else f"{least}..{most}",
            "weight bits": self.weights,
            "thresholds": self.thresholds,
            "messages": self.messages,
            "placement": self.placement if self.placement != "unknown" else None,
            "pJ per synaptic operation": energy and f"{energy.value:g}",
            "from": self.origin,
        }
        return {heading: "?" if text is None else str(text) for heading, text in found.items()}


def summarize_profile(profile: HardwareProfile, origin: str = BUILT_IN) -> ProfileSummary:
    """Return the summary of a profile from this origin."""
    cores = profile.limit("chip.cores")
    return ProfileSummary(
        target=profile.name,
        title=profile.title,
        placement=profile.placement,
        cores=None if cores is None else cores.value,
        neurons=_neurons(profile),
        weights=_weights(profile),
        thresholds=_thresholds(profile),
        messages=_messages(profile),
        synaptic_operation=profile.cost("energy.synaptic_operation"),
        exportable=profile.exportable,
        is_chip=profile.is_chip,
        origin=origin,
    )


def _neurons(profile: HardwareProfile) -> tuple[int, int] | None:
    """Return the neurons of the smallest and the largest core; one word of state holds one neuron."""
    if (same := profile.limit("core.neurons")) is not None:
        return same.value, same.value
    words = profile.allowed("core.neuron_words")
    return None if words is None else (min(words.values), max(words.values))


def _weights(profile: HardwareProfile) -> str | None:
    """Return the bits of a weight and, for crossbars with axon types, the weights per neuron."""
    bits, types = profile.limit("formats.weight_bits"), profile.limit("core.axon_types")
    width = profile.limit("core.axon_weight_bits")
    if types is not None and width is not None:
        return f"{width.value}, {types.value} per neuron"
    return None if bits is None else str(bits.value)


def _thresholds(profile: HardwareProfile) -> str | None:
    low, high = (profile.limit(f"formats.threshold_{end}") for end in ("minimum", "maximum"))
    counts = {place: profile.limit(f"{place}.thresholds") for place in ("core", "layer")}
    parts = [] if low is None or high is None else [f"{low.value}..{high.value}"]
    parts += [f"{count.value} per {place}" for place, count in counts.items() if count is not None]
    return ", ".join(parts) or None


def _messages(profile: HardwareProfile) -> str | None:
    """Return what a spike carries, or the input range if only that is known."""
    bits = profile.limit("formats.message_bits")
    low, high = (profile.limit(f"network.input_{end}") for end in ("minimum", "maximum"))
    if bits is not None:
        return "plain" if bits.value == 1 else f"graded, {bits.value} bits"
    return None if low is None or high is None else f"inputs {low.value}..{high.value}"
