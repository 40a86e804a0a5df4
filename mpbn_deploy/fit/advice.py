"""Find changes that make a network fit, smallest first, and check each against all design rules.

Rules that no change can cure (no leak on the chip, say) are looked for first; if there are any, nothing is
tried. A *setup* keeps the integers: layers on fewer cores, the first layer or the readout on the host, more
chips, or a combination. A *plan* quantizes again: for this chip, with shared thresholds, with fewer weight
bits, or both, each in the first setup that fits. Plans are tried only if they can cure all rules that a setup
leaves broken. The advice lists the attempts that fit, cheapest first, with the commands and the number of
predictions that differ from those of the given integer network (`export` and `verify` count against the float
network). If nothing fits, it shows the attempt with the fewest remaining errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Array, DeployError, Report, announce, record
from ..execute.emulator import emulate
from ..formats.options import ExportOptions
from ..hardware.place import Tiling, tiles_remembered
from ..ir import IntNetwork, find_poolings, with_relays
from ..quantize import messages_fit
from .form import PREDICTIONS_REFERENCE, Question
from .rules import Finding
from .search import Requantizer
from .stage import FitReport, RuleFindings, blocking_severities, by_rule

FEWEST_BITS = 2
KINDS = ("relays", "chip", "thresholds", "bits", "both")  # of plans
# The kinds of plans that can cure a broken rule. No quantization cures a rule that is not listed.
CURES = {
    "weights_fit_format": ("chip", "bits", "both"),
    "thresholds_fit_format": ("chip", "thresholds", "both"),
    "biases_fit_format": ("chip", "thresholds", "bits", "both"),
    "states_stay_in_width": ("chip", "thresholds", "bits", "both"),
    "distinct_thresholds_fit_core": ("chip", "thresholds", "both"),
    "distinct_thresholds_fit_layer": ("thresholds", "both"),
    "thresholds_per_channel_work_on_the_chip": ("thresholds", "both"),
    "layers_fit_on_cores": ("relays", "chip", "bits", "both"),
    "cores_fit_on_chip": ("relays", "chip", "bits", "both"),
    "kernel_sizes_are_allowed": ("relays",),
    "synapses_are_few_enough": ("bits", "both"),
}
# Rules that a setup can cure, wherever they are broken: by more chips or cores, or by the host.
SETUP_CURES = (
    "input_values_fit_message",
    "inputs_are_few_enough",
    "outputs_are_few_enough",
    "hidden_neurons_are_few_enough",
    "neurons_reading_inputs_are_few_enough",
    "neurons_read_by_outputs_are_few_enough",
)
# Rules about cores: another tiling may cure them, and more chips the second one. Neither cures other rules.
OF_CORES = (
    "layers_fit_on_cores",
    "cores_fit_on_chip",
    "distinct_thresholds_fit_core",
    "thresholds_per_channel_work_on_the_chip",
)
# A kind of plan is skipped if a plan of one of these kinds, which change less, fits on the given chips.
IMPLIED_BY = {"thresholds": ("chip",), "bits": ("chip",), "both": ("chip", "thresholds", "bits")}


@record
class Plan:
    """Export options to try, with a description; the search stops at the first success of each `kind`."""

    kind: str
    description: str
    options: ExportOptions


@record
class Advice(Report):
    """One attempt: its setup, its plan (None if the integers are kept) and the resulting report."""

    JSON = """change=description commands fits=report.fits cores=report.cores chips=report.chips
        predictions_changed=changed predictions_reference? samples remaining"""

    setup: str
    question: Question
    plan: Plan | None
    report: FitReport
    commands: tuple[str, ...]
    changed: int | None  # predictions that differ from those of the given integer network, of `samples`
    samples: int

    @property
    def description(self) -> str:
        return ", ".join(part for part in (self.plan.description if self.plan else "", self.setup) if part)

    @property
    def predictions_reference(self) -> str:
        """What `predictions_changed` counts against."""
        return PREDICTIONS_REFERENCE

    @property
    def remaining(self) -> tuple[str, ...]:
        """The errors that remain."""
        return tuple(finding.message for finding in blocking(self.report))


def advise(question: Question, report: FitReport) -> list[Advice]:
    """Return the attempts that fit, smallest changes first; otherwise the one with the fewest errors."""
    if report.fits is not False or hopeless(report):
        return []
    with tiles_remembered():
        return _advise(_Search(question, report))


def _advise(search: _Search) -> list[Advice]:
    question, report = search.question, search.report
    if search.requantizer.trained_integers:
        announce(
            "note: integers of this network were trained and cannot be quantized again; for "
            f"{question.target}, train with --quantize {question.target}"
        )
    tried = search.advise_setups()
    if not any(map(search.fits_given_chips, tried)):
        more_chips_suffice = any(one.report.fits for one in tried)
        kinds = kinds_that_may_cure([report, *(one.report for one in tried)])
        tried += [
            one
            for one in search.advise_plans(kinds)
            if search.fits_given_chips(one) or not more_chips_suffice
        ]
    if fitting := [one for one in tried if one.report.fits]:
        return sorted(search.without_ties(fitting), key=search.cost)
    return sorted(tried, key=lambda one: len(blocking(one.report)))[:1]


def kinds_that_may_cure(reports: Sequence[FitReport]) -> list[str]:
    """Return the kinds of plans that can cure everything that blocks at least one of the reports."""
    rules_of_reports = [_blocking_rules(report) for report in reports]
    return [
        kind
        for kind in KINDS
        if any(all(kind in CURES.get(rule, ()) for rule in rules) for rules in rules_of_reports)
    ]


def blocking(report: FitReport) -> list[Finding]:
    """Return what makes the network not fit."""
    return [finding for finding in report.findings if finding.severity in blocking_severities(report)]


def _blocking_rules(report: FitReport) -> set[str]:
    return {finding.rule for finding in blocking(report)}


def incurable(report: FitReport) -> list[RuleFindings]:
    """Return the broken rules that no option of `export` or `fit` cures."""
    return [
        group for group in by_rule(report, blocking_severities(report)) if group.findings[0].rule not in CURES
    ]


def hopeless(report: FitReport) -> list[RuleFindings]:
    """Return the broken rules that neither a setup nor another quantization can cure.

    What is wrong with the first layer or the readout only may go to the host.
    """
    names = [layer.name for layer in report.layers]
    movable = {
        name for name, side in ((names[0], report.first_layer), (names[-1], report.readout)) if side == "chip"
    }
    inner = set(names) - movable

    def stays(finding: Finding) -> bool:
        place = finding.where.rpartition(" -> ")[2]
        return place in inner or (place not in names and bool(inner))

    return [
        group
        for group in incurable(report)
        if group.findings[0].rule not in SETUP_CURES and any(map(stays, group.findings))
    ]


def _with_signs(network: IntNetwork) -> IntNetwork:
    """Return the network with the signs of its weights in their place."""
    return replace(
        network,
        connections=tuple(
            replace(c, synapse=replace(c.synapse, weight=np.sign(c.synapse.weight)))
            for c in network.connections
        ),
    )


class _Search:
    """The attempts for one network on one chip."""

    def __init__(self, question: Question, report: FitReport) -> None:
        self.question, self.opened, self.report = question, question.opened, report
        last = report.layers[-1].name
        self.readout_blocks = any(f.where.rpartition(" -> ")[2] == last for f in blocking(report))
        self.requantizer = Requantizer(question)
        self.predictions = None if question.samples is None else self._predict(self.question.network)

    def fits_given_chips(self, one: Advice) -> bool:
        """Return whether an attempt fits without additional chips."""
        return bool(one.report.fits) and one.question.chips == self.question.chips

    def advise_setups(self) -> list[Advice]:
        """Try the same integers in every setup but the original one."""
        tried = list(self._try_setups(self.question.network))
        return [self._advice(setup, question, None, report) for setup, question, report in tried if setup]

    def cost(self, one: Advice) -> tuple[bool, bool, int, int, int, int]:
        """Return what sorts attempts: additional chips last, kept integers first, few changed predictions.

        Among equals, fewer chips come first, then less work of the host, then fewer cores.
        """
        asked = one.question
        hosted = (asked.first_layer, asked.readout).count("host")
        more, other = asked.chips > self.question.chips, one.plan is not None
        return more, other, one.changed or 0, asked.chips, hosted, one.report.cores or 0

    def without_ties(self, fitting: Sequence[Advice]) -> list[Advice]:
        """Leave out another tiling where it takes as many cores as the given one."""

        def setup(one: Advice) -> tuple[object, ...]:
            return one.plan, one.question.first_layer, one.question.readout, one.question.chips

        given = {
            setup(one): one.report.cores for one in fitting if one.question.tiling == self.question.tiling
        }
        return [
            one
            for one in fitting
            if one.question.tiling == self.question.tiling or given.get(setup(one)) != one.report.cores
        ]

    def advise_plans(self, kinds: Sequence[str]) -> list[Advice]:
        """Quantize by plans of these kinds, each in the first setup that fits or has the fewest errors."""
        tried: list[Advice] = []
        for kind in kinds:
            fitting = {one.plan.kind for one in tried if one.plan and self.fits_given_chips(one)}
            plans = [plan for plan in self._plans() if plan.kind == kind]
            if plans and not fitting & set(IMPLIED_BY.get(kind, ())) and not self._is_pointless(kind, tried):
                tried += self._try_plans(plans)
        return tried

    def _is_pointless(self, kind: str, tried: Sequence[Advice]) -> bool:
        """Whether only cores are too many after an earlier plan, and this kind saves none, or too few.

        The narrowest weights are signs; placing them takes no quantization.
        """
        larger = [one for one in tried if one.report.fits]
        if not larger or any(map(self.fits_given_chips, larger)):
            return False
        if kind not in CURES["cores_fit_on_chip"]:
            return True
        if kind not in ("bits", "both"):
            return False
        question = replace(larger[0].question, chips=self.question.chips)
        cores = question.ask(_with_signs(self.question.network)).cores
        per_chip = question.profile.limit("chip.cores")
        return cores is not None and per_chip is not None and cores > question.chips * per_chip.value

    def _try_plans(self, plans: Sequence[Plan]) -> list[Advice]:
        """Return the first plan that fits, found by bisection; if the last one does not fit, that one."""
        last = self._try_plan(plans[-1])
        if not any(map(self.fits_given_chips, last)):
            return last
        first, end = 0, len(plans) - 1
        while first < end:
            middle = (first + end) // 2
            found = self._try_plan(plans[middle])
            if any(map(self.fits_given_chips, found)):
                last, end = found, middle
            else:
                first = middle + 1
        return last

    def _try_setups(
        self, network: IntNetwork, options: ExportOptions | None = None
    ) -> Iterator[tuple[str, Question, FitReport]]:
        """Yield setups with their reports, smallest change first; setups with additional chips come last.

        Relays are chosen for one tiling, so a network with them is tried in that one only. Sides that leave a
        rule broken which is not about cores are tried in one tiling, and on no additional chips.
        """
        tiling = options.tiling if options is not None and options.pooling == "auto" else None
        larger, beyond_cores = [], set()
        for setup, question in self._setups():
            sides = question.first_layer, question.readout
            if sides in beyond_cores or tiling not in (None, question.tiling):
                continue
            try:
                known = network is self.question.network and not setup
                report = self.report if known else question.ask(network)
            except DeployError as error:
                announce(f"note: {setup}: {error}")
                continue
            yield setup, question, report
            if not _blocking_rules(report) <= set(OF_CORES):
                beyond_cores.add(sides)
            elif report.chips is not None and report.chips > self.question.chips:
                larger.append((setup, replace(question, chips=report.chips)))
        for setup, question in larger:
            chips = f"{question.chips} chips"
            report = question.ask(network)
            yield f"{setup}, {chips}" if setup else chips, question, report

    def _setups(self) -> list[tuple[str, Question]]:
        """Return all combinations of sides and tiling, the original one first."""
        given = self.question
        places = [(given, "")]
        if given.first_layer != "host":
            places.append((replace(given, first_layer="host"), "first layer on the host"))
        if given.readout != "host" and self.readout_blocks:
            places += [
                (replace(question, readout="host"), ", ".join(filter(None, (place, "readout on the host"))))
                for question, place in places
            ]
        tilings: tuple[tuple[Tiling, str], ...] = ((given.tiling, ""),)
        if given.profile.placement == "words" and given.tiling == "compiler":
            tilings = (*tilings, ("best", "layers on fewer cores"))
        return [
            (", ".join(filter(None, (place, fewer_cores))), replace(question, tiling=tiling))
            for question, place in places
            for tiling, fewer_cores in tilings
        ]

    def _plans(self) -> Iterator[Plan]:
        """Yield plans, smallest change first; none if integers were trained or real numbers are missing."""
        folder, profile = self.requantizer.folder, self.requantizer.export_profile
        if folder is None or not self.requantizer.possible:
            return
        widest: dict[str, Any] = {"weight_bits": None, "most_bytes": None, "most_cores": None}
        fewer = range(profile.value("formats.weight_bits") - 1, FEWEST_BITS - 1, -1)
        given = replace(folder.options, pooling=self.question.pooling, tiling=self.question.tiling)
        plain = replace(given, **widest, thresholds="own")
        shared = replace(plain, thresholds="shared")
        name, one = profile.name, "one threshold per layer"
        if self._can_relay():  # exact, so it is tried first
            for tiling in dict.fromkeys(question.tiling for _, question in self._setups()):
                relays = replace(folder.options, pooling="auto", tiling=tiling)
                yield Plan(
                    kind="relays", description="pooling as relays, where they save cores", options=relays
                )
        yield Plan(kind="chip", description=f"quantized for {name}", options=plain)
        yield Plan(kind="thresholds", description=one, options=shared)
        for kind, options, more in (("bits", plain, ""), ("both", shared, f", {one}")):
            for bits in fewer:
                yield Plan(
                    kind=kind,
                    description=f"{bits}-bit weights{more}",
                    options=replace(options, weight_bits=bits),
                )

    def _can_relay(self) -> bool:
        """Whether the network has poolings, and the chip's spikes can carry their sums."""
        network = self.question.network
        return bool(find_poolings(network)) and messages_fit(with_relays(network), self.question.profile)

    def _try_plan(self, plan: Plan) -> list[Advice]:
        """Return the plan in its best setup; nothing if the network cannot be quantized so."""
        announce(f"advise: {self.question.target}: trying: {plan.description}")
        try:
            network = self.requantizer.quantize(plan.options)
        except DeployError as error:
            announce(f"note: {plan.description}: {error}")
            return []
        tried = list(self._try_setups(network, plan.options))
        if not tried:
            return []
        setup, question, report = min(tried, key=lambda one: (len(blocking(one[2])), one[1].chips))
        return [self._advice(setup, question, plan, report, network)]

    def _advice(
        self,
        setup: str,
        question: Question,
        plan: Plan | None,
        report: FitReport,
        network: IntNetwork | None = None,
    ) -> Advice:
        changed = None
        if self.predictions is not None and report.fits:
            again = self.predictions if network is None else self._predict(network)
            changed = int(np.count_nonzero(again != self.predictions))
        return Advice(
            setup=setup,
            question=question,
            plan=plan,
            report=report,
            commands=tuple(self.requantizer.commands(question, plan.options if plan else None)),
            changed=changed,
            samples=0 if self.predictions is None else len(self.predictions),
        )

    def _predict(self, network: IntNetwork) -> Array:
        assert self.question.samples is not None
        return emulate(network, self.question.samples.inputs, keep_trace=False).predictions
