"""Batches of a training split: every epoch in an order of its own, augmented, shared out over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import DataSet, Split
from .augmentation import DRAWS, augment


def batches(
    dataset: DataSet, size: int, *, seed: int, epoch: int, augmented: bool, share: Callable[[Tensor], Tensor]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Raw samples and labels of each batch of an epoch, or of this process's share of it.

    Order and augmentation follow from seed and epoch alone. The rest that does not fill a batch is
    left out; it is another one in the next epoch.
    """
    split, kind = dataset.train, dataset.augmentation if augmented else "none"
    random = np.random.default_rng([seed, epoch])
    order = torch.from_numpy(random.permutation(len(split)))
    draws = torch.from_numpy(random.random((len(split), DRAWS), dtype=np.float32))
    for start in range(0, len(split) - size + 1, size):
        chosen = share(order[start : start + size])
        inputs, labels = samples(split, chosen.numpy())
        yield augment(kind, inputs, draws[chosen], *dataset.input_format.shape[1:]), labels


def samples(split: Split, chosen: Any) -> tuple[Tensor, Tensor]:
    """The samples and labels that a slice or an array of numbers chooses."""
    return torch.from_numpy(np.array(split.inputs[chosen])), torch.from_numpy(np.array(split.labels[chosen]))
