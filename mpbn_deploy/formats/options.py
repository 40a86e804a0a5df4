"""The options of an export, defined once for

    export model.pt --target loihi2 --weight-bits 4      the command line
    export("model.pt", "loihi2", weight_bits=4)          the Python API
    "options": {"weight_bits": 4, ...}                   manifest.json
    fit --advise                                         which prints `ExportOptions.command`

Imports nothing heavy, so that command lines are parsed fast.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..base import USUAL_BUDGET, USUAL_SAMPLES, FormatError, OptionError, did_you_mean, option_name, record
from ..hardware.place import Tiling

Thresholds = Literal["own", "core", "shared"]
OverflowChoice = Literal["proved", "measured"]
PoolingChoice = Literal["composed", "relay", "auto"]
Side = Literal["chip", "host"]  # where a layer runs
Dialect = Literal["faithful", "portable"]
# How spikes reset in a NIR file, and which current a CubaLIF integrates; auto: as stated there, or assumed.
NirReset = Literal["auto", "zero", "subtract", "subtract-before-leak", "subtract-after-leak"]
NirCurrent = Literal["auto", "new", "previous"]

RECORDED = (
    "weight_bits",
    "calibration",
    "timesteps",
    "input_range",
    "input_shape",
    "input_offset",
    "input_bits",
    "normalize",
    "dt",
    "nir_dialect",
    "nir_reset",
    "nir_current",
    "thresholds",
    "overflow",
    "pooling",
    "tiling",
)
PLACEMENT_OPTIONS = ("chips", "tiling", "first_layer", "readout")  # which `fit` takes too
DATA_OPTIONS = ("data", "data_dir")
TUPLES = ("input_range", "input_shape", "normalize", "witness")


@record
class ExportOptions:
    """The options of an export, as given; those in `RECORDED` determine the bytes of the network files."""

    # How to read the model. Our checkpoints need none of these; other files may need them.
    timesteps: int | None = None
    input_range: tuple[int, int] | None = None
    input_shape: tuple[int, ...] | None = None
    input_offset: int = 0  # subtracted from the inputs
    input_bits: int | None = None  # None: inputs as they are
    normalize: tuple[float, ...] | None = None  # means, then as many deviations
    dt: float | None = None
    nir_reset: NirReset = "auto"
    nir_current: NirCurrent = "auto"
    arch: str | None = None
    # How to choose the integers.
    calibration: str | None = None
    weight_bits: int | None = None  # None: the widest that the target supports
    thresholds: Thresholds = "own"
    overflow: OverflowChoice = "proved"
    pooling: PoolingChoice = "composed"
    # Which samples to verify with.
    samples: int | None = USUAL_SAMPLES  # None: all
    data: str | None = None
    data_dir: Path | None = None
    budget: float = USUAL_BUDGET  # seconds for Lava's own models, and for each witness
    witness: tuple[str, ...] = ()  # simulators of others
    # What to write, and for how many chips.
    nir_dialect: Dialect = "faithful"
    chips: int = 1
    first_layer: Side = "chip"
    readout: Side = "chip"
    tiling: Tiling = "compiler"

    def __post_init__(self) -> None:
        """Take lists, and paths in any form, from callers in Python; raise if a choice is unknown."""
        wrong = [
            f"{name} {given!r}. {did_you_mean(str(given), choices)}"
            for name, choices in CHOICES.items()
            if (given := getattr(self, name)) not in choices
        ]
        if wrong:
            raise OptionError(" ".join(wrong))
        for name in TUPLES:
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        for name in ("data", "calibration"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, str(getattr(self, name)))
        if self.data_dir is not None:
            object.__setattr__(self, "data_dir", Path(self.data_dir))

    @classmethod
    def from_arguments(cls, parsed: Mapping[str, Any]) -> ExportOptions:
        """Build the record from parsed arguments, ignoring all others."""
        return cls(**{field.name: parsed[field.name] for field in fields(cls)})

    @classmethod
    def from_manifest(cls, recorded: Any, where: str) -> ExportOptions:
        """Read the options that `recorded` wrote; missing ones have their defaults."""
        hints = get_type_hints(cls)
        if not isinstance(recorded, dict) or not recorded.keys() <= set(RECORDED):
            raise FormatError(f"{where}: damaged; the options must be {', '.join(RECORDED)}.")
        for name, value in recorded.items():
            odd = name == "normalize" and isinstance(value, list) and len(value) % 2
            if odd or not _is_a(value, hints[name]):
                raise FormatError(f"{where}: damaged; the option {name} is {value!r}.")
        return cls(**recorded)

    def recorded(self) -> dict[str, Any]:
        """Return the options that the manifest records."""
        return {name: getattr(self, name) for name in RECORDED}

    def command(self, model: Path, target: str, out: Path | None = None) -> str:
        """Return the shell command that exports a model with these options, to the folder `out` if given."""
        words = ["python", "-m", "mpbn_deploy.export", str(model), "--target", target]
        words += typed(self, *(field.name for field in fields(self)))
        return shlex.join(words if out is None else [*words, "--out", str(out)])


def typed(options: object, *names: str) -> list[str]:
    """Return options as words of a command line, without those that have the default of `ExportOptions`."""
    words: list[object] = []
    for name in names:
        value, option = getattr(options, name), option_name(name)
        if name == "witness":
            words += [word for witness in value for word in (option, witness)]
        elif value != getattr(ExportOptions(), name):
            words.append(option)
            words += value if isinstance(value, (tuple, list)) else ["all" if value is None else value]
    return [*map(_word, words)]


def _word(value: object) -> str:
    """Return a word of a command line; 16.0 is typed as 16; argparse may take -1e-05 for an option."""
    return f"{Decimal(str(value)):f}".removesuffix(".0") if isinstance(value, float) else str(value)


CHOICES = {
    name: get_args(hint)
    for name, hint in get_type_hints(ExportOptions).items()
    if get_origin(hint) is Literal
}

_ALSO: dict[Any, tuple[type, ...]] = {float: (int,)}  # JSON writes both


def _is_a(value: object, hint: Any) -> bool:
    """Whether a JSON value has the type of a field: a literal, a plain type, a tuple, or a union of them."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    kinds = get_args(hint)
    if get_origin(hint) is tuple:  # of a given length, or of any
        if not isinstance(value, list) or (kinds[-1] is not ... and len(value) != len(kinds)):
            return False
        return all(_is_a(each, kinds[0]) for each in value)
    return any(_is_a(value, kind) for kind in kinds) if kinds else type(value) in (hint, *_ALSO.get(hint, ()))
