"""Findings grouped by design rule; the page shows the first ones of each rule and collapses the rest."""

from __future__ import annotations

from ..base import record
from ..fit import FitReport
from ..fit.rules import Finding

SHOWN = 4  # per rule; the rest are in a closed <details> element


@record
class RuleFindings:
    """The findings of one rule."""

    rule: str
    shown: tuple[Finding, ...]
    collapsed: tuple[Finding, ...]


def by_rule(report: FitReport, severity: str) -> list[RuleFindings]:
    """Group the findings of one severity by rule, in the order of the rules."""
    found: dict[str, list[Finding]] = {}
    for finding in report.found(severity):
        found.setdefault(finding.rule, []).append(finding)
    return [
        RuleFindings(rule=rule.replace("_", " "), shown=tuple(group[:SHOWN]), collapsed=tuple(group[SHOWN:]))
        for rule, group in found.items()
    ]
