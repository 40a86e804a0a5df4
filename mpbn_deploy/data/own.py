"""The user's own data, from a .npz or .npy file, a folder by classes, or a function.

Every source gives named arrays. Names may be upper case and have a part: inputs, train_inputs, test_inputs,
inputs_train; x, images, frames and data mean inputs; labels, y and targets mean labels. Optional:

    axes            the axes of a sample, such as "TCHW", "HWC" or "TF" (T time, F features)
    class_names     one string per class
    input_range     lowest and highest input value; otherwise those of the data
    mean, deviation of the inputs, to normalize by, one number or one per channel; otherwise those of the
                    training samples, and 0 and 1 for recordings and spikes, in which silence stays zero
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..base import (
    OWN_DATA,
    WIDEST_INPUT,
    Array,
    DataError,
    NetworkError,
    OptionError,
    and_more,
    announce,
    array_record,
    one_line,
    record,
    shortened,
)
from ..ir import InputFormat
from .dataset import DataSet, Part, Split, in_standard_order, layout_without_network
from .own_files import call_function, read_class_folders, read_npy, read_npz
from .reading import WHITE

FILES = (".npz", ".npy")
TENSORS, NETWORKS = (".pt", ".pth", ".ckpt", ".safetensors"), (".nir", ".net")
INPUT_NAMES = ("inputs", "input", "x", "images", "image", "frames", "data")
LABEL_NAMES = ("labels", "label", "y", "targets", "target")
FACTS = ("axes", "class_names", "input_range", "mean", "deviation")
TEST_FRACTION, SPLIT_SEED = 0.2, 0
MAX_CLASSES = 100_000
SHOWN_CLASSES = 6  # of those without samples


@array_record
class Facts:
    """What a user says about the data; None where nothing is said."""

    axes: str | None = None
    class_names: tuple[str, ...] | None = None
    input_range: tuple[int, int] | None = None
    mean: Array | None = None
    deviation: Array | None = None


@record
class OwnData:
    """Parts "train" and "test", or "" for samples that are not divided; and what is known about them."""

    name: str
    parts: Mapping[str, Part]
    facts: Facts

    def part(self, wanted: str, *, quiet: bool = False) -> Part:
        """Return the samples to train or to test with; samples with labels that are not divided are split."""
        if wanted in self.parts:
            return self.parts[wanted]
        if "" not in self.parts:
            other = "test" if wanted == "train" else "train"
            raise DataError(
                f"{self.name}: has {other} samples only; {wanted} samples are needed. Add {wanted}_inputs "
                f"and {wanted}_labels, or call the arrays inputs and labels to have them split."
            )
        whole = self.parts[""]
        if whole.labels is None:
            return whole
        if len(whole.inputs) < 2:
            raise DataError(f"{self.name}: one sample cannot be split into training and test samples.")
        order = np.random.default_rng(SPLIT_SEED).permutation(len(whole.inputs))
        count = max(1, round(TEST_FRACTION * len(order)))
        if not quiet:
            announce(_split_note(self.name, len(order) - count, count))
        chosen = order[:count] if wanted == "test" else order[count:]
        return Part(inputs=whole.inputs[chosen], labels=whole.labels[chosen])


def _split_note(name: str, train: int, test: int) -> str:
    how = "save train_inputs, train_labels, test_inputs and test_labels"
    if Path(name).suffix not in FILES and ":" not in name:
        how = "put the folders of the classes into a folder train and a folder test"
    return (
        f"note: {name} has no test part; {train} samples are for training, {test} for tests "
        f"(seed {SPLIT_SEED}). For a split of your own, {how}."
    )


def is_own(name: str) -> bool:
    """Return whether a name of --data means a file, a folder or a function of the user."""
    return ":" in name or "/" in name or Path(name).suffix in FILES or _exists(name)


def dataset_name(name: str) -> str:
    """Return the name of a data set as models and exports record it: that of a file without its folder."""
    return name if ":" in name else (Path(name).name or name)


def read_own(name: str, folder: Path | None = None) -> OwnData:
    """Read a file, a folder or what a function returns, and check its values."""
    return own_from_arrays(dataset_name(name), _named_arrays(name, folder))


def inputs_and_labels(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays under the names train_inputs, test_labels, ..., whatever the user calls them."""
    return {"_".join(filter(None, _role(key) or (key,))): value for key, value in found.items()}


def own_from_arrays(shown: str, found: Mapping[str, Any]) -> OwnData:
    """Return named arrays as data, with their values checked."""
    roles = {key: _role(key) for key in found}
    if not any(role is not None and role[1] == "inputs" for role in roles.values()):
        listed = ", ".join(found) or "nothing"
        raise DataError(
            f"{shown}: holds {listed}; it needs inputs (and labels), or train_inputs, train_labels, "
            "test_inputs and test_labels. Save it with np.savez(file, inputs=..., labels=...)."
        )
    if unused := [key for key, role in roles.items() if role is None and key not in FACTS]:
        announce(f"note: {shown}: not used: {', '.join(unused)}")
    parts = {}
    for part in ("", "train", "test"):
        inputs, labels = (_chosen(shown, found, roles, part, kind) for kind in ("inputs", "labels"))
        if inputs is not None:
            parts[part] = _checked(shown, *inputs, labels)
        elif labels is not None:
            raise DataError(f"{shown}: has {labels[0]}, but no inputs for them.")
    if "" in parts and len(parts) > 1:
        raise DataError(f"{shown}: mixes unsplit inputs with train or test inputs; use one naming scheme.")
    return OwnData(name=shown, parts=parts, facts=_facts(shown, found))


def _named_arrays(name: str, folder: Path | None) -> Mapping[str, Any]:
    if ":" in name and not _exists(name):
        return call_function(name, folder)
    if folder is not None:
        raise OptionError(f"{name}: your own file or folder; drop --data-dir.")
    if not _exists(name):
        raise DataError(f"{name}: no such file or folder. Your own data can be {OWN_DATA}.")
    path = Path(name)
    if path.is_dir():
        return read_class_folders(path)
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".npy":
        return {"inputs": read_npy(path)}
    raise DataError(f"{name}: {_what_else(path)}. Your own data can be {OWN_DATA}.")


def _what_else(path: Path) -> str:
    """Say what a file is that does not hold data."""
    if path.suffix in TENSORS:
        return (
            "a file of tensors, such as a network, and no data; name a network before the options. To use "
            "tensors as data, save them as arrays: np.savez(file, inputs=..., labels=...)"
        )
    if path.suffix in NETWORKS:
        return "a network, not data; name it before the options"
    return "not a file of data that is read here"


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # a name too long for a file
        return False


def _role(key: str) -> tuple[str, str] | None:
    """Return the part and the kind that a name stands for: X_train -> ("train", "inputs")."""
    words = key.lower().split("_")
    part = next((word for word in words if word in ("train", "test")), "")
    rest = "_".join(word for word in words if word != part)
    if rest in INPUT_NAMES:
        return part, "inputs"
    return (part, "labels") if rest in LABEL_NAMES else None


def _chosen(
    name: str, found: Mapping[str, Any], roles: Mapping[str, Any], part: str, kind: str
) -> tuple[str, Array] | None:
    keys = [key for key, role in roles.items() if role == (part, kind)]
    if len(keys) > 1:
        raise DataError(f"{name}: {' and '.join(keys)} both mean {kind}; keep one of them.")
    return (keys[0], np.asarray(found[keys[0]])) if keys else None


# ---- values -----------------------------------------------------------------------------------


def _checked(name: str, key: str, inputs: Array, labels: tuple[str, Array] | None) -> Part:
    where = f"{name}: {key}"
    if inputs.ndim < 2 or not inputs.size:
        found = "no values" if inputs.ndim > 1 else "one axis only"
        raise DataError(
            f"{where} of shape {inputs.shape}, with {found}; [samples, channels, height, width] or [samples, "
            "features] are needed, with at least one sample."
        )
    values = whole_numbers(where, inputs)
    if labels is None:
        return Part(inputs=values, labels=None)
    if labels[1].ndim and len(labels[1]) != len(values):
        raise DataError(f"{name}: {len(labels[1])} {labels[0]} for {len(values)} {key}; one each is needed.")
    return Part(inputs=values, labels=_labels(f"{name}: {labels[0]}", labels[1]))


def whole_numbers(where: str, values: Array) -> Array:
    """Return whole numbers as uint8 or int32; multiples of 1/255 become bytes, which is announced."""
    if values.dtype.names is not None:
        raise DataError(
            f"{where} are events ({', '.join(values.dtype.names)}); frames are needed, one per time step, as "
            "tonic's transforms.ToFrame(sensor_size, n_time_bins=T) makes them."
        )
    if values.dtype.kind not in "biuf":
        raise DataError(f"{where} of type {values.dtype}; whole numbers are needed.")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise DataError(f"{where} hold NaN or infinity; whole numbers are needed.")
        values = _without_fractions(where, values)
    lowest, highest = values.min(), values.max()
    if lowest < -WIDEST_INPUT or highest > WIDEST_INPUT:
        raise DataError(f"{where} from {lowest} to {highest}; allowed are {-WIDEST_INPUT} to {WIDEST_INPUT}.")
    return values.astype(np.uint8 if lowest >= 0 and highest <= WHITE else np.int32)


def _without_fractions(where: str, values: Array) -> Array:
    if np.array_equal(values, np.rint(values)):
        return values
    scaled: Array = np.rint(WHITE * values)
    if (
        values.min() >= 0
        and values.max() <= 1
        and np.array_equal((scaled / WHITE).astype(values.dtype), values)
    ):
        announce(f"note: {where} are multiples of 1/255 and taken as bytes 0 to 255")
        return scaled
    fraction = values[values != np.rint(values)].flat[0]
    if values.min() >= 0 and values.max() <= 1:
        rounded = "np.rint(255 * inputs).astype(np.uint8)"
    else:  # features may be of very different size
        rounded = "x = inputs - inputs.min(0); np.rint(255 * x / x.max(0)).astype(np.uint8)"
    raise DataError(
        f"{where} hold fractions, such as {fraction:.6g}; chips take whole numbers. Give the raw values "
        f"before they were scaled or normalized, or round them: {rounded}."
    )


def _labels(where: str, labels: Array) -> Array:
    """Return labels as they are, [samples]; strings are resolved later, when all parts are known."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        hint = " From one-hot rows make labels.argmax(axis=1)." if labels.ndim == 2 else ""
        raise DataError(f"{where} of shape {labels.shape}; one class per sample is needed.{hint}")
    if labels.dtype.kind in "US":
        raise DataError(f"{where} are strings; give numbers from 0, and the strings as class_names.")
    if labels.dtype.kind not in "biuf" or not np.array_equal(labels, np.rint(labels)):
        raise DataError(f"{where} of type {labels.dtype}; whole numbers from 0 are needed.")
    if labels.min() < 0 or labels.max() >= MAX_CLASSES:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise DataError(f"{where} hold {wrong:g}; classes are numbered from 0, up to {MAX_CLASSES - 1}.")
    return labels.astype(np.int64)


def _facts(name: str, found: Mapping[str, Any]) -> Facts:
    given: dict[str, Any] = {key: np.asarray(found[key]) for key in FACTS if key in found}
    try:
        if "axes" in given:
            given["axes"] = str(given["axes"].item()).upper()
        if "class_names" in given:
            given["class_names"] = tuple(one_line(str(each)) for each in given["class_names"].ravel())
        if "input_range" in given:
            lowest, highest = given["input_range"].ravel()
            given["input_range"] = int(lowest), int(highest)
    except SystemError as error:  # numpy reads any 32 bits as a character
        raise DataError(f"{name}: axes or class_names hold characters beyond Unicode.") from error
    except (ValueError, TypeError, OverflowError) as error:
        listed = "; ".join(f"{key} is {shortened(str(found[key]), 60)}" for key in given)
        raise DataError(
            f"{name}: {listed}. axes must be one string, such as 'CHW', class_names strings, and input_range "
            "two whole numbers, the lowest and the highest input."
        ) from error
    return Facts(**given)


# ---- as a data set ----------------------------------------------------------------------------


def as_dataset(own: OwnData) -> DataSet:
    """Return own data as a data set to train with: ordered axes, labels, classes, range, normalization."""
    parts = {"train": own.part("train"), "test": own.part("test", quiet=True)}
    for part, found in parts.items():
        if found.labels is None:
            raise DataError(
                f"{own.name}: the {part} inputs have no labels; to train, save them too: "
                "np.savez(file, inputs=..., labels=...)."
            )
    axes = layout_without_network(own.name, parts["train"].inputs.shape[1:], own.facts.axes)
    inputs = {part: in_standard_order(own.name, found.inputs[:], axes) for part, found in parts.items()}
    if inputs["train"].shape[1:] != inputs["test"].shape[1:]:
        shapes = " and ".join(str(values.shape[1:]) for values in inputs.values())
        raise DataError(f"{own.name}: training and test samples have shapes {shapes}; they must be equal.")
    frames = inputs["train"].shape[1] if "T" in axes else None
    shape = inputs["train"].shape[1 if frames is None else 2 :]
    labels = {part: found.labels for part, found in parts.items() if found.labels is not None}
    return DataSet(
        name=own.name,
        train=Split(inputs=inputs["train"], labels=labels["train"]),
        test=Split(inputs=inputs["test"], labels=labels["test"]),
        input_format=_input_format(own, inputs, shape, recorded=frames is not None),
        class_names=_class_names(own, labels),
        frames=frames,
    )


def _class_names(own: OwnData, labels: Mapping[str, Array]) -> tuple[str, ...]:
    needed = 1 + max(int(values.max()) for values in labels.values())
    names = own.facts.class_names or tuple(map(str, range(needed)))
    if needed > len(names):
        raise DataError(
            f"{own.name}: label {needed - 1}, but {len(names)} class_names (0..{len(names) - 1})."
        )
    if len(names) < 2:
        raise DataError(f"{own.name}: all labels are 0; at least two classes are needed.")
    found = set(np.unique(labels["train"]).tolist())
    if missing := [name for number, name in enumerate(names) if number not in found]:
        listed = and_more([shortened(name, 60) for name in missing[:SHOWN_CLASSES]], len(missing))
        announce(
            f"note: {own.name}: {len(missing)} of {len(names)} classes have no training sample ({listed}); "
            "labels count from 0"
        )
    return names


def _input_format(
    own: OwnData, inputs: Mapping[str, Array], shape: tuple[int, ...], *, recorded: bool
) -> InputFormat:
    facts, train = own.facts, inputs["train"]
    lowest = min(int(values.min()) for values in inputs.values())
    highest = max(int(values.max()) for values in inputs.values())
    minimum, maximum = facts.input_range or (lowest, highest)
    if lowest < minimum or highest > maximum:
        raise DataError(
            f"{own.name}: inputs from {lowest} to {highest}; its input_range is {minimum}..{maximum}."
        )
    if recorded or (minimum, maximum) == (0, 1):
        mean, deviation = np.zeros(1), np.ones(1)
    else:  # one number per channel of a picture or a signal; one for all features
        axes = (0, *range(2, 1 + len(shape))) if len(shape) > 1 else (0, 1)
        mean, deviation = train.mean(axis=axes, dtype=np.float64), train.std(axis=axes, dtype=np.float64)
        deviation = np.where(deviation > 0, deviation, 1.0)
    try:
        return InputFormat(
            shape=shape,
            minimum=minimum,
            maximum=maximum,
            mean=mean if facts.mean is None else facts.mean,
            deviation=deviation if facts.deviation is None else facts.deviation,
        )
    except NetworkError as error:
        raise DataError(f"{own.name}: input {'; '.join(error.problems)}.") from error
