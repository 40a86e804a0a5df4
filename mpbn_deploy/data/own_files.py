"""Read .npz and .npy files: plain numbers only, and no more of them than the file shows to hold.

A header is checked before memory is allocated: numpy would allocate whatever it claims. Arrays of Python
objects are pickles, which could run code, and are rejected.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.lib import format as npy

from ..base import MANIFEST_FILE, Array, DataError, OptionError, class_of, import_function
from .reading import MAX_PIXELS, file_names, interleave_classes

Found = TypeVar("Found")

LARGEST_ARRAYS = 2**33  # bytes of all arrays of a file
UNSUSPICIOUS_BYTES = 2**28
LARGEST_EXPANSION = 200  # bytes per compressed byte, beyond UNSUSPICIOUS_BYTES
NUMBERS, TEXT = "biuf", "US"  # kinds of numpy's types
HEADERS: dict[tuple[int, int], Callable[[IO[bytes]], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}


def read_npz(path: Path) -> dict[str, Array]:
    """Read all arrays of a .npz file."""
    return _guarded(path, _read_npz)


def read_npy(path: Path) -> Array:
    """Read the array of a .npy file."""
    return _guarded(path, lambda path: _read_npy(path, path.read_bytes()))


def _guarded(path: Path, read: Callable[[Path], Found]) -> Found:
    if not path.is_file():
        raise DataError(f"{path}: {'not a file' if path.exists() else 'no such file'}.")
    if (size := path.stat().st_size) > LARGEST_ARRAYS:
        raise DataError(f"{path}: {size} bytes; at most {LARGEST_ARRAYS} are read.")
    try:
        return read(path)
    except (DataError, PermissionError):
        raise
    except Exception as error:  # a damaged or hostile file can make zipfile and numpy raise anything
        raise DataError(
            f"{path}: not a readable {path.suffix} file ({error}). Write it with "
            f"{'np.savez' if path.suffix == '.npz' else 'np.save'}."
        ) from error


def _read_npz(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        _check_sizes(path, parts)
        return {
            part.filename.removesuffix(".npy"): _read_npy(f"{path}: {part.filename}", archive.read(part))
            for part in parts
        }


def _check_sizes(path: Path, parts: list[zipfile.ZipInfo]) -> None:
    """Reject archives whose content is far larger than the file: a few kilobytes can claim terabytes."""
    size = sum(part.file_size for part in parts)
    if size > LARGEST_ARRAYS:
        raise DataError(f"{path}: its arrays take {size} bytes; at most {LARGEST_ARRAYS} are read.")
    if size > max(UNSUSPICIOUS_BYTES, LARGEST_EXPANSION * path.stat().st_size):
        raise DataError(
            f"{path}: {path.stat().st_size} bytes that expand to {size}, more than {LARGEST_EXPANSION} times "
            "as many. If it is yours, save it with np.savez instead of np.savez_compressed."
        )
    if len({part.filename for part in parts}) < len(parts):
        raise DataError(f"{path}: holds two arrays of the same name.")


def _read_npy(where: Path | str, content: bytes) -> Array:
    """Read an array whose header claims exactly the bytes that follow it."""
    file = io.BytesIO(content)
    version = npy.read_magic(file)  # type: ignore[no-untyped-call]
    if version not in HEADERS:
        raise DataError(f"{where}: version {version} of the format; save plain numbers with np.save.")
    shape, by_columns, dtype = HEADERS[version](file)
    if dtype.hasobject:
        raise DataError(
            f"{where}: an array of Python objects, which is a pickle and could run code; it is not loaded. "
            "Save arrays of numbers; samples of different lengths must be cut or padded to one length."
        )
    if dtype.kind not in NUMBERS + TEXT:
        raise DataError(f"{where}: of type {dtype}; integers, bools or floats are needed.")
    left, claimed = len(content) - file.tell(), prod(shape) * dtype.itemsize
    if claimed != left or min(shape, default=1) < 0:
        raise DataError(f"{where}: holds {left} bytes of values, but its header claims {claimed}.")
    values = np.frombuffer(content, dtype, offset=file.tell()) if claimed else np.empty(0, dtype)
    return values.reshape(shape, order="F" if by_columns else "C")


# A folder with one sub-folder per class: pictures, or recordings as frames [T, C, H, W].
#
#     mine/cat/*.png, mine/dog/*.png                  one part, which is split
#     mine/train/cat/*.png, mine/test/cat/*.png       two parts (or val instead of test)
#
# Recordings are as tonic's ToFrame gives them (.npy), or SpikingJelly (.npz with the key `frames`).


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


# Call a user's function `package.module:function` and turn what it returns into named arrays.
#
#     {"inputs": ..., "labels": ...}        as in a .npz file
#     inputs                                one array, without labels
#     (inputs, labels)                      two arrays
#     dataset                               a torch Dataset: items (input, label)
#     (train, test)                         two of the above: Datasets, or pairs of arrays
#
# torch is not imported here: its Datasets and tensors are recognized by what they can do.


Named = dict[str, Any]


def call_function(name: str, folder: Path | None) -> Named:
    """Return the arrays that a user's function gives; the folder of --data-dir is its argument."""
    function = import_function(name, "data")
    try:
        return named_arrays(name, function(*([] if folder is None else [folder])))
    except (DataError, OptionError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:  # a user's function can raise anything
        raise OptionError(f"data {name!r} failed: {type(error).__name__}: {error}") from error


def named_arrays(name: str, found: Any) -> Named:
    """Name the arrays in what a function returned."""
    if isinstance(found, Mapping):
        return {str(key): value for key, value in found.items()}
    if not isinstance(found, (tuple, list)):
        return _part(name, found, "")
    if len(found) != 2:
        raise DataError(f"{name}: returned {len(found)} objects; two are needed, {EXPECTED}.")
    if all(map(_is_array, found)):
        return dict(zip(("inputs", "labels"), found, strict=True))
    return {**_part(name, found[0], "train_"), **_part(name, found[1], "test_")}


EXPECTED = "(inputs, labels) or (train, test)"


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and hasattr(value, "shape")


def _part(name: str, found: Any, prefix: str) -> Named:
    if _is_array(found):
        return {f"{prefix}inputs": found}
    if isinstance(found, (tuple, list)) and len(found) == 2 and all(map(_is_array, found)):
        return {f"{prefix}inputs": found[0], f"{prefix}labels": found[1]}
    if not hasattr(found, "__getitem__") or not hasattr(found, "__len__"):
        raise DataError(
            f"{name}: returned {class_of(found)}; a torch Dataset with a length, or arrays, are "
            "needed. Of a DataLoader, return its dataset."
        )
    inputs, labels = _items(name, found)
    return {f"{prefix}inputs": inputs, f"{prefix}labels": labels}


def _items(name: str, dataset: Any) -> tuple[Array, Array]:
    """Read all items of a Dataset."""
    inputs, labels, size = [], [], 0
    for index in range(len(dataset)):
        item = dataset[index]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(f"{name}: item {index} is {class_of(item)}; (input, label) is needed.")
        inputs.append(np.asarray(item[0]))
        labels.append(np.asarray(item[1]))
        if (size := size + inputs[-1].nbytes) > LARGEST_ARRAYS:
            raise DataError(f"{name}: its samples take more than {LARGEST_ARRAYS} bytes, which is the limit.")
    if not inputs:
        raise DataError(f"{name}: the Dataset is empty.")
    names = [f"{name}: item {index}" for index in range(len(inputs))]
    return stack(inputs, names), stack(labels, [f"{each}, label" for each in names])
