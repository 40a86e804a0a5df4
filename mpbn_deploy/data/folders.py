"""ImageNet: folders train/<class>/*.JPEG and val/<class>/*.JPEG, decoded when asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError
from .dataset import DataSet, Split
from .reading import Place, byte_format, file_names, find_folder, in_turns

SHORTER_SIDE, TRAIN_SIDE, TEST_SIDE = 256, 256, 224
SUFFIXES = (".jpeg", ".jpg", ".png")
FORMATS = ("JPEG", "PNG")  # one picture of ImageNet is a PNG in spite of its name
MOST_PIXELS = 2**26  # below Pillow's own guard; the largest picture of ImageNet is far smaller
THREADS = min(8, os.cpu_count() or 1)

IMAGENET = Place(
    name="imagenet",
    looked_for="folders train/<class> and val/<class> of .JPEG files",
    subfolders=("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"),
    origin="image-net.org (ILSVRC2012)",
)


def load_imagenet(folder: Path | None = None) -> DataSet:
    """1,281,167 pictures to train with and 50,000 to test with, of 1000 classes, never all in memory.

    Training pictures are 256 x 256, for the trainer to take 224 x 224 out of them.
    """
    found = find_folder(IMAGENET, folder, lambda path: all((path / n).is_dir() for n in ("train", "val")))
    names = _class_names(found / "train")
    if not names:
        raise DataError(f"{found / 'train'}: no folders of classes in it.")
    if different := set(names) ^ set(_class_names(found / "val")):
        raise DataError(
            f"{found}: {len(different)} folders are in train or in val only, such as {min(different)}; "
            "both need one for each class."
        )
    return DataSet(
        name=IMAGENET.name,
        train=_split(found / "train", names, TRAIN_SIDE),
        test=_split(found / "val", names, TEST_SIDE),
        input_format=byte_format((3, TEST_SIDE, TEST_SIDE), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        class_names=names,
        augmentation="crop-flip",
    )


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(name for name in file_names(folder, ("",)) if (folder / name).is_dir())


def _split(folder: Path, names: Sequence[str], side: int) -> Split:
    files, labels = in_turns([_pictures(folder / name) for name in names])
    return Split(inputs=LazyPictures(files, side), labels=labels)


def _pictures(folder: Path) -> list[str]:
    files = file_names(folder, SUFFIXES)
    if not files:
        raise DataError(f"{folder}: no pictures in it; {', '.join(SUFFIXES)} are looked for.")
    return [str(folder / name) for name in files]


class LazyPictures:
    """Like an array uint8 [count, 3, side, side] of which only what is indexed is ever decoded."""

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
        """[number], [slice] or [array of numbers], as numpy understands them on the first axis."""
        numbers = np.asarray(self._numbers[chosen])
        pictures = np.empty((numbers.size, *self.shape[1:]), np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            for place, picture in enumerate(pool.map(self._decode, numbers.flat)):
                pictures[place] = picture
        return pictures.reshape(*numbers.shape, *self.shape[1:])

    def _decode(self, number: int) -> Array:
        return decode_picture(self.files[number], self.side)


def decode_picture(file: str, side: int) -> Array:
    """uint8 [3, side, side]: the middle of the picture, once its shorter side is 256 pixels."""
    from PIL import Image  # here, because few need it and it is slow to import

    try:
        with Image.open(file, formats=FORMATS) as picture:
            width, height = resized = _resized(picture.size)
            small = picture.convert("RGB").resize(resized, Image.Resampling.BILINEAR)
        left, top = round((width - side) / 2), round((height - side) / 2)
        return np.asarray(small.crop((left, top, left + side, top + side))).transpose(2, 0, 1)
    except Exception as error:  # whatever a damaged or hostile picture makes the library do
        raise DataError(f"{file}: not a picture that can be read ({error}).") from error


def _resized(size: tuple[int, int]) -> tuple[int, int]:
    """The size with a shorter side of 256 pixels, rounded down as torchvision's Resize does."""
    width, height = size
    shorter = min(size)
    resized = SHORTER_SIDE * width // shorter, SHORTER_SIDE * height // shorter
    for pixels in (width * height, resized[0] * resized[1]):  # a picture of 1 x 60000 grows, too
        if pixels > MOST_PIXELS:
            raise DataError(f"{width} x {height}, so {pixels} pixels; at most {MOST_PIXELS} are read")
    return resized
