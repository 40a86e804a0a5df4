"""Calibration inputs: the first training samples of a data set, checked against the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..base import Array, OptionError, QuantizeError, SimulationError, announce, record
from ..data import DataSet, center_crop, load_dataset
from ..ir import FoldedNetwork, as_steps, check_input_values

CALIBRATION_SAMPLES = 256


@record
class CalibrationData:
    """Inputs to calibrate on, and notes about them for the user."""

    inputs: Array
    notes: tuple[str, ...] = ()


def load_calibration(folded: FoldedNetwork, name: str, data_dir: Path | None) -> CalibrationData:
    """Load the calibration inputs of a data set by its name."""
    return calibration_data(folded, load_dataset(name, data_dir))


def calibration_data(folded: FoldedNetwork, dataset: DataSet) -> CalibrationData:
    """Take the first training samples of a data set; add a note if they are all of one class."""
    name = dataset.name
    if dataset.input_format.shape != folded.input.shape:
        raise OptionError(
            f"calibration: samples of {name} have shape {dataset.input_format.shape}; "
            f"the network takes {folded.input.shape}. Choose another data set with --calibration."
        )
    labels = dataset.train.labels[:CALIBRATION_SAMPLES]
    inputs = center_crop(dataset.train.inputs[:CALIBRATION_SAMPLES], folded.input.shape)
    if len(np.unique(labels)) > 1:
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
