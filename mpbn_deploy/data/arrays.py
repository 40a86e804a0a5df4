"""Read .npz and .npy files: plain numbers only, and no more of them than the file shows to hold.

A header is checked before memory is allocated: numpy would allocate whatever it claims. Arrays of Python
objects are pickles, which could run code, and are rejected.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.lib import format as npy

from ..base import Array, DataError

Found = TypeVar("Found")

LARGEST_ARRAYS = 2**33  # bytes of all arrays of a file
UNSUSPICIOUS_BYTES = 2**28
LARGEST_EXPANSION = 200  # bytes per compressed byte, beyond UNSUSPICIOUS_BYTES
NUMBERS, TEXT = "biuf", "US"  # kinds of numpy's types
HEADERS: dict[tuple[int, int], Callable[[IO[bytes]], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


def read_npz(path: Path) -> dict[str, Array]:
    """Read all arrays of a .npz file."""
    return _guarded(path, _read_npz)


def read_npy(path: Path) -> Array:
    """Read the array of a .npy file."""
    return _guarded(path, lambda path: _read_npy(path, path.read_bytes()))


def _guarded(path: Path, read: Callable[[Path], Found]) -> Found:
    if not path.is_file():
        raise DataError(f"{path}: {'not a file' if path.exists() else 'no such file'}.")
    if (size := path.stat().st_size) > LARGEST_ARRAYS:
        raise DataError(f"{path}: {size} bytes; at most {LARGEST_ARRAYS} are read.")
    try:
        return read(path)
    except (DataError, PermissionError):
        raise
    except Exception as error:  # a damaged or hostile file can make zipfile and numpy raise anything
        raise DataError(
            f"{path}: not a readable {path.suffix} file ({error}). Write it with "
            f"{'np.savez' if path.suffix == '.npz' else 'np.save'}."
        ) from error


def _read_npz(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        _check_sizes(path, parts)
        return {
            part.filename.removesuffix(".npy"): _read_npy(f"{path}: {part.filename}", archive.read(part))
            for part in parts
        }


def _check_sizes(path: Path, parts: list[zipfile.ZipInfo]) -> None:
    """Reject archives whose content is far larger than the file: a few kilobytes can claim terabytes."""
    size = sum(part.file_size for part in parts)
    if size > LARGEST_ARRAYS:
        raise DataError(f"{path}: its arrays take {size} bytes; at most {LARGEST_ARRAYS} are read.")
    if size > max(UNSUSPICIOUS_BYTES, LARGEST_EXPANSION * path.stat().st_size):
        raise DataError(
            f"{path}: {path.stat().st_size} bytes that expand to {size}, more than {LARGEST_EXPANSION} times "
            "as many. If it is yours, save it with np.savez instead of np.savez_compressed."
        )
    if len({part.filename for part in parts}) < len(parts):
        raise DataError(f"{path}: holds two arrays of the same name.")


def _read_npy(where: Path | str, content: bytes) -> Array:
    """Read an array whose header claims exactly the bytes that follow it."""
    file = io.BytesIO(content)
    version = npy.read_magic(file)  # type: ignore[no-untyped-call]
    if version not in HEADERS:
        raise DataError(f"{where}: version {version} of the format; save plain numbers with np.save.")
    shape, by_columns, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise DataError(
            f"{where}: an array of Python objects, which is a pickle and could run code; it is not loaded. "
            "Save arrays of numbers; samples of different lengths must be cut or padded to one length."
        )
    if dtype.kind not in NUMBERS + TEXT:
        raise DataError(f"{where}: of type {dtype}; integers, bools or floats are needed.")
    left, claimed = len(content) - file.tell(), prod(shape) * dtype.itemsize
    if claimed != left or min(shape, default=1) < 0:
        raise DataError(f"{where}: holds {left} bytes of values, but its header claims {claimed}.")
    values = np.frombuffer(content, dtype, offset=file.tell()) if claimed else np.empty(0, dtype)
    return values.reshape(shape, order="F" if by_columns else "C")
