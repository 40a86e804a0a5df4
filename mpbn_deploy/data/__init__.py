"""Data sets: each a function (folder or None) -> DataSet. Values are raw integers, never normalized."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import OptionError, did_you_mean
from .dataset import DataSet, Split
from .digits import load_digits

DATASETS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": load_digits,
}


def load_dataset(name: str, folder: Path | None = None) -> DataSet:
    """The data set of that name, from `folder` where it needs one."""
    if name not in DATASETS:
        raise OptionError(f"no data set named {name!r}. {did_you_mean(name, DATASETS)}")
    return DATASETS[name](folder)


__all__ = ["DATASETS", "DataSet", "Split", "load_dataset"]
