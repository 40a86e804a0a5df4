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

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import (
    MANIFEST_FILE,
    Color,
    DeployError,
    FormatError,
    OptionError,
    Report,
    Summarized,
    Summary,
    announce,
    changed,
    marked_json,
    record,
    same_records,
    typed,
)
from ..data import IN_MEMORY, Samples, check_data_name, dataset_name
from ..execute.outside import chosen_witnesses
from ..fit import (
    FitReport,
    NeuroBenchMetrics,
    check_sides,
    cost_line,
    fit_on_chip,
    full_verdict,
    measure,
    neurobench_metrics,
    resolved_pooling,
    short_verdict,
    verdict_color,
)
from ..formats.c import check_prefix
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
from ..formats.options import AUTO, DataChoice, ExportOptions, Placing, config_text
from ..hardware import HardwareProfile, load_profile
from ..ir import IntNetwork
from ..quantize import (
    CalibrationData,
    NumberFormats,
    Quantized,
    check_overflow,
    check_widths,
    quantize,
    shifts_decays,
    trained_integers,
)
from ..report import ReportContent, write_html
from ..verify import Accuracy, Trial, VerifyReport, measure_accuracy, verify
from .folder import all_notes, as_lines, check_projects, doubts, facts_of, notes_on_steps, write_projects
from .given import Given, taken
from .model import FoldedModel, Parts, choose_inputs, load_and_fold, read_named

if TYPE_CHECKING:
    from torch import nn


@record
class ExportResult(Report, Summarized):
    """The export folder and the result of each stage; str() is the verdict."""

    JSON = """folder files fits=fitted.fits passed?=verified.passed verdict?=verified.verdict
        bit_exact=verified.bit_exact without_weights assumptions=verified.assumptions notes"""

    folder: Path
    quantized: Quantized
    verified: VerifyReport
    fitted: FitReport
    title: str = ""  # the model and the chip
    next_step: str = ""  # the command to type next, or what to do about a fault
    notes: tuple[str, ...] = ()  # for the user (notes.py)
    files: tuple[str, ...] = (*FILES, MANIFEST_FILE)  # of the folder

    @property
    def without_weights(self) -> tuple[str, ...]:
        """The populations that rounding left without weights in most channels."""
        return tuple(layer.name for layer in self.quantized.lost)

    @property
    def good(self) -> bool:
        """Whether the network passed verification, fits the chip and kept its weights."""
        return self.verified.passed and self.fitted.fits is True and not self.quantized.lost

    @property
    def doubts(self) -> tuple[str, ...]:
        """Signs that the network was read wrongly, or that rounding destroyed it."""
        return doubts(self.quantized, self.verified)

    @property
    def color(self) -> Color:
        found = {self.verified.color, verdict_color(self.fitted)}
        if not self.good:
            return "red"
        return "yellow" if "yellow" in found or self.doubts else "green"

    @property
    def summary(self) -> Summary:
        """Return the verdict: the first line has what fails, or else what holds."""
        network, fitted = self.quantized.network, self.fitted
        fits = f"{fitted.target}: {full_verdict(fitted)}"
        lost = [f"weights lost in {', '.join(self.without_weights)}"] if self.without_weights else []
        failing = [*lost, *([] if self.verified.passed else [self.verified.verdict])]
        failing += [] if fitted.fits else [fits]
        parameters = sum(connection.synapse.weight.size for connection in network.connections)
        neurons = sum(population.size for population in network.layers)
        needed = {"cores": fitted.cores, "chips": fitted.chips}
        counts = (f"{name} {count:,}" for name, count in needed.items() if count is not None)
        rows = {label: text for label, text in self.verified.summary.rows if label != "skipped"}
        return Summary(
            color=self.color,
            verdict=f"{self.title}: {'; '.join(failing or [self.verified.verdict, fits])}",
            rows=(),
        ).with_rows(
            network=f"{neurons:,} neurons, {parameters:,} weights, {network.timesteps} time steps",
            **rows,
            fits="; ".join(filter(None, (short_verdict(fitted), ", ".join(counts), cost_line(fitted)))),
            notes="; ".join([*self.doubts, *([f"{len(self.notes)}, in the report"] if self.notes else [])]),
            next=self.next_step,
            report=f"{self.folder / REPORT_FILE}, or --verbose",
        )


def export(
    model: str | Path | nn.Module,
    target: str,
    out: str | Path | None = None,
    options: ExportOptions | None = None,
    *,
    data: Any = None,
    calibration: Any = AUTO,
    **changes: Any,
) -> ExportResult:
    """Fold, quantize, write, verify and fit a trained network; on an error, no folder is left behind.

    The model is a file, or a torch module: export(net, "loihi2", data=(x, y)). Then `data`, and `calibration`
    if other samples are to choose the integers, are arrays, a torch Dataset or DataLoader, a data set of
    `load_dataset`, or named as on the command line. Other keyword arguments are the fields of
    `ExportOptions`: export("model.pt", "loihi2", weight_bits=4). For a NIR file, give `timesteps`,
    `input_range`, `dt`, `nir_reset` and `nir_current` if the file does not state them.
    """
    given, options = taken(model, data, calibration, changed(options, ExportOptions, changes))
    profile = load_profile(target)
    folder = Path(out) if out is not None else default_folder(given.path, profile)
    return _export(given, target, profile, folder, out, options)


def _export(
    given: Given,
    target: str,
    profile: HardwareProfile,
    folder: Path,
    out: str | Path | None,
    options: ExportOptions,
) -> ExportResult:
    replaces = check_replaceable(folder)
    _check(profile, options)

    named = given.parts or (read_named(options) if given.path.is_file() else Parts())
    model = load_and_fold(given.model, options, profile)
    model = replace(model, notes=(*model.notes, *given.notes))
    if options.pooling == "composed":  # otherwise relays may become the first layer
        check_sides(model.folded, options)
    asked = options
    if shifts_decays(profile) and options.samples == ExportOptions().samples:
        options = replace(options, samples=None)  # networks for it are small, and its simulator is fast
    samples, calibration, options = choose_inputs(model, options, named)
    model = replace(model, notes=(*model.notes, *notes_on_steps(model, samples)))
    options = replace(options, input_offset=model.input_offset)
    quantized = _quantize(model, profile, options, calibration)
    network = quantized.network
    check_sides(network, options)
    check_projects(network, profile, options)
    if replaces:
        announce(f"note: {folder} holds an earlier export; this one will replace it")
    with new_folder(folder) as staging:
        _write_networks(staging, model, quantized, options)
        names = () if model.card is None else model.card.class_names
        projects = write_projects(staging, network, profile, samples, options, names)
        verified = _verify(staging, model, quantized, samples, options)
        if verified.accuracy is not None and verified.accuracy.lost and _has_remedies(model, profile):
            tried = try_others(
                asked,
                NumberFormats.of(profile, None).weight_bits,
                lambda other: _accuracy(given, profile, other),
                lambda other: given.command(other, str(target), None if out is None else Path(out)),
            )
            verified = replace(verified, accuracy=replace(verified.accuracy, tried=tried))
        announce(f"fit: on {profile.title}")
        activity = measure(network, samples.inputs, counted=verified.counted, random=samples.random)
        fitted = fit_on_chip(network, profile, activity, options, pooling=options.pooling)
        options = _resolved(options, network, fitted)
        calibrated_on = options.calibration and dataset_name(options.calibration)
        facts = facts_of(model, profile, samples.name, replace(options, calibration=calibrated_on))
        facts["form"] = {choice.option: choice.line for choice in fitted.choices}
        result = ExportResult(
            folder=folder,
            quantized=quantized,
            verified=verified,
            fitted=fitted,
            title=f"{model.path.name} on {profile.title}",
            next_step=verified.remedy or _next_command(folder, target, fitted, asked),
            notes=all_notes(model, profile, options.pooling, calibration, quantized),
            files=(*FILES, *projects, MANIFEST_FILE),
        )
        content = _content(staging, model, result, profile, facts)
        metrics = neurobench_metrics(network, activity, content.counted)
        _write_reports(staging, result, metrics, content)
        config = config_text(given.file, str(target), options)
        (staging / CONFIG_FILE).write_text(config, encoding="utf-8")
        assumed = [asdict(assumption) for assumption in model.assumptions]
        write_manifest(staging, {**facts, "assumptions": assumed, **_rounding(quantized)})
    return result


def _has_remedies(model: FoldedModel, profile: HardwareProfile) -> bool:
    """Whether options choose the integers: not those of training, and Xylo has one way to choose them."""
    return model.integers is None and not shifts_decays(profile)


def _resolved(options: ExportOptions, network: IntNetwork, fitted: FitReport) -> ExportOptions:
    """Return the options with what "auto" became, so that the same export can be repeated.

    Relays that only a search finds are found again by a search, in the same tiling.
    """
    pooling = resolved_pooling(network) if options.pooling == "auto" else options.pooling
    tiling = options.tiling if pooling == "auto" else fitted.tiling
    return replace(
        options, pooling=pooling, tiling=tiling, first_layer=fitted.first_layer, readout=fitted.readout
    )


def _next_command(folder: Path, target: str, fitted: FitReport, asked: ExportOptions) -> str:
    """Return what to type next: the search for a change that makes the network fit, or a run."""
    in_memory = asked.data is not None and asked.data.startswith(IN_MEMORY)
    data = ["--data", "FILE"] if in_memory else typed(asked, DataChoice)
    if fitted.fits is not False:
        return shlex.join(["python", "-m", "mpbn_deploy.run", str(folder), *data])
    fit = ["python", "-m", "mpbn_deploy.fit", str(folder), "--target", str(target)]
    return shlex.join([*fit, *typed(asked, Placing), *data, "--advise"])


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
    check_prefix(options.c_prefix)
    check_overflow(options.overflow, calibrated=options.calibration is not None)
    check_widths(options, calibrated=options.calibration is not None)
    chosen_witnesses(options.witness)
    if options.data is not None and not options.data.startswith(IN_MEMORY):
        check_data_name(options.data)


# ---- the stages ---------------------------------------------------------------------------------


def _quantize(
    model: FoldedModel, profile: HardwareProfile, options: ExportOptions, calibration: CalibrationData | None
) -> Quantized:
    """Quantize, or keep the integers of quantization-aware training."""
    announce(f"quantize: to the number formats of {profile.name}")
    if model.integers is not None:
        return trained_integers(
            model.integers, model.folded, profile, pooling=options.pooling, tiling=options.tiling
        )
    inputs = None if calibration is None else calibration.inputs
    return quantize(model.folded, profile, inputs, options, tiling=options.tiling)


def _accuracy(given: Given, profile: HardwareProfile, options: ExportOptions) -> Accuracy:
    """Return the accuracy of the integers that an export with other options would choose."""
    model = load_and_fold(given.model, options, profile)
    samples, calibration, options = choose_inputs(model, options, given.parts or read_named(options))
    assert samples.test is not None  # as in the export whose accuracy was lost
    network = _quantize(model, profile, options, calibration).network
    return measure_accuracy(model.folded, network, samples.test, samples.name)


def _write_networks(staging: Path, model: FoldedModel, quantized: Quantized, options: ExportOptions) -> None:
    announce(f"write: {NIR_FILE} and {NETX_FILE}")
    write_nir(model.folded, staging / NIR_FILE, dialect=options.nir_dialect)
    write_netx(quantized.network, staging / NETX_FILE)
    if not same_records(quantized.network, read_netx(staging / NETX_FILE)):
        raise FormatError(
            f"{NETX_FILE}: the network read back differs from the one written; please report this bug."
        )


def _verify(
    staging: Path, model: FoldedModel, quantized: Quantized, samples: Samples, options: ExportOptions
) -> VerifyReport:
    return verify(
        quantized.network,
        samples,
        options,
        folded=read_folded(staging / NIR_FILE),  # as `verify FOLDER` does, to get the same result
        netx=staging / NETX_FILE,
        model=model.module,
        unrounded=model.folded,
        assumptions=model.assumptions,
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
        title=result.title,
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
        notes=(*result.doubts, *result.notes),
        widths=result.quantized.widths,
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
        **({} if quantized.widths is None else {"widths": quantized.widths.to_json()}),
        "scales": {name: values.tolist() for name, values in scales.items()},
    }


# Try other options for a network that lost accuracy by quantization, so that advice is known to help.


MAX_TRIALS = 6
PLAIN: dict[str, Any] = {"calibration": AUTO, "input_offset": AUTO, "thresholds": "own", "input_bits": None}
WIDEST: dict[str, Any] = {"weight_bits": None, "most_bytes": None, "most_cores": None}


def try_others(
    options: ExportOptions,
    widest: int,
    measure: Callable[[ExportOptions], Accuracy],
    command: Callable[[ExportOptions], str],
) -> tuple[Trial, ...]:
    """Measure the accuracy with other options, one change after another, until it is kept."""
    tried: list[Trial] = []
    for changes in [*_changes(options, widest)][:MAX_TRIALS]:
        other = replace(options, **changes)
        announce(f"accuracy was lost; trying {command(other)}")
        try:
            found = measure(other)
        except DeployError as error:
            announce(f"not possible: {error}")
            continue
        trial = Trial(command=command(other), integer_network=found.integer_network, keeps=not found.lost)
        tried.append(trial)
        if trial.keeps:
            break
    return tuple(tried)


def _changes(options: ExportOptions, widest: int) -> Iterator[dict[str, Any]]:
    """Yield changes of the options given by hand, each alone and all together; then finer integers."""
    given = {name: value for name, value in PLAIN.items() if getattr(options, name) != value}
    yield from ({name: value} for name, value in given.items())
    if len(given) > 1:
        yield given
    if options.weight_bits == AUTO:
        yield {**given, **WIDEST}
    bits = options.weight_bits if isinstance(options.weight_bits, int) else widest
    yield from ({**given, "weight_bits": more} for more in (bits + 1, bits + 2) if more < widest)
    if bits < widest:
        yield {**given, **WIDEST}
    if options.overflow == "proved":
        yield {**given, **WIDEST, "overflow": "measured"}
