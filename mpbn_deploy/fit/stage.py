"""STAGE + COMMAND: IntNetwork + profile -> FitReport: does it fit, how many cores, at what cost; why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..base import record
from ..hardware import HardwareProfile
from ..hardware.place import PlacedLayer, Placement, Tiling, capacity, place
from ..ir import IntNetwork
from .activity import Activity, check, core_loads
from .chips import ChipMap, assign_chips, hops
from .energy import EnergyReport, estimate
from .messages import Traffic, parts_of_cores, traffic
from .rules import RULES, Design, Finding

ON_MANY_CORES = ("words", "crossbar")  # kinds of placement in which layers take as many cores as they need


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
    lower_bound: int
    tile: tuple[int, ...]
    use: Mapping[str, ResourceUse]


@record
class FitReport:
    """Whether a network fits a chip, and what it would cost there.

    Where nobody said how the chip fills its cores, `cores` and `chips` are None, and so is `fits` unless an
    error is found: such a chip can refuse a network, but is never said to hold one. Fewer cores than
    `lower_bound` cannot do, however layers are cut. Energy and the spikes that cross chips are known
    where the activity of the network is.
    """

    target: str
    fits: bool | None
    chips: int | None
    cores: int | None
    lower_bound: int | None
    tiling: str
    layers: tuple[LayerFit, ...]
    findings: tuple[Finding, ...]
    placement: Placement
    first_layer: str = "chip"  # or "host"; then all of this is about what lies behind it
    chip_map: ChipMap | None = None
    energy: EnergyReport | None = None

    def found(self, severity: str) -> list[Finding]:
        """The findings of one severity: error, warning, or not checked."""
        return [finding for finding in self.findings if finding.severity == severity]

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "fits": self.fits,
            "chips": self.chips,
            "cores": self.cores,
            "cores_lower_bound": self.lower_bound,
            "tiling": self.tiling,
            "first_layer": self.first_layer,
            "layers": [_layer_json(layer) for layer in self.layers],
            "findings": [asdict(finding) for finding in self.findings],
            "between_chips": _chips_json(self.chip_map),
            "energy": None if self.energy is None else self.energy.to_json(),
        }


def fit(
    network: IntNetwork,
    profile: HardwareProfile,
    activity: Activity | None = None,
    *,
    chips: int = 1,
    tiling: Tiling = "compiler",
) -> FitReport:
    """Place the network, put it to every rule, and with its activity say what it costs.

    `chips` are how many there are; `tiling` is how layers are cut: as the chip's own tools do, or the best of
    many cuts.
    """
    if activity is not None:
        check(activity, network)
    placement = place(network, profile, tiling=tiling)
    design = Design(network=network, profile=profile, placement=placement, chips=chips)
    findings = tuple(finding for rule in RULES for finding in rule(design))
    sent = None if activity is None else traffic(network, placement, activity)
    chip_map = _chip_map(sent, profile)
    return FitReport(
        target=profile.name,
        fits=_fits(findings, placement, profile),
        chips=_chips(placement, profile),
        cores=placement.cores,
        lower_bound=placement.lower_bound,
        tiling=tiling,
        layers=tuple(_layer_fit(layer, profile) for layer in placement.layers),
        findings=findings,
        placement=placement,
        chip_map=chip_map,
        energy=None if activity is None else _energy(network, profile, activity, placement, sent, chip_map),
    )


def _fits(findings: Sequence[Finding], placement: Placement, profile: HardwareProfile) -> bool | None:
    """No error, on cores that are known; a profile that speaks of no cores at all has no limit to them."""
    if any(finding.severity == "error" for finding in findings):
        return False
    return None if placement.cores is None and profile.has_cores else True


def _chips(placement: Placement, profile: HardwareProfile) -> int | None:
    """A network that must sit on one chip, on a core or on cores of its own, either does or does not fit."""
    per_chip = profile.limit("chip.cores")
    if per_chip is None or placement.cores is None:
        return None
    return -(-placement.cores // per_chip.value) if placement.kind in ON_MANY_CORES else 1


def _chip_map(sent: Traffic | None, profile: HardwareProfile) -> ChipMap | None:
    """Which core sits on which chip, where both are known and layers may lie on several."""
    if sent is None or profile.limit("chip.cores") is None or profile.placement not in ON_MANY_CORES:
        return None
    return assign_chips(sent, sent.cores, profile)


def _energy(
    network: IntNetwork,
    profile: HardwareProfile,
    activity: Activity,
    placement: Placement,
    sent: Traffic | None,
    chip_map: ChipMap | None,
) -> EnergyReport:
    loads = None
    if placement.cores is not None:
        loads = core_loads(network, activity, parts_of_cores(placement))
    return estimate(
        network,
        profile,
        activity,
        cores=placement.cores or 1,
        chips=1 if chip_map is None else chip_map.chips,
        loads=loads,
        hops=None if sent is None or chip_map is None else hops(sent, chip_map, profile),
        crossings=None if chip_map is None else chip_map.crossings,
        axons_per_input=max((layer.packets_per_spike for layer in placement.layers), default=1),
    )


def _layer_fit(layer: PlacedLayer, profile: HardwareProfile) -> LayerFit:
    return LayerFit(
        name=layer.name,
        neurons=layer.neurons,
        cores=layer.cores,
        lower_bound=layer.lower_bound,
        tile=layer.tile,
        use={
            resource: ResourceUse(used=used, limit=capacity(resource, layer, profile))
            for resource, used in layer.use.items()
        },
    )


# ---- as JSON ----------------------------------------------------------------------------------


def _layer_json(layer: LayerFit) -> dict[str, Any]:
    resources = {
        name: {"used": use.used, "limit": use.limit, "percent": _rounded(use.percent)}
        for name, use in layer.use.items()
    }
    return {
        "name": layer.name,
        "neurons": layer.neurons,
        "cores": layer.cores,
        "cores_lower_bound": layer.lower_bound,
        "tile": list(layer.tile),
        "resources": resources,
    }


def _chips_json(chip_map: ChipMap | None) -> dict[str, Any] | None:
    if chip_map is None:
        return None
    return {
        "spikes_per_sample": chip_map.crossings,
        "share_of_all_spikes": chip_map.share,
        "board": chip_map.board,
        "boards": chip_map.boards,
        "cut_by": chip_map.method,
    }


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, 2)
