"""Search for the fewest cores under the rule that integers stay equal: `fit --search`.

The compiler's cut comes first. Then the same populations are divided by the best tiling and storage of rows
that a search finds (`hardware/place/`), after that with relays and split sums (`quantize/pooling.py`), and at
last with the readout, the first layer or both on the host. Every row has a lower bound for its populations:
no tiling of them, in any storage, takes fewer cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np

from ..base import Array, DataError, DeployError, OptionError, Report, announce, record
from ..data import data_named_by_file, dataset_name
from ..execute.emulator import emulate
from ..formats.folder import ExportFolder, folder_beside
from ..formats.options import ExportOptions, Placing, Side, Thresholds
from ..hardware import UNBOUNDED, export_profile
from ..ir import IntNetwork, firing, relay_names, without_relays
from ..quantize import QUANTIZED, fewest_cores, load_calibration, quantize
from .form import PREDICTIONS_REFERENCE, Question
from .stage import FitReport

# Where the first layer and the readout run.
SIDES: tuple[tuple[Side, Side, str], ...] = (
    ("chip", "host", "readout"),
    ("host", "chip", "first layer"),
    ("host", "host", "first layer and readout"),
)


@record
class SearchResult(Report):
    """A form of the network with equal integers, and the cores it takes, on as many chips as it needs."""

    JSON = """change cores=report.cores cores_lower_bound=report.lower_bound chips=report.chips
        fits=report.fits relays sparse_rows=sparse commands"""

    change: str
    network: IntNetwork
    question: Question
    report: FitReport
    commands: tuple[str, ...]

    @property
    def relays(self) -> list[str]:
        return relay_names(self.network)

    @property
    def sparse(self) -> tuple[str, ...]:
        """The populations whose rows drop zero weights."""
        return tuple(layer.name for layer in self.report.placement.layers if layer.storage == "sparse")


def search(question: Question) -> list[SearchResult]:
    """Return the compiler's cut, the best tiling, the best rewriting, and that with parts on the host."""
    check_searchable(question)
    return list(_results(question))


def check_searchable(question: Question) -> None:
    """Raise if there is nothing to search on this chip."""
    if question.profile.placement != "words":
        raise OptionError(
            f"--search: {question.target} does not divide layers over a memory of words, as Loihi does; its "
            "placement has no alternatives. Leave --search out."
        )


def _results(question: Question) -> Iterator[SearchResult]:
    given = question.opened.network if question.untrained is None else question.network
    compiler = replace(
        question,
        form=None if question.untrained is None else given,
        pooling="auto" if question.untrained is None else question.pooling,  # as it is
        tiling="compiler",
        first_layer=_unless_typed(question.first_layer),
        readout=_unless_typed(question.readout),
    )
    best = replace(compiler, tiling="best")
    yield _result("as it is, the compiler's cut", given, compiler)
    yield _result("as it is, best tiling and storage", given, best)
    announce(f"search: {question.target}: relays and split sums")
    network = fewest_cores(without_relays(given), question.profile, "best")
    _check_equal(given, network, question)
    number = len(relay_names(network))
    if number or relay_names(given):
        rewriting = f"{number} relay populations" if number else "no relays"
        yield _result(rewriting, network, best)
    else:  # nothing to rewrite
        network, rewriting = given, "as it is"
    for first_layer, readout, moved in SIDES:
        try:
            hosted = replace(best, first_layer=first_layer, readout=readout)
            yield _result(f"{rewriting}, {moved} on the host", network, hosted)
        except OptionError as error:  # no layer that the host can take over
            announce(f"note: {error}")


def _unless_typed(side: Side) -> Side:
    return "chip" if side == "auto" else side


def _result(change: str, network: IntNetwork, question: Question) -> SearchResult:
    """Ask for one form of the network, on as many chips as it needs."""
    report = question.ask(network)
    if report.chips is not None and report.chips > question.chips:
        question = replace(question, chips=report.chips)
        report = question.ask(network)
    commands = tuple(_commands(question, network))
    return SearchResult(change=change, network=network, question=question, report=report, commands=commands)


def _commands(question: Question, network: IntNetwork) -> Iterator[str]:
    """Yield the commands that make a form; none for a rewritten network that no `export` would make."""
    requantizer = Requantizer(question)
    if network in (question.opened.network, question.form):
        yield question.command()
    elif requantizer.folder is not None:
        given = requantizer.folder.options
        # Integers that were calibrated with pooling in the kernels are others than those of relays.
        if not (given.calibrated and given.pooling == "composed"):
            options = replace(given, pooling="auto", tiling="best")
            yield from requantizer.commands(question, options)


def _check_equal(given: IntNetwork, network: IntNetwork, question: Question) -> None:
    """Run both forms on the samples of the request; every output must be equal."""
    if question.samples is None:
        return
    inputs = question.samples.inputs
    before, after = (emulate(form, inputs, keep_trace=False).outputs for form in (given, network))
    assert np.array_equal(before, after), "a rewriting changed an output"  # relays and splits are exact
    announce(f"search: the outputs of both forms are equal on {len(before)} samples")


def fewest(results: list[SearchResult]) -> SearchResult:
    """Return the result of fewest cores, of those that fit; without the host if one of these does.

    Earlier ones win ties.
    """
    fitting = [result for result in results if result.report.fits is not False] or results
    on_chip = [
        result for result in fitting if result.question.first_layer == result.question.readout == "chip"
    ]
    return min(
        on_chip or fitting, key=lambda result: (len(result.report.found("error")), result.report.cores or 0)
    )


# Quantize the network of an export folder again, with other options, and print the commands that do so.


class Requantizer:
    """The real numbers behind a network, if it is an export folder that holds them."""

    def __init__(self, question: Question) -> None:
        self.question, self.opened = question, question.opened
        self.export_profile = export_profile(question.profile)
        self.folder = self.opened if isinstance(self.opened, ExportFolder) else None
        self.trained_integers = self.folder is not None and self.folder.architecture == QUANTIZED

    @property
    def possible(self) -> bool:
        """Whether there are real numbers to quantize; trained integers and .net files have none."""
        return self.folder is not None and not self.trained_integers

    def quantize(self, options: ExportOptions) -> IntNetwork:
        assert self.opened.folded is not None
        calibration, name = None, str(options.calibration)
        if options.calibrated:
            try:
                data = data_named_by_file(name, self.question.data)
                calibration = load_calibration(self.opened.folded, data, self.question.data_dir).inputs
            except DataError as error:
                raise DataError(f"calibrated on {name}, which cannot be read: {error}") from error
        return quantize(
            self.opened.folded, self.export_profile, calibration, options, tiling=options.tiling
        ).network

    def commands(
        self, question: Question, options: ExportOptions | None, variant: str | None = None
    ) -> Iterator[str]:
        """Yield the commands: a fit of the same folder, or an export followed by a fit of its output.

        A `variant` is written to a folder of its own, MODEL.TARGET-VARIANT.
        """
        if options is None:
            yield question.command()
            return
        assert self.folder is not None
        beside = self.folder.path.parent / self.folder.manifest["model"]["name"]  # where `export` writes
        model = beside if beside.is_file() else Path(beside.name)
        target = UNBOUNDED
        if self.export_profile is question.profile:  # then the export's own verdict is that of the request
            target = question.target
            options = replace(options, **asdict(Placing.from_arguments(question)))
        usual = folder_beside(model, self.export_profile.name)
        out = None if variant is None else usual.with_name(f"{usual.name}-{variant}")
        yield self._completed(options).command(model, target, out)
        yield question.command(out or usual)

    def _completed(self, options: ExportOptions) -> ExportOptions:
        """Add the options that the manifest does not record."""
        assert self.folder is not None
        architecture = self.folder.architecture or ""
        own_code = ":" in architecture  # importable code, which only the user may name
        calibration, typed = options.calibration, self.question.data
        if typed is not None and dataset_name(typed) == calibration:
            calibration = typed
        return replace(
            options,
            calibration=calibration,
            arch=architecture if own_code else None,
            data=typed,
            data_dir=self.question.data_dir if typed or options.calibrated else None,
        )


# Compare a network with its own thresholds, with one per core, and with one per population.
#
# Where a chip is not known to hold a threshold per channel, quantization can move the scale of each channel
# into its weights, so that the channels of a core or of a population share one threshold. The weights become
# coarser; what that costs is measured here, on the samples of the request.


MEANINGS = {"own": "per channel or neuron", "core": "one per core", "shared": "one per population"}


@record
class ThresholdVariant(Report):
    """One choice of thresholds, and what it costs. `accuracy` is None without labels."""

    JSON = """thresholds most_per_population?=most fits?=report.fits not_known? cores=report.cores accuracy
        predictions_changed=changed predictions_reference? samples? commands?"""

    thresholds: Thresholds
    most: int  # distinct thresholds of a population
    report: FitReport
    accuracy: float | None
    changed: int  # predictions that differ from those of the given integer network, of `samples`
    samples: int
    commands: tuple[str, ...]

    @property
    def not_known(self) -> int:
        """The number of limits that are not known."""
        return len(self.report.found("not known"))

    @property
    def predictions_reference(self) -> str:
        """What `predictions_changed` counts against."""
        return PREDICTIONS_REFERENCE


def compare_thresholds(question: Question) -> list[ThresholdVariant]:
    """Quantize with each choice of thresholds, fit, and predict the samples of the request."""
    requantizer = Requantizer(question)
    if not requantizer.possible:
        raise OptionError(
            f"{question.path}: --compare-thresholds quantizes again, which needs the real numbers of an "
            "export folder; this network has integers only. Export the trained model."
        )
    if question.samples is None:
        raise OptionError("--compare-thresholds needs samples: name their data set with --data.")
    before = _predict(question.opened.network, question)
    return list(_variants(question, requantizer, before))


def _variants(question: Question, requantizer: Requantizer, before: Array) -> Iterator[ThresholdVariant]:
    assert requantizer.folder is not None and question.samples is not None
    labels = question.samples.labels
    for choice in get_args(Thresholds):
        announce(f"thresholds: {MEANINGS[choice]}")
        options = replace(requantizer.folder.options, thresholds=choice)
        try:
            network = requantizer.quantize(options)
        except DeployError as error:
            announce(f"note: thresholds {MEANINGS[choice]}: {error}")
            continue
        predictions = _predict(network, question)
        yield ThresholdVariant(
            thresholds=choice,
            most=max((len(np.unique(p.neuron.threshold)) for p in firing(network)), default=0),
            report=question.ask(network),
            accuracy=None if labels is None else float(np.mean(predictions == labels)),
            changed=int(np.count_nonzero(predictions != before)),
            samples=len(predictions),
            commands=tuple(requantizer.commands(question, options, choice)),
        )


def _predict(network: IntNetwork, question: Question) -> Array:
    assert question.samples is not None
    return emulate(network, question.samples.inputs, keep_trace=False).predictions
