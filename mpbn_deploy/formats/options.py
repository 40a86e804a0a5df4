"""The options of each stage of an export, declared once (`base/options.py`) for

    export model.pt --target loihi2 --weight-bits 4      the command line, and that of fit, run and verify
    export("model.pt", "loihi2", weight_bits=4)          the Python API
    weight_bits = 4                                      run.toml
    "options": {"weight_bits": 4, ...}                   manifest.json and its JSON schema
    fit --advise                                         which prints `ExportOptions.command`

An option is recorded in the manifest if it determines the bytes of the network files. Imports nothing heavy,
so that command lines are parsed fast.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Literal

from typing_extensions import Self

from ..base import (
    HANG_SECONDS,
    OWN_DATA,
    USUAL_BUDGET,
    USUAL_SAMPLES,
    WIDEST_INPUT,
    FormatError,
    Options,
    class_of,
    cluster_address,
    did_you_mean,
    option,
    option_name,
    read_text,
    seconds,
    typed,
    whole_number,
)
from ..data import DATASETS, IN_MEMORY, RANDOM
from ..hardware.place import Tiling

CALIBRATION_SAMPLES = 256

Thresholds = Literal["own", "core", "shared"]
OverflowChoice = Literal["proved", "measured"]
PoolingChoice = Literal["composed", "relay", "auto"]
Side = Literal["auto", "chip", "host"]  # where a layer runs
Dialect = Literal["faithful", "portable"]
Emitted = Literal["c"]  # what can be written beside NIR and netx
# How spikes reset in a NIR file, and which current a CubaLIF integrates; auto: as stated there, or assumed.
NirReset = Literal["auto", "zero", "subtract", "subtract-before-leak", "subtract-after-leak"]
NirCurrent = Literal["auto", "new", "previous"]
Auto = Literal["auto"]
AUTO: Auto = "auto"
# What manifests that do not name these options mean.
BEFORE_AUTO = {"input_offset": 0, "calibration": None, "pooling": "composed", "tiling": "compiler"}


class FileFacts(Options, recorded=True):
    """What a file of another tool may leave out."""

    timesteps: int | None = option(
        None, "time steps per sample", least=1, otherwise="as trained, or as the file states"
    )
    input_range: tuple[int, int] | None = option(
        None,
        "range of the integer input values, if the file does not state it",
        metavar=("LOWEST", "HIGHEST"),
        least=-WIDEST_INPUT,
        most=WIDEST_INPUT,
        otherwise="0 1, spikes",
    )
    input_shape: tuple[int, ...] | None = option(
        None,
        "shape of one sample in one time step, for a bare state_dict, a .net file without input layer, or a "
        ".nir file that states another: channels height width, or features",
        metavar="SIZE",
        least=1,
    )


class Reading(FileFacts, recorded=True):
    """How to read the model. Our checkpoints need none of these; other files may need them."""

    arch: str | None = option(
        None,
        "how to build the network of a checkpoint with an architecture of your own: package.module:factory, "
        "a function in your code, which is imported and called; for a checkpoint of the paper's code: "
        "paper:res20m, paper:res19, paper:res20 or paper:VGG16, together with --timesteps",
        recorded=False,
    )
    normalize: tuple[float, ...] | None = option(
        None,
        "how the inputs of a bare state_dict or a .nir file were normalized in training: "
        "(x - mean) / deviation, where x is in --input-range; for a state_dict also the means of all "
        "channels, and then their deviations",
        metavar=("MEAN", "DEVIATION"),
        otherwise="not at all",
    )
    dt: float | None = option(
        None,
        "duration of one time step, if a .nir file does not state it",
        metavar="SECONDS",
        otherwise="1e-4",
    )
    nir_reset: NirReset = option(
        "auto",
        "how spikes reset in a .nir file, which NIR does not say: zero; subtract the threshold, as the "
        "recognized writer does it, or before or after the next leak; auto: as the file's metadata states, "
        "or else assumed, and reported as an assumption",
    )
    nir_current: NirCurrent = option(
        "auto",
        "which current a CubaLIF of a .nir file integrates: new or previous; auto as above, new if assumed",
    )
    static_steps: bool = option(
        False,
        "give the norms per time step of a checkpoint (TEBN, BNTT, TAB) one gain and offset for all steps, "
        "their means, for chips whose neurons have one set of numbers; what that costs is reported",
    )


class Pooling(Options, recorded=True):
    """How pooling is expressed."""

    pooling: PoolingChoice = option(
        "auto",
        "composed: merge pooling into the next kernels; relay: neurons that pass sums on as graded "
        "messages, with the same integers everywhere else; auto: whichever needs fewer cores of the target, "
        "in this --tiling",
    )


class Quantizing(Pooling, recorded=True):
    """How to choose the integers."""

    weight_bits: int | Auto | None = option(
        None,
        "bits per weight, including the sign; fewer bits take less memory and change more spikes; auto: "
        "bits per layer, by sensitivity on the calibration data, as few as keep its predictions or as "
        "--most-bytes and --most-cores need",
        least=2,
        otherwise="the most that the target supports",
    )
    most_bytes: int | None = option(
        None, "with --weight-bits auto: the most bytes that weights may take", least=1
    )
    most_cores: int | None = option(
        None, "with --weight-bits auto: the most cores that the network may take", least=1
    )
    input_offset: int | Auto = option(
        AUTO,
        "let the network take inputs minus N; for pixels (0 to 255), 128 makes the biases of the first layer "
        "small, which leaves more bits to its weights; the folded network stays the same; auto: the middle "
        "of the inputs, where that gives weights at least a bit more",
    )
    input_bits: int | None = option(
        None,
        "round inputs to this many bits; many time steps of 8-bit values leave few bits of a state for "
        "weights",
        least=1,
        otherwise="as they are",
    )
    calibration: str | None = option(
        AUTO,
        f"choose the integers that change the fewest spikes on {CALIBRATION_SAMPLES} training samples of "
        f"this data set: {', '.join(DATASETS)}, or your own as for --data; auto: of the data to verify with, "
        "if they are there, on none that are tested; none: round to the nearest integers",
        none="none",
    )
    thresholds: Thresholds = option(
        "own",
        "own: every channel or neuron keeps its own threshold, within the target's limits; core: one "
        "threshold per core of the target; shared: one per population, for chips and tools that support no "
        "more",
    )
    overflow: OverflowChoice = option(
        "proved",
        "proved: no input can make a membrane voltage overflow; measured: finer integers, with only a "
        "margin above the voltages that calibration samples reach; needs samples",
    )


class DataChoice(Options):
    """Where samples come from."""

    data: str | None = option(
        None,
        f"data set of these samples: {', '.join((*DATASETS, RANDOM))}; or your own, {OWN_DATA}",
        otherwise="the data set the model was trained on",
    )
    data_dir: Path | None = option(
        None, "folder with the files of the data set, if it needs one", metavar="FOLDER"
    )


class SampleCount(Options):
    """How many samples to run."""

    samples: int | None = option(USUAL_SAMPLES, "number of test samples, or `all`", least=1)


class Sampling(DataChoice, SampleCount):
    """Which samples to run."""


class Verifying(Sampling):
    """Which samples to verify with, and against what."""

    budget: float | None = option(
        USUAL_BUDGET,
        "time for Lava's own process models, which are slow: as many samples and populations are compared as "
        "fit into it; lava-dl's reader gets a quarter of it; 0: neither runs; all: all samples, however long "
        "it takes",
        metavar="SECONDS",
        parse=seconds,
    )
    witness: tuple[str, ...] = option(
        (), "also compare with this third-party simulator, for about --budget seconds; may be repeated"
    )


class Executing(Options):
    """How to run Lava's simulator."""

    cluster: str | None = option(
        None,
        "distribute the samples over Dask workers: the address of a scheduler (tcp://host:8786), or local:2 "
        "for two workers on this machine",
        metavar="ADDRESS",
        parse=cluster_address,
    )
    patience: float = option(
        HANG_SECONDS,
        "time limit for one block of Lava's time steps (a hundredth of a run), after which it counts as "
        "hanging",
        metavar="SECONDS",
        parse=whole_number(1),
    )


class Details(Options):
    """How much to print."""

    verbose: bool = option(
        False,
        "print every comparison, layer, finding and note after the verdict; report.html also has them",
    )


class Placing(Options):
    """What runs where."""

    chips: int = option(1, "number of chips that the network may occupy", least=1)
    first_layer: Side = option(
        "auto",
        "where the first layer runs: chip; host, which sends the layer's spikes to the chip, for chips that "
        "accept no graded input; auto, the host only if the network does not fit otherwise",
    )
    readout: Side = option(
        "auto",
        "where the readout runs, which never fires: chip; host, which sums the spikes that reach it, in the "
        "same integers; auto, the host only if the network does not fit otherwise",
    )
    tiling: Tiling = option(
        "auto",
        "how layers are partitioned into cores: compiler, as the chip's own tools do it; best, a search for "
        "the fewest cores; auto, best where it takes fewer cores",
        recorded=True,
    )


class Writing(Options, recorded=True):
    """What to write."""

    nir_dialect: Dialect = option(
        "faithful",
        "thresholds in network.nir: faithful, unchanged; portable, rescaled to one threshold for all "
        "neurons, which snnTorch and SpikingJelly require and not every network allows",
    )
    emit: tuple[Emitted, ...] = option(
        (),
        "also write the network as c: a C program with a self-test, in the folder c/, as for every target "
        "that is a processor; may be repeated",
        recorded=False,
    )
    c_prefix: str = option(
        "net", "how the names of the C program begin: net_run, NET_OUTPUTS", recorded=False
    )


# A dataclass begins with the fields of its last base.
class ExportOptions(Writing, Placing, Verifying, Quantizing, Reading):
    """The options of an export: those of all its stages."""

    @classmethod
    def from_recorded(cls, recorded: Any, where: str) -> Self:
        known = {**BEFORE_AUTO, **recorded} if isinstance(recorded, dict) else recorded
        found = super().from_recorded(known, where)
        if len(found.normalize or ()) % 2:
            raise FormatError(f"{where}: damaged; the option normalize is {list(found.normalize or ())}.")
        return found

    @property
    def calibrated(self) -> bool:
        """Whether a data set to calibrate on is named; "auto" names none."""
        return self.calibration not in (AUTO, None)

    def command(self, model: Path, target: str, out: Path | None = None) -> str:
        """Return the shell command that exports a model with these options, to the folder `out` if given."""
        words = ["python", "-m", "mpbn_deploy.export", str(model), "--target", target]
        words += typed(self, ExportOptions)
        return shlex.join(words if out is None else [*words, "--out", str(out)])


# run.toml: an export as a file, to write by hand or to repeat.
#
#     model = "model.pt"
#     target = "loihi2"
#     weight_bits = 4          the options of `export`, with _ for -; those left out have their defaults
#
# Every export writes this file into its folder. Paths are as typed: relative ones start in the current
# folder.


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
        if not (_is_switch(name) if isinstance(value, bool) else _is_plain(value)):
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
        elif isinstance(value, bool):
            words += [option] * value
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


def _is_switch(name: str) -> bool:
    known = ExportOptions.declared.get(name)
    return known is not None and known.hint is bool


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


# What is assumed of an untrained network unless the user says otherwise; importable without torch.


INPUT_RANGE = (0, 255)  # pixels
CLASSES = 10
FIRING_RATE = 0.1  # share of neurons that fire in a time step
