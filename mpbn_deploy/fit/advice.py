"""Find changes that make a network fit, smallest first, and check each against all design rules.

A *setup* keeps the integers: layers on fewer cores, the first layer on the host, more chips, or a
combination. A *plan* quantizes again: for this chip, with shared thresholds, with fewer weight bits, or both,
each in the first setup that fits. The advice lists the setups that fit, then the first plan of each kind,
with the commands and the number of predictions that change. If nothing fits, it shows the attempt with the
fewest remaining errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError, DeployError, announce, record
from ..data import data_named_by_file, dataset_name
from ..execute.emulator import emulate
from ..formats.folder import ExportFolder
from ..formats.options import ExportOptions
from ..hardware import load_profile
from ..hardware.place import Tiling
from ..ir import IntNetwork, find_poolings
from ..quantize import QUANTIZED, load_calibration, quantize
from .question import Question
from .stage import FitReport

FEWEST_BITS = 2
UNBOUNDED = "unbounded"  # the profile to quantize for if the number formats of a chip are unknown
# A kind of plan is skipped if a plan of one of these kinds, which change less, fits on the given chips.
IMPLIED_BY = {"thresholds": ("chip",), "bits": ("chip",), "both": ("chip", "thresholds", "bits")}


@record
class Plan:
    """Export options to try, with a description; the search stops at the first success of each `kind`."""

    kind: str
    description: str
    options: ExportOptions


@record
class Advice:
    """One attempt: its setup, its plan (None if the integers are kept) and the resulting report."""

    setup: str
    question: Question
    plan: Plan | None
    report: FitReport
    commands: tuple[str, ...]
    changed: int | None  # predictions that change, of `samples`
    samples: int

    @property
    def description(self) -> str:
        return ", ".join(part for part in (self.plan.description if self.plan else "", self.setup) if part)

    def to_json(self) -> dict[str, Any]:
        return {
            "change": self.description,
            "commands": list(self.commands),
            "fits": self.report.fits,
            "cores": self.report.cores,
            "chips": self.report.chips,
            "predictions_changed": self.changed,
            "samples": self.samples,
            "remaining": [finding.message for finding in self.report.found("error")],
        }


def advise(question: Question, report: FitReport) -> list[Advice]:
    """Return the attempts that fit, smallest changes first; otherwise the one with the fewest errors."""
    if report.fits is not False:
        return []
    search = _Search(question)
    if search.trained_integers:
        announce(
            "note: integers of this network were trained and cannot be quantized again; for "
            f"{question.target}, train with --quantize {question.target}"
        )
    tried = search.advise_setups()
    if not any(map(search.fits_given_chips, tried)):
        more_chips_suffice = any(one.report.fits for one in tried)
        tried += [
            one for one in search.advise_plans() if search.fits_given_chips(one) or not more_chips_suffice
        ]
    if fitting := [one for one in tried if one.report.fits]:
        return fitting
    return sorted(tried, key=lambda one: len(one.report.found("error")))[:1]


class _Search:
    """The attempts for one network on one chip."""

    def __init__(self, question: Question) -> None:
        self.question, self.opened = question, question.opened
        profile = question.profile
        self.export_profile = profile if profile.exportable else load_profile(UNBOUNDED)
        self.folder = self.opened if isinstance(self.opened, ExportFolder) else None
        self.trained_integers = self.folder is not None and self.folder.architecture == QUANTIZED
        self.predictions = None if question.samples is None else self._predict(self.opened.network)

    def fits_given_chips(self, one: Advice) -> bool:
        """Return whether an attempt fits without additional chips."""
        return bool(one.report.fits) and one.question.chips == self.question.chips

    def advise_setups(self) -> list[Advice]:
        """Try the same integers in every setup but the original one."""
        tried = list(self._try_setups(self.opened.network))
        return [self._advice(setup, question, None, report) for setup, question, report in tried if setup]

    def advise_plans(self) -> list[Advice]:
        """Quantize by each plan, in the first setup that fits, or else in the one with the fewest errors."""
        tried: list[Advice] = []
        for plan in self._plans():
            kinds = {plan.kind, *IMPLIED_BY.get(plan.kind, ())}
            if any(self.fits_given_chips(one) and one.plan and one.plan.kind in kinds for one in tried):
                continue
            announce(f"advise: {self.question.target}: trying: {plan.description}")
            tried += self._try_plan(plan)
        return tried

    def _try_setups(self, network: IntNetwork) -> Iterator[tuple[str, Question, FitReport]]:
        """Yield setups with their reports, smallest change first; setups with additional chips come last."""
        larger = []
        for setup, question in self._setups():
            try:
                report = question.ask(network)
            except DeployError as error:
                announce(f"note: {setup}: {error}")
                continue
            yield setup, question, report
            if report.chips is not None and report.chips > self.question.chips:
                larger.append((setup, replace(question, chips=report.chips)))
        for setup, question in larger:
            chips = f"{question.chips} chips"
            yield f"{setup}, {chips}" if setup else chips, question, question.ask(network)

    def _setups(self) -> list[tuple[str, Question]]:
        """Return all combinations of first layer and tiling, the original one first."""
        given = self.question
        places = [(given, "")]
        if given.first_layer != "host":
            places.append((replace(given, first_layer="host"), "first layer on the host"))
        tilings: tuple[tuple[Tiling, str], ...] = ((given.tiling, ""),)
        if given.profile.placement == "words" and given.tiling != "best":
            tilings = (*tilings, ("best", "layers on fewer cores"))
        return [
            (", ".join(filter(None, (place, fewer_cores))), replace(question, tiling=tiling))
            for question, place in places
            for tiling, fewer_cores in tilings
        ]

    def _plans(self) -> Iterator[Plan]:
        """Yield plans, smallest change first; none if integers were trained or real numbers are missing."""
        if self.folder is None or self.trained_integers:
            return
        fewer = range(self.export_profile.value("formats.weight_bits") - 1, FEWEST_BITS - 1, -1)
        plain = replace(self.folder.options, weight_bits=None, thresholds="own")
        shared = replace(plain, thresholds="shared")
        name, one = self.export_profile.name, "one threshold per layer"
        if find_poolings(self.opened.network):  # exact, so it is tried first
            relays = replace(self.folder.options, pooling="auto")
            yield Plan(kind="relays", description="pooling as relays, where they save cores", options=relays)
        yield Plan(kind="chip", description=f"quantized for {name}", options=plain)
        yield Plan(kind="thresholds", description=one, options=shared)
        for kind, options, more in (("bits", plain, ""), ("both", shared, f", {one}")):
            for bits in fewer:
                yield Plan(
                    kind=kind,
                    description=f"{bits}-bit weights{more}",
                    options=replace(options, weight_bits=bits),
                )

    def _try_plan(self, plan: Plan) -> list[Advice]:
        """Return the plan in its best setup; nothing if the network cannot be quantized so."""
        try:
            network = self._quantize(plan.options)
        except DeployError as error:
            announce(f"note: {plan.description}: {error}")
            return []
        tried = list(self._try_setups(network))
        setup, question, report = min(tried, key=lambda one: len(one[2].found("error")))
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
            commands=tuple(self._commands(question, plan)),
            changed=changed,
            samples=0 if self.predictions is None else len(self.predictions),
        )

    def _quantize(self, options: ExportOptions) -> IntNetwork:
        assert self.opened.folded is not None
        calibration, name = None, options.calibration
        if name is not None:
            try:
                data = data_named_by_file(name, self.question.data)
                calibration = load_calibration(self.opened.folded, data, self.question.data_dir).inputs
            except DataError as error:
                raise DataError(f"calibrated on {name}, which cannot be read: {error}") from error
        return quantize(
            self.opened.folded,
            self.export_profile,
            calibration,
            weight_bits=options.weight_bits,
            thresholds=options.thresholds,
            overflow=options.overflow,
            pooling=options.pooling,
        ).network

    def _predict(self, network: IntNetwork) -> Array:
        assert self.question.samples is not None
        return emulate(network, self.question.samples.inputs, keep_trace=False).predictions

    def _commands(self, question: Question, plan: Plan | None) -> Iterator[str]:
        """Yield the commands: a fit of the same folder, or an export followed by a fit of its output."""
        if plan is None:
            yield question.command(self.opened.netx if self.folder is None else self.folder.path)
            return
        assert self.folder is not None
        beside = self.folder.path.parent / self.folder.manifest["model"]["name"]  # where `export` writes
        model = beside if beside.is_file() else Path(beside.name)
        target = question.target if self.export_profile is question.profile else UNBOUNDED
        yield self._completed(plan.options).command(model, target)
        yield question.command(model.with_name(f"{model.stem}.{self.export_profile.name}"))

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
            data_dir=self.question.data_dir if typed or options.calibration else None,
        )
