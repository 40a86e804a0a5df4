"""DataSet: a training and a test split of raw integers with labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..base import Array, OptionError, freeze_arrays, record
from ..ir import InputFormat


class Inputs(Protocol):
    """An array of samples, or images that are decoded when they are indexed.

    [integer], [slice] and [array of integers] return arrays.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: Any, /) -> Array: ...


@record
class Split:
    """Samples of raw integers, [count, *shape] or [count, frames, *shape], and the class of each."""

    inputs: Inputs
    labels: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.labels)


@record
class Part:
    """Samples as in a Split, whose labels may be unknown."""

    inputs: Inputs
    labels: Array | None


@record
class Subset:
    """Some of the samples of other inputs, read when they are indexed."""

    inputs: Inputs
    indices: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.indices), *self.inputs.shape[1:])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, chosen: Any, /) -> Array:
        return self.inputs[self.indices[chosen]]


@record
class DataSet:
    """A training and a test split; the input format holds value range and normalization.

    `frames` is the number of time steps per sample (None: a still image). `augmentation` is the paper's
    augmentation for this data set without AutoAugment: "none", "crop-flip", "crop-flip-cutout" or
    "roll-flip".
    """

    name: str
    train: Split
    test: Split
    input_format: InputFormat
    class_names: tuple[str, ...]
    frames: int | None = None
    augmentation: str = "none"


def center_crop(samples: Any, shape: tuple[int, ...]) -> Any:
    """Return the middle of images larger than `shape`, and other samples as they are."""
    if len(shape) != 3 or tuple(samples.shape[-2:]) == tuple(shape[-2:]):
        return samples
    top, left = ((found - asked) // 2 for found, asked in zip(samples.shape[-2:], shape[-2:], strict=True))
    return samples[..., top : top + shape[-2], left : left + shape[-1]]


HOLD_OUT_SEED = 0  # the same samples are held out whatever the seed of a training


def hold_out(dataset: DataSet, fraction: float) -> tuple[DataSet, Split | None]:
    """Return the data set with a fraction of its training split held out, and that fraction."""
    if not 0 <= fraction < 1:
        raise OptionError(
            f"--validation {fraction}; a fraction of the training split is needed, 0 to below 1."
        )
    if not fraction:
        return dataset, None
    count = round(fraction * len(dataset.train))
    if not count:
        raise OptionError(
            f"--validation {fraction}; that is none of the {len(dataset.train)} training samples of "
            f"{dataset.name}. A larger fraction is needed."
        )
    order = np.random.default_rng(HOLD_OUT_SEED).permutation(len(dataset.train))
    return replace(dataset, train=subset(dataset.train, order[count:])), subset(dataset.train, order[:count])


def subset(split: Split, indices: Array) -> Split:
    """Return some samples of a split, which are read when they are indexed."""
    return Split(inputs=Subset(inputs=split.inputs, indices=indices), labels=split.labels[indices])
