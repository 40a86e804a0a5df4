"""The data sets by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..base import OWN_DATA, DataError, OptionError, did_you_mean
from .cifar import load_cifar10, load_cifar100
from .cifar10_dvs import load_cifar10_dvs
from .dataset import DataSet, Part
from .digits import load_digit_rows, load_digits
from .imagenet import load_imagenet
from .layout import cropped
from .mnist import load_fashion_mnist, load_mnist
from .own import OwnData, as_dataset, dataset_name, is_own, read_own
from .recordings import load_basic_motions, load_japanese_vowels

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
