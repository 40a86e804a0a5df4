"""What the loaders share: finding folders, bounded reading, checked labels and class names."""

from __future__ import annotations

import io
import os
import pickle
import reprlib
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..base import (
    Array,
    DataError,
    MissingDataError,
    PickleKind,
    PickleRules,
    UnsafePickleError,
    check_pickle,
    class_of,
    one_line,
    record,
)
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


# Read pickles of plain values and byte arrays without running code that the file names.
#
# A pickle is a program. Here it can call only the stand-ins below, which build byte arrays from bytes that
# the file holds; any other name raises DataError.


BYTE_TYPES = ("u1", "|u1")
MAX_DIMENSIONS, LARGEST_SIZE = 8, 2**31
# The opcodes that Python 2 and 3 write for dictionaries, lists, strings, numbers and arrays.
OPCODES = """
    PROTO FRAME STOP MARK PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS GLOBAL STACK_GLOBAL REDUCE BUILD
"""
# One array takes six calls.
RULES = PickleRules(opcodes=frozenset(OPCODES.split()), builds=PickleKind.RESULT, most_calls=20)


def read_plain_pickle(path: Path) -> dict[str, Any]:
    """Read the dictionary in a pickle; Python 2 strings in its keys are decoded, arrays are of bytes."""
    content = read_bytes(path)
    try:
        check_pickle(content, RULES)
        value = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except UnsafePickleError as error:
        raise DataError(f"{path}: {error}; data sets never need that, so it is not loaded.") from error
    except Exception as error:  # a damaged or hostile pickle can make the library raise anything
        raise DataError(f"{path}: not a readable pickle ({error}). Check that it is complete.") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds {class_of(value)}; a dictionary is needed.")
    named = {as_text(key): item for key, item in value.items() if isinstance(key, (str, bytes))}
    return {name: item.values if isinstance(item, _Bytes) else item for name, item in named.items()}


def as_text(value: str | bytes) -> str:
    """Decode a string of Python 2, which arrives as bytes."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise DataError(
                f"names {module[:40]}.{name[:40]}; only byte arrays and plain values are allowed."
            )
        return _StandIn(STAND_INS[module, name])


class _StandIn:
    """Replaces a function named in a pickle; a new object each time, so that a file cannot modify it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)


class _ByteType:
    """The element type of a byte array; its state (byte order and alignment) is ignored."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


class _Bytes:
    """An array of bytes, empty until __setstate__ is called."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: Array = np.zeros(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        self.values = _as_array(content, kind, shape, "F" if is_fortran else "C")


def _as_array(content: Any, kind: Any, shape: Any, order: Any) -> Array:
    """View the bytes in the given shape; a false shape allocates nothing."""
    if not isinstance(content, (bytes, bytearray)) or not isinstance(kind, _ByteType):
        raise DataError("an array whose elements are not bytes.")
    if not _is_shape(shape) or prod(shape) != len(content):
        raise DataError(f"an array claims shape {reprlib.repr(shape)} but holds {len(content)} bytes.")
    return np.frombuffer(bytes(content), np.uint8).reshape(shape, order=order)


def _is_shape(shape: Any) -> bool:
    """Return whether a shape is small enough to compute the product of its sizes."""
    small = isinstance(shape, tuple) and len(shape) <= MAX_DIMENSIONS
    return small and all(type(size) is int and 0 <= size < LARGEST_SIZE for size in shape)


def _byte_type(name: Any, *_: Any) -> _ByteType:
    if as_text(name) not in BYTE_TYPES:
        raise DataError(f"an array of {as_text(name)[:40]}; only bytes (u1) are allowed.")
    return _ByteType()


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Bytes:
    array = _Bytes()
    array.values = _as_array(content, kind, shape, order)
    return array


def _encode(text: str, encoding: Any) -> bytes:
    """Return bytes that Python 3 wrote in a Python 2 protocol, where the encoding is always latin1."""
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Bytes,
    ("numpy", "dtype"): _byte_type,
    ("_codecs", "encode"): _encode,
    # numpy 2 renamed core to _core
    **{(f"numpy.{core}.multiarray", "_reconstruct"): lambda *_: _Bytes() for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}
