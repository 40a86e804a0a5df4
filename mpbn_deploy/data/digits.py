"""The 1,797 handwritten digits, 8 x 8 pixels of 0..16, that scikit-learn carries inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..base import OptionError
from ..ir import InputFormat
from .dataset import DataSet, Split

TEST_SAMPLES = 360
SPLIT_SEED = 0


def load_digits(folder: Path | None = None) -> DataSet:
    """1,437 digits to train with and 360 to test with, always the same ones."""
    if folder is not None:
        raise OptionError("digits lie inside scikit-learn; they take no --data-dir.")
    from sklearn import datasets

    digits = datasets.load_digits()
    pictures = digits.images.astype(np.uint8)[:, None]
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return DataSet(
        name="digits",
        train=Split(inputs=pictures[train], labels=labels[train]),
        test=Split(inputs=pictures[test], labels=labels[test]),
        input_format=InputFormat(
            shape=(1, 8, 8),
            minimum=0,
            maximum=16,
            mean=pictures[train].mean(axis=(0, 2, 3), dtype=np.float64),
            deviation=pictures[train].std(axis=(0, 2, 3), dtype=np.float64),
        ),
        class_names=tuple(str(digit) for digit in digits.target_names),
    )
