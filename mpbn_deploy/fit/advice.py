"""What would make a network fit: changes tried from the smallest on, each put to all rules again.

A *way* leaves the network as it is: layers cut into fewer cores, the first layer on the host, more chips, or
these together. A *plan* quantizes it anew: for this chip, with shared thresholds, with fewer weight bits, or
with both; each in the first way that fits. Advised are the ways that fit, then the first plan of each kind,
with the commands that do it and the predictions that it changes. Where nothing fits, the one that leaves
fewest errors is shown with what remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base import Array, DataError, DeployError, announce, record
from ..execute.emulator import emulate
from ..formats.folder import NIR_SUFFIX, ExportFolder
from ..formats.options import ExportOptions
from ..hardware import load_profile
from ..hardware.place import Tiling
from ..ir import IntNetwork
from ..quantize import QUANTIZED, load_calibration, quantize
from .question import Question
from .stage import FitReport

FEWEST_BITS = 2
PLAIN_SPIKES = (0, 1)  # the input range that a NIR file has where nothing else is said
NOBODY = "unbounded"  # whom to quantize for, where a chip's number formats are not known
# A plan that changes more is not tried after one that changes less fitted, on no more chips than there are.
NEEDLESS_AFTER = {"thresholds": ("chip",), "bits": ("chip",), "both": ("chip", "thresholds", "bits")}


@record
class Plan:
    """Another export, in words and as options; one plan of each `kind` is enough."""

    kind: str
    description: str
    options: ExportOptions


@record
class Advice:
    """What was tried: in which way, by which plan (None: the network as it is), and what the rules say."""

    way: str
    question: Question
    plan: Plan | None
    report: FitReport
    commands: tuple[str, ...]
    changed: int | None  # of `samples` predictions
    samples: int

    @property
    def description(self) -> str:
        return ", ".join(part for part in (self.plan.description if self.plan else "", self.way) if part)

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
    """What fits, the smallest changes first; if nothing does, what leaves fewest errors."""
    if report.fits is not False:
        return []
    search = _Search(question)
    if search.trained_integers:
        announce(
            f"note: its integers were trained; for {question.target}, train --quantize {question.target}"
        )
    tried = search.ways()
    if not any(map(search.is_enough, tried)):
        more_chips_do = any(one.report.fits for one in tried)
        tried += [one for one in search.plans() if search.is_enough(one) or not more_chips_do]
    if fitting := [one for one in tried if one.report.fits]:
        return fitting
    return sorted(tried, key=lambda one: len(one.report.found("error")))[:1]


class _Search:
    """Tries changes of one network for one chip."""

    def __init__(self, question: Question) -> None:
        self.question, self.opened = question, question.opened
        profile = question.profile
        self.quantized_for = profile if profile.exportable else load_profile(NOBODY)
        self.folder = self.opened if isinstance(self.opened, ExportFolder) else None
        self.trained_integers = self.folder is not None and self.folder.architecture == QUANTIZED
        self.predictions = None if question.samples is None else self._predict(self.opened.network)

    def is_enough(self, one: Advice) -> bool:
        """Whether it fits on the chips that there are."""
        return bool(one.report.fits) and one.question.chips == self.question.chips

    def ways(self) -> list[Advice]:
        """The network as it is, in every way but the one that was asked."""
        asked = list(self._asked(self.opened.network))
        return [self._advice(way, question, None, report) for way, question, report in asked if way]

    def plans(self) -> list[Advice]:
        """Quantized anew, each plan in the first way that fits, else in the one that leaves fewest errors."""
        tried: list[Advice] = []
        for plan in self._plans():
            kinds = {plan.kind, *NEEDLESS_AFTER.get(plan.kind, ())}
            if any(self.is_enough(one) and one.plan and one.plan.kind in kinds for one in tried):
                continue
            announce(f"advise: {self.question.target}, {plan.description}")
            tried += self._attempt(plan)
        return tried

    def _asked(self, network: IntNetwork) -> Iterator[tuple[str, Question, FitReport]]:
        """Ways that may help, the smallest first; those that need more chips than there are come last."""
        plain = self.question
        places = [(plain, "")]
        if plain.first_layer != "host":
            places.append((replace(plain, first_layer="host"), "its first layer on the host"))
        cuts: tuple[Tiling, ...] = (plain.tiling,)
        if plain.profile.placement == "words" and plain.tiling != "best":
            cuts = (plain.tiling, "best")
        asked = []
        for question, place in places:
            for tiling in cuts:
                cut = "layers cut into fewer cores" if tiling != plain.tiling else ""
                way = ", ".join(part for part in (place, cut) if part)
                asked.append((way, replace(question, tiling=tiling)))
        larger = []
        for way, question in asked:
            try:
                report = question.ask(network)
            except DeployError as error:
                announce(f"note: {way}: {error}")
                continue
            yield way, question, report
            if report.chips is not None and report.chips > plain.chips:
                larger.append((way, replace(question, chips=report.chips)))
        for way, question in larger:
            chips = f"{question.chips} chips"
            yield f"{way}, {chips}" if way else chips, question, question.ask(network)

    def _plans(self) -> Iterator[Plan]:
        """From the smallest change to the largest; none for integers that were trained or came alone."""
        if self.folder is None or self.trained_integers:
            return
        fewer = range(self.quantized_for.value("formats.weight_bits") - 1, FEWEST_BITS - 1, -1)
        plain = replace(self.folder.options, weight_bits=None, thresholds="own")
        shared = replace(plain, thresholds="shared")
        name, one = self.quantized_for.name, "one threshold per layer"
        yield Plan(kind="chip", description=f"quantized for {name}", options=plain)
        yield Plan(kind="thresholds", description=one, options=shared)
        for kind, options, more in (("bits", plain, ""), ("both", shared, f", {one}")):
            for bits in fewer:
                yield Plan(
                    kind=kind,
                    description=f"weights of {bits} bits{more}",
                    options=replace(options, weight_bits=bits),
                )

    def _attempt(self, plan: Plan) -> list[Advice]:
        """The plan in its best way; nothing where the network cannot be had so."""
        try:
            network = self._quantize(plan.options)
        except DeployError as error:
            announce(f"note: {plan.description}: {error}")
            return []
        asked = list(self._asked(network))
        way, question, report = min(asked, key=lambda one: len(one[2].found("error")))
        return [self._advice(way, question, plan, report, network)]

    def _advice(
        self,
        way: str,
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
            way=way,
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
                calibration = load_calibration(self.opened.folded, name, self.question.data_dir).inputs
            except DataError as error:
                raise DataError(f"it was calibrated on {name}, which must be there again: {error}") from error
        return quantize(
            self.opened.folded,
            self.quantized_for,
            calibration,
            weight_bits=options.weight_bits,
            thresholds=options.thresholds,
            overflow=options.overflow,
        ).network

    def _predict(self, network: IntNetwork) -> Array:
        assert self.question.samples is not None
        return emulate(network, self.question.samples.inputs, keep_trace=False).predictions

    def _commands(self, question: Question, plan: Plan | None) -> Iterator[str]:
        """What to type: a fit of the same folder; or an export, and a fit of what it writes."""
        if plan is None:
            yield question.command(self.opened.netx if self.folder is None else self.folder.path)
            return
        assert self.folder is not None
        beside = self.folder.path.parent / self.folder.manifest["model"]["name"]  # where `export` writes
        model = beside if beside.is_file() else Path(beside.name)
        target = question.target if self.quantized_for is question.profile else NOBODY
        yield self._typed(plan.options, model).command(model, target)
        yield question.command(model.with_name(f"{model.stem}.{self.quantized_for.name}"))

    def _typed(self, options: ExportOptions, model: Path) -> ExportOptions:
        """Add to a plan's options what the model does not say itself."""
        assert self.folder is not None
        own_code = ":" in (architecture := self.folder.architecture or "")  # which only the user may name
        from_nir = model.suffix == NIR_SUFFIX
        allowed = self.opened.network.input_range
        values = (allowed.minimum, allowed.maximum)
        return replace(
            options,
            arch=architecture if own_code else None,
            timesteps=options.timesteps if from_nir else None,
            input_range=values if from_nir and values != PLAIN_SPIKES else None,
            data_dir=None if options.calibration is None else self.question.data_dir,
        )
