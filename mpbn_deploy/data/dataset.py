"""DataSet: a training and a test split of raw integers with labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..base import Array, OptionError, freeze_arrays, record
from ..ir import Input, InputFormat

SILENT_STEPS = 4  # after a recording, for chips on which spikes take a time step from layer to layer


class Inputs(Protocol):
    """An array of samples, or images that are decoded when they are indexed.

    [integer], [slice] and [array of integers] return arrays.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: Any, /) -> Array: ...


@record
class Split:
    """Samples of raw integers, [count, *shape] or [count, frames, *shape], and the class of each."""

    inputs: Inputs
    labels: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __len__(self) -> int:
        return len(self.labels)


@record
class Part:
    """Samples as in a Split, whose labels may be unknown."""

    inputs: Inputs
    labels: Array | None


@record
class Subset:
    """Some of the samples of other inputs, read when they are indexed."""

    inputs: Inputs
    indices: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.indices), *self.inputs.shape[1:])

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, chosen: Any, /) -> Array:
        return self.inputs[self.indices[chosen]]


@record
class DataSet:
    """A training and a test split; the input format holds value range and normalization.

    `frames` is the number of time steps per sample (None: a still image). `augmentation` is the paper's
    augmentation for this data set without AutoAugment: "none", "crop-flip", "crop-flip-cutout" or
    "roll-flip".
    """

    name: str
    train: Split
    test: Split
    input_format: InputFormat
    class_names: tuple[str, ...]
    frames: int | None = None
    augmentation: str = "none"


def center_crop(samples: Any, shape: tuple[int, ...]) -> Any:
    """Return the middle of images larger than `shape`, and other samples as they are."""
    if len(shape) != 3 or tuple(samples.shape[-2:]) == tuple(shape[-2:]):
        return samples
    top, left = ((found - asked) // 2 for found, asked in zip(samples.shape[-2:], shape[-2:], strict=True))
    return samples[..., top : top + shape[-2], left : left + shape[-1]]


HOLD_OUT_SEED = 0  # the same samples are held out whatever the seed of a training


def hold_out(dataset: DataSet, fraction: float) -> tuple[DataSet, Split | None]:
    """Return the data set with a fraction of its training split held out, and that fraction."""
    if not 0 <= fraction < 1:
        raise OptionError(
            f"--validation {fraction}; a fraction of the training split is needed, 0 to below 1."
        )
    if not fraction:
        return dataset, None
    count = round(fraction * len(dataset.train))
    if not count:
        raise OptionError(
            f"--validation {fraction}; that is none of the {len(dataset.train)} training samples of "
            f"{dataset.name}. A larger fraction is needed."
        )
    order = np.random.default_rng(HOLD_OUT_SEED).permutation(len(dataset.train))
    return replace(dataset, train=subset(dataset.train, order[count:])), subset(dataset.train, order[:count])


def subset(split: Split, indices: Array) -> Split:
    """Return some samples of a split, which are read when they are indexed."""
    return Split(inputs=Subset(inputs=split.inputs, indices=indices), labels=split.labels[indices])


def as_spike_counts(dataset: DataSet, most: int, timesteps: int | None) -> DataSet:
    """Return a data set for chips that take 0..most spikes per channel and time step.

    Values above that are divided and rounded as `Input.coarser` does, and multiplied again, so that the
    network learns from what the chip will see. Inputs are not centered: a mean would be a constant input.
    Recordings are followed by silence, in which the spikes of the last frames reach the output.
    """
    given = dataset.input_format
    if given.minimum < 0 or dataset.frames is None or len(given.shape) != 1:
        raise OptionError(
            f"{dataset.name}: samples of shape {given.shape} with values {given.minimum}..{given.maximum}; "
            "Xylo takes channels over time with values from 0, such as --data digits-rows."
        )
    coarse = Input(minimum=given.minimum, maximum=given.maximum).coarser(most.bit_length())
    steps = dataset.frames + SILENT_STEPS if timesteps is None else timesteps

    def counted(split: Split) -> Split:
        values = np.asarray(split.inputs[:])
        rounded = (coarse.presented(values) * coarse.divisor).astype(values.dtype)
        return Split(inputs=followed_by_silence(rounded, steps), labels=split.labels)

    return replace(
        dataset,
        train=counted(dataset.train),
        test=counted(dataset.test),
        input_format=replace(given, mean=np.zeros(1), deviation=given.deviation),
        frames=steps,
    )


def followed_by_silence(inputs: Array, timesteps: int) -> Array:
    """Return recordings [samples, frames, channels] of `timesteps` frames: the missing ones are zero."""
    missing = timesteps - inputs.shape[1]
    return np.pad(inputs, ((0, 0), (0, missing), (0, 0))) if missing > 0 else inputs
