"""What would make a network fit: changes tried from the smallest on, each put to all rules again.

A *way* leaves the network as it is: layers cut into fewer cores, the first layer on the host, more chips, or
these together. A *plan* quantizes it anew: for this chip, with shared thresholds, with fewer weight bits, or
with both; each in the first way that fits. Advised are the ways that fit, then the first plan of each kind,
with the commands that do it and the predictions that it changes. Where nothing fits, the one that leaves
fewest errors is shown with what remains.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType

from ..base import Array, DataError, DeployError, announce, record
from ..data import Samples
from ..execute.emulator import emulate
from ..formats.folder import NIR_SUFFIX, ExportFolder, NetworkFile
from ..formats.nir import FAITHFUL
from ..hardware import HardwareProfile, load_profile
from ..hardware.place import Tiling
from ..ir import IntNetwork
from ..quantize import QUANTIZED, calibration_inputs, quantize
from .activity import Activity
from .host_layer import activity_behind, behind_first_layer
from .stage import FitReport, fit

FEWEST_BITS = 2
MANY_CHANGED = 0.1  # of all predictions
NOBODY = "unbounded"  # whom to quantize for, where a chip's number formats are not known
SHARED = {"thresholds": "shared"}
# A plan that changes more is not tried after one that changes less fitted, on no more chips than there are.
NEEDLESS_AFTER = {"thresholds": ("chip",), "bits": ("chip",), "both": ("chip", "thresholds", "bits")}


@record
class Question:
    """A network that should fit a chip, as the command line names both."""

    opened: ExportFolder | NetworkFile
    target: str
    profile: HardwareProfile
    chips: int = 1
    tiling: Tiling = "compiler"
    first_layer: str = "chip"
    samples: Samples | None = None
    data_dir: Path | None = None
    file_options: str = ""  # what was typed about a .net file that does not say it itself

    def ask(self, network: IntNetwork, activity: Activity | None = None) -> FitReport:
        """Whether a network fits so."""
        if self.first_layer == "host":
            activity = None if activity is None else activity_behind(network, activity)
            network = behind_first_layer(network)
        report = fit(network, self.profile, activity, chips=self.chips, tiling=self.tiling)
        return replace(report, first_layer=self.first_layer)

    def command(self, folder: Path) -> str:
        """What to type."""
        typed = (
            f"python -m mpbn_deploy.fit {_typed(folder)} --target {_typed(self.target)}{self.file_options}"
        )
        typed += f" --chips {self.chips}" if self.chips > 1 else ""
        typed += " --tiling best" if self.tiling == "best" else ""
        return typed + (" --first-layer host" if self.first_layer == "host" else "")


@record
class Plan:
    """Options of `quantize`, in words too; of each `kind` one is enough."""

    kind: str
    description: str
    options: Mapping[str, Any]


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


def advice_text(report: FitReport, tried: Sequence[Advice]) -> RenderableType:
    """Commands that make it fit, each with what it changes; or what remains after the best of them."""
    if report.fits is not False:
        return f"{report.target}: no error was found, so there is nothing to advise."
    if not tried:
        return (
            f"{report.target}: nothing can be tried. Quantizing anew needs an export of real numbers; "
            f"trained integers are trained again for another chip (train --quantize {report.target})."
        )
    if tried[0].report.fits:
        return Group(f"{report.target}: to make it fit, one of", *map(_advice_lines, tried))
    remaining = [f"  {finding.message}" for finding in tried[0].report.found("error")]
    nearest = tried[0].description
    return Group(f"{report.target}: nothing tried makes it fit. With {nearest} there remain:", *remaining)


def _advice_lines(one: Advice) -> str:
    cores = "" if one.report.cores is None else f"; cores {one.report.cores}, chips {one.report.chips}"
    changed = "" if one.changed is None else f"; {one.changed} of {one.samples} predictions change"
    lines = [f"  {one.description}{cores}{changed}", *(f"    {command}" for command in one.commands)]
    if one.plan is not None and one.way:
        lines.append("    (the export says that it does not fit; so asked, it does)")
    if one.changed is not None and one.changed > MANY_CHANGED * one.samples:
        lines.append("    (much is lost: try --calibration with the export, or train --quantize)")
    return "\n".join(lines)


class _Search:
    """Tries changes of one network for one chip."""

    def __init__(self, question: Question) -> None:
        self.question, self.opened = question, question.opened
        profile = question.profile
        self.quantized_for = profile if profile.exportable else load_profile(NOBODY)
        self.manifest = self.opened.manifest if isinstance(self.opened, ExportFolder) else None
        self.trained_integers = (
            self.manifest is not None and self.manifest["model"]["architecture"] == QUANTIZED
        )
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
        if self.manifest is None or self.trained_integers:
            return
        fewer = range(self.quantized_for.value("formats.weight_bits") - 1, FEWEST_BITS - 1, -1)
        yield Plan(kind="chip", description=f"quantized for {self.quantized_for.name}", options={})
        yield Plan(kind="thresholds", description="one threshold per layer", options=SHARED)
        for bits in fewer:
            yield Plan(kind="bits", description=f"weights of {bits} bits", options={"weight_bits": bits})
        for bits in fewer:
            both = {"weight_bits": bits, **SHARED}
            yield Plan(
                kind="both", description=f"weights of {bits} bits, one threshold per layer", options=both
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

    def _quantize(self, options: Mapping[str, Any]) -> IntNetwork:
        assert self.manifest is not None and self.opened.folded is not None
        calibration, name = None, self.manifest["options"]["calibration"]
        if name is not None:
            try:
                calibration, _ = calibration_inputs(self.opened.folded, name, self.question.data_dir)
            except DataError as error:
                raise DataError(f"it was calibrated on {name}, which must be there again: {error}") from error
        return quantize(
            self.opened.folded,
            self.quantized_for,
            calibration,
            overflow=self.manifest["options"]["overflow"],
            **options,
        )

    def _predict(self, network: IntNetwork) -> Array:
        assert self.question.samples is not None
        return emulate(network, self.question.samples.inputs, keep_trace=False).predictions

    def _commands(self, question: Question, plan: Plan | None) -> Iterator[str]:
        """What to type: a fit of the same folder; or an export, and a fit of what it writes."""
        opened = self.opened
        if plan is None:
            yield question.command(opened.path if isinstance(opened, ExportFolder) else opened.netx)
            return
        assert isinstance(opened, ExportFolder)
        beside = opened.path.parent / opened.manifest["model"]["name"]  # where `export` writes by default
        model = beside if beside.is_file() else Path(beside.name)
        target = question.target if self.quantized_for is question.profile else NOBODY
        options = self._export_options(model, plan)
        yield f"python -m mpbn_deploy.export {_typed(model)} --target {_typed(target)}{options}"
        yield question.command(model.with_name(f"{model.stem}.{self.quantized_for.name}"))

    def _export_options(self, model: Path, plan: Plan) -> str:
        """What the plan changes, and what the export was told before."""
        assert self.manifest is not None
        told, allowed = self.manifest["options"], self.opened.network.input_range
        options: dict[str, Any] = {"calibration": told["calibration"], **plan.options}
        if told["overflow"] != "proved":
            options["overflow"] = told["overflow"]
        if told["nir_dialect"] != FAITHFUL:
            options["nir-dialect"] = told["nir_dialect"]
        if told["calibration"] is not None:
            options["data-dir"] = self.question.data_dir
        architecture = self.manifest["model"]["architecture"] or ""
        if ":" in architecture:  # somebody's own factory, which only the user may name
            options["arch"] = architecture
        if model.suffix == NIR_SUFFIX:
            options["timesteps"] = told["timesteps"]
        given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
        typed = "".join(f" --{name} {_typed(value)}" for name, value in given.items())
        spikes = (allowed.minimum, allowed.maximum) == (0, 1)
        if model.suffix == NIR_SUFFIX and not spikes:
            typed += f" --input-range {allowed.minimum} {allowed.maximum}"
        return typed


def _typed(value: object) -> str:
    """As a shell wants it."""
    return shlex.quote(str(value))
