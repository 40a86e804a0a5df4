"""CIFAR-10 and CIFAR-100: 32 x 32 color images, in the binary or the Python version of the official page.

A binary record is the label (CIFAR-100: the coarse label, then the fine one, which is used), followed by
1024 bytes each of red, green and blue. The Python version is a pickle of the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError, announce, record
from .dataset import DataSet, Split
from .plain_pickle import as_text, read_plain_pickle
from .reading import DatasetSource, as_labels, byte_format, check_names, find_folder, read_bytes, read_names

SHAPE = (3, 32, 32)
OFFICIAL_TRAIN, OFFICIAL_TEST = 50_000, 10_000
# Mean and deviation of pixels scaled to 0..1, from the paper's code, so that its checkpoints agree.
CIFAR10_PIXELS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CIFAR100_PIXELS = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
PIXELS = 3 * 32 * 32
WEB_PAGE = "cs.toronto.edu/~kriz/cifar.html"


@record
class _Layout:
    """The files and keys of one of the two data sets; binary files have the same names plus .bin."""

    source: DatasetSource
    train: tuple[str, ...]
    test: str
    classes: int
    label_bytes: int
    label_key: str
    names_file: str
    names_pickle: str
    names_key: str


CIFAR10 = _Layout(
    source=DatasetSource(
        name="cifar10",
        files="data_batch_1.bin (binary version) or data_batch_1 (Python version)",
        subfolders=("cifar-10-batches-bin", "cifar-10-batches-py"),
        origin=WEB_PAGE,
    ),
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    classes=10,
    label_bytes=1,
    label_key="labels",
    names_file="batches.meta.txt",
    names_pickle="batches.meta",
    names_key="label_names",
)
CIFAR100 = _Layout(
    source=DatasetSource(
        name="cifar100",
        files="train.bin (binary version) or train (Python version)",
        subfolders=("cifar-100-binary", "cifar-100-python"),
        origin=WEB_PAGE,
    ),
    train=("train",),
    test="test",
    classes=100,
    label_bytes=2,
    label_key="fine_labels",
    names_file="fine_label_names.txt",
    names_pickle="meta",
    names_key="fine_label_names",
)


def load_cifar10(folder: Path | None = None) -> DataSet:
    """Load 50,000 training and 10,000 test images of 10 classes."""
    return _load(CIFAR10, folder, *CIFAR10_PIXELS)


def load_cifar100(folder: Path | None = None) -> DataSet:
    """Load 50,000 training and 10,000 test images of 100 classes."""
    return _load(CIFAR100, folder, *CIFAR100_PIXELS)


def _load(
    layout: _Layout, folder: Path | None, mean: tuple[float, ...], deviation: tuple[float, ...]
) -> DataSet:
    first = layout.train[0]
    found = find_folder(
        layout.source, folder, lambda path: any((path / name).is_file() for name in (f"{first}.bin", first))
    )
    is_binary = (found / f"{first}.bin").is_file()
    binary_names = found / layout.names_file
    names = read_names(binary_names, layout.classes) if is_binary else _pickled_names(layout, found)
    return DataSet(
        name=layout.source.name,
        train=_split(layout, found, layout.train, is_binary, OFFICIAL_TRAIN),
        test=_split(layout, found, (layout.test,), is_binary, OFFICIAL_TEST),
        input_format=byte_format(SHAPE, mean, deviation),
        class_names=names,
        augmentation="crop-flip-cutout",
    )


def _split(layout: _Layout, folder: Path, names: tuple[str, ...], is_binary: bool, official: int) -> Split:
    if is_binary:
        parts = [_read_binary(layout, folder / f"{name}.bin") for name in names]
    else:
        parts = [_read_pickle(layout, folder / name) for name in names]
    images = np.concatenate([part for part, _ in parts]).reshape(-1, *SHAPE)
    if len(images) != official:
        announce(
            f"note: {folder}: {len(images):,} images; this split has {official:,} in the official data set."
        )
    images.flags.writeable = False  # so that the record does not copy it
    return Split(inputs=images, labels=np.concatenate([labels for _, labels in parts]))


def _read_binary(layout: _Layout, path: Path) -> tuple[Array, Array]:
    content = read_bytes(path)
    size = layout.label_bytes + PIXELS
    if not content or len(content) % size:
        raise DataError(
            f"{path}: {len(content)} bytes; a multiple of the record size, {size} bytes, is needed."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    labels = as_labels(path, records[:, layout.label_bytes - 1], layout.classes)
    return records[:, layout.label_bytes :], labels


def _read_pickle(layout: _Layout, path: Path) -> tuple[Array, Array]:
    content = read_plain_pickle(path)
    pixels, labels = content.get("data"), content.get(layout.label_key)
    if not isinstance(pixels, np.ndarray) or pixels.shape[1:] != (PIXELS,) or not len(pixels):
        found = pixels.shape if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise DataError(f"{path}: 'data' is {found}; an array (count, {PIXELS}) of bytes is needed.")
    if not isinstance(labels, list) or len(labels) != len(pixels) or not all(map(_is_small, labels)):
        raise DataError(f"{path}: '{layout.label_key}' is not a list of {len(pixels)} integers.")
    return pixels, as_labels(path, labels, layout.classes)


def _is_small(label: Any) -> bool:
    """Return whether a label is an integer that fits an array."""
    return type(label) is int and abs(label) < 2**31


def _pickled_names(layout: _Layout, folder: Path) -> tuple[str, ...]:
    path = folder / layout.names_pickle
    names = read_plain_pickle(path).get(layout.names_key)
    if not isinstance(names, list) or not all(isinstance(name, (str, bytes)) for name in names):
        raise DataError(f"{path}: '{layout.names_key}' is not a list of strings.")
    return check_names(path, [as_text(name) for name in names], layout.classes)
