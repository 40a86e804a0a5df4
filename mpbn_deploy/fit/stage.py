"""Check a network against a chip: IntNetwork + HardwareProfile (+ Activity) -> FitReport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base import Array, Color, Report, Summarized, Summary, and_more, layer_name, record
from ..formats.c import ProgramSize, program_size
from ..formats.options import Side
from ..formats.verilog import obstacle
from ..hardware import HardwareProfile
from ..hardware.place import PlacedLayer, Placement, Tiling, capacity, place
from ..ir import IntNetwork, class_names
from .activity import Activity, Traffic, check_activity, chip_messages, core_loads, parts_of_cores, traffic
from .chips import ChipMap, assign_chips, board_of, hops
from .energy import EnergyReport, estimate, headline, sample_kind
from .rules import RULES, Design, FabricUse, Finding, Severity, fabric_use

MULTI_CORE_PLACEMENTS = ("words", "crossbar")  # layers may take any number of cores
UNKNOWN, NO_CHIP, DEPENDS = "?", "no chip", "depends"
MAX_LAYERS = 6  # named in one line
SEVERITIES: tuple[Severity, ...] = ("error", "not known", "warning", "not checked")


@record
class ResourceUse(Report):
    """Peak use of a resource over the cores of a layer, and the capacity of a core."""

    JSON = "used limit percent=rounded_percent"

    used: int
    limit: int | None

    @property
    def percent(self) -> float | None:
        return None if self.limit is None else 100 * self.used / self.limit

    @property
    def rounded_percent(self) -> float | None:
        return None if self.percent is None else round(self.percent, 2)


@record
class Choice:
    """What an option that was "auto" became, and why."""

    option: str
    chosen: str
    why: str

    @property
    def line(self) -> str:
        return f"{self.chosen} ({self.why})"


@record
class LayerFit(Report):
    """A population on its cores; `tile` is the shape of the part on one core."""

    JSON = "name class?=kind neurons cores cores_lower_bound=lower_bound tile resources=use"

    name: str
    kind: str  # its class, such as LIF
    neurons: int
    cores: int
    lower_bound: int
    tile: tuple[int, ...]  # shape of the part on one core
    use: Mapping[str, ResourceUse]  # of the fullest core


@record
class FitReport(Report, Summarized):
    """Whether a network fits a chip, why not, and its cost there.

    If the core allocation of the chip is undocumented, `cores` and `chips` are None, and `fits` is False if
    an error is found and None otherwise. `lower_bound` is a lower bound on the cores of any tiling. Energy
    and spikes between chips are available only if the activity of the network is given.
    """

    JSON = """target fits chips cores cores_lower_bound=lower_bound tiling first_layer readout choices?
        strict? assumption? layers findings program? fabric?? between_chips=chip_map energy"""

    target: str
    fits: bool | None  # None if the chip's allocation of cores is not documented
    chips: int | None
    cores: int | None
    lower_bound: int | None
    tiling: Tiling
    layers: tuple[LayerFit, ...]
    findings: tuple[Finding, ...]
    placement: Placement
    first_layer: Side = "chip"  # or "host"; then the report covers the remaining layers only
    readout: Side = "chip"  # or "host", likewise
    chip_map: ChipMap | None = None
    energy: EnergyReport | None = None
    assumption: str | None = None  # what a report on an untrained network assumes
    strict: bool = False  # limits that are not known or not checked count as broken
    choices: tuple[Choice, ...] = ()  # what options that were auto became, and why
    board: str | None = None  # that holds the chips, if one is known
    boards: int = 0
    program: ProgramSize | None = None  # of a target that runs the network as a program
    fabric: FabricUse | None = None  # of an FPGA

    def found(self, severity: str) -> list[Finding]:
        """Return the findings of one severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    @property
    def summary(self) -> Summary:
        return fit_summary(self)


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
    """Place the network, check every design rule, and estimate costs if the activity is given: `with_costs`.

    `chips` is the number of available chips. `tiling` divides layers as the chip's own tools do ("compiler"),
    into the fewest cores that a search finds ("best"), or so only if that takes fewer cores ("auto"). With
    `strict`, what is not known or not checked counts as no. `placement` is what an earlier call found, for
    other `chips`.
    """
    if activity is not None:
        check_activity(activity, network)
    if placement is None:
        placement = place(network, profile, tiling=tiling)
    design = Design(network=network, profile=profile, placement=placement, chips=chips)
    findings = tuple(finding for rule in RULES for finding in rule(design))
    kinds, needed = class_names(network), _chip_count(placement, profile)
    board, boards = (None, 0) if needed is None else board_of(profile, needed)
    report = FitReport(
        target=profile.name,
        fits=_fits(findings, placement, profile, strict=strict),
        chips=needed,
        cores=placement.cores,
        lower_bound=placement.lower_bound,
        tiling=placement.tiling,
        layers=tuple(_layer_fit(layer, kinds[layer.name], profile) for layer in placement.layers),
        findings=findings,
        placement=placement,
        strict=strict,
        board=board,
        boards=boards,
        program=program_size(network) if profile.placement == "program" else None,
        fabric=_fabric(network, profile),
    )
    return report if activity is None else with_costs(report, network, profile, activity)


def with_costs(
    report: FitReport, network: IntNetwork, profile: HardwareProfile, activity: Activity
) -> FitReport:
    """Return the report with spikes between chips, energy and time."""
    placement = report.placement
    sent = traffic(network, placement, activity)
    chip_map = _chip_map(network, placement, activity, sent, profile)
    energy = _energy(network, profile, activity, placement, sent, chip_map)
    return replace(report, chip_map=chip_map, energy=energy)


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


# ---- the verdict, and findings grouped by rule --------------------------------------------------


@record
class RuleFindings:
    """The findings of one severity of one rule, in the order of the layers."""

    rule: str  # the sentence that must hold
    severity: Severity
    findings: tuple[Finding, ...]

    @property
    def line(self) -> str:
        """The first finding in full, followed by the other layers that it holds for."""
        first, *others = self.findings
        label = "" if self.severity == "not checked" else f"{self.severity}: "
        also = f" Likewise: {list_layers(others)}." if others else ""
        return f"{label}{first.message}{also}"

    @property
    def headline(self) -> str:
        """The rule with the layers that break it: 'biases fit format (lif1, lif2)'."""
        return f"{self.rule} ({list_layers(self.findings)})"


def by_rule(report: FitReport, severities: Sequence[str] = SEVERITIES) -> list[RuleFindings]:
    """Group findings by severity, then by rule, in the order of the rules."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for severity in SEVERITIES:
        for finding in report.found(severity) if severity in severities else ():
            groups.setdefault((severity, finding.rule), []).append(finding)
    return [
        RuleFindings(rule=rule.replace("_", " "), severity=severity, findings=tuple(found))
        for (severity, rule), found in groups.items()
    ]


def unmet_rules(groups: Sequence[RuleFindings]) -> str:
    """Return 'not met: leaks are supported (lif1); not known: ...': a rule states what must hold."""
    labels = {"error": "not met"}
    return "; ".join(
        f"{labels.get(severity, severity)}: {'; '.join(group.headline for group in found)}"
        for severity in SEVERITIES
        if (found := [group for group in groups if group.severity == severity])
    )


def list_layers(findings: Sequence[Finding]) -> str:
    """Return 'lif1, lif2 and 9 more': the distinct places of findings."""
    return list_names([layer_name(finding.where) for finding in findings])


def list_names(given: Sequence[str]) -> str:
    """Return 'lif1, lif2 and 9 more': distinct names."""
    names = list(dict.fromkeys(given))
    return and_more(names[:MAX_LAYERS], len(names))


def short_verdict(report: FitReport) -> str:
    """Return yes, no, "depends" where what is not known decides, or ? without documented cores.

    A target without cores, such as `unbounded`, is not a chip.
    """
    return verdict_word(report.fits, report.cores, len(report.found("not known")))


def verdict_word(fits: bool | None, cores: int | None, conditions: int) -> str:
    """Return the verdict on a network that needs `cores`, with as many findings that are not known."""
    if fits and cores is None:
        return NO_CHIP
    if fits and conditions:
        return DEPENDS
    return {True: "yes", False: "no", None: UNKNOWN}[fits]


def verdict_sentence(report: FitReport) -> str:
    """Return the verdict with what it depends on."""
    if report.fits is None:
        return "no error found, but its core allocation is undocumented"
    if report.fits and report.cores is None:
        return "no chip: its number formats hold the network"
    if report.fits:
        return f"fits{conditions(report)}"
    if report.found("error"):
        return "does not fit"
    return "does not fit: no rule is broken, but with --strict, what is unknown counts as no"


def conditions(report: FitReport) -> str:
    """Return ', if thresholds per channel work on the chip (not known)'; '' if all is known."""
    rules = [group.rule for group in by_rule(report, ("not known",))]
    return f", if {' and '.join(rules)} (not known)" if rules else ""


def fit_summary(report: FitReport) -> Summary:
    """Return the verdict with what blocks, cores and chips, their form, costs, and what is not known."""
    return Summary(
        color=verdict_color(report), verdict=f"{report.target}: {full_verdict(report)}", rows=()
    ).with_rows(
        network=_size(report),
        cores=_cores(report),
        chips=_chips(report),
        form=", ".join(f"{choice.option} {choice.chosen}" for choice in report.choices),
        program=str(report.program or ""),
        fabric="" if report.fabric is None else report.fabric.line,
        cost=cost_line(report),
        unchecked="; ".join(group.headline for group in by_rule(report, ("warning", "not checked"))),
    )


def verdict_color(report: FitReport) -> Color:
    """Return red for what does not fit or nobody can know, yellow for what fits if the unknown holds."""
    if not report.fits:
        return "red"
    return "yellow" if report.found("not known") else "green"


def full_verdict(report: FitReport) -> str:
    """Return the verdict with the rules that are not met."""
    unmet = unmet_rules(by_rule(report, blocking_severities(report))) if report.fits is False else ""
    return f"{verdict_sentence(report)}{'; ' if unmet else ''}{unmet}"


def cost_line(report: FitReport) -> str:
    """Return energy and time per sample, and what they were estimated from."""
    if report.energy is None:
        return ""
    energy, time = headline(report.energy)
    count = "" if report.energy.assumed else f"{report.energy.samples} "
    return f"{energy}, {time} per sample, estimated from {count}{sample_kind(report.energy)}"


def _size(report: FitReport) -> str:
    neurons = sum(layer.neurons for layer in report.layers)
    assumed = f"; {report.assumption}" if report.assumption else ""
    layers = "1 layer" if len(report.layers) == 1 else f"{len(report.layers)} layers"
    return f"{neurons:,} neurons in {layers}{assumed}"


def blocking_severities(report: FitReport) -> tuple[Severity, ...]:
    """Return the severities that make a network not fit."""
    return ("error", "not known", "not checked") if report.strict else ("error",)


def _cores(report: FitReport) -> str:
    if report.cores is None:
        return UNKNOWN
    bound = report.lower_bound
    return f"{report.cores:,}" + (f" (at least {bound:,})" if bound and bound < report.cores else "")


def _chips(report: FitReport) -> str:
    if report.chips is None:
        return UNKNOWN
    return f"{report.chips:,}" + (f" ({report.boards} x {report.board})" if report.board else "")
