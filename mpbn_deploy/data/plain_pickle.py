"""Read pickles of plain values and byte arrays without running code that the file names.

A pickle is a program. Here it can call only the stand-ins below, which build byte arrays from bytes that
the file holds; any other name raises DataError.
"""

from __future__ import annotations

import io
import pickle
import reprlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError, PickleKind, PickleRules, UnsafePickleError, check_pickle, class_of
from .reading import read_bytes

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
