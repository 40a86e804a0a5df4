"""CIFAR10-DVS: recordings of a 128 x 128 event camera, as ten frames of 48 x 48 event counts.

A recording is an AEDAT 2.0 file: header lines that start with '#', then for each event a big-endian
uint32 address and a uint32 timestamp, in order of time. The address of the camera (a DVS128) is
    bit 15: external event, no pixel     bits 14-8: y     bits 7-1: x     bit 0: polarity
(docs.inivation.com, AEDAT 1.0 and 2.0). Frames are rotated upright as in SpikingJelly's reader:
column = 127 - y, row = 127 - x, channel = 1 - polarity.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import numpy as np

from ..base import Array, DataError, announce, owned_name, record, remove_abandoned, track
from ..ir import InputFormat
from .dataset import DataSet, Split
from .reading import WHITE, DatasetSource, file_names, file_size, find_folder, interleave_classes, read_bytes

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FRAMES = 10
CAMERA_SIDE, SIDE = 128, 48
SHAPE = (2, SIDE, SIDE)
EVENT_BYTES = 8
LARGEST_RECORDING = 64 * 2**20  # eight million events; reading them takes several times that memory
EXTERNAL_EVENT, LARGEST_ADDRESS = 0x8000, 0xFFFF
CACHE_NAME, CACHE_VERSION = "cifar10-dvs-frames", 1

CIFAR10_DVS = DatasetSource(
    name="cifar10-dvs",
    files=f"folders {CLASS_NAMES[0]} ... {CLASS_NAMES[-1]} of .aedat files",
    subfolders=("CIFAR10DVS", "cifar10-dvs", "extract"),
    origin="figshare (figshare.com/articles/dataset/CIFAR10-DVS_New/4724671)",
)


@record
class Recording:
    """Frames [FRAMES, *SHAPE] of one recording, and counts of what they leave out."""

    frames: Array
    clipped: int  # event counts above 255
    external: int  # events of the camera's input pin, which have no pixel


def load_cifar10_dvs(folder: Path | None = None) -> DataSet:
    """Load the first nine tenths (900) of each class's recordings for training, the rest for testing."""
    found = find_folder(CIFAR10_DVS, folder, lambda path: (path / CLASS_NAMES[0]).is_dir())
    classes = [_recordings(found / name) for name in CLASS_NAMES]
    train, train_labels = interleave_classes([files[: len(files) * 9 // 10] for files in classes])
    test, test_labels = interleave_classes([files[len(files) * 9 // 10 :] for files in classes])
    frames = _cached_frames(found, [*train, *test])
    return DataSet(
        name=CIFAR10_DVS.name,
        train=Split(inputs=frames[: len(train)], labels=train_labels),
        test=Split(inputs=frames[len(train) :], labels=test_labels),
        input_format=InputFormat(
            shape=SHAPE, minimum=0, maximum=WHITE, mean=np.zeros(1), deviation=np.ones(1)
        ),
        class_names=CLASS_NAMES,
        frames=FRAMES,
        augmentation="roll-flip",
    )


def _recordings(folder: Path) -> list[Path]:
    """Return the recordings of a class in natural order: cifar10_cat_2 before cifar10_cat_10."""
    files = [folder / name for name in sorted(file_names(folder, (".aedat",)), key=_natural_order)]
    if len(files) < 2:
        raise DataError(f"{folder}: {len(files)} .aedat files; at least two are needed, one for each split.")
    return files


def _natural_order(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


# ---- one recording ----------------------------------------------------------------------------


def read_recording(path: Path) -> Recording:
    """Count event k of n in frame k * 10 // n, at its coordinates * 48 // 128; counts stop at 255."""
    addresses = _read_addresses(path)
    pixels = addresses[addresses < EXTERNAL_EVENT]
    if len(pixels) < FRAMES:
        raise DataError(f"{path}: {len(pixels)} events; at least {FRAMES} are needed, one per frame.")
    frame = np.arange(len(pixels)) * FRAMES // len(pixels)
    channel = 1 - (pixels & 1)
    row = (CAMERA_SIDE - 1 - (pixels >> 1 & 0x7F)) * SIDE // CAMERA_SIDE
    column = (CAMERA_SIDE - 1 - (pixels >> 8 & 0x7F)) * SIDE // CAMERA_SIDE
    shape = (FRAMES, *SHAPE)
    where = np.ravel_multi_index((frame, channel, row, column), shape)
    counts = np.bincount(where, minlength=FRAMES * 2 * SIDE * SIDE).reshape(shape)
    return Recording(
        frames=np.minimum(counts, WHITE).astype(np.uint8),
        clipped=int((counts > WHITE).sum()),
        external=len(addresses) - len(pixels),
    )


def _read_addresses(path: Path) -> Array:
    if file_size(path) > LARGEST_RECORDING:
        found = f"{file_size(path)} bytes"
        raise DataError(f"{path}: {found}; a recording of CIFAR10-DVS has at most {LARGEST_RECORDING}.")
    content = read_bytes(path)
    start = _end_of_header(content)
    version = re.match(rb"#!AER-DAT([\d.]*)", content)
    if version and version[1] != b"2.0":
        raise DataError(f"{path}: AEDAT {version[1].decode()}; CIFAR10-DVS is AEDAT 2.0.")
    if (len(content) - start) % EVENT_BYTES:
        found = f"{len(content) - start} bytes of events"
        raise DataError(f"{path}: {found}; each event has {EVENT_BYTES}. Check that the file is complete.")
    addresses = np.frombuffer(content, ">u4", offset=start)[::2].astype(np.int64)
    if addresses.size and addresses.max() > LARGEST_ADDRESS:
        raise DataError(
            f"{path}: address {addresses.max():#x}; a 128 x 128 camera has 0..{LARGEST_ADDRESS:#x}."
        )
    return addresses


def _end_of_header(content: bytes) -> int:
    """Return the offset after the lines that start with '#'; the first byte of an address is zero."""
    start = 0
    while content[start : start + 1] == b"#":
        start = content.find(b"\n", start) + 1 or len(content)
    return start


# ---- all recordings, converted once and cached ------------------------------------------------


def _cached_frames(folder: Path, files: list[Path]) -> Array:
    """Return the frames of all recordings, from the cache beside them if it matches the files."""
    files_now = [_state_of(file, folder) for file in files]
    fingerprint = sha256("\n".join([f"{CACHE_VERSION} {FRAMES} {SHAPE}", *files_now]).encode()).hexdigest()
    cache = folder / f"{CACHE_NAME}-{fingerprint[:16]}.npy"
    kept = _read_cache(cache, len(files))
    if kept is not None:
        return kept
    frames = _convert(files)
    _write_cache(cache, frames)
    kept = _read_cache(cache, len(files))
    return frames if kept is None else kept


def _state_of(file: Path, folder: Path) -> str:
    """Return a file's name, size and modification time; recordings of equal size are common."""
    return f"{file.relative_to(folder).as_posix()} {file_size(file)} {file.stat().st_mtime_ns}"


def _convert(files: list[Path]) -> Array:
    frames = np.empty((len(files), FRAMES, *SHAPE), np.uint8)
    clipped = external = 0
    for number, file in enumerate(track(files, "cifar10-dvs: events to frames", len(files))):
        recording = read_recording(file)
        frames[number] = recording.frames
        clipped += recording.clipped
        external += recording.external
    announce(f"cifar10-dvs: {clipped} of {frames.size} counts were above {WHITE} and were clipped to it")
    if external:
        announce(f"cifar10-dvs: {external} external events, which have no pixel, were dropped")
    frames.flags.writeable = False
    return frames


def _read_cache(cache: Path, count: int) -> Array | None:
    """Return the memory-mapped cache, or None if it is missing or damaged."""
    try:
        kept: Array = np.load(cache, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return kept if kept.shape == (count, FRAMES, *SHAPE) and kept.dtype == np.uint8 else None


def _write_cache(cache: Path, frames: Array) -> None:
    """Write the cache atomically and delete outdated ones; a read-only folder gets no cache."""
    remove_abandoned(cache.parent, f".{cache.name}.")
    # Partly random: two threads may write at the same time.
    temporary = cache.with_name(f"{owned_name(f'.{cache.name}.')}{token_hex(8)}.part")
    try:
        try:
            with temporary.open("xb") as file:
                np.save(file, frames, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(cache)
        finally:
            temporary.unlink(missing_ok=True)
        for stale in cache.parent.glob(f"{CACHE_NAME}-*.npy"):
            if stale != cache:
                stale.unlink(missing_ok=True)  # another process may have deleted it first
    except OSError as error:
        announce(f"cifar10-dvs: frames are not cached; {cache}: {error.strerror or error}")
