"""ImageNet: folders train/<class>/*.JPEG and val/<class>/*.JPEG, decoded when they are indexed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError, one_line
from .dataset import DataSet, Split
from .reading import MAX_PIXELS, DatasetSource, byte_format, file_names, find_folder, interleave_classes

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
        train=_split(found / "train", names, TRAIN_SIDE),
        test=_split(found / "val", names, TEST_SIDE),
        input_format=byte_format((3, TEST_SIDE, TEST_SIDE), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        class_names=tuple(map(one_line, names)),
        augmentation="crop-flip",
    )


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(name for name in file_names(folder, ("",)) if (folder / name).is_dir())


def _split(folder: Path, names: Sequence[str], side: int) -> Split:
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
