"""Options that declare themselves: a field of a stage's record is an option wherever options appear.

    class Quantizing(Options, recorded=True):
        weight_bits: int | None = option(None, "bits per weight", least=2)

    add_options(parser, Quantizing)     --weight-bits N, in a command and on its help page
    Quantizing.from_arguments(parsed)   the record of a parsed command line
    typed(options, Quantizing)          the words of a command that advice prints
    options.recorded()                  the entries of a manifest; `from_recorded` reads them, types checked
    options_schema(Quantizing)          the JSON schema of these entries

Records are combined by inheritance: whoever takes `Quantizing` takes an `ExportOptions`, too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import Field, dataclass, field, replace
from decimal import Decimal
from inspect import get_annotations
from math import inf, nan
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

from typing_extensions import Self, dataclass_transform

from .errors import FormatError, OptionError, did_you_mean

KINDS = {int: "a whole number", float: "a number", str: "a name"}
METAVARS = {int: "N", float: "NUMBER", str: "NAME", Path: "FILE"}
Record = TypeVar("Record", bound="Options")


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a field says of its option beside its type and default.

    `parse` reads a word where the type does not say how, `must` is a test of values and its words,
    `otherwise` says what an absent value means, `also` under which conditions the default is another; `none`
    is how None is typed for an option with another default: --samples all.
    """

    help: str
    metavar: str | tuple[str, ...] | None = None
    least: int = -(2**63)
    most: int = 2**63 - 1
    parse: Callable[[str], Any] | None = None
    choices: Collection[str] = ()  # where they are a registry's; those of a Literal are its own
    must: tuple[Callable[[Any], bool], str] | None = None
    otherwise: str = ""
    also: str = ""
    none: str = "all"
    recorded: bool | None = None  # in a manifest; None: as the record says


def option(default: Any, text: str, **declared: Any) -> Any:
    """Declare an option as a field of a record, with the fields of `Option`; () may be repeated."""
    return field(default=default, metadata={"option": Option(help=text, **declared)})


def option_name(name: str) -> str:
    """Return the option of a field: --weight-bits of weight_bits."""
    return f"--{name.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """An option as its field declares it; `count` is how many words it takes, None for a single value."""

    name: str
    option: Option
    default: Any
    hint: Any  # the type of a value, or of each of several
    word: str | None  # a value of its own beside the type: "auto" of int | Literal["auto"]
    count: int | Literal["+", "repeated"] | None
    optional: bool

    @classmethod
    def of(cls, field: Field[Any], hint: Any, recorded: bool) -> Declared:
        option: Option = field.metadata["option"]
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        optional = type(None) in kinds
        hint, *words = (each for each in kinds if each is not type(None))
        count: Any = None
        if get_origin(hint) is tuple:
            (hint, *more), default = get_args(hint), field.default
            count = "repeated" if default == () else "+" if more == [...] else 1 + len(more)
        return cls(
            name=field.name,
            option=option if option.recorded is not None else replace(option, recorded=recorded),
            default=field.default,
            hint=hint,
            word=get_args(words[0])[0] if words else None,
            count=count,
            optional=optional,
        )

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.hint) if get_origin(self.hint) is Literal else tuple(self.option.choices)

    # ---- values ---------------------------------------------------------------------------------

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value that a caller gave; nothing if it is sound."""
        if get_origin(self.hint) is Literal:
            values = (value,) if self.count is None or isinstance(value, str) else value
            if unknown := [each for each in values if each not in self.choices]:
                return f"{self.name} {unknown[0]!r}. {did_you_mean(str(unknown[0]), self.choices)}"
        if self.word is not None and not self._is_one(value):
            return f"{self.name} {value!r}; {KINDS[self.hint]} or {self.word!r} is needed."
        if self.option.must is None or self.option.must[0](value):
            return ""
        return f"{option_name(self.name)} {value}; {self.option.must[1]} is needed."

    def settled(self, value: Any) -> Any:
        """Return a value in the type of the field; callers may give lists, and paths in any form."""
        if self.optional and self.default is not None and value == self.option.none:  # as it is typed
            return None
        if self.count is not None:
            return (value,) if isinstance(value, str) else tuple(value)
        return self.hint(value) if self.hint in (Path, str) else value

    def accepts(self, value: Any) -> bool:
        """Return whether a JSON value has the type of the field, and is sound."""
        if value is None or self.count is None:
            return self.optional if value is None else self._is_one(value) and not self.problem(value)
        sized = isinstance(value, list) and self.count in ("+", "repeated", len(value))
        return sized and all(map(self._is_one, value)) and not self.problem(value)

    def _is_one(self, value: Any) -> bool:
        if get_origin(self.hint) is Literal:
            return value in self.choices
        kinds = (int, float) if self.hint is float else (self.hint,)
        return type(value) in kinds or (self.word is not None and value == self.word)

    # ---- the command line -----------------------------------------------------------------------

    def argument(self, recipes: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any]:
        """Return the arguments of `add_argument`; with recipes, None is an option that is not given."""
        default = None if recipes is not None else self.default
        shared = {"help": self.help(recipes), "default": default}
        if self.hint is bool:
            return {**shared, "action": "store_true" if recipes is None else argparse.BooleanOptionalAction}
        if self.count is not None:
            repeated = {"action": "append", "default": []}
            shared |= repeated if self.count == "repeated" else {"nargs": self.count}
        if self.choices:
            return {**shared, "choices": self.choices}
        return {**shared, "type": self.read, "metavar": self.option.metavar or METAVARS[self.hint]}

    def help(self, recipes: Mapping[str, Mapping[str, Any]] | None = None) -> str:
        """Return the help text, which ends with the defaults: "(default 8; paper 400; fast 28)"."""
        shown = f"{self.default:g}" if isinstance(self.default, float) and recipes is None else self.default
        absent = self.default is None or self.default == () or (self.default is False and recipes is None)
        usual = f"default: {self.option.otherwise}" if self.option.otherwise else f"default {shown}"
        others = [f"{name} {sets[self.name]}" for name, sets in (recipes or {}).items() if self.name in sets]
        defaults = [*([] if absent and not self.option.otherwise else [usual]), *others, self.option.also]
        listed = "; ".join(filter(None, defaults))
        return (f"{self.option.help} ({listed})" if listed else self.option.help).replace("%", "%%")

    @property
    def read(self) -> Callable[[str], Any]:
        """Return the argparse type that reads one word."""
        parse: Callable[[str], Any] = self.option.parse or self.hint
        if parse is int:
            parse = whole_number(self.option.least, self.option.most)
        words: dict[str, str | None] = {} if self.word is None else {self.word: self.word}
        if self.optional and self.default is not None:
            words[self.option.none] = None

        def read(text: str) -> Any:
            try:
                return words[text] if text in words else parse(text)
            except (ValueError, argparse.ArgumentTypeError) as error:
                if self.word is None:
                    raise
                needed = f"{KINDS[self.hint]} or {self.word}"
                raise argparse.ArgumentTypeError(f"{text!r} is not {needed}") from error

        return read

    def words(self, value: Any) -> Iterator[object]:
        """Yield the words that type a value."""
        if self.count == "repeated":
            for each in value:
                yield from (option_name(self.name), each)
        elif value != self.default:
            yield option_name(self.name)
            if self.hint is not bool:
                yield from (
                    value if self.count is not None else [self.option.none if value is None else value]
                )

    # ---- JSON schemas ---------------------------------------------------------------------------

    @property
    def schema(self) -> dict[str, Any]:
        kinds = {int: "integer", float: "number", bool: "boolean"}
        one: dict[str, Any] = {"type": kinds.get(self.hint, "string")}
        if get_origin(self.hint) is Literal:
            one["enum"] = [*self.choices, *([None] if self.optional else [])]
        if self.option.least > Option.least:
            one["minimum"] = self.option.least
        if self.word is not None:
            others = [{"const": self.word}, *([{"type": "null"}] if self.optional else [])]
            one = {"anyOf": [one, *others]}
        if self.count is not None:
            one = {"type": "array", "items": one}
        if self.optional and self.word is None:
            one["type"] = [one["type"], "null"]
        return {"description": self.option.help, **one}


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
class Options:
    """A frozen, keyword-only record of options; without slots, which could not be inherited from two."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    declared: ClassVar[dict[str, Declared]] = {}  # the options by name; other fields are none

    def __init_subclass__(cls, *, recorded: bool = False) -> None:
        own = [name for name in get_annotations(cls) if isinstance(vars(cls).get(name), Field)]
        hints = get_annotations(cls, eval_str=True) if own else {}
        dataclass(frozen=True, kw_only=True, eq=False)(cls)
        listed = [base.declared for base in reversed(cls.__mro__[1:]) if issubclass(base, Options)]
        found = [Declared.of(cls.__dataclass_fields__[name], hints[name], recorded) for name in own]
        listed.append({each.name: each for each in found})
        cls.declared = {name: each for options in listed for name, each in options.items()}

    def __post_init__(self) -> None:
        """Bring each value to its type; raise OptionError with all that is wrong."""
        given = [(each, getattr(self, each.name)) for each in self.declared.values()]
        given = [(each, value) for each, value in given if value is not None]
        if wrong := " ".join(filter(None, (each.problem(value) for each, value in given))):
            raise OptionError(wrong)
        for each, value in given:
            object.__setattr__(self, each.name, each.settled(value))

    @classmethod
    def from_arguments(cls, parsed: Any) -> Self:
        """Build the record from parsed arguments, or from another record, ignoring all others."""
        return cls(**{name: getattr(parsed, name) for name in cls.declared})

    @classmethod
    def from_recorded(cls, recorded: Any, where: str) -> Self:
        """Read what `recorded` returned, from JSON; options that are missing have their defaults."""
        known = {name: each for name, each in cls.declared.items() if each.option.recorded}
        if not isinstance(recorded, dict) or not recorded.keys() <= known.keys():
            raise FormatError(f"{where}: damaged; the options must be {', '.join(known)}.")
        for name, value in recorded.items():
            if not known[name].accepts(value):
                raise FormatError(f"{where}: damaged; the option {name} is {value!r}.")
        return cls(**recorded)

    def recorded(self) -> dict[str, Any]:
        """Return the options that a manifest records."""
        return {n: getattr(self, n) for n, each in self.declared.items() if each.option.recorded}


def changed(options: Record | None, record: type[Record], changes: Mapping[str, Any]) -> Record:
    """Return the options, the defaults if None, with the changes that a caller gave by keyword."""
    return replace(record() if options is None else options, **changes)


def add_options(
    group: argparse._ActionsContainer,
    record: type[Options],
    *names: str,
    recipes: Mapping[str, Mapping[str, Any]] | None = None,
    **changes: Mapping[str, Any],
) -> None:
    """Add the options of a record, or those of some names; `changes` are fields of `Option`, by name.

    With `recipes`, named sets of other defaults, an option that is not given is None.
    """
    for name, each in record.declared.items():
        if not names or name in names:
            each = replace(each, option=replace(each.option, **changes.get(name, {})))
            group.add_argument(option_name(name), **each.argument(recipes))


def add_network(parser: argparse.ArgumentParser, facts: type[Options], *, optional: bool = False) -> None:
    """Add the network to open, and the facts that its file may lack."""
    parser.add_argument_group("network").add_argument(
        "network",
        type=Path,
        nargs="?" if optional else None,
        help="a folder that `export` wrote, or a .net file of lava-dl (netx)",
    )
    add_options(parser.add_argument_group("network files", "Facts that a .net file may lack."), facts)


def typed(options: object, *records: type[Options]) -> list[str]:
    """Return options as words of a command line, without those that have their defaults."""
    listed = {name: each for record in records for name, each in record.declared.items()}
    return [_word(word) for name, each in listed.items() for word in each.words(getattr(options, name))]


def _word(value: object) -> str:
    """Return a word of a command line; 16.0 is typed as 16; argparse may take -1e-05 for an option."""
    return f"{Decimal(str(value)):f}".removesuffix(".0") if isinstance(value, float) else str(value)


def options_schema(record: type[Options], **described: Any) -> dict[str, Any]:
    """Return the JSON schema of what `recorded` returns."""
    known = {name: each.schema for name, each in record.declared.items() if each.option.recorded}
    return {**described, "type": "object", "required": [*known], "properties": known}


# Values of options, read from words: argparse types that say what is allowed.


LOCAL = "local:"  # --cluster local:2
SCHEMES = ("tcp", "tls")
MAX_WORKERS = 1024  # on one machine; a larger number is probably a typing error
HANG_SECONDS = 1800.0  # after which a block of Lava's time steps counts as hanging
WIDEST_INPUT = 2**23  # larger values overflow every state
USUAL_SAMPLES = 16
USUAL_BUDGET = 60.0  # seconds for Lava's own process models
OWN_DATA = "a .npz or .npy file, a folder with one sub-folder per class, or package.module:function"


def whole_number(least: int = -(2**63), most: int = 2**63 - 1) -> Callable[[str], int]:
    """Return an argparse type for a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            several = re.findall(r"-?\d+", text) if "," in text else []
            hint = f"; separate numbers by spaces: {' '.join(several)}" if several else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number{hint}") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is too small; at least {least}")
        if number > most:
            raise argparse.ArgumentTypeError(f"{number} is too large; at most {most}")
        return number

    return parse


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}; a number from 0 to 1 is needed")
    return value


def seconds(text: str) -> float:
    """Parse a time that is finite and not negative."""
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not 0 <= found < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; at least 0")
    return found


def cluster_address(text: str) -> str:
    """Parse the address of a scheduler, or local:N."""
    if text.startswith(LOCAL):
        whole_number(1, MAX_WORKERS)(text.removeprefix(LOCAL))
    elif host_and_port(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address; give tcp://host:8786, or local:2")
    return text


def local_workers(address: str) -> int:
    """Return N for local:N."""
    try:
        return whole_number(1, MAX_WORKERS)(address.removeprefix(LOCAL))
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"cluster {address}: {error}.") from error


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return ('host', 8786) for tcp://host:8786, and None for anything else."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if parts.scheme not in SCHEMES or not host or not port else (host, port)
