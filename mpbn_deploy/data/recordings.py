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

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..base import Array, DataError, record
from ..ir import InputFormat
from .dataset import DataSet, Split
from .reading import DatasetSource, find_folder, read_bytes

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
