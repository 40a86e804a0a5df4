"""A folder with one sub-folder per class: pictures, or recordings as frames [T, C, H, W].

    mine/cat/*.png, mine/dog/*.png                  one part, which is split
    mine/train/cat/*.png, mine/test/cat/*.png       two parts (or val instead of test)

Recordings are as tonic's ToFrame gives them (.npy), or SpikingJelly (.npz with the key `frames`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..base import MANIFEST_FILE, Array, DataError
from .arrays import LARGEST_ARRAYS, read_npy, read_npz
from .reading import MAX_PIXELS, file_names, interleave_classes

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm")
FORMATS = ("PNG", "JPEG", "BMP", "PPM")
GRAY = ("L", "1")
COLORS = ("RGB", "RGBA", "P", "CMYK", "YCbCr", "LA", "PA")
RECORDINGS = (".npy", ".npz")
PARTS = {"train": ("train",), "test": ("test", "val")}


def read_class_folders(folder: Path) -> dict[str, Array]:
    """Read a folder by classes as named arrays, like those of a .npz file."""
    if (folder / MANIFEST_FILE).is_file():
        raise DataError(f"{folder}: an export folder, not data; name it before the options.")
    parts = {
        part: next((folder / n for n in names if (folder / n).is_dir()), None)
        for part, names in PARTS.items()
    }
    found = {f"{part}_": path for part, path in parts.items() if path is not None} or {"": folder}
    classes = sorted({name for path in found.values() for name in _folders(path)})
    if not classes:
        raise DataError(
            f"{folder}: has no sub-folders; put the pictures of each class into a folder of its name."
        )
    arrays: dict[str, Array] = {"class_names": np.array(classes)}
    for prefix, path in found.items():
        arrays[f"{prefix}inputs"], arrays[f"{prefix}labels"] = _read_part(path, classes)
    return arrays


def _folders(folder: Path) -> list[str]:
    return [name for name in file_names(folder, ("",)) if (folder / name).is_dir()]


def _read_part(folder: Path, classes: list[str]) -> tuple[Array, Array]:
    files, labels = interleave_classes([_files(folder / name) for name in classes])
    if not files:
        raise DataError(f"{folder}: has no files {', '.join((*PICTURES, *RECORDINGS))} in its sub-folders.")
    kinds = {file.suffix.lower() in RECORDINGS for file in files}
    if len(kinds) > 1:
        raise DataError(f"{folder}: holds both pictures and recordings; give one kind.")
    first = _read_sample(files[0])
    if first.nbytes * len(files) > LARGEST_ARRAYS:
        size = first.nbytes * len(files)
        raise DataError(f"{folder}: its samples take {size} bytes; at most {LARGEST_ARRAYS} are read.")
    samples = [first, *map(_read_sample, files[1:])]
    if any(sample.shape != first.shape for sample in samples):
        samples = [_in_color(sample) for sample in samples]
    return stack(samples, list(map(str, files))), labels


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [folder / name for name in file_names(folder, (*PICTURES, *RECORDINGS))]


def stack(samples: list[Array], names: list[str]) -> Array:
    """Stack samples, or name two whose shapes differ."""
    for sample, name in zip(samples, names, strict=True):
        if sample.shape != samples[0].shape:
            raise DataError(
                f"{name}: shape {sample.shape}, but {names[0]} has {samples[0].shape}; all samples need one "
                "shape. Scale pictures to one size; cut recordings to one number of frames, as tonic's "
                "ToFrame(n_time_bins=...) does."
            )
    return np.stack(samples)


def _read_sample(file: Path) -> Array:
    match file.suffix.lower():
        case ".npy":
            return read_npy(file)
        case ".npz":
            arrays = read_npz(file)
            if "frames" not in arrays:
                raise DataError(
                    f"{file}: holds {', '.join(arrays) or 'nothing'}; a recording needs `frames`."
                )
            return arrays["frames"]
        case _:
            return _read_picture(file)


def _read_picture(file: Path) -> Array:
    """Return a picture as bytes, [1, height, width] in gray or [3, height, width] in color."""
    from PIL import Image  # slow to import, and only pictures need it

    try:
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DataError(f"{image.width} x {image.height} pixels; at most {MAX_PIXELS} are read")
            if image.mode not in (*GRAY, *COLORS):
                raise DataError(f"mode {image.mode}; convert it to gray or color pictures of bytes")
            pixels = np.asarray(image.convert("L" if image.mode in GRAY else "RGB"))
    except Exception as error:  # a damaged or hostile image can make Pillow raise anything
        raise DataError(f"{file}: not a readable picture ({error}).") from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _in_color(sample: Array) -> Array:
    """Repeat a gray picture in three colors: folders may hold both."""
    return np.repeat(sample, 3, axis=0) if sample.ndim == 3 and len(sample) == 1 else sample
