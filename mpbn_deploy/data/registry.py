"""The data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..base import OptionError, did_you_mean
from .cifar import load_cifar10, load_cifar100
from .cifar10_dvs import load_cifar10_dvs
from .dataset import DataSet
from .digits import load_digits
from .imagenet import load_imagenet
from .mnist import load_fashion_mnist, load_mnist

DATASETS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "fashion-mnist": load_fashion_mnist,
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "cifar10-dvs": load_cifar10_dvs,
    "imagenet": load_imagenet,
}


def load_dataset(name: str, folder: Path | None = None) -> DataSet:
    """Load a data set by name; most need the folder of their files."""
    if name not in DATASETS:
        raise OptionError(f"no data set named {name!r}. {did_you_mean(name, DATASETS)}")
    return DATASETS[name](folder)
