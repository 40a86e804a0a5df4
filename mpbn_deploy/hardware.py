"""What a chip can hold: profiles read from hw_profiles/*.toml, every number with its source.

A limit that nobody published or measured is absent from its profile, and whoever asks for it gets
None and reports the check as not made. `KEYS` is the whole vocabulary; a key outside it is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import OptionError, ProfileError, did_you_mean
from .records import record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA = 1
HEADINGS = ("name", "title", "description")
BASES = ("published", "measured", "fitted", "derived")
SYSTEMS = "systems"  # the table whose keys are names of boards, each with its number of chips

KEYS: dict[str, str] = {
    "formats.weight_bits": "bits of a stored weight, sign included",
    "formats.weight_exponent_minimum": "smallest exponent of a connection; at 0 a weight of 1 adds 2**6",
    "formats.weight_exponent_maximum": "largest exponent of a connection",
    "formats.threshold_minimum": "smallest threshold, in units of 2**6 states",
    "formats.threshold_maximum": "largest threshold, in units of 2**6 states",
    "formats.bias_mantissa_bits": "bits of a bias before its exponent, sign included",
    "formats.bias_exponent_maximum": "largest exponent of a bias; the smallest is 0",
    "formats.decay_bits": "bits of a decay register, without sign; 2**bits forgets everything in one step",
    "formats.decay_current_offset": "what the chip adds to the register of the current's decay",
    "formats.decay_voltage_offset": "what the chip adds to the register of the voltage's decay",
    "formats.state_bits": "bits of a current or voltage, sign included",
    "formats.message_bits": "bits of the number that a spike carries; 1 is a plain spike, more have a sign",
    "formats.delay_maximum": "largest delay of a connection, in time steps",
    "core.neurons": "neurons of one core",
    "core.neuron_groups": "populations that may share one core",
    "core.input_axons": "axons that may enter one core",
    "core.synapse_words": "memory words for the synapses of one core",
    "core.axon_map_entries": "entries for spikes that leave one core",
    "core.total_words": "memory words of one core for all of the above together",
    "core.thresholds": "distinct thresholds on one core",
    "core.word_bits": "bits of a memory word",
    "core.index_bits": "bits beside each weight of a dense row that say which neuron it goes to",
    "core.shared_index_bits": "the same for a row of a shared convolution kernel",
    "core.row_header_bits": "bits in front of each row of weights",
    "core.row_entries": "weights after which a row needs another header; absent: a row may be of any length",
    "core.shared_axons": "axons by which a convolution enters a core; absent: one per source pixel",
    "core.zero_weights_stored": "1 if a dense row keeps a place for zero weights, 0 if it drops them",
    "core.dense_fill_percent": "how far a dense layer fills the synapse words before it takes another core",
    "chip.cores": "cores of one chip",
    "systems.*": "chips of a board, by the name of the board",
}
SIGNED_KEYS = frozenset(
    f"formats.{name}_{end}" for name in ("weight_exponent", "threshold") for end in ("minimum", "maximum")
)
ZERO_KEYS = frozenset(
    {
        "formats.bias_exponent_maximum",
        "formats.decay_current_offset",
        "formats.decay_voltage_offset",
        "formats.delay_maximum",
        "core.index_bits",
        "core.shared_index_bits",
        "core.row_header_bits",
        "core.zero_weights_stored",
    }
)


@record
class Limit:
    """A number, who says so, and how they know."""

    value: int
    source: str
    basis: str


@record
class HardwareProfile:
    """A chip, as far as it is known; the keys of `limits` are dotted, like "core.neurons"."""

    name: str
    title: str
    description: str
    limits: Mapping[str, Limit]

    def limit(self, key: str) -> Limit | None:
        """The limit, or None where it is not known."""
        assert key in KEYS, key  # a word that no profile could ever hold is our own mistake
        return self.limits.get(key)

    def value(self, key: str) -> int:
        """The number alone, for those who cannot work without it."""
        limit = self.limit(key)
        if limit is None:
            raise ProfileError(
                f"{self.name}: the profile lacks {key} ({KEYS[key]}). Add it there, with its source."
            )
        return limit.value

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
        return _read(_profile_folder() / f"{name_or_path}.toml")
    path = Path(name_or_path)
    if path.suffix == ".toml" and path.is_file():
        return _read(path)
    raise OptionError(
        f"no hardware profile {str(name_or_path)!r}. {did_you_mean(str(name_or_path), profile_names())} "
        f"Or give the path of a .toml file."
    )


def _profile_folder() -> Path:
    """Inside the package when installed from a wheel, beside it in a checkout."""
    inside = Path(__file__).with_name("hw_profiles")
    return inside if inside.is_dir() else Path(__file__).parents[1] / "hw_profiles"


def _read(path: Path) -> HardwareProfile:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read as TOML ({error}).") from error
    if problems := [*_heading_problems(content), *_table_problems(content)]:
        raise ProfileError("\n".join([f"{path}: not a hardware profile:", *(f"  - {p}" for p in problems)]))
    limits = {key: Limit(**entry) for key, entry in _entries(content)}
    return HardwareProfile(**{heading: content[heading] for heading in HEADINGS}, limits=limits)


def _entries(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every entry of every table, under its dotted key."""
    for table, entries in content.items():
        if isinstance(entries, dict):
            yield from ((f"{table}.{name}", entry) for name, entry in entries.items())


def _heading_problems(content: Mapping[str, Any]) -> Iterator[str]:
    if content.get("schema") != SCHEMA:
        yield f"schema {content.get('schema')!r}; this version reads schema = {SCHEMA}"
    for heading in HEADINGS:
        if not _is_text(content.get(heading)):
            yield f"{heading}: missing; a text that is not empty is needed"
    for key, value in content.items():
        if key not in ("schema", *HEADINGS) and not isinstance(value, dict):
            yield f"{key}: unknown key. {did_you_mean(key, ('schema', *HEADINGS))}"


def _table_problems(content: Mapping[str, Any]) -> Iterator[str]:
    entries = dict(_entries(content))
    for key, entry in entries.items():
        if key in KEYS or key.startswith(f"{SYSTEMS}."):
            yield from (f"{key}: {problem}" for problem in _entry_problems(key, entry))
        elif key not in HEADINGS:
            yield f"{key}: unknown key. {did_you_mean(key, KEYS)}"
    yield from _range_problems(entries)


def _entry_problems(key: str, entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{entry!r}; write it as {{ value = ..., source = ..., basis = ... }}"
        return
    if unknown := entry.keys() - {"value", "source", "basis"}:
        yield f"unknown {', '.join(sorted(unknown))}; an entry holds value, source and basis"
    value = entry.get("value")
    if type(value) is not int:  # a TOML boolean is an int to isinstance
        yield f"value {value!r}; a whole number is needed"
    elif key not in SIGNED_KEYS and value < (least := 0 if key in ZERO_KEYS else 1):
        yield f"value {value}; at least {least}"
    if not _is_text(entry.get("source")):
        yield "no source; say where the number is from"
    if entry.get("basis") not in BASES:
        yield f"basis {entry.get('basis')!r}; allowed are {', '.join(BASES)}"


def _range_problems(entries: Mapping[str, Any]) -> Iterator[str]:
    for name in ("formats.weight_exponent", "formats.threshold"):
        ends = [entries.get(f"{name}_{end}") for end in ("minimum", "maximum")]
        low, high = (end.get("value") if isinstance(end, dict) else None for end in ends)
        if type(low) is int and type(high) is int and low > high:
            yield f"{name}: the range {low}..{high} is empty"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
