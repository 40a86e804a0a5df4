"""Check a network against a chip: IntNetwork + HardwareProfile (+ Activity) -> FitReport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..base import Array, record
from ..formats.verilog import obstacle
from ..hardware import HardwareProfile
from ..hardware.place import PlacedLayer, Placement, Tiling, capacity, place
from ..ir import IntNetwork, class_names
from .activity import Activity, check_activity, core_loads
from .chips import ChipMap, assign_chips, board_of, hops
from .energy import EnergyReport, estimate
from .fabric import FabricUse, fabric_use
from .links import grid_of
from .rules import RULES, Design, Finding
from .spike_traffic import Traffic, chip_messages, parts_of_cores, traffic

MULTI_CORE_PLACEMENTS = ("words", "crossbar")  # layers may take any number of cores


@record
class ResourceUse:
    """Peak use of a resource over the cores of a layer, and the capacity of a core."""

    used: int
    limit: int | None

    @property
    def percent(self) -> float | None:
        return None if self.limit is None else 100 * self.used / self.limit


@record
class LayerFit:
    """A population on its cores; `tile` is the shape of the part on one core."""

    name: str
    kind: str  # its class, such as LIF
    neurons: int
    cores: int
    lower_bound: int
    tile: tuple[int, ...]
    use: Mapping[str, ResourceUse]


@record
class FitReport:
    """Whether a network fits a chip, why not, and its cost there.

    If the core allocation of the chip is undocumented, `cores` and `chips` are None, and `fits` is False if
    an error is found and None otherwise. `lower_bound` is a lower bound on the cores of any tiling. Energy
    and spikes between chips are available only if the activity of the network is given.
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
    first_layer: str = "chip"  # or "host"; then the report covers the remaining layers only
    readout: str = "chip"  # or "host", likewise
    chip_map: ChipMap | None = None
    energy: EnergyReport | None = None
    assumption: str = ""  # what a report on an untrained network assumes
    strict: bool = False  # limits that are not known or not checked count as broken
    board: str | None = None  # that holds the chips, if one is known
    boards: int = 0
    fabric: FabricUse | None = None  # of an FPGA

    def found(self, severity: str) -> list[Finding]:
        """Return the findings of one severity."""
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
            "readout": self.readout,
            "strict": self.strict,
            "assumption": self.assumption or None,
            "layers": [_layer_json(layer) for layer in self.layers],
            "findings": [asdict(finding) for finding in self.findings],
            "between_chips": _chips_json(self.chip_map),
            "energy": None if self.energy is None else self.energy.to_json(),
            **({} if self.fabric is None else {"fabric": self.fabric.to_json()}),
        }


def fit(
    network: IntNetwork,
    profile: HardwareProfile,
    activity: Activity | None = None,
    *,
    chips: int = 1,
    tiling: Tiling = "compiler",
    strict: bool = False,
    placement: Placement | None = None,
) -> FitReport:
    """Place the network, check every design rule, and estimate costs if the activity is given.

    `chips` is the number of available chips. `tiling` divides layers as the chip's own tools do ("compiler"),
    or into the fewest cores that a search finds ("best"). With `strict`, what is not known or not checked
    counts as no. `placement` is what an earlier call found, for other `chips`.
    """
    if activity is not None:
        check_activity(activity, network)
    if placement is None:
        placement = place(network, profile, tiling=tiling)
    design = Design(network=network, profile=profile, placement=placement, chips=chips)
    findings = tuple(finding for rule in RULES for finding in rule(design))
    sent = None if activity is None else traffic(network, placement, activity)
    chip_map = _chip_map(network, placement, activity, sent, profile)
    kinds, needed = class_names(network), _chip_count(placement, profile)
    board, boards = (None, 0) if needed is None else board_of(profile, needed)
    return FitReport(
        target=profile.name,
        fits=_fits(findings, placement, profile, strict=strict),
        chips=needed,
        cores=placement.cores,
        lower_bound=placement.lower_bound,
        tiling=tiling,
        layers=tuple(_layer_fit(layer, kinds[layer.name], profile) for layer in placement.layers),
        findings=findings,
        placement=placement,
        chip_map=chip_map,
        energy=None if activity is None else _energy(network, profile, activity, placement, sent, chip_map),
        strict=strict,
        board=board,
        boards=boards,
        fabric=_fabric(network, profile),
    )


def _fabric(network: IntNetwork, profile: HardwareProfile) -> FabricUse | None:
    held = profile.placement == "fabric" and obstacle(network) is None
    return fabric_use(network, profile) if held else None


def _fits(
    findings: Sequence[Finding], placement: Placement, profile: HardwareProfile, *, strict: bool
) -> bool | None:
    """Return False if there is an error, None if core allocation is undocumented, True otherwise.

    A target that is not a chip has no limit on cores. If `strict`, unknown counts as no.
    """
    broken = {finding.severity for finding in findings}
    if "error" in broken or (strict and broken & {"not known", "not checked"}):
        return False
    return None if placement.cores is None and profile.is_chip else True


def _chip_count(placement: Placement, profile: HardwareProfile) -> int | None:
    """Return the number of chips, which is 1 if layers cannot be divided over cores; None if unknown."""
    per_chip = profile.limit("chip.cores")
    if per_chip is None or placement.cores is None:
        return None
    return -(-placement.cores // per_chip.value) if placement.kind in MULTI_CORE_PLACEMENTS else 1


def _chip_map(
    network: IntNetwork,
    placement: Placement,
    activity: Activity | None,
    sent: Traffic | None,
    profile: HardwareProfile,
) -> ChipMap | None:
    """Assign cores to chips, if both are known and layers can be divided over cores."""
    known = profile.limit("chip.cores") is not None and profile.placement in MULTI_CORE_PLACEMENTS
    if sent is None or activity is None or not known:
        return None

    def messages(chip: Array, chips: int) -> Array:
        return chip_messages(network, placement, activity, chip, chips)

    return assign_chips(sent, sent.cores, profile, messages)


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
        loads = core_loads(network, activity, parts_of_cores(placement), profile=profile)
    return estimate(
        network,
        profile,
        activity,
        cores=placement.cores,
        chips=1 if chip_map is None else chip_map.chips,
        loads=loads,
        hops=None if sent is None or chip_map is None else hops(sent, chip_map, profile),
        crossings=None if chip_map is None else chip_map.crossings,
        input_messages=None if sent is None else float(sent.from_input.sum()),
        axons_per_input=max((layer.packets_per_spike for layer in placement.layers), default=1),
    )


def _layer_fit(layer: PlacedLayer, kind: str, profile: HardwareProfile) -> LayerFit:
    return LayerFit(
        name=layer.name,
        kind=kind,
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
        "class": layer.kind,
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
        "chip_grid": _named(("columns", "rows"), grid_of(chip_map.chips)),
        "busiest_link": _named(("from_chip", "to_chip", "messages"), chip_map.busiest_link),
        "busiest_chip": _named(("chip", "messages"), chip_map.busiest_chip),
    }


def _named(names: Sequence[str], values: Sequence[float] | None) -> dict[str, float] | None:
    return None if values is None else dict(zip(names, values, strict=True))


def _rounded(percent: float | None) -> float | None:
    return None if percent is None else round(percent, 2)
