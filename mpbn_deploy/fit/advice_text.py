"""Print advice: the commands that make a network fit, and the effect of each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from .advice import Advice, hopeless, incurable
from .stage import FitReport, blocking_severities, by_rule, unmet_rules

MANY_CHANGED = 0.1  # share of all predictions


def advice_text(report: FitReport, tried: Sequence[Advice]) -> RenderableType:
    """Return the commands that make the network fit with their effects, or the errors of the best attempt."""
    if report.fits is not False:
        return f"{report.target}: no errors, so no change is needed."
    if remaining_rules := hopeless(report):
        return Group(
            f"{report.target}: no change makes the network fit, so none was tried. No option cures this: "
            f"{unmet_rules(remaining_rules)}.",
            *(f"  {group.line}" for group in remaining_rules),
        )
    if not tried:
        return (
            f"{report.target}: no change to try. Only networks of real numbers can be quantized again; "
            f"trained integers must be trained again for another chip (train --quantize {report.target})."
        )
    if tried[0].report.fits:
        headline = f"{report.target}: each of these commands makes the network fit:"
        return Group(headline, *map(_advice_lines, tried))
    nearest = tried[0]
    remaining = [f"  {group.line}" for group in by_rule(nearest.report, blocking_severities(nearest.report))]
    beyond = unmet_rules(incurable(nearest.report))
    why = f"No option cures this: {beyond}. " if beyond else ""
    return Group(
        f"{report.target}: no change tried makes the network fit. {why}With {nearest.description}:",
        *remaining,
    )


def _advice_lines(one: Advice) -> str:
    cores = "" if one.report.cores is None else f"; cores {one.report.cores}, chips {one.report.chips}"
    reference = f"differ from those of {one.question.path} (integers)"
    changed = "" if one.changed is None else f"; {one.changed} of {one.samples} predictions {reference}"
    lines = [f"  {one.description}{cores}{changed}", *(f"    {command}" for command in one.commands)]
    if one.report.found("warning"):
        lines.append("    (warnings remain: spikes on the chip itself may differ, and so may predictions)")
    if one.changed is not None and one.changed > MANY_CHANGED * one.samples:
        lines.append("    (many predictions differ: try export --calibration NAME, or train --quantize)")
    return "\n".join(lines)
