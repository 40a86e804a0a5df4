"""DataSet: a training and a test split of raw integers with labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np

from ..base import Array, DataError, OptionError, announce, freeze_arrays, record
from ..ir import Input, InputFormat, shape_for

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


# The axes of a sample: T time, C channels, H height, W width, L length of a signal, F features.
#
# Samples are brought into the order TCHW, TCL or TF. A network decides what the axes of samples are, if there
# is one; otherwise the user says it (`axes`), or the number of axes does.


ORDER = "TCHWLF"
LAYOUTS = {
    1: ("F",),
    2: ("HW", "TF", "CL", "LC"),
    3: ("CHW", "HWC", "THW", "TCL"),
    4: ("TCHW", "THWC"),
}  # the usual one first
KNOWN = tuple(axes for layouts in LAYOUTS.values() for axes in layouts)
MEANINGS = {"T": "time", "C": "channels", "H": "height", "W": "width", "L": "length", "F": "features"}
CHANNELS = (1, 2, 3)  # as the last axis of a picture
Shape = tuple[int, ...]


@record
class Changed:
    """Inputs that are changed when they are indexed; `shape` is that of all together, after the change."""

    inputs: Inputs
    shape: Shape
    change: Callable[[Array], Array]

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, chosen: Any, /) -> Array:
        return self.change(self.inputs[chosen])


def presented(inputs: Inputs, taken: Input) -> Inputs:
    """Convert raw values to network inputs (offset, divisor); arrays at once, others when indexed."""
    if taken.takes_raw_values:
        return inputs
    if isinstance(inputs, np.ndarray):
        return taken.presented(inputs)
    return Changed(inputs=inputs, shape=tuple(inputs.shape), change=taken.presented)


def cropped(inputs: Inputs, shape: Shape) -> Inputs:
    """Return inputs whose images have the size of `shape`: training images may be larger, to be cropped."""
    if len(shape) != 3 or tuple(inputs.shape[-2:]) == shape[-2:]:
        return inputs
    sizes = (*inputs.shape[:-2], *shape[-2:])
    return Changed(inputs=inputs, shape=sizes, change=partial(center_crop, shape=shape))


def layout_without_network(name: str, sample: Shape, axes: str | None) -> str:
    """Return the axes of a sample: as the user says, or the usual ones, which are announced if in doubt."""
    if axes is not None:
        _check_axes(name, sample, axes)
        return axes
    if len(sample) not in LAYOUTS:
        raise DataError(f"{name}: samples have shape {sample}; 1 to 4 axes are allowed: {', '.join(KNOWN)}.")
    usual = LAYOUTS[len(sample)][0]
    last = f"{usual.replace('C', '')}C"  # pictures with the channels last
    if last in KNOWN and sample[-1] in CHANNELS and sample[usual.index("C")] not in CHANNELS:
        usual = last
    if len(LAYOUTS[len(sample)]) > 1 and usual not in ("CHW", "TCHW"):
        others = " or ".join(f"axes={other!r}" for other in LAYOUTS[len(sample)] if other != usual)
        announce(
            f"note: {name}: samples of shape {sample} are taken as {described(usual)}; if they are not, save "
            f"{others} with them"
        )
    return usual


def _check_axes(name: str, sample: Shape, axes: str) -> None:
    if axes not in KNOWN:
        raise DataError(f"{name}: axes {axes!r}; allowed are {', '.join(KNOWN)} (T time, F features).")
    if len(axes) != len(sample):
        raise DataError(f"{name}: axes {axes!r}, but samples have shape {sample}.")


def described(axes: str) -> str:
    """Return "height x width" for "HW"."""
    return " x ".join(MEANINGS[axis] for axis in axes)


def in_standard_order(name: str, inputs: Array, axes: str) -> Array:
    """Return samples in the order TCHW, TCL or TF."""
    if inputs.ndim != 1 + len(axes):
        raise DataError(f"{name}: samples have shape {inputs.shape[1:]}, but others have {len(axes)} axes.")
    order, sample = _standard(inputs.shape[1:], axes)
    return inputs.transpose(0, *(1 + axis for axis in order)).reshape(len(inputs), *sample)


def _standard(sample: Shape, axes: str) -> tuple[tuple[int, ...], Shape]:
    """Return the order of the axes, and the shape in that order; a picture has a channel."""
    kept = [axis for axis in ORDER if axis in axes]
    sizes = {axis: sample[axes.index(axis)] for axis in kept}
    if "H" in axes and "C" not in axes:
        sizes["C"] = 1
    return tuple(axes.index(axis) for axis in kept), tuple(sizes[axis] for axis in ORDER if axis in sizes)


# ---- for a network ----------------------------------------------------------------------------


def arranged(
    name: str, inputs: Inputs, shape: Shape, timesteps: int, axes: str | None = None, *, quiet: bool = False
) -> Inputs:
    """Return inputs as a network takes them, [samples, *shape] or [samples, timesteps, *shape]."""
    sample = tuple(inputs.shape[1:])
    if axes is not None:
        _check_axes(name, sample, axes)
    elif (found := shape_for(sample, shape)) in (shape, (timesteps, *shape)):
        return _arranged(name, inputs, tuple(range(len(sample))), found, quiet=True)
    layouts = (axes,) if axes is not None else LAYOUTS.get(len(sample), ())
    standards = [
        (order, shape_for(found, shape)) for order, found in (_standard(sample, each) for each in layouts)
    ]
    for order, found in standards:
        if found in (shape, (timesteps, *shape)):
            return _arranged(name, inputs, order, found, quiet)
    for (order, found), layout in zip(standards, layouts, strict=True):
        time, rest = (found[:1], found[1:]) if "T" in layout else ((), found)
        if time in ((), (timesteps,)) and prod(rest) == prod(shape) and 1 in (len(rest), len(shape)):
            return _arranged(name, inputs, order, (*time, *shape), quiet)
    raise DataError(_mismatch(name, sample, shape, timesteps, len(inputs)))


def _arranged(name: str, inputs: Inputs, order: tuple[int, ...], sample: Shape, quiet: bool) -> Inputs:
    before = tuple(inputs.shape[1:])
    if before == sample and order == tuple(range(len(sample))):
        return inputs
    verb = "flattened" if len(sample) < len(before) else "reshaped"
    if order != tuple(range(len(order))):
        verb = "reordered"
    if not quiet:
        announce(f"note: samples of {name} have shape {before}; {verb} to {sample}, which the network takes")
    change = partial(_reordered, order=order, sample=sample)
    return Changed(inputs=inputs, shape=(len(inputs), *sample), change=change)


def _reordered(values: Array, order: tuple[int, ...], sample: Shape) -> Array:
    """Return samples, or one of them, with another order of axes and another shape."""
    leading = values.ndim - len(order)
    ordered = values.transpose(*range(leading), *(leading + axis for axis in order))
    return ordered.reshape(*values.shape[:leading], *sample)


def _mismatch(name: str, sample: Shape, shape: Shape, timesteps: int, samples: int) -> str:
    if sample[1:] == shape:
        return (
            f"{name}: samples have {sample[0]} frames; the network runs {timesteps} time steps. "
            f"Export it with --timesteps {sample[0]}, or give recordings of {timesteps} frames."
        )
    hint = _channel_hint(sample, shape)
    if (samples, *sample) in (shape, shape[1:]):
        hint = " It looks like one sample without an axis for samples: save inputs[None]."
    sizes = ", ".join(map(str, shape))
    usual = f" Save inputs as [samples, {sizes}], or a frame per step: [samples, {timesteps}, {sizes}]."
    return f"{name}: samples have shape {sample}; the network takes {shape}.{hint or usual}"


def _channel_hint(sample: Shape, shape: Shape) -> str:
    """Return what to do about pictures of another number of channels, or of another size."""
    channels = {
        _standard(sample, axes)[1][-3]
        for axes in LAYOUTS.get(len(sample), ())
        if "H" in axes
        and ("T" in axes) == (len(sample) == 4)
        and _standard(sample, axes)[1][-2:] == shape[-2:]
    }
    if len(shape) != 3 or not channels:
        return ""
    found = min(channels, key=lambda count: abs(count - shape[0]))
    if found == 1:
        return (
            f" They are gray: repeat them in {shape[0]} channels, np.repeat(inputs[:, None], {shape[0]}, 1)."
        )
    return f" They have {found} channels; give {shape[0]}, or a network that takes {found}."
