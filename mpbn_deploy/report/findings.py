"""What the rules of a chip found, rule by rule; where one finds much, the first ones, the others folded."""

from __future__ import annotations

from ..base import record
from ..fit import FitReport
from ..fit.rules import Finding

SHOWN = 4  # of one rule; the others can be unfolded


@record
class Broken:
    """A rule, and what was found where."""

    rule: str
    shown: tuple[Finding, ...]
    folded: tuple[Finding, ...]


def by_rule(report: FitReport, severity: str) -> list[Broken]:
    """The findings of one severity, in the order of the rules."""
    found: dict[str, list[Finding]] = {}
    for finding in report.found(severity):
        found.setdefault(finding.rule, []).append(finding)
    return [
        Broken(rule=rule.replace("_", " "), shown=tuple(all_of[:SHOWN]), folded=tuple(all_of[SHOWN:]))
        for rule, all_of in found.items()
    ]
