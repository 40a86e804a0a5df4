"""Samples in memory: arrays, a torch Dataset or DataLoader, our data sets; and the integers behind them.

Chips take whole numbers. Fractions are usually whole numbers that were scaled, x = (n - mean) / deviation, as
torchvision's ToTensor and Normalize do with bytes. The numbers n are found, and the module is given x again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base import Array, DataError, announce, array_record, class_of, record
from .code import named_arrays
from .dataset import DataSet, Split
from .own import OwnData, inputs_and_labels, own_from_arrays
from .reading import WHITE
from .registry import DATASETS, IN_MEMORY

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
