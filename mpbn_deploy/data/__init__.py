"""Data sets for training, calibration and verification: raw integers with labels, never normalized.

A loader takes a folder (or None) and returns a DataSet with a training and a test split. Readers bound what
they allocate and run no code from the files.

    dataset        DataSet and Split; `hold_out` takes a validation split from the training split
    registry       the loaders by name, and `load_dataset`
    selection      the samples that commands run: test samples of a data set, or random ones
    memory         samples in memory, and the whole numbers behind them
    own            the user's own data: named arrays from a file, a folder or a function
    arrays, pictures, code    read .npz and .npy files, folders by classes, functions
    layout         the axes of samples, and samples as a network takes them
    digits, mnist, cifar, cifar10_dvs, imagenet, recordings    one loader each (some: two)
    reading        what the loaders share: finding folders, bounded reading, checked labels
    autoaugment    AutoAugment for color pictures
    plain_pickle   reads the pickles of CIFAR without running them
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .autoaugment import POLICY_DRAWS as POLICY_DRAWS, autoaugmented as autoaugmented
    from .cifar import CIFAR10_PIXELS as CIFAR10_PIXELS, CIFAR100_PIXELS as CIFAR100_PIXELS
    from .dataset import (
        DataSet as DataSet,
        Inputs as Inputs,
        Part as Part,
        Split as Split,
        as_spike_counts as as_spike_counts,
        center_crop as center_crop,
        hold_out as hold_out,
        subset as subset,
    )
    from .layout import arranged as arranged, cropped as cropped
    from .memory import InMemory as InMemory, in_memory as in_memory
    from .own import dataset_name as dataset_name
    from .reading import byte_format as byte_format
    from .registry import (
        DATASETS as DATASETS,
        IN_MEMORY as IN_MEMORY,
        LoadedPart as LoadedPart,
        data_named_by_file as data_named_by_file,
        load_dataset as load_dataset,
        load_part as load_part,
        load_parts as load_parts,
        parts_of as parts_of,
    )
    from .selection import (
        RANDOM as RANDOM,
        Samples as Samples,
        announce_random as announce_random,
        check_data_name as check_data_name,
        choose_samples as choose_samples,
        conversion_options as conversion_options,
        fitting_part as fitting_part,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
