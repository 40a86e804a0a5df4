"""Choose the samples to verify with, and those to calibrate on, which are never the same."""

from __future__ import annotations

from dataclasses import replace

from ..base import MissingDataError, announce
from ..data import (
    DATASETS,
    IN_MEMORY,
    RANDOM,
    LoadedPart,
    Part,
    Samples,
    announce_random,
    choose_samples,
    dataset_name,
    load_parts,
)
from ..formats.options import AUTO, ExportOptions
from ..quantize import CalibrationData, load_calibration, read_calibration
from .given import Parts as Parts
from .model import FoldedModel


def read_named(options: ExportOptions) -> Parts:
    """Read the data sets that options name, before anything long: a file may be missing or damaged."""
    found = Parts()
    if options.data not in (None, RANDOM) and not str(options.data).startswith(IN_MEMORY):
        found = Parts(**load_parts(str(options.data), options.data_dir))
    if options.calibrated and (options.calibration != options.data or found.train is None):
        train = read_calibration(str(options.calibration), options.data_dir)
        found = replace(found, train=train)
    return found


def choose_inputs(
    model: FoldedModel, options: ExportOptions, named: Parts
) -> tuple[Samples, CalibrationData | None, ExportOptions]:
    """Return the samples to verify with, those to calibrate on, and the options with what "auto" became."""
    data, parts = _find_data(model, options, named)
    samples = choose_samples(model.folded, options.samples, data, options.data_dir, parts.test)
    automatic = options.calibration == AUTO
    calibration = data if automatic else options.calibration
    train = _beside_tested(parts, options.samples) if calibration == data else parts.train
    if train is None or model.integers is not None or calibration is None:
        if calibration is not None and not samples.random and model.integers is None:
            announce(f"note: no calibration: {samples.name} has no samples beside those that are tested")
        return samples, None, replace(options, calibration=None)
    chosen = load_calibration(model.folded, calibration, options.data_dir, train)
    if automatic:
        note = (
            f"integers chosen on {len(chosen.inputs)} training samples of {dataset_name(calibration)}, none "
            "of which is tested; --calibration none rounds to nearest."
        )
        chosen = replace(chosen, notes=(note, *chosen.notes))
    return samples, chosen, replace(options, calibration=calibration)


def _find_data(model: FoldedModel, options: ExportOptions, named: Parts) -> tuple[str | None, Parts]:
    """Return the data set to verify with, the one given or else the model's, and its parts.

    Data of the user's own are known by the name of their file only, not by its path.
    """
    trained_on = model.trained_on
    if options.data is not None or trained_on is None:
        return options.data, named
    if trained_on not in DATASETS:
        announce_random(
            f"the model was trained on {trained_on}, data of your own",
            f"to verify with it, add --data {trained_on}",
        )
        return RANDOM, named
    try:
        found = Parts(**load_parts(trained_on, options.data_dir))
    except MissingDataError:
        if options.data_dir is not None:
            raise
        announce_random(
            f"the model was trained on {trained_on}, which is not on this machine",
            "to verify with its test samples, add --data-dir FOLDER",
        )
        return RANDOM, named
    return trained_on, Parts(test=found.test, train=named.train or found.train)


def _beside_tested(parts: Parts, tested: int | None) -> LoadedPart | None:
    """Return the training samples; of samples that are in one part without labels, those not tested."""
    if parts.train is None or parts.test is None or parts.train[0] is not parts.test[0]:
        return parts.train
    whole, axes = parts.train
    others = whole.inputs[:0] if tested is None else whole.inputs[tested:]
    return (Part(inputs=others, labels=None), axes) if len(others) else None
