"""Batches of a training split: shuffled for every epoch, augmented, and split over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import DataSet, Split
from .augmentation import DRAWS, augment


def batches(
    dataset: DataSet,
    size: int,
    *,
    seed: int,
    epoch: int,
    augmentation: str,
    share: Callable[[Tensor], Tensor],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield raw samples and labels of each batch of an epoch, or this process's share of them.

    Seed and epoch determine order and augmentation. Samples that do not fill a batch are dropped; they
    differ from epoch to epoch.
    """
    split = dataset.train
    random = np.random.default_rng([seed, epoch])
    order = torch.from_numpy(random.permutation(len(split)))
    draws = torch.from_numpy(random.random((len(split), DRAWS), dtype=np.float32))
    for start in range(0, len(split) - size + 1, size):
        chosen = share(order[start : start + size])
        inputs, labels = read_samples(split, chosen.numpy())
        yield augment(augmentation, inputs, draws[chosen], *dataset.input_format.shape[1:]), labels


def read_samples(split: Split, chosen: Any) -> tuple[Tensor, Tensor]:
    """Return the samples and labels that a slice or an array of indices selects."""
    return torch.from_numpy(np.array(split.inputs[chosen])), torch.from_numpy(np.array(split.labels[chosen]))
