"""What a chip can hold: profiles read from hw_profiles/*.toml, every number with its source.

A limit that nobody published or measured is absent from its profile, and whoever asks for it gets
None and reports the check as not made. A key outside the vocabulary (hardware_keys.py) is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from ..base import OptionError, ProfileError, did_you_mean, record
from .keys import COST_KEYS, EXPORT_KEYS, HEADINGS, KEYS, LIST_KEYS, PLACEMENT, PLACEMENTS, SYSTEMS
from .problems import profile_entries, profile_problems

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@record
class Limit:
    """A number, who says so, and how they know."""

    value: int
    source: str
    basis: str


@record
class Allowed:
    """Several numbers: those allowed, or one for each core."""

    values: tuple[int, ...]
    source: str
    basis: str


@record
class Cost:
    """What something takes of energy, power or time; `low` and `high` where sources disagree."""

    value: float
    low: float
    high: float
    source: str
    basis: str


@record
class HardwareProfile:
    """A chip, as far as it is known; keys are dotted, like "core.neurons".

    `placement` is how its cores are filled: memory `words` (Loihi), a `crossbar` of axons and neurons
    (TrueNorth), whole `layers` on cores of their own (Speck), the `whole` network on one core (Xylo), or
    `unknown`.
    """

    name: str
    title: str
    description: str
    limits: Mapping[str, Limit]
    lists: Mapping[str, Allowed] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    placement: str = "words"
    typed: str = ""  # how a command line names it: by its name, or by a path

    def limit(self, key: str) -> Limit | None:
        """The limit, or None where it is not known."""
        assert key in KEYS.keys() - LIST_KEYS - COST_KEYS, key  # else no profile could ever hold it
        return self.limits.get(key)

    def allowed(self, key: str) -> Allowed | None:
        """The numbers of a key that has several, or None where they are not known."""
        assert key in LIST_KEYS, key
        return self.lists.get(key)

    def cost(self, key: str) -> Cost | None:
        """What something costs, or None where there is no public figure."""
        assert key in COST_KEYS, key
        return self.costs.get(key)

    def value(self, key: str) -> int:
        """The number alone, for those who cannot work without it."""
        limit = self.limit(key)
        if limit is None:
            raise ProfileError(self._lack(key))
        return limit.value

    def _lack(self, key: str) -> str:
        """What to do without a number; of those that quantization needs, all are named at once."""
        if key not in EXPORT_KEYS:
            return f"{self.name}: the profile lacks {key} ({KEYS[key]}). Add it there, with its source."
        absent = ", ".join(k for k in EXPORT_KEYS if not self.knows(k))
        others = ", ".join(summary.target for summary in describe_profiles() if summary.exportable)
        return (
            f"{self.name}: no network can be quantized for it, since its profile lacks {absent}. Export for "
            f"a target that has them ({others}), and put that folder to the rules of this chip: "
            f"python -m mpbn_deploy.fit FOLDER --target {self.name}."
        )

    def knows(self, key: str) -> bool:
        """Whether the profile has the key at all, of whatever kind it is."""
        assert key in KEYS, key
        return key in self.limits or key in self.lists or key in self.costs

    def says(self, key: str, value: int) -> bool:
        """Whether the profile has the key with just this value; what is not known is not said."""
        limit = self.limit(key)
        return limit is not None and limit.value == value

    @property
    def exportable(self) -> bool:
        """Whether it has all number formats that a network is quantized to."""
        return all(self.knows(key) for key in EXPORT_KEYS)

    @property
    def has_cores(self) -> bool:
        """Whether it speaks of cores or chips at all; one that does not is no chip."""
        return any(key.startswith(("core.", "chip.")) for key in (*self.limits, *self.lists))

    @property
    def systems(self) -> dict[str, int]:
        """Boards that carry this chip, and how many chips each has."""
        prefix = f"{SYSTEMS}."
        return {k.removeprefix(prefix): v.value for k, v in self.limits.items() if k.startswith(prefix)}


def profile_names() -> list[str]:
    """The names of the profiles that come with this package."""
    return sorted(path.stem for path in _profile_folder().glob("*.toml"))


def load_profile(name_or_path: str | Path) -> HardwareProfile:
    """A profile of ours by its name, or anybody's by the path of its TOML file."""
    if str(name_or_path) in profile_names():
        return replace(_read(_profile_folder() / f"{name_or_path}.toml"), typed=str(name_or_path))
    path = Path(name_or_path)
    if path.suffix == ".toml" and path.is_file():
        return replace(_read(path), typed=str(path))
    raise OptionError(
        f"no hardware profile {str(name_or_path)!r}. {did_you_mean(str(name_or_path), profile_names())} "
        f"Or give the path of a .toml file."
    )


def _profile_folder() -> Path:
    """Inside the package when installed from a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "hw_profiles"
    return inside if inside.is_dir() else package.with_name("hw_profiles")


def _read(path: Path) -> HardwareProfile:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read as TOML ({error}).") from error
    if problems := profile_problems(content):
        raise ProfileError("\n".join([f"{path}: not a hardware profile:", *(f"  - {p}" for p in problems)]))
    entries = dict(profile_entries(content))
    return HardwareProfile(
        **{heading: content[heading] for heading in HEADINGS},
        limits={k: Limit(**e) for k, e in entries.items() if k not in LIST_KEYS | COST_KEYS},
        lists={k: _allowed(**e) for k, e in entries.items() if k in LIST_KEYS},
        costs={k: _cost(**e) for k, e in entries.items() if k in COST_KEYS},
        placement=content.get(PLACEMENT, PLACEMENTS[0]),
    )


def _allowed(value: list[int], source: str, basis: str) -> Allowed:
    return Allowed(values=tuple(value), source=source, basis=basis)


def _cost(value: float, source: str, basis: str, low: float | None = None, high: float | None = None) -> Cost:
    """A figure without a range is its own range."""
    return Cost(
        value=float(value),
        low=float(value if low is None else low),
        high=float(value if high is None else high),
        source=source,
        basis=basis,
    )


# ---- what is known, side by side ---------------------------------------------------------------


@record
class Summary:
    """A chip in one line of a table; None is what nobody published."""

    target: str
    title: str
    placement: str
    cores: int | None
    neurons: tuple[int, int] | None  # of the smallest and of the largest core
    weights: str | None  # bits
    thresholds: str | None
    messages: str | None
    synaptic_operation: Cost | None  # picojoules
    exportable: bool

    def cells(self) -> dict[str, str]:
        """Heading and text of each column, with "?" for what is not known."""
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
            "pJ per synaptic operation": energy and f"{energy.value:g} ({energy.basis})",
        }
        return {heading: "?" if text is None else str(text) for heading, text in found.items()}


def describe(profile: HardwareProfile) -> Summary:
    """What one profile knows of what people ask first."""
    cores = profile.limit("chip.cores")
    return Summary(
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
    )


def describe_profiles() -> list[Summary]:
    """All profiles that come with this package, in the order of their names."""
    return [describe(load_profile(name)) for name in profile_names()]


def _neurons(profile: HardwareProfile) -> tuple[int, int] | None:
    """A word of state is a neuron, where cores differ in how many they have."""
    if (same := profile.limit("core.neurons")) is not None:
        return same.value, same.value
    words = profile.allowed("core.neuron_words")
    return None if words is None else (min(words.values), max(words.values))


def _weights(profile: HardwareProfile) -> str | None:
    """Bits of a weight, or how many a neuron of a crossbar has to choose from."""
    bits, types = profile.limit("formats.weight_bits"), profile.limit("core.axon_types")
    width = profile.limit("core.axon_weight_bits")
    if types is not None and width is not None:
        return f"{width.value}, {types.value} weights per neuron"
    return None if bits is None else str(bits.value)


def _thresholds(profile: HardwareProfile) -> str | None:
    low, high = (profile.limit(f"formats.threshold_{end}") for end in ("minimum", "maximum"))
    counts = {place: profile.limit(f"{place}.thresholds") for place in ("core", "layer")}
    parts = [] if low is None or high is None else [f"{low.value}..{high.value}"]
    parts += [f"{count.value} per {place}" for place, count in counts.items() if count is not None]
    return ", ".join(parts) or None


def _messages(profile: HardwareProfile) -> str | None:
    """What one spike can carry; for some chips only what an input may be is known."""
    bits = profile.limit("formats.message_bits")
    low, high = (profile.limit(f"network.input_{end}") for end in ("minimum", "maximum"))
    if bits is not None:
        return "plain" if bits.value == 1 else f"graded, {bits.value} bits"
    return None if low is None or high is None else f"inputs {low.value}..{high.value}"
