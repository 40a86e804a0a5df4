"""What a data set is: two splits of raw integers with labels."""

from __future__ import annotations

from typing import Any, Protocol

from ..base import Array, freeze_arrays, record
from ..ir import InputFormat


class Inputs(Protocol):
    """What can be read like an array of samples: an array, or pictures that are decoded when asked for.

    [number], [slice] and [array of numbers] give arrays; what does not fit in memory is read in parts.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: Any, /) -> Array: ...


@record
class Split:
    """Samples [count, *shape], or [count, frames, *shape], of raw integers, and the class of each."""

    inputs: Inputs
    labels: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.labels)


@record
class DataSet:
    """A training and a test split; the input format carries range and normalization.

    `frames` is how many time steps a sample has (None: a still picture). `augmentation` names what
    the paper does to samples while it trains: "none", "crop-flip", "crop-flip-cutout" or "roll-flip".
    """

    name: str
    train: Split
    test: Split
    input_format: InputFormat
    class_names: tuple[str, ...]
    frames: int | None = None
    augmentation: str = "none"
