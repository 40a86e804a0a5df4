"""Calibration inputs: the first training samples of a data set, checked against the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..base import Array, DataError, QuantizeError, SimulationError, announce, record
from ..data import DataSet, LoadedPart, Part, arranged, cropped, dataset_name, fitting_part, load_part
from ..formats.options import CALIBRATION_SAMPLES as CALIBRATION_SAMPLES
from ..ir import FoldedNetwork, as_steps, check_input_values


@record
class CalibrationData:
    """Inputs to calibrate on, and notes about them for the user."""

    inputs: Array
    notes: tuple[str, ...] = ()


def read_calibration(name: str, data_dir: Path | None) -> LoadedPart:
    """Read the training samples of a data set, before there is a network to calibrate."""
    try:
        return load_part(name, data_dir, "train")
    except DataError as error:
        raise DataError(f"calibration: {error}") from error


def load_calibration(
    folded: FoldedNetwork, name: str, data_dir: Path | None, loaded: LoadedPart | None = None
) -> CalibrationData:
    """Return the calibration inputs of a data set by its name; those `loaded` already are not read again."""
    try:
        part = fitting_part(folded, name, data_dir, "train", loaded)
    except DataError as error:
        raise DataError(f"calibration: {error}") from error
    return _first_samples(dataset_name(name), part)


def calibration_data(folded: FoldedNetwork, dataset: DataSet) -> CalibrationData:
    """Take the first training samples of a data set; add a note if they are all of one class."""
    inputs = cropped(dataset.train.inputs, dataset.input_format.shape)
    inputs = arranged(dataset.name, inputs, folded.input.shape, folded.timesteps)
    return _first_samples(dataset.name, Part(inputs=inputs, labels=dataset.train.labels))


def _first_samples(name: str, part: Part) -> CalibrationData:
    inputs = part.inputs[:CALIBRATION_SAMPLES]
    if part.labels is None or len(np.unique(labels := part.labels[:CALIBRATION_SAMPLES])) > 1:
        return CalibrationData(inputs=inputs)
    note = f"calibration: all {len(inputs)} samples of {name} are of class {labels[0]}; shuffle the data set."
    announce(f"note: {note}")
    return CalibrationData(inputs=inputs, notes=(note,))


def check_calibration(folded: FoldedNetwork, inputs: Array) -> Array:
    """Return the inputs as an array, or raise QuantizeError if the network cannot take them."""
    inputs = np.asarray(inputs)
    try:
        as_steps(inputs, folded.input.shape, folded.timesteps)
        check_input_values(folded, inputs)
    except SimulationError as error:
        raise QuantizeError(f"calibration: {error}") from error
    return inputs
