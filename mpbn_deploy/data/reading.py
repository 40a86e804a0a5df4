"""What all readers of data sets share: finding a folder, reading files with bounds, checking labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..base import Array, DataError, record
from ..ir import InputFormat

Item = TypeVar("Item")

LARGEST_FILE = 2**30  # several times the largest file of any data set here
WHITE = 255


@record
class Place:
    """Where a data set usually lies, and where it comes from."""

    name: str
    looked_for: str
    subfolders: tuple[str, ...]
    origin: str
    default: Path | None = None


def find_folder(place: Place, folder: Path | None, holds: Callable[[Path], bool]) -> Path:
    """The folder given (or the default one), or a usual sub-folder of it, whichever holds the data set."""
    root = folder or place.default
    if root is None:
        raise missing(place, "no folder was given")
    try:
        found = [path for path in (root, *(root / name for name in place.subfolders)) if holds(path)]
    except OSError as error:
        raise missing(place, f"{root}: {error.strerror}") from error
    if not found:
        usual = f"{root} and its sub-folders {', '.join(place.subfolders)}"
        raise missing(place, f"looked in {usual}" if root.is_dir() else f"{root} is no folder")
    return found[0]


def missing(place: Place, reason: str) -> DataError:
    """Says what was looked for and where, where it comes from, and what to type."""
    return DataError(
        f"{place.name}: {place.looked_for} not found ({reason}). Get the data set from {place.origin}, "
        f"and name its folder: --data {place.name} --data-dir FOLDER"
    )


def read_bytes(path: Path) -> bytes:
    """All of a file that belongs to a data set."""
    size = file_size(path)
    if size > LARGEST_FILE:
        raise DataError(f"{path}: {size} bytes; at most {LARGEST_FILE} are read.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def file_size(path: Path) -> int:
    """In bytes, of a file that must be there."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; the data set is not complete.")
    return path.stat().st_size


def file_names(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """The names in a folder, in order, that end so in small or capital letters; hidden ones are left out."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read as a folder ({error.strerror}).") from error
    return [name for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]


def as_labels(path: Path, values: ArrayLike, classes: int) -> Array:
    """Labels as int64, each of them the number of a class."""
    labels = np.asarray(values, np.int64)
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise DataError(
            f"{path}: label {wrong[0]} ({wrong.size} such of {labels.size}); allowed are 0..{classes - 1}."
        )
    return labels


def read_names(path: Path, classes: int) -> tuple[str, ...]:
    """The names of the classes, one on a line."""
    lines = read_bytes(path).decode("utf-8", errors="replace").split("\n")
    return check_names(path, [line.strip() for line in lines if line.strip()], classes)


def check_names(path: Path, names: Sequence[str], classes: int) -> tuple[str, ...]:
    if len(names) != classes:
        raise DataError(f"{path}: {len(names)} names of classes; {classes} are needed.")
    return tuple(names)


def byte_format(shape: tuple[int, ...], mean: Sequence[float], deviation: Sequence[float]) -> InputFormat:
    """Bytes 0..255; mean and deviation are given, as papers print them, for values of 0..1."""
    return InputFormat(
        shape=shape,
        minimum=0,
        maximum=WHITE,
        mean=WHITE * np.asarray(mean),
        deviation=WHITE * np.asarray(deviation),
    )


def in_turns(groups: Sequence[Sequence[Item]]) -> tuple[list[Item], Array]:
    """The first item of each class, then the second of each, and so on; and the class of each item.

    So that the first samples of a split, which is what verification and calibration take, are of
    all classes.
    """
    turns = [(turn, label, item) for label, items in enumerate(groups) for turn, item in enumerate(items)]
    turns.sort(key=lambda entry: entry[:2])
    return [item for _, _, item in turns], np.array([label for _, label, _ in turns], np.int64)
