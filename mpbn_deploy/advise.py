"""What would make a network fit: changes tried from the smallest on, each put to all rules again.

First those that leave the network as it is (another cut into cores, its first layer on the host, more chips),
then those that quantize it anew (for this chip, with shared thresholds, with fewer weight bits, with both).
Of each kind the first that fits is advised, with the commands that do it and the predictions that it changes.
Where nothing fits, the change that leaves fewest errors is shown with what remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType

from .activity import Activity
from .emulate import emulate
from .errors import DeployError
from .export import calibration_inputs
from .fit import FitReport, fit
from .folder import ExportFolder, NetworkFile, Samples
from .hardware import HardwareProfile, load_profile
from .host_layer import activity_behind, behind_first_layer
from .int_ir import IntNetwork
from .nn import QUANTIZED
from .place import Tiling
from .progress import announce
from .quantize import quantize
from .records import Array, record

FEWEST_BITS = 2
NOBODY = "unbounded"  # whom to quantize for, where a chip's number formats are not known
PLACES = ("chip", "host")  # of the first layer
HELPED_BY_HOST = {"input_values_fit_message", "layers_fit_on_cores", "cores_fit_on_chip"}

# Of each kind one change is enough; and one that changes more is not tried after one that changes less.
UNCHANGED = ("cut", "host")
NEEDLESS_AFTER = {
    "host": ("cut",),
    "for this chip": UNCHANGED,
    "thresholds": (*UNCHANGED, "for this chip"),
    "bits": (*UNCHANGED, "for this chip"),
    "both": (*UNCHANGED, "for this chip", "thresholds", "bits"),
}


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

    def ask(self, network: IntNetwork, activity: Activity | None = None) -> FitReport:
        """Whether a network fits so."""
        if self.first_layer == "host":
            activity = None if activity is None else activity_behind(network, activity)
            network = behind_first_layer(network)
        return fit(network, self.profile, activity, chips=self.chips, tiling=self.tiling)

    @property
    def options(self) -> str:
        """What of it to type after `fit FOLDER`."""
        found = f" --target {self.target}"
        found += f" --chips {self.chips}" if self.chips > 1 else ""
        found += " --tiling best" if self.tiling == "best" else ""
        return found + (" --first-layer host" if self.first_layer == "host" else "")


@record
class Change:
    """A question put otherwise, or put about a network that is quantized otherwise."""

    kind: str
    description: str
    question: Question
    quantized: Mapping[str, Any] | None = None  # options of `quantize`; None: as it is


@record
class Advice:
    """A change that was tried: what the rules say of it, and how many predictions it changes."""

    change: Change
    commands: tuple[str, ...]
    report: FitReport
    changed: int | None
    samples: int

    def to_json(self) -> dict[str, Any]:
        return {
            "change": self.change.description,
            "commands": list(self.commands),
            "fits": self.report.fits,
            "cores": self.report.cores,
            "chips": self.report.chips,
            "predictions_changed": self.changed,
            "samples": self.samples,
            "remaining": [finding.message for finding in self.report.found("error")],
        }


def advise(question: Question, report: FitReport) -> list[Advice]:
    """The first change of each kind that fits; if none does, the one that leaves fewest errors."""
    if report.fits:
        return []
    search = _Search(question)
    tried: list[Advice] = []
    for change in search.changes(report):
        enough = {change.kind, *NEEDLESS_AFTER.get(change.kind, ())}
        if any(one.report.fits and one.change.kind in enough for one in tried):
            continue
        announce(f"advise: {question.target} with {change.description}")
        if (found := search.attempt(change)) is not None:
            tried.append(found)
    if fitting := [one for one in tried if one.report.fits]:
        return fitting
    return sorted(tried, key=lambda one: len(one.report.found("error")))[:1]


def advice_text(report: FitReport, tried: Sequence[Advice]) -> RenderableType:
    """Commands that make it fit, each with what it changes; or what remains after the best of them."""
    if report.fits:
        return f"{report.target}: fits as it is; there is nothing to advise."
    if not tried:
        return f"{report.target}: nothing can be tried; quantizing anew needs an export folder."
    if tried[0].report.fits:
        return Group(f"{report.target}: to make it fit, one of", *(_advice_lines(one) for one in tried))
    remaining = [f"  {finding.message}" for finding in tried[0].report.found("error")]
    nearest = tried[0].change.description
    return Group(f"{report.target}: nothing tried makes it fit. With {nearest} there remain:", *remaining)


def _advice_lines(one: Advice) -> str:
    cores = "" if one.report.cores is None else f"; cores {one.report.cores}, chips {one.report.chips}"
    changed = "" if one.changed is None else f"; {one.changed} of {one.samples} predictions change"
    return "\n".join(
        [f"  {one.change.description}{cores}{changed}", *(f"    {command}" for command in one.commands)]
    )


class _Search:
    """Tries changes of one network for one chip."""

    def __init__(self, question: Question) -> None:
        self.question, self.opened = question, question.opened
        profile = question.profile
        self.quantized_for = profile if profile.exportable else load_profile(NOBODY)
        self.options: Mapping[str, Any] = {}
        self.from_real_numbers = False
        if isinstance(self.opened, ExportFolder):
            self.options = self.opened.manifest["options"]
            self.from_real_numbers = self.opened.manifest["model"]["architecture"] != QUANTIZED
        self.calibration = self._calibration()
        self.predictions = None if question.samples is None else self._predict(self.opened.network)

    def changes(self, report: FitReport) -> Iterator[Change]:
        """From the smallest change to the largest."""
        asked, rules = self.question, {finding.rule for finding in report.found("error")}
        if asked.tiling != "best":
            better = replace(asked, tiling="best")
            yield Change(kind="cut", description="layers cut into fewer cores", question=better)
        if report.chips is not None and report.chips > asked.chips:
            more = replace(asked, chips=report.chips)
            yield Change(kind="chips", description=f"{report.chips} chips", question=more)
        if rules & HELPED_BY_HOST and asked.first_layer != "host":
            asked = replace(asked, first_layer="host")
            yield Change(kind="host", description="its first layer on the host", question=asked)
        if self.from_real_numbers:
            yield from self._quantized_otherwise(asked)

    def _quantized_otherwise(self, asked: Question) -> Iterator[Change]:
        host = ", its first layer on the host" if asked.first_layer != self.question.first_layer else ""
        fewer = range(self.quantized_for.value("formats.weight_bits") - 1, FEWEST_BITS - 1, -1)
        shared = {"thresholds": "shared"}
        plans: list[tuple[str, str, Mapping[str, Any]]] = [
            ("for this chip", f"quantized for {self.quantized_for.name}", {}),
            ("thresholds", "one threshold per layer", shared),
            *(("bits", f"weights of {bits} bits", {"weight_bits": bits}) for bits in fewer),
            *(
                ("both", f"weights of {bits} bits, one threshold per layer", {"weight_bits": bits, **shared})
                for bits in fewer
            ),
        ]
        for kind, description, quantized in plans:
            yield Change(kind=kind, description=description + host, question=asked, quantized=quantized)

    def attempt(self, change: Change) -> Advice | None:
        """The change put to the rules; None where the network cannot be had so."""
        try:
            network = self.opened.network if change.quantized is None else self._quantize(change.quantized)
            report = change.question.ask(network)
        except DeployError as error:
            announce(f"note: {change.description}: {error}")
            return None
        changed = None
        if self.predictions is not None and report.fits:
            changed = int(np.count_nonzero(self._predict(network) != self.predictions))
        return Advice(
            change=change,
            commands=tuple(self._commands(change)),
            report=report,
            changed=changed,
            samples=0 if self.predictions is None else len(self.predictions),
        )

    def _quantize(self, options: Mapping[str, Any]) -> IntNetwork:
        assert self.opened.folded is not None
        return quantize(
            self.opened.folded,
            self.quantized_for,
            self.calibration,
            overflow=self.options["overflow"],
            **options,
        )

    def _calibration(self) -> Array | None:
        """The samples that the export was calibrated on, where it was."""
        name = self.options.get("calibration")
        if name is None or self.opened.folded is None:
            return None
        return calibration_inputs(self.opened.folded, name, self.question.data_dir)[0]

    def _predict(self, network: IntNetwork) -> Array:
        assert self.question.samples is not None
        return emulate(network, self.question.samples.inputs, keep_trace=False).predictions

    def _commands(self, change: Change) -> Iterator[str]:
        """What to type: a fit of the same folder; or an export, and a fit of what it writes."""
        opened = self.opened
        folder = opened.path if isinstance(opened, ExportFolder) else opened.netx
        if change.quantized is not None:
            assert isinstance(opened, ExportFolder)
            itself = self.quantized_for is self.question.profile
            target = self.question.target if itself else NOBODY
            model = Path(opened.manifest["model"]["name"])
            folder = model.with_name(f"{model.stem}.{self.quantized_for.name}")
            yield f"python -m mpbn_deploy.export {model} --target {target}{self._typed(change.quantized)}"
        yield f"python -m mpbn_deploy.fit {folder}{change.question.options}"

    def _typed(self, quantized: Mapping[str, Any]) -> str:
        """Options of `quantize` as those of `export`; a few that the export had are kept."""
        kept = {name: self.options[name] for name in ("calibration", "overflow")}
        chosen = {
            name: value for name, value in {**kept, **quantized}.items() if value not in (None, "proved")
        }
        return "".join(f" --{name.replace('_', '-')} {value}" for name, value in chosen.items())
