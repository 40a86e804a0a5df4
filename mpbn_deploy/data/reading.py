"""What the loaders share: finding folders, bounded reading, checked labels and class names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..base import Array, DataError, MissingDataError, one_line, record
from ..ir import InputFormat

Item = TypeVar("Item")

LARGEST_FILE = 2**30  # several times the largest file of any data set here
MAX_PIXELS = 2**26  # of an image: below Pillow's own limit; the largest of ImageNet is far smaller
WHITE = 255


@record
class DatasetSource:
    """Where the files of a data set usually are, and where to get them."""

    name: str
    files: str
    subfolders: tuple[str, ...]
    origin: str
    default: Path | None = None


def find_folder(source: DatasetSource, folder: Path | None, holds: Callable[[Path], bool]) -> Path:
    """Return the folder (or the default one), or the usual sub-folder of it, that holds the data set."""
    root = folder or source.default
    if root is None:
        raise _missing(source, "no folder was given")
    try:
        found = [path for path in (root, *(root / name for name in source.subfolders)) if holds(path)]
    except OSError as error:
        raise _missing(source, f"{root}: {error.strerror}") from error
    if not found:
        usual = f"{root} and its sub-folders {', '.join(source.subfolders)}"
        raise _missing(source, f"looked in {usual}" if root.is_dir() else f"{root} is not a folder")
    return found[0]


def _missing(source: DatasetSource, reason: str) -> MissingDataError:
    """Build the error for missing files: what is missing, where to get it, and what to type."""
    return MissingDataError(
        f"{source.name}: {source.files} not found ({reason}). Get the data set from {source.origin}, "
        f"and give its folder: --data-dir FOLDER"
    )


def read_bytes(path: Path) -> bytes:
    """Read a whole file, up to LARGEST_FILE bytes."""
    size = file_size(path)
    if size > LARGEST_FILE:
        raise DataError(f"{path}: {size} bytes; at most {LARGEST_FILE} are read.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def file_size(path: Path) -> int:
    """Return the size in bytes of a file that must exist."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; the data set is incomplete.")
    return path.stat().st_size


def file_names(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the sorted names in a folder with one of the suffixes (in any case), without hidden files."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read as a folder ({error.strerror}).") from error
    return [name for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]


def as_labels(path: Path, values: ArrayLike, classes: int) -> Array:
    """Return labels as int64, checked to be in 0..classes - 1."""
    labels = np.asarray(values, np.int64)
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise DataError(
            f"{path}: label {wrong[0]} ({wrong.size} of {labels.size} labels are invalid); "
            f"allowed are 0..{classes - 1}."
        )
    return labels


def read_names(path: Path, classes: int) -> tuple[str, ...]:
    """Read class names, one per line."""
    lines = read_bytes(path).decode("utf-8", errors="replace").split("\n")
    return check_names(path, [line.strip() for line in lines if line.strip()], classes)


def check_names(path: Path, names: Sequence[str], classes: int) -> tuple[str, ...]:
    if len(names) != classes:
        raise DataError(f"{path}: {len(names)} class names; {classes} are needed.")
    return tuple(map(one_line, names))


def byte_format(shape: tuple[int, ...], mean: Sequence[float], deviation: Sequence[float]) -> InputFormat:
    """Return the format of bytes 0..255; mean and deviation refer to values scaled to 0..1."""
    return InputFormat(
        shape=shape,
        minimum=0,
        maximum=WHITE,
        mean=WHITE * np.asarray(mean),
        deviation=WHITE * np.asarray(deviation),
    )


def interleave_classes(groups: Sequence[Sequence[Item]]) -> tuple[list[Item], Array]:
    """Return the first item of each class, then the second of each, and so on, with their classes.

    Verification and calibration use the first samples of a split, which then cover all classes.
    """
    turns = [(turn, label, item) for label, items in enumerate(groups) for turn, item in enumerate(items)]
    turns.sort(key=lambda entry: entry[:2])
    return [item for _, _, item in turns], np.array([label for _, label, _ in turns], np.int64)
