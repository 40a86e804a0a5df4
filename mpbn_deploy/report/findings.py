"""Findings grouped by design rule; the page shows the first ones of each rule and collapses the rest."""

from __future__ import annotations

from ..base import record
from ..fit import FitReport, by_rule
from ..fit.rules import Finding

SHOWN = 4  # per rule; the rest are in a closed <details> element


@record
class ShownFindings:
    """The findings of one rule, divided into shown and collapsed ones."""

    rule: str
    shown: tuple[Finding, ...]
    collapsed: tuple[Finding, ...]


def shown_findings(report: FitReport, severity: str) -> list[ShownFindings]:
    """Return the findings of one severity, rule by rule."""
    return [
        ShownFindings(rule=group.rule, shown=group.findings[:SHOWN], collapsed=group.findings[SHOWN:])
        for group in by_rule(report, (severity,))
    ]
