"""Call a user's function `package.module:function` and turn what it returns into named arrays.

    {"inputs": ..., "labels": ...}        as in a .npz file
    inputs                                one array, without labels
    (inputs, labels)                      two arrays
    dataset                               a torch Dataset: items (input, label)
    (train, test)                         two of the above: Datasets, or pairs of arrays

torch is not imported here: its Datasets and tensors are recognized by what they can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError, OptionError, class_of, import_function
from .arrays import LARGEST_ARRAYS
from .pictures import stack

Named = dict[str, Any]


def call_function(name: str, folder: Path | None) -> Named:
    """Return the arrays that a user's function gives; the folder of --data-dir is its argument."""
    function = import_function(name, "data")
    try:
        return named_arrays(name, function(*([] if folder is None else [folder])))
    except (DataError, OptionError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:  # a user's function can raise anything
        raise OptionError(f"data {name!r} failed: {type(error).__name__}: {error}") from error


def named_arrays(name: str, found: Any) -> Named:
    """Name the arrays in what a function returned."""
    if isinstance(found, Mapping):
        return {str(key): value for key, value in found.items()}
    if not isinstance(found, (tuple, list)):
        return _part(name, found, "")
    if len(found) != 2:
        raise DataError(f"{name}: returned {len(found)} objects; two are needed, {EXPECTED}.")
    if all(map(_is_array, found)):
        return dict(zip(("inputs", "labels"), found, strict=True))
    return {**_part(name, found[0], "train_"), **_part(name, found[1], "test_")}


EXPECTED = "(inputs, labels) or (train, test)"


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and hasattr(value, "shape")


def _part(name: str, found: Any, prefix: str) -> Named:
    if _is_array(found):
        return {f"{prefix}inputs": found}
    if isinstance(found, (tuple, list)) and len(found) == 2 and all(map(_is_array, found)):
        return {f"{prefix}inputs": found[0], f"{prefix}labels": found[1]}
    if not hasattr(found, "__getitem__") or not hasattr(found, "__len__"):
        raise DataError(
            f"{name}: returned {class_of(found)}; a torch Dataset with a length, or arrays, are "
            "needed. Of a DataLoader, return its dataset."
        )
    inputs, labels = _items(name, found)
    return {f"{prefix}inputs": inputs, f"{prefix}labels": labels}


def _items(name: str, dataset: Any) -> tuple[Array, Array]:
    """Read all items of a Dataset."""
    inputs, labels, size = [], [], 0
    for index in range(len(dataset)):
        item = dataset[index]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(f"{name}: item {index} is {class_of(item)}; (input, label) is needed.")
        inputs.append(np.asarray(item[0]))
        labels.append(np.asarray(item[1]))
        if (size := size + inputs[-1].nbytes) > LARGEST_ARRAYS:
            raise DataError(f"{name}: its samples take more than {LARGEST_ARRAYS} bytes, which is the limit.")
    if not inputs:
        raise DataError(f"{name}: the Dataset is empty.")
    names = [f"{name}: item {index}" for index in range(len(inputs))]
    return stack(inputs, names), stack(labels, [f"{each}, label" for each in names])
