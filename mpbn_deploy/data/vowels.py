"""Japanese Vowels (Kudo, Toyama and Shimbo, 1999; UCI), as it ships with aeon: who of nine men says /ae/?

270 training and 370 test utterances of 7 to 29 frames, each of 12 LPC cepstrum coefficients. A coefficient is
presented as 0..15 spikes, between the smallest and the largest value that it has in the training split. After
its last frame, an utterance is silent.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..base import Array, DataError
from ..ir import InputFormat
from .dataset import DataSet, Split
from .reading import DatasetSource, find_folder, read_bytes

CHANNELS, FRAMES, SPEAKERS, LEVELS = 12, 29, 9, 15
FILES = "JapaneseVowels_{part}.ts"


def load_japanese_vowels(folder: Path | None = None) -> DataSet:
    """Load the utterances of an installed aeon, or of the folder that holds its two .ts files."""
    files = [FILES.format(part=part) for part in ("TRAIN", "TEST")]
    found = find_folder(_source(), folder, lambda path: all((path / file).is_file() for file in files))
    (train, labels), (test, test_labels) = (_read(found / file) for file in files)
    known = np.concatenate(train)
    low, high = known.min(axis=0), known.max(axis=0)

    def counted(utterances: list[Array], classes: Array) -> Split:
        inputs = np.zeros((len(utterances), FRAMES, CHANNELS), np.uint8)
        for row, values in zip(inputs, utterances, strict=True):
            row[: len(values)] = np.clip(np.rint(LEVELS * (values - low) / (high - low)), 0, LEVELS)
        return Split(inputs=inputs, labels=classes)

    splits = counted(train, labels), counted(test, test_labels)
    shown = np.asarray(splits[0].inputs)
    return DataSet(
        name="japanese-vowels",
        train=splits[0],
        test=splits[1],
        input_format=InputFormat(
            shape=(CHANNELS,),
            minimum=0,
            maximum=LEVELS,
            mean=shown.mean(axis=(0, 1), dtype=np.float64),
            deviation=shown.std(axis=(0, 1), dtype=np.float64),
        ),
        class_names=tuple(f"speaker {number}" for number in range(1, SPEAKERS + 1)),
        frames=FRAMES,
    )


def _source() -> DatasetSource:
    """Say where the files are: in aeon's package, which is not imported, because that would take seconds."""
    aeon = find_spec("aeon")
    data = Path("datasets", "data", "JapaneseVowels")
    return DatasetSource(
        name="japanese-vowels",
        files="JapaneseVowels_TRAIN.ts and JapaneseVowels_TEST.ts",
        subfolders=("JapaneseVowels", str(data)),
        origin="the package aeon (pip install aeon)",
        default=Path(aeon.origin).parent / data if aeon is not None and aeon.origin else None,
    )


def _read(file: Path) -> tuple[list[Array], Array]:
    """Return the utterances [frames, channels], and their speakers, of a .ts file."""
    _, _, body = read_bytes(file).decode("utf-8", errors="replace").partition("@data\n")
    utterances, speakers = [], []
    for number, line in enumerate(body.splitlines(), 1):
        *channels, speaker = line.split(":")
        try:
            values = np.array([channel.split(",") for channel in channels], np.float64).T
            speakers.append(int(speaker) - 1)
        except ValueError as error:
            raise DataError(f"{file}: utterance {number} is damaged ({error}).") from error
        if values.shape[1:] != (CHANNELS,) or len(values) > FRAMES or not 0 <= speakers[-1] < SPEAKERS:
            raise DataError(
                f"{file}: utterance {number} is not {CHANNELS} channels of up to {FRAMES} frames."
            )
        utterances.append(values)
    if not utterances or not all(np.isfinite(values).all() for values in utterances):
        raise DataError(f"{file}: holds no utterances, or numbers that are not finite.")
    return utterances, np.array(speakers)
