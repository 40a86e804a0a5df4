"""How every record of this package is made: frozen, slotted, keyword-only, arrays read-only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import dataclass_transform

Array = NDArray[Any]
Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def record(cls: type[Class]) -> type[Class]:
    """A frozen dataclass; two records are equal only when they are the same object."""
    return dataclass(frozen=True, slots=True, kw_only=True, eq=False)(cls)


def freeze_arrays(instance: Any) -> None:
    """Replace each array field by a read-only one, so that nobody changes a network in place."""
    for field in fields(instance):
        value = getattr(instance, field.name)
        if isinstance(value, np.ndarray) and value.flags.writeable:
            frozen = np.array(value, order="C")
            frozen.flags.writeable = False
            object.__setattr__(instance, field.name, frozen)


def same_records(left: Any, right: Any) -> bool:
    """Whether two records (or tuples, mappings, arrays, plain values) hold the same content."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return bool(np.array_equal(left, right))
    if type(left) is not type(right):
        return False
    if hasattr(left, "__dataclass_fields__"):
        return all(same_records(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same_records, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_records(left[k], right[k]) for k in left)
    return bool(left == right)
