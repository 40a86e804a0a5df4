"""STAGE + COMMAND: IntNetwork + profile -> FitReport: does it fit, on how many cores, and what does not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from .cli import Command, Outcome, main
from .errors import OptionError
from .hardware import HardwareProfile, load_profile, profile_names
from .int_ir import IntNetwork
from .place import RESOURCES, PlacedLayer, place
from .records import record
from .rules import RULES, Design, Finding

# Names short enough for a table on a narrow terminal.
COLUMNS = dict(zip(RESOURCES, ("axons", "groups", "neurons", "synapses", "map", "total"), strict=True))


@record
class ResourceUse:
    """How much of a core's resource the fullest core of a layer needs."""

    used: int
    limit: int | None

    @property
    def percent(self) -> float | None:
        return None if self.limit is None else 100 * self.used / self.limit


@record
class LayerFit:
    """A population on its cores; `tile` is the shape of its part on one core."""

    name: str
    neurons: int
    cores: int
    tile: tuple[int, ...]
    use: Mapping[str, ResourceUse]


@record
class FitReport:
    """Whether a network fits a chip; `chips` is None where the profile does not know their cores."""

    target: str
    fits: bool
    chips: int | None
    cores: int
    layers: tuple[LayerFit, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "fits": self.fits,
            "chips": self.chips,
            "cores": self.cores,
            "layers": [_layer_json(layer) for layer in self.layers],
            "findings": [asdict(finding) for finding in self.findings],
        }


def fit(network: IntNetwork, profile: HardwareProfile) -> FitReport:
    """Place the network and put it to every rule."""
    placement = place(network, profile)
    design = Design(network=network, profile=profile, placement=placement)
    findings = [finding for rule in RULES for finding in rule(design)]
    per_chip = profile.limit("chip.cores")
    return FitReport(
        target=profile.name,
        fits=all(finding.severity != "error" for finding in findings),
        chips=-(-placement.cores // per_chip.value) if per_chip else None,
        cores=placement.cores,
        layers=tuple(_layer_fit(layer, profile) for layer in placement.layers),
        findings=tuple(findings),
    )


def _layer_fit(layer: PlacedLayer, profile: HardwareProfile) -> LayerFit:
    limits = {resource: profile.limit(f"core.{resource}") for resource in layer.use}
    use = {
        resource: ResourceUse(used=used, limit=limit.value if (limit := limits[resource]) else None)
        for resource, used in layer.use.items()
    }
    return LayerFit(name=layer.name, neurons=layer.neurons, cores=layer.cores, tile=layer.tile, use=use)


def _layer_json(layer: LayerFit) -> dict[str, Any]:
    resources = {
        name: {"used": use.used, "limit": use.limit, "percent": _rounded(use.percent)}
        for name, use in layer.use.items()
    }
    return {
        "name": layer.name,
        "neurons": layer.neurons,
        "cores": layer.cores,
        "tile": list(layer.tile),
        "resources": resources,
    }


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, 2)


def report_text(report: FitReport) -> RenderableType:
    """The report for people: a table of layers, then what does not hold or was not checked."""
    shown = [name for name in RESOURCES if any(_percent(layer, name) is not None for layer in report.layers)]
    table = Table(
        "layer", title=_headline(report), title_justify="left", box=SIMPLE_HEAD, collapse_padding=True
    )
    for heading in ("neurons", "cores", *(f"{COLUMNS[name]}\n%" for name in shown)):
        table.add_column(heading, justify="right")
    for layer in report.layers:
        percents = [f"{_percent(layer, name):.2f}" for name in shown]
        table.add_row(layer.name, str(layer.neurons), str(layer.cores), *percents)
    errors_first = sorted(report.findings, key=lambda finding: finding.severity != "error")
    lines = [("error: " if f.severity == "error" else "") + f.message for f in errors_first]
    return Group(table, *lines)


def _headline(report: FitReport) -> str:
    verdict = "fits" if report.fits else "does not fit"
    chips = "unknown" if report.chips is None else report.chips
    return f"{report.target}: {verdict}; cores {report.cores}, chips {chips}; % of a layer's fullest core"


def _percent(layer: LayerFit, resource: str) -> float | None:
    use = layer.use.get(resource)
    return use.percent if use else None


def _targets() -> Outcome:
    profiles = [load_profile(name) for name in profile_names()]
    table = Table("target", "chip", "what it is")
    for profile in profiles:
        table.add_row(profile.name, profile.title, profile.description)
    described = [{"name": p.name, "title": p.title, "description": p.description} for p in profiles]
    return Outcome(data={"targets": described}, text=table)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from .folder import add_network_arguments  # here, so that `fit` as a function needs no file formats

    add_network_arguments(parser, optional=True)
    parser.add_argument(
        "--target", help="profile name or .toml file; default: what the folder was exported for"
    )
    parser.add_argument("--targets", action="store_true", help="list the known targets and stop")


def _execute(options: argparse.Namespace) -> Outcome:
    if options.targets:
        return _targets()
    if options.folder is None:
        raise OptionError("no folder given. Name a folder that `export` wrote, or ask for --targets.")
    from .folder import open_network

    opened = open_network(options)
    target = options.target or opened.target
    if target is None:
        raise OptionError(f"{options.folder}: does not say for which chip; give it with --target.")
    if options.target is None and target not in profile_names():
        raise OptionError(
            f"{options.folder}: exported for {target!r}, a profile of yours; give it with --target."
        )
    report = fit(opened.network, load_profile(target))
    return Outcome(data=report.to_json(), text=report_text(report), exit_code=0 if report.fits else 1)


COMMAND = Command(
    name="fit",
    summary="Check an exported network against a chip: formats, memory, cores.",
    details=(
        "Exit code 0: it fits. 1: it does not, and every reason is listed.\n\n"
        "example: python -m mpbn_deploy.fit model.loihi2 --target loihi1\n"
        "         python -m mpbn_deploy.fit network.net --target loihi2"
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

if __name__ == "__main__":
    sys.exit(main(COMMAND))
