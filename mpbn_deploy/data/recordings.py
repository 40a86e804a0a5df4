"""Recordings of several channels, read from an installed aeon (Bagnall et al., the UEA archive).

Japanese Vowels (Kudo, Toyama and Shimbo, 1999): who of nine men says /ae/? 270 training and 370 test
utterances of 7 to 29 frames, each of 12 LPC cepstrum coefficients, presented frame by frame. A coefficient is
presented as 0..15 spikes, between the smallest and the largest value that it has in the training split. After
its last frame, an utterance is silent.

BasicMotions: 40 training and 40 test recordings of a smart watch, 10 s of acceleration and rotation around
three axes, while its wearer stands, runs, walks or plays badminton. Each is a signal, (6, 100), presented as
a whole: -127..127, in units of the largest value that a channel has in the training split.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

import numpy as np

from ..base import Array, DataError, announce, owned_name, record, remove_abandoned, track
from ..ir import InputFormat
from .dataset import DataSet, Split
from .reading import WHITE, DatasetSource, file_names, file_size, find_folder, interleave_classes, read_bytes

LEVELS, LARGEST_SAMPLE = 15, 127


@record
class _Archive:
    """The two .ts files of a data set: lines of channels and a class, separated by colons."""

    name: str
    stem: str
    channels: int
    frames: int  # at most
    classes: tuple[str, ...]

    def load(self, folder: Path | None) -> tuple[list[tuple[list[Array], Array]], Array]:
        """Return recordings [frames, channels] and labels of both splits, and all training frames."""
        files = [f"{self.stem}_{part}.ts" for part in ("TRAIN", "TEST")]
        found = find_folder(self.source, folder, lambda path: all((path / file).is_file() for file in files))
        splits = [self.read(found / file) for file in files]
        return splits, np.concatenate(splits[0][0])

    @property
    def source(self) -> DatasetSource:
        """Say where the files are: in aeon's package, which is not imported, because that takes seconds."""
        aeon, data = find_spec("aeon"), Path("datasets", "data", self.stem)
        return DatasetSource(
            name=self.name,
            files=f"{self.stem}_TRAIN.ts and {self.stem}_TEST.ts",
            subfolders=(self.stem, str(data)),
            origin="the package aeon (pip install aeon)",
            default=Path(aeon.origin).parent / data if aeon is not None and aeon.origin else None,
        )

    def read(self, file: Path) -> tuple[list[Array], Array]:
        """Return the recordings [frames, channels] of a file, and their labels."""
        _, _, body = read_bytes(file).decode("utf-8", errors="replace").partition("@data\n")
        recordings, labels = [], []
        for number, line in enumerate(body.splitlines(), 1):
            *channels, label = line.split(":")
            try:
                values = np.array([channel.split(",") for channel in channels], np.float64).T
                labels.append(self.classes.index(label.strip()))
            except ValueError as error:
                raise DataError(f"{file}: recording {number} is damaged ({error}).") from error
            if values.shape[1:] != (self.channels,) or len(values) > self.frames:
                raise DataError(
                    f"{file}: recording {number} is not {self.channels} channels of up to {self.frames} "
                    "frames."
                )
            recordings.append(values)
        if not recordings or not all(np.isfinite(values).all() for values in recordings):
            raise DataError(f"{file}: holds no recordings, or numbers that are not finite.")
        return recordings, np.array(labels)


VOWELS = _Archive(
    name="japanese-vowels",
    stem="JapaneseVowels",
    channels=12,
    frames=29,
    classes=tuple(map(str, range(1, 10))),
)
MOTIONS = _Archive(
    name="basic-motions",
    stem="BasicMotions",
    channels=6,
    frames=100,
    classes=("Standing", "Running", "Walking", "Badminton"),
)


def load_japanese_vowels(folder: Path | None = None) -> DataSet:
    """Load the utterances of an installed aeon, or of the folder that holds its two .ts files."""
    (train, test), known = VOWELS.load(folder)
    low, high = known.min(axis=0), known.max(axis=0)

    def counted(utterances: list[Array], classes: Array) -> Split:
        inputs = np.zeros((len(utterances), VOWELS.frames, VOWELS.channels), np.uint8)
        for row, values in zip(inputs, utterances, strict=True):
            row[: len(values)] = np.clip(np.rint(LEVELS * (values - low) / (high - low)), 0, LEVELS)
        return Split(inputs=inputs, labels=classes)

    names = tuple(f"speaker {number}" for number in VOWELS.classes)
    splits = counted(*train), counted(*test)
    return _dataset(VOWELS, splits, names, (VOWELS.channels,), (0, LEVELS), frames=VOWELS.frames)


def load_basic_motions(folder: Path | None = None) -> DataSet:
    """Load the signals of an installed aeon, or of the folder that holds its two .ts files."""
    (train, test), known = MOTIONS.load(folder)
    unit = np.abs(known).max(axis=0) / LARGEST_SAMPLE

    def whole(recordings: list[Array], classes: Array) -> Split:
        inputs = np.zeros((len(recordings), MOTIONS.channels, MOTIONS.frames), np.int16)
        for row, values in zip(inputs, recordings, strict=True):
            row[:, : len(values)] = np.clip(np.rint(values / unit), -LARGEST_SAMPLE, LARGEST_SAMPLE).T
        return Split(inputs=inputs, labels=classes)

    shape, splits = (MOTIONS.channels, MOTIONS.frames), (whole(*train), whole(*test))
    return _dataset(MOTIONS, splits, MOTIONS.classes, shape, (-LARGEST_SAMPLE, LARGEST_SAMPLE))


def _dataset(
    archive: _Archive,
    splits: tuple[Split, Split],
    names: tuple[str, ...],
    shape: tuple[int, ...],
    limits: tuple[int, int],
    *,
    frames: int | None = None,
) -> DataSet:
    """Return a data set normalized by the mean and deviation of each channel of the training split."""
    shown = np.asarray(splits[0].inputs)
    axes = (0, 1) if frames is not None else (0, 2)
    return DataSet(
        name=archive.name,
        train=splits[0],
        test=splits[1],
        input_format=InputFormat(
            shape=shape,
            minimum=limits[0],
            maximum=limits[1],
            mean=shown.mean(axis=axes, dtype=np.float64),
            deviation=shown.std(axis=axes, dtype=np.float64),
        ),
        class_names=names,
        frames=frames,
    )


# CIFAR10-DVS: recordings of a 128 x 128 event camera, as ten frames of 48 x 48 event counts.
#
# A recording is an AEDAT 2.0 file: header lines that start with '#', then for each event a big-endian
# uint32 address and a uint32 timestamp, in order of time. The address of the camera (a DVS128) is
#     bit 15: external event, no pixel     bits 14-8: y     bits 7-1: x     bit 0: polarity
# (docs.inivation.com, AEDAT 1.0 and 2.0). Frames are rotated upright as in SpikingJelly's reader:
# column = 127 - y, row = 127 - x, channel = 1 - polarity.


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
