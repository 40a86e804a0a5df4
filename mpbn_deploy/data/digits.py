"""The 1,797 handwritten digits that ship with scikit-learn: 8 x 8 pixels with values 0..16."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..base import Array, MissingPackageError, OptionError
from ..ir import InputFormat
from .dataset import DataSet, Split

TEST_SAMPLES = 360
SPLIT_SEED = 0


def load_digit_rows(folder: Path | None = None) -> DataSet:
    """Load the digits row by row: eight time steps of eight pixels each, from the top to the bottom."""
    digits = load_digits(folder)
    train, test = (
        Split(inputs=np.asarray(split.inputs)[:, 0], labels=split.labels)
        for split in (digits.train, digits.test)
    )
    rows = np.asarray(train.inputs)
    return replace(
        digits,
        name="digits-rows",
        train=train,
        test=test,
        input_format=InputFormat(
            shape=(8,), minimum=0, maximum=16, mean=np.array([rows.mean()]), deviation=np.array([rows.std()])
        ),
        frames=8,
    )


def load_digits(folder: Path | None = None) -> DataSet:
    """Load 1,437 training and 360 test digits; the split is fixed."""
    if folder is not None:
        raise OptionError("digits: the data set ships with scikit-learn; drop --data-dir.")
    rows = _read_rows()
    images = rows[:, :-1].reshape(-1, 1, 8, 8).astype(np.uint8)
    labels = rows[:, -1].astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return DataSet(
        name="digits",
        train=Split(inputs=images[train], labels=labels[train]),
        test=Split(inputs=images[test], labels=labels[test]),
        input_format=InputFormat(
            shape=(1, 8, 8),
            minimum=0,
            maximum=16,
            mean=images[train].mean(axis=(0, 2, 3), dtype=np.float64),
            deviation=images[train].std(axis=(0, 2, 3), dtype=np.float64),
        ),
        class_names=tuple(map(str, range(10))),
    )


def _read_rows() -> Array:
    """Read 64 pixels and the class of each digit from scikit-learn's file.

    Importing scikit-learn to have it read takes most of a second, at every start of a command.
    """
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise MissingPackageError("digits: scikit-learn is not installed; pip install scikit-learn")
    rows: Array = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return rows
