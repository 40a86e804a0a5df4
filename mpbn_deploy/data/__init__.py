"""Data sets for training, calibration and verification: raw integers with labels, never normalized.

A loader takes a folder (or None) and returns a DataSet with a training and a test split. Readers bound what
they allocate and run no code from the files.

    dataset        DataSet and Split; `hold_out` takes a validation split from the training split; axes of
                   samples, and samples as a network takes them
    selection      the loaders by name, and `load_dataset`; the samples that commands run; samples in memory
    own            the user's own data: named arrays from a file, a folder or a function
    own_files      reads .npz and .npy files, folders by classes, functions
    images         digits, MNIST and Fashion-MNIST, CIFAR, ImageNet
    recordings     spoken digits and vowels, event cameras
    reading        what the loaders share: finding folders, bounded reading, checked labels, plain pickles
    autoaugment    AutoAugment for color pictures
"""

from typing import TYPE_CHECKING

from ..base import door

if TYPE_CHECKING:
    from .autoaugment import POLICY_DRAWS as POLICY_DRAWS, autoaugmented as autoaugmented
    from .dataset import (
        DataSet as DataSet,
        Inputs as Inputs,
        Part as Part,
        Split as Split,
        arranged as arranged,
        as_spike_counts as as_spike_counts,
        center_crop as center_crop,
        cropped as cropped,
        hold_out as hold_out,
        subset as subset,
    )
    from .images import CIFAR10_PIXELS as CIFAR10_PIXELS, CIFAR100_PIXELS as CIFAR100_PIXELS
    from .own import dataset_name as dataset_name
    from .reading import byte_format as byte_format
    from .selection import (
        DATASETS as DATASETS,
        IN_MEMORY as IN_MEMORY,
        RANDOM as RANDOM,
        InMemory as InMemory,
        LoadedPart as LoadedPart,
        Samples as Samples,
        announce_random as announce_random,
        check_data_name as check_data_name,
        choose_samples as choose_samples,
        conversion_options as conversion_options,
        data_named_by_file as data_named_by_file,
        fitting_part as fitting_part,
        in_memory as in_memory,
        load_dataset as load_dataset,
        load_part as load_part,
        load_parts as load_parts,
        parts_of as parts_of,
    )
else:
    __getattr__, __dir__ = door(__name__, __file__)
