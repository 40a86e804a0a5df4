"""Data sets: each a function (folder or None) -> DataSet. Values are raw integers, never normalized."""

from typing import TYPE_CHECKING

from ..base.doors import door

if TYPE_CHECKING:
    from .cifar import CIFAR10_PIXELS as CIFAR10_PIXELS, CIFAR100_PIXELS as CIFAR100_PIXELS
    from .dataset import DataSet as DataSet, Inputs as Inputs, Split as Split
    from .reading import byte_format as byte_format
    from .registry import DATASETS as DATASETS, load_dataset as load_dataset
    from .selection import RANDOM as RANDOM, Samples as Samples, choose_samples as choose_samples

__getattr__, __dir__ = door(__name__, __file__)
