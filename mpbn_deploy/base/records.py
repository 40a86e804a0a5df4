"""Records: the frozen, slotted, keyword-only dataclasses of this package, with read-only arrays."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import dataclass_transform

Array = NDArray[Any]
Class = TypeVar("Class")
Result = TypeVar("Result")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def record(cls: type[Class]) -> type[Class]:
    """Make a class a record; records compare by identity (use `same_records` for content)."""
    return dataclass(frozen=True, slots=True, kw_only=True, eq=False)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def array_record(cls: type[Class]) -> type[Class]:
    """Make a class a record whose arrays are read-only copies, so that it cannot be changed in place."""
    cls.__post_init__ = freeze_arrays  # type: ignore[attr-defined]
    return record(cls)


def freeze_arrays(instance: Any) -> None:
    """Replace each array field by a read-only copy."""
    for field in fields(instance):
        value = getattr(instance, field.name)
        if isinstance(value, np.ndarray) and value.flags.writeable:
            frozen = np.array(value, order="C")
            frozen.flags.writeable = False
            object.__setattr__(instance, field.name, frozen)


def remembered(function: Callable[[Array], Result]) -> Callable[[Array], Result]:
    """Remember what a function returns for a read-only array, as long as the array exists."""
    known: dict[int, tuple[weakref.ref[Array], Result]] = {}

    @wraps(function)
    def remembering(array: Array) -> Result:
        if array.flags.writeable or array.base is not None:  # its values may change
            return function(array)
        key = id(array)
        if key not in known:
            known[key] = weakref.ref(array, lambda _: known.pop(key, None)), function(array)
        return known[key][1]

    return remembering


def same_records(left: Any, right: Any) -> bool:
    """Return whether two records (or tuples, mappings, arrays, plain values) have equal content."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return bool(np.array_equal(left, right))
    if type(left) is not type(right):
        return False
    if hasattr(left, "__dataclass_fields__"):
        compared = [field.name for field in fields(left) if field.compare]
        return all(same_records(getattr(left, name), getattr(right, name)) for name in compared)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same_records, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_records(left[k], right[k]) for k in left)
    return bool(left == right)
