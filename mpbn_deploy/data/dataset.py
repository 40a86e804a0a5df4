"""DataSet: a training and a test split of raw integers with labels."""

from __future__ import annotations

from typing import Any, Protocol

from ..base import Array, freeze_arrays, record
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
class DataSet:
    """A training and a test split; the input format holds value range and normalization.

    `frames` is the number of time steps per sample (None: a still image). `augmentation` is the paper's
    augmentation for this data set: "none", "crop-flip", "crop-flip-cutout" or "roll-flip".
    """

    name: str
    train: Split
    test: Split
    input_format: InputFormat
    class_names: tuple[str, ...]
    frames: int | None = None
    augmentation: str = "none"
