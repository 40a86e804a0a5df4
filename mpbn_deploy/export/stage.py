"""Run the whole pipeline: model + target -> export folder.

load, fold     checkpoint or NIR file -> FoldedModel, with the folded network
quantize       -> Quantized: the integer network and its rounding errors
write          network.nir, network.net
verify         -> VerifyReport: every executor against the reference, integer against float
fit            -> FitReport: design rules, cores, energy and time
report         verify.json, fit.json, neurobench.json, report.html, run.toml
manifest       manifest.json: provenance, and the hash of every file
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..base import (
    MANIFEST_FILE,
    Array,
    FormatError,
    MissingDataError,
    OptionError,
    announce,
    marked_json,
    record,
    same_records,
)
from ..data import (
    DATASETS,
    RANDOM,
    LoadedPart,
    Samples,
    announce_random,
    check_data_name,
    choose_samples,
    dataset_name,
    load_part,
)
from ..execute.outside import chosen_witnesses
from ..fit import FitReport, NeuroBenchMetrics, check_sides, fit_on_chip, measure, neurobench_metrics
from ..formats.config import config_text
from ..formats.folder import (
    CONFIG_FILE,
    FILES,
    FIT_FILE,
    NETX_FILE,
    NEUROBENCH_FILE,
    NIR_FILE,
    REPORT_FILE,
    VERIFY_FILE,
    check_replaceable,
    folder_beside,
    new_folder,
    write_manifest,
)
from ..formats.netx import read_netx, write_netx
from ..formats.nir import read_folded, write_nir
from ..formats.options import ExportOptions
from ..formats.xylo import write_xylo
from ..hardware import HardwareProfile, load_profile
from ..quantize import (
    NumberFormats,
    Quantized,
    check_overflow,
    load_calibration,
    quantize,
    read_calibration,
    shifts_decays,
    trained_integers,
)
from ..report import ReportContent, write_html
from ..verify import VerifyReport, verify
from .facts import as_lines, facts_of
from .model import FoldedModel, load_and_fold
from .notes import all_notes


@record
class ExportResult:
    """The export folder and the result of each stage."""

    folder: Path
    quantized: Quantized
    verified: VerifyReport
    fitted: FitReport
    notes: tuple[str, ...] = ()  # for the user (notes.py)

    @property
    def files(self) -> list[str]:
        """The names of the files in the folder."""
        return [*(name for name in FILES if (self.folder / name).exists()), MANIFEST_FILE]

    @property
    def good(self) -> bool:
        """Whether the network passed verification, fits the chip and kept its weights."""
        return self.verified.passed and self.fitted.fits is True and not self.quantized.lost

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "files": self.files,
            "fits": self.fitted.fits,
            "passed": self.verified.passed,
            "verdict": self.verified.verdict,
            "bit_exact": self.verified.bit_exact,
            "without_weights": [layer.name for layer in self.quantized.lost],
            "assumptions": [asdict(assumption) for assumption in self.verified.assumptions],
            "notes": list(self.notes),
        }


def export(
    model_path: str | Path,
    target: str,
    out: str | Path | None = None,
    options: ExportOptions | None = None,
    **changes: Any,
) -> ExportResult:
    """Fold, quantize, write, verify and fit a trained network; on an error, no folder is left behind.

    Keyword arguments are the fields of `ExportOptions`: export("model.pt", "loihi2", weight_bits=4).
    For a NIR file, give `timesteps`, `input_range`, `dt`, `nir_reset` and `nir_current` if the file does not
    state them.
    """
    options = replace(options or ExportOptions(), **changes)
    model_path, profile = Path(model_path), load_profile(target)
    folder = Path(out) if out is not None else default_folder(model_path, profile)
    replaces = check_replaceable(folder)
    _check(profile, options)

    test, training = _read_data(options) if model_path.is_file() else (None, None)
    model = load_and_fold(model_path, options)
    if options.pooling == "composed":  # otherwise relays may become the first layer
        check_sides(model.folded, options.first_layer, options.readout)
    if shifts_decays(profile) and options.samples == ExportOptions().samples:
        options = replace(options, samples=None)  # networks for it are small, and its simulator is fast
    samples = _samples(model, options, test)
    quantized, calibration_notes = _quantize(model, profile, options, training)
    network = quantized.network
    check_sides(network, options.first_layer, options.readout)
    calibration = options.calibration and dataset_name(options.calibration)
    facts = facts_of(model, profile, samples.name, replace(options, calibration=calibration))
    if replaces:
        announce(f"note: {folder} holds an earlier export; this one will replace it")
    with new_folder(folder) as staging:
        _write_networks(staging, model, quantized, profile, options)
        verified = _verify(staging, model, quantized, samples, options)
        announce(f"fit: on {profile.title}")
        activity = measure(network, samples.inputs, counted=verified.counted, random=samples.random)
        fitted = fit_on_chip(
            network,
            profile,
            activity,
            chips=options.chips,
            first_layer=options.first_layer,
            readout=options.readout,
            tiling=options.tiling,
        )
        result = ExportResult(
            folder=folder,
            quantized=quantized,
            verified=verified,
            fitted=fitted,
            notes=all_notes(model, profile, options.pooling, calibration_notes, quantized),
        )
        content = _content(staging, model, result, profile, facts)
        metrics = neurobench_metrics(network, activity, content.counted)
        _write_reports(staging, result, metrics, content)
        config = config_text(model_path, str(target), options)
        (staging / CONFIG_FILE).write_text(config, encoding="utf-8")
        assumed = [asdict(assumption) for assumption in model.assumptions]
        write_manifest(staging, {**facts, "assumptions": assumed, **_rounding(quantized)})
    return result


def default_folder(model_path: Path, profile: HardwareProfile) -> Path:
    """Return `folder_beside` the model; raise OptionError if a folder cannot have the name of the profile."""
    if not profile.name.replace("-", "").replace("_", "").isalnum():
        raise OptionError(
            f"profile {profile.name!r}: this name cannot be part of a folder's name; choose one with --out."
        )
    return folder_beside(model_path, profile.name)


def _check(profile: HardwareProfile, options: ExportOptions) -> None:
    """Reject invalid options before any long computation."""
    if not shifts_decays(profile):
        NumberFormats.of(profile, options.weight_bits)
    check_overflow(options.overflow, calibrated=options.calibration is not None)
    chosen_witnesses(options.witness)
    if options.data is not None:
        check_data_name(options.data)


def _read_data(options: ExportOptions) -> tuple[LoadedPart | None, LoadedPart | None]:
    """Read the data sets that are named: a file that is missing or damaged is found before anything long.

    Returns the samples to verify with and those to calibrate on, each None if no data set is named.
    """
    test = training = None
    if options.data not in (None, RANDOM):
        test = load_part(str(options.data), options.data_dir, "test")
    if options.calibration is not None:
        training = read_calibration(options.calibration, options.data_dir)
    return test, training


def _data(model: FoldedModel, options: ExportOptions) -> str | None:
    """Return the data set to verify with: the one given, or else the one that the model was trained on.

    Data of the user's own are known by the name of their file only, not by its path.
    """
    trained_on = model.trained_on
    if options.data is not None or trained_on is None or trained_on in DATASETS:
        return options.data or trained_on
    announce_random(
        f"the model was trained on {trained_on}, data of your own",
        f"to verify with it, add --data {trained_on}",
    )
    return RANDOM


def _samples(model: FoldedModel, options: ExportOptions, test: LoadedPart | None) -> Samples:
    """Return the test samples, or random ones if the model's data set is missing and none was requested."""
    network, data = model.folded, _data(model, options)
    try:
        return choose_samples(network, options.samples, data, options.data_dir, test)
    except MissingDataError:
        if options.data is not None or options.data_dir is not None:
            raise
    announce_random(
        f"the model was trained on {data}, which is not on this machine",
        "to verify with its test samples, add --data-dir FOLDER",
    )
    return choose_samples(network, options.samples, RANDOM, None)


# ---- the stages ---------------------------------------------------------------------------------


def _quantize(
    model: FoldedModel, profile: HardwareProfile, options: ExportOptions, training: LoadedPart | None
) -> tuple[Quantized, tuple[str, ...]]:
    """Quantize, or keep the integers of quantization-aware training; return notes on calibration data too."""
    announce(f"quantize: to the number formats of {profile.name}")
    if model.integers is not None:
        trained = trained_integers(
            model.integers, model.folded, profile, pooling=options.pooling, tiling=options.tiling
        )
        return trained, ()
    inputs: Array | None = None
    notes: tuple[str, ...] = ()
    if options.calibration is not None:
        found = load_calibration(model.folded, options.calibration, options.data_dir, training)
        inputs, notes = found.inputs, found.notes
    quantized = quantize(
        model.folded,
        profile,
        inputs,
        weight_bits=options.weight_bits,
        thresholds=options.thresholds,
        overflow=options.overflow,
        pooling=options.pooling,
        tiling=options.tiling,
    )
    return quantized, notes


def _write_networks(
    staging: Path,
    model: FoldedModel,
    quantized: Quantized,
    profile: HardwareProfile,
    options: ExportOptions,
) -> None:
    announce(f"write: {NIR_FILE} and {NETX_FILE}")
    write_nir(model.folded, staging / NIR_FILE, dialect=options.nir_dialect)
    write_netx(quantized.network, staging / NETX_FILE)
    if not same_records(quantized.network, read_netx(staging / NETX_FILE)):
        raise FormatError(
            f"{NETX_FILE}: the network read back differs from the one written; please report this bug."
        )
    if shifts_decays(profile):
        names = () if model.card is None else model.card.class_names
        write_xylo(quantized.network, staging, profile.name, names)


def _verify(
    staging: Path, model: FoldedModel, quantized: Quantized, samples: Samples, options: ExportOptions
) -> VerifyReport:
    return verify(
        quantized.network,
        samples.inputs,
        folded=read_folded(staging / NIR_FILE),  # as `verify FOLDER` does, to get the same result
        netx=staging / NETX_FILE,
        labels=samples.labels,
        test=samples.test,
        data_name=samples.name,
        model=model.module,
        assumptions=model.assumptions,
        budget=options.budget,
        witnesses=chosen_witnesses(options.witness),
    )


def _content(
    staging: Path,
    model: FoldedModel,
    result: ExportResult,
    profile: HardwareProfile,
    facts: dict[str, Any],
) -> ReportContent:
    trace, counted = result.verified.trace, result.verified.counted
    assert trace is not None and counted is not None  # missing only if a cluster ran the comparison
    return ReportContent(
        title=f"{model.path.name} on {profile.title}",
        network=result.quantized.network,
        profile=profile,
        verify=result.verified,
        fit=result.fitted,
        quantization=result.quantized.errors,
        trace=trace,
        counted=counted,
        facts=as_lines(facts),
        folded=model.folded,
        trained_thresholds=model.trained_thresholds,
        normalized=model.normalized,
        files={name: (staging / name).stat().st_size for name in (NIR_FILE, NETX_FILE)},
    )


def _write_reports(
    staging: Path, result: ExportResult, metrics: NeuroBenchMetrics, content: ReportContent
) -> None:
    reports = {
        FIT_FILE: result.fitted.to_json(),
        VERIFY_FILE: result.verified.to_json(),
        NEUROBENCH_FILE: metrics.to_json(),
    }
    for name, report in reports.items():
        (staging / name).write_text(marked_json(Path(name).stem, report), encoding="utf-8")
    write_html(staging / REPORT_FILE, content)


def _rounding(quantized: Quantized) -> dict[str, Any]:
    """Return the manifest's entries on rounding errors and scales."""
    scales = quantized.network.scales
    return {
        "quantization": [errors.to_json() for errors in quantized.errors],
        "scales": {name: values.tolist() for name, values in scales.items()},
    }
