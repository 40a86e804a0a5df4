"""Choose the samples that a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..base import (
    OWN_DATA,
    USUAL_SAMPLES,
    Array,
    DataError,
    OptionError,
    announce,
    array_record,
    class_of,
    did_you_mean,
    record,
)
from ..ir import FoldedNetwork, Input, IntNetwork, counting
from .dataset import Changed, DataSet, Inputs, Part, Split, arranged, cropped, followed_by_silence, presented
from .images import (
    load_cifar10,
    load_cifar100,
    load_digit_rows,
    load_digits,
    load_fashion_mnist,
    load_imagenet,
    load_mnist,
)
from .own import OwnData, as_dataset, dataset_name, inputs_and_labels, is_own, own_from_arrays, read_own
from .own_files import named_arrays
from .reading import WHITE
from .recordings import load_basic_motions, load_cifar10_dvs, load_japanese_vowels

RANDOM = "random"
SAMPLE_SEED = 0
SMALL_PART = 2  # values that cover at most 1 / SMALL_PART of the range of inputs are announced


@record
class Samples:
    """Inputs to run, with their labels and the whole test split if they are known."""

    name: str
    inputs: Array
    labels: Array | None
    test: Split | None

    @property
    def random(self) -> bool:
        return self.name == RANDOM


def check_data_name(data: str) -> None:
    """Raise if samples can be taken neither from a data set of this name nor from a file or function."""
    if data not in (*DATASETS, RANDOM) and not is_own(data):
        raise unknown_data(data, (*DATASETS, RANDOM))


def choose_samples(
    network: IntNetwork | FoldedNetwork,
    count: int | None,
    data: str | None,
    data_dir: Path | None,
    loaded: LoadedPart | None = None,
) -> Samples:
    """Return the first `count` test samples of a data set (None: all), or random inputs without one.

    Random inputs have no end: as many are drawn as are usual where all are asked for. Samples that are
    `loaded` already are not read again.
    """
    if data is None:
        announce_random("no data set is known", "choose data with --data")
    if data is None or data == RANDOM:
        return _random_samples(network, USUAL_SAMPLES if count is None else count)
    check_data_name(data)
    name = dataset_name(data)
    part = fitting_part(network, data, data_dir, "test", loaded)
    _check_values(network, name, part.inputs)
    _check_labels(network, name, part.labels)
    available = len(part.inputs)
    if count is not None and count > available:
        announce(
            f"note: --samples {count}, but {name} has {available} test samples; all {available} are used"
        )
    chosen = slice(None, count)
    return Samples(
        name=name,
        inputs=part.inputs[chosen],
        labels=None if part.labels is None else part.labels[chosen],
        test=None if part.labels is None else Split(inputs=part.inputs, labels=part.labels),
    )


def announce_random(why: str, remedy: str) -> None:
    """Announce that inputs are random, why, and what to do about it."""
    announce(f"note: {why}, so inputs are random, and so are firing rates, energy and time; {remedy}")


def fitting_part(
    network: IntNetwork | FoldedNetwork,
    data: str,
    data_dir: Path | None,
    part: str,
    loaded: LoadedPart | None = None,
) -> Part:
    """Return the samples to "train" or to "test" with, as the network takes them."""
    found, axes = load_part(data, data_dir, part) if loaded is None else loaded
    name = dataset_name(data)
    taken = network.input_range
    quiet = part == "train"  # what is said of the samples to test with holds for these
    if not taken.takes_raw_values and not quiet:
        announce(
            f"note: the network takes {taken.minimum}..{taken.maximum}, which are values of {name}"
            f"{taken.conversion} ({conversion_options(taken)})"
        )
    given = presented(found.inputs, taken)
    if any(counting(p.neuron) is not None for p in network.layers) and len(given.shape) == 3:
        given = followed_by_silence(np.asarray(given[:]), network.timesteps)
    inputs = arranged(name, given, network.input.shape, network.timesteps, axes, quiet=quiet)
    return Part(inputs=inputs, labels=found.labels)


def conversion_options(taken: Input) -> str:
    """Return the options of an export that ask for the conversion of data to these inputs."""
    asked = {"--input-offset": taken.offset != 0, "--input-bits": taken.divisor > 1}
    return ", ".join(option for option, given in asked.items() if given)


def _check_values(network: IntNetwork | FoldedNetwork, name: str, inputs: Inputs) -> None:
    """Raise if an array has values beyond the network's range; images on disk are checked when they run."""
    if isinstance(inputs, Changed):
        inputs = inputs.inputs
    if not isinstance(inputs, np.ndarray):
        return
    allowed, lowest, highest = network.input_range, int(inputs.min()), int(inputs.max())
    taken = f"{allowed.minimum}..{allowed.maximum}"
    if lowest < allowed.minimum or highest > allowed.maximum:
        wider = (
            allowed.divisor * edge + allowed.offset
            for edge in (min(lowest, allowed.minimum), max(highest, allowed.maximum))
        )
        raise DataError(
            f"{name}: inputs{allowed.conversion} from {lowest} to {highest}; the network takes {taken}. Give "
            "raw values of that range, not normalized ones; or export it again (a bare state_dict or a NIR "
            f"file), or read it (a .net file), with --input-range {' '.join(map(str, wider))}; where "
            "--normalize divides inputs, its numbers change with their units."
        )
    if SMALL_PART * (highest - lowest) <= allowed.maximum - allowed.minimum:
        announce(
            f"note: inputs of {name} are {lowest} to {highest}, a small part of what the network takes, "
            f"{taken}. If they were scaled, give raw values; if not, a narrower --input-range leaves more "
            "bits for weights"
        )


def _check_labels(network: IntNetwork | FoldedNetwork, name: str, labels: Array | None) -> None:
    outputs = network.layers[-1].size
    if labels is not None and labels.max() >= outputs:
        raise DataError(
            f"{name}: label {labels.max()}; the network has {outputs} outputs, for labels 0..{outputs - 1}. "
            "Save labels that count from 0."
        )


def _random_samples(network: IntNetwork | FoldedNetwork, count: int) -> Samples:
    """Return random inputs: spikes that vary over time for binary inputs, still images otherwise."""
    allowed = network.input_range
    spikes = (allowed.minimum, allowed.maximum) == (0, 1)
    size = (count, *((network.timesteps,) if spikes else ()), *network.input.shape)
    inputs = np.random.default_rng(SAMPLE_SEED).integers(allowed.minimum, allowed.maximum + 1, size=size)
    return Samples(name=RANDOM, inputs=inputs, labels=None, test=None)


# The data sets by name.


DATASETS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": load_digits,
    "digits-rows": load_digit_rows,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "cifar10-dvs": load_cifar10_dvs,
    "imagenet": load_imagenet,
    "japanese-vowels": load_japanese_vowels,
    "basic-motions": load_basic_motions,
}


IN_MEMORY = "python:"  # how names of data begin that Python callers gave as arrays
LoadedPart = tuple[Part, str | None]  # samples, and their axes if known


def load_dataset(name: str | Path, folder: str | Path | None = None) -> DataSet:
    """Load a data set by name, most of which need the folder of their files, or the user's own data."""
    found = _load(str(name), None if folder is None else Path(folder))
    return as_dataset(found) if isinstance(found, OwnData) else found


def load_part(name: str, folder: Path | None, part: str) -> LoadedPart:
    """Load samples to "train" or to "test" with, whose labels may be unknown, and their axes if known."""
    found = _load(name, folder)
    if isinstance(found, OwnData):
        return found.part(part), found.facts.axes
    return _of_dataset(found, part)


def _of_dataset(found: DataSet, part: str) -> LoadedPart:
    split = found.train if part == "train" else found.test
    return Part(inputs=cropped(split.inputs, found.input_format.shape), labels=split.labels), None


def load_parts(name: str, folder: Path | None) -> dict[str, LoadedPart | None]:
    """Load the samples to "test" with, and those to "train" with if the data have any beside them."""
    found = _load(name, folder)
    if isinstance(found, OwnData):
        return parts_of(found)
    return {part: _of_dataset(found, part) for part in ("test", "train")}


def parts_of(found: OwnData) -> dict[str, LoadedPart | None]:
    """Return the samples to test with, and those to train with if the data have any beside them."""
    test = found.part("test"), found.facts.axes
    trainable = found.parts.keys() & {"train", ""}
    train = (found.part("train", quiet=True), found.facts.axes) if trainable else None
    return {"test": test, "train": train}


def _load(name: str, folder: Path | None) -> DataSet | OwnData:
    if name in DATASETS:
        return DATASETS[name](folder)
    if not is_own(name):
        raise unknown_data(name, DATASETS)
    return read_own(name, folder)


def unknown_data(name: str, known: Iterable[str]) -> OptionError:
    """Build the error for a name that stands for no data."""
    return OptionError(
        f"no data set named {name!r}. {did_you_mean(name, known)} Your own data can be {OWN_DATA}."
    )


def data_named_by_file(name: str, typed: str | None) -> str:
    """Return the data set that a model or an export names; only the user can name own files and code."""
    if typed is not None and dataset_name(typed) == name:
        return typed
    if name.startswith(IN_MEMORY):
        raise DataError(
            f"the export was made in Python, with samples in memory ({name}). Save the whole numbers that it "
            "announced, np.savez('mine.npz', inputs=n, labels=y), and add --data mine.npz"
        )
    if name not in DATASETS:
        raise DataError(
            f"{name} is your own data, of which only the name is recorded; files and functions that a model "
            "or an export names are not opened unless you give them. Add --data with the path or function: "
            f"--data {name}"
        )
    return name


# Samples in memory: arrays, a torch Dataset or DataLoader, our data sets; and the integers behind them.
#
# Chips take whole numbers. Fractions are usually whole numbers that were scaled, x = (n - mean) / deviation,
# as torchvision's ToTensor and Normalize do with bytes. The numbers n are found, and the module is given x
# again.


MAX_LEVELS = 2**16  # values of a channel that may still come from whole numbers: those of 16 bits
NOISE = 2.0**-20  # of the range: float32 holds 24 bits, of which normalization loses a few
OFF_GRID = 1 / 64  # of a step: how far values may be from whole numbers of steps


@array_record
class Scaling:
    """x = (n - mean) / deviation for whole numbers n; one number each, or one per channel."""

    mean: Array
    deviation: Array

    @property
    def identity(self) -> bool:
        return not self.mean.any() and bool((self.deviation == 1).all())

    @property
    def numbers(self) -> tuple[float, ...]:
        """As the option --normalize takes them: the means, then the deviations."""
        return (*map(float, self.mean), *map(float, self.deviation))


@record
class InMemory:
    """Samples as whole numbers, how the module's inputs follow from them, and a note if they were rounded."""

    own: OwnData
    scaling: Scaling
    lowest: int
    highest: int
    note: str | None


def in_memory(found: Any, train: Any = None) -> InMemory:
    """Return samples that a Python caller gives; those of `train` are for calibration, and not tested."""
    known = isinstance(found, DataSet) and found.name in DATASETS
    name = found.name if known else f"{IN_MEMORY}{_kind(found)}"
    arrays = _named(name, found)
    if train is not None:
        beside = _named(name, train)
        tested, others = (inputs_and_labels(each) for each in (arrays, beside))
        arrays = {f"test_{key}": value for key, value in tested.items()}
        arrays |= {f"train_{key}": value for key, value in others.items()}
    inputs = {key: np.asarray(value) for key, value in arrays.items() if key.endswith("inputs")}
    scaling, note = _scaling(name, np.concatenate([*inputs.values()]))
    whole = {key: _whole(value, scaling) for key, value in inputs.items()}
    lowest = min(int(value.min()) for value in whole.values())
    highest = max(int(value.max()) for value in whole.values())
    if scaling.numbers == (0.0, float(WHITE)):  # bytes, whether or not all values occur
        lowest, highest = 0, WHITE
    return InMemory(
        own=own_from_arrays(name, {**arrays, **whole}),
        scaling=scaling,
        lowest=lowest,
        highest=highest,
        note=note,
    )


def _kind(found: Any) -> str:
    return "arrays" if isinstance(found, (tuple, list, Mapping)) else type(found).__name__


def _named(name: str, found: Any) -> dict[str, Any]:
    """Return arrays by the names that a .npz file would have."""
    if isinstance(found, DataSet):
        return {**_split("train_", found.train), **_split("test_", found.test)}
    if isinstance(found, Split):
        return _split("", found)
    if hasattr(found, "dataset") and hasattr(found, "batch_size"):  # a DataLoader
        return _batches(name, found)
    if isinstance(found, Mapping):
        found = {key: _array(value) for key, value in found.items()}
    elif isinstance(found, (tuple, list)):
        found = tuple(map(_array, found))
    return inputs_and_labels(named_arrays(name, found))


def _array(value: Any) -> Any:
    """Return a list or a tensor as an array; a tensor may be on a device and carry gradients."""
    for method in ("detach", "cpu"):
        value = getattr(value, method, lambda value=value: value)()
    return np.asarray(value) if isinstance(value, list) or hasattr(value, "__array__") else value


def _split(prefix: str, split: Split) -> dict[str, Any]:
    return {f"{prefix}inputs": split.inputs[:], f"{prefix}labels": split.labels}


def _batches(name: str, loader: Any) -> dict[str, Any]:
    """Return all batches of a DataLoader, joined."""
    batches = [batch if isinstance(batch, (tuple, list)) else (batch,) for batch in loader]
    if not batches:
        raise DataError(f"{name}: the DataLoader gives no batches.")
    if any(len(batch) not in (1, 2) for batch in batches):
        raise DataError(f"{name}: batches of {len(batches[0])} parts; (inputs, labels) are needed.")
    parts = [np.concatenate([*map(_array, column)]) for column in zip(*batches, strict=True)]
    return dict(zip(("inputs", "labels"), parts, strict=False))


# ---- whole numbers behind fractions -------------------------------------------------------------


def _scaling(name: str, inputs: Array) -> tuple[Scaling, str | None]:
    """Return how inputs follow from whole numbers; a note if that is not so, and they are to be rounded."""
    if inputs.dtype.kind not in "biuf" or inputs.size == 0 or not np.isfinite(inputs).all():
        raise DataError(f"{name}: inputs of {class_of(inputs.dtype)}; finite numbers are needed.")
    for factor in (1.0, float(WHITE)):  # whole numbers, and bytes that ToTensor divided
        scaled = inputs * factor if factor > 1 else inputs
        if np.abs(scaled - np.rint(scaled)).max() <= NOISE * factor:
            return Scaling(mean=np.zeros(1), deviation=np.full(1, factor)), None
    channels = [inputs] if inputs.ndim < 4 else [*np.moveaxis(inputs, -3, 0)]
    for parts in ([inputs], channels):
        grids = [_grid(part) for part in parts]
        if all(grid is not None for grid in grids):
            mean, deviation = np.array(grids, float).T
            return Scaling(mean=mean, deviation=deviation), None
    lowest, highest = float(inputs.min()), float(inputs.max())
    step = (highest - lowest) / WHITE
    note = (
        f"{name}: inputs from {lowest:.6g} to {highest:.6g} come from no whole numbers; they are rounded to "
        f"8 bits, by at most {step / 2:.3g}. All figures, those of PyTorch too, are for rounded inputs."
    )
    announce(f"note: {note}")
    return Scaling(mean=np.array([-lowest / step]), deviation=np.array([1 / step])), note


def _grid(values: Array) -> tuple[float, float] | None:
    """Return mean and deviation if values are equally spaced, some of them missing; None if they are not."""
    levels = np.unique(np.asarray(values, np.float64))
    span = levels[-1] - levels[0]
    if not span:
        return float(-levels[0]), 1.0  # one value: n = 0
    gaps = np.diff(levels)
    step = _divisor(np.unique(gaps[gaps > NOISE * span]), NOISE * span)
    if step is None:
        return None
    step = span / np.rint(span / step)  # of the longest distance: the most exact
    counts = (levels - levels[0]) / step
    if np.abs(counts - np.rint(counts)).max() > OFF_GRID:
        return None
    first = levels[0] / step
    mean = 0.0 if abs(first - np.rint(first)) <= OFF_GRID else -first
    return float(mean), float(1 / step)


def _divisor(gaps: Array, noise: float) -> float | None:
    """Return the largest step of which all gaps are multiples, by Euclid's algorithm; None if it is noise."""
    step = float(gaps[0])
    for gap in gaps[1:].tolist():
        while gap > noise:
            step, gap = gap, abs(step - gap * np.rint(step / gap))
    return step if step * MAX_LEVELS > gaps.max() else None


def _whole(values: Array, scaling: Scaling) -> Array:
    """Return n = x * deviation + mean, rounded."""
    ones = (1, 1) if len(scaling.mean) > 1 else ()
    mean, deviation = (each.reshape(-1, *ones) for each in (scaling.mean, scaling.deviation))
    whole: Array = np.rint(values * deviation + mean).astype(np.int32)
    return whole
