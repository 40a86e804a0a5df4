"""What a data set is: two splits of raw integers with labels."""

from __future__ import annotations

from ..float_ir import InputFormat
from ..records import Array, freeze_arrays, record


@record
class Split:
    """Samples [count, *shape] of raw integers, and the class of each."""

    inputs: Array
    labels: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.labels)


@record
class DataSet:
    """A training and a test split; the input format carries range and normalization."""

    name: str
    train: Split
    test: Split
    input_format: InputFormat
    class_names: tuple[str, ...]
