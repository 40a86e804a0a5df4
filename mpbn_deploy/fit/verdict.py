"""Summarize a fit report: findings grouped by design rule, and the lines with which a report begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base import Color, Summary, and_more, layer_name, record
from .rules import Finding, Severity

if TYPE_CHECKING:
    from .stage import FitReport

UNKNOWN, NO_CHIP, DEPENDS = "?", "no chip", "depends"
MAX_LAYERS = 6  # named in one line
SEVERITIES: tuple[Severity, ...] = ("error", "not known", "warning", "not checked")


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
    from .energy_text import headline, sample_kind  # imports rich

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
