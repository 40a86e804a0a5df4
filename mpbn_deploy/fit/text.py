"""Print fit reports: one as a table of layers with findings, several as a table of chips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from ..hardware import BUILT_IN, ProfileSummary
from ..hardware.place import RESOURCES
from .chips import grid_of
from .energy import (
    JOULES,
    SECONDS,
    WATTS,
    CostItem,
    EnergyReport,
    headline,
    quantity,
    range_ends,
    sample_costs,
    sample_kind,
    spread,
)
from .stage import UNKNOWN, FitReport, blocking_severities, by_rule, list_names, short_verdict, unmet_rules

if TYPE_CHECKING:
    from .advice import Advice
    from .search import SearchResult, ThresholdVariant
    from .stage import LayerFit


# Short column headings for narrow terminals, each with its meaning; other resources keep their names.
COLUMNS = {
    "input_axons": ("axons", "axons that enter the core"),
    "neuron_groups": ("groups", "populations on the core"),
    "synapse_words": ("synapses", "memory words of synapses"),
    "axon_map_entries": ("map", "entries for spikes that leave the core"),
    "total_words": ("total", "memory words of all kinds"),
    "kernel_words": ("kernels", "memory words of kernels"),
    "neuron_words": ("states", "memory words of neuron states"),
    "bias_words": ("biases", "memory words of biases"),
}
NO_BREAK = "\u00a0"  # keeps a number and its unit on one line
UNCHANGED = ("composed", "compiler", "chip")  # choices that a comparison of chips does not list
REASONS = ("error", "not known", "warning")  # severities listed below a comparison of chips
COMPARISON_LEGEND = (
    'fits "depends": only if what is not known holds on the chip; rules broken, not known, not checked: '
    "design rules that fail, that nobody published, and whose limit the profile lacks; energy and time: per "
    'sample, ">" marks a lower bound'
)
TARGETS_LEGEND = (
    "pJ: energy of a synaptic operation; ?: not published, so not checked; sources and more: --json, "
    "hw_profiles/README.md"
)
# Headings of the table of targets that leave room for numbers, and columns whose cells may break.
NARROW = {
    "neurons per core": "neurons\nper core",
    "weight bits": "weight\nbits",
    "pJ per synaptic operation": "pJ",
}
WRAPPED = ("chip", "weight bits", "from")
WIDE = ("placement", "thresholds", "messages")  # columns of the table of targets that are only in JSON


SHORT = {
    "synapses": "syn",
    "groups": "grp",
    "neurons": "neur",
}  # headings that leave room for names of layers


def column(resource: str) -> str:
    """Return the heading of a resource."""
    return COLUMNS[resource][0] if resource in COLUMNS else resource.replace("_", " ")


def shown_resources(report: FitReport) -> list[str]:
    """Return the resources with a known capacity; for memories of words, those that chip tools print."""
    used = dict.fromkeys(
        name for layer in report.layers for name, use in layer.use.items() if use.percent is not None
    )
    return [name for name in (RESOURCES if report.placement.kind == "words" else used) if name in used]


def fit_text(report: FitReport) -> RenderableType:
    """Return what "auto" became, a table of layers, costs, and one line per rule that is broken."""
    return Group(
        *(f"{choice.option}: {choice.line}" for choice in report.choices),
        *_layer_table(report),
        *_legend(shown_resources(report)),
        *_cost_lines(report),
        *(group.line for group in by_rule(report)),
    )


def _layer_table(report: FitReport) -> Iterator[RenderableType]:
    """Yield the table of layers, each with its class."""
    resources = shown_resources(report)
    table = Table("layer", box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in ("neurons", "cores", *(f"{_short(column(name))}\n%" for name in resources)):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in report.layers:
        cores = UNKNOWN if report.cores is None else str(layer.cores)
        table.add_row(
            f"{layer.name} ({layer.kind})",
            str(layer.neurons),
            cores,
            *(_percent(layer, name) for name in resources),
        )
    yield table


def _short(heading: str) -> str:
    return SHORT.get(heading, heading)


def _legend(resources: Sequence[str]) -> Iterator[str]:
    """Yield what the columns in percent mean, if there are any."""
    if resources:
        known = [COLUMNS[resource] for resource in resources if resource in COLUMNS]
        meanings = "".join(f"; {_short(heading)}: {meaning}" for heading, meaning in known)
        yield f"%: of a core's capacity, on the fullest core of the layer{meanings}"


def comparison_text(reports: Sequence[FitReport], *, verbose: bool) -> RenderableType:
    """Return one row per chip; with `verbose`, followed by one line per broken rule and chip."""
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    table.add_column("target", no_wrap=True)
    table.add_column("fits")
    for heading in ("cores", "chips", "rules\nbroken", "not\nknown", "not\nchecked", "energy", "time"):
        table.add_column(heading, justify="right", overflow="fold")
    for report in reports:
        table.add_row(
            report.target,
            short_verdict(report),
            *(UNKNOWN if n is None else str(n) for n in (report.cores, report.chips)),
            *(str(len(by_rule(report, (severity,)))) for severity in ("error", "not known", "not checked")),
            *_cost_cells(report),
        )
    reasons = [f"{r.target}: {group.line}" for r in reports for group in by_rule(r, REASONS)]
    random = any(report.energy is not None and report.energy.random for report in reports)
    notes = ["energy and time are those of random inputs"] if random else []
    details = (
        [*_changes(reports), *reasons]
        if verbose
        else ["--verbose lists the reasons, a single --target all findings"]
    )
    return Group(_comparison_headline(reports), table, COMPARISON_LEGEND, *notes, *details)


def _comparison_headline(reports: Sequence[FitReport]) -> str:
    fitting = [report.target for report in reports if report.fits]
    color = "green" if len(fitting) == len(reports) else "red"
    return f"{color}: fits {len(fitting)} of {len(reports)} targets{': ' * bool(fitting)}{', '.join(fitting)}"


def _changes(reports: Sequence[FitReport]) -> Iterator[str]:
    """Yield what "auto" changed in the network or its placement, chip by chip."""
    for report in reports:
        for choice in report.choices:
            if choice.chosen not in UNCHANGED:
                yield f"{report.target}: {choice.option}: {choice.line}"


def targets_text(profiles: Sequence[ProfileSummary], unreadable: Sequence[str] = ()) -> RenderableType:
    """Return a table of the chips, as far as it fits a terminal.

    Targets that are not chips follow it, and the profiles that cannot be read.
    """
    chips = [profile for profile in profiles if profile.is_chip]
    left_out = WIDE if any(chip.origin != BUILT_IN for chip in chips) else (*WIDE, "from")
    rows = [{name: cell for name, cell in chip.cells().items() if name not in left_out} for chip in chips]
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in rows[0]:
        table.add_column(NARROW.get(heading, heading), no_wrap=heading not in WRAPPED, overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    others = [f"{profile.target}: {profile.title}" for profile in profiles if not profile.is_chip]
    return Group(table, *others, TARGETS_LEGEND, *(f"left out: {line}" for line in unreadable))


def _percent(layer: LayerFit, resource: str) -> str:
    use = layer.use.get(resource)
    return "" if use is None or use.percent is None else f"{use.percent:.2f}"


def _cost_cells(report: FitReport) -> list[str]:
    """Return energy and time per sample, each without line breaks."""
    if report.energy is None:
        return [UNKNOWN, UNKNOWN]
    return [text.replace(" ", NO_BREAK) for text in headline(report.energy)]


def _cost_lines(report: FitReport) -> Iterator[str]:
    if report.program is not None:
        yield str(report.program)
    if report.fabric is not None:
        yield report.fabric.line
    if report.first_layer == "host":
        yield "the first layer runs on the host; its work and energy are not included"
    if report.readout == "host":
        yield "the readout runs on the host; its work and energy are not included"
    crossing = report.chip_map
    if crossing is not None and crossing.chips > 1:
        board = "no board known" if crossing.board is None else f"{crossing.boards} x {crossing.board}"
        yield (
            f"between chips: {crossing.crossings:,.0f} messages per sample, {crossing.share:.1%} of all, a "
            f"spike once per chip (partition: {crossing.method}; {board})"
        )
        if crossing.busiest_link is not None and crossing.busiest_chip is not None:
            source, target, link = crossing.busiest_link
            chip, load = crossing.busiest_chip
            columns, rows = grid_of(crossing.chips)
            yield (
                f"busiest link, in an assumed grid of {columns} x {rows} chips: chip {source} to chip "
                f"{target}, {link:,.0f} messages per sample; busiest chip: {chip}, {load:,.0f} to and from "
                "others"
            )
    if report.energy is not None:
        energy, time = (
            f"{'at least ' if left_out and found else ''}{spread(found, *unit)}"
            for found, left_out, unit in sample_costs(report.energy)
        )
        count = "" if report.energy.assumed else f"{report.energy.samples} "
        details = f"estimated from {count}{sample_kind(report.energy)}; fit --energy shows details"
        yield f"per sample: energy {energy}, time {time} ({details})"


# Print an EnergyReport: costs per sample, their sources, and what is excluded.


def energy_table(report: EnergyReport) -> RenderableType:
    """Return a table of costs, followed by excluded items and sources."""
    table = Table("per sample", box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in ("count", "each", "total", "range"):
        table.add_column(heading, justify="right")
    for item in report.dynamic.items:
        table.add_row(*_cells(item, *JOULES))
    for item in report.static.items:
        power = quantity(item.cost.value, *WATTS) if item.cost else ""
        table.add_row(*_cells(item, *JOULES, each=power, count=f"chips: {report.chips}"))
    for item in report.outside:
        table.add_row(*_cells(replace(item, missing="?"), *JOULES))
    table.add_section()
    table.add_row("per time step")
    for item in report.step.items:
        table.add_row(*_cells(item, *SECONDS))
    table.add_section()
    table.add_row("ordinary network")
    for item in report.ordinary:
        table.add_row(*_cells(item, *JOULES))
    return Group(_headline(report), table, *_notes(report))


def _headline(report: EnergyReport) -> str:
    incomplete = "; incomplete, see below" if report.missing else ""
    cores = "not known" if report.cores is None else report.cores
    size = f"cores: {cores}, chips: {report.chips}, {sample_kind(report)}: {report.samples}"
    energy, time = spread(report.energy, *JOULES), spread(report.time, *SECONDS)
    return (
        f"{report.target}: estimate ({size})\n"
        f"per sample: energy {energy}, time {time}{incomplete}\n"
        f"per time step: {spread(report.step.total, *SECONDS)} ({report.step_of})"
    )


def _cells(item: CostItem, unit: str, scale: float, **shown: str) -> list[str]:
    count = "" if item.count is None else f"{item.count:,.0f}"
    each = quantity(item.cost.value, unit, scale) if item.cost else ""
    total = item.total
    return [
        item.name,
        shown.get("count", count),
        shown.get("each", each),
        item.missing or "" if total is None else quantity(total.value, unit, scale),
        "" if total is None or total.low == total.high else range_ends(total, unit, scale),
    ]


def _notes(report: EnergyReport) -> list[str]:
    """List excluded items, the meaning of the ordinary network, and the sources."""
    return [
        *(f"excluded: {text}" for text in report.missing),
        *_outside(report),
        "ordinary network: estimate for one 8-bit pass through the same layers, without time steps",
        *(f"{', '.join(names)}: {source}" for source, names in report.sources.items()),
    ]


def _outside(report: EnergyReport) -> list[str]:
    """Name what has no public figure, and is not in the sums."""
    names = [item.name for item in report.outside]
    named = f"{', '.join(names)}, embedded processors" if names else "embedded processors"
    return [f"without a public figure, so never included: {named}"]


# Print advice: the commands that make a network fit, and the effect of each.


MANY_CHANGED = 0.1  # share of all predictions


def advice_text(report: FitReport, tried: Sequence[Advice]) -> RenderableType:
    """Return the commands that make the network fit with their effects, or the errors of the best attempt."""
    from .advice import hopeless, incurable  # with torch

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


# Print the forms of a network that the search for fewer cores found.


def search_text(target: str, results: list[SearchResult]) -> RenderableType:
    """Return a table of the forms, and how to make the best one."""
    from .search import fewest

    table = Table("equal integers", box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in ("cores", "at least", "chips", "fits"):
        table.add_column(heading, justify="right")
    for result in results:
        numbers = (result.report.cores, result.report.lower_bound, result.report.chips)
        cells = (UNKNOWN if number is None else f"{number:,}" for number in numbers)
        table.add_row(result.change, *cells, short_verdict(result.report))
    if all(result.report.fits is False for result in results):
        remedy = "; --advise looks for changes that do" if results[0].question.untrained is None else ""
        return Group(f"{target}: search for fewer cores", table, f"none of these fits{remedy}")
    best = fewest(results)
    lines = [f"fewest cores on the chip: {best.change}"]
    if best.sparse:
        lines.append(f"rows without zero weights: {list_names(best.sparse)}")
    lines += [f"  {command}" for command in best.commands]
    return Group(f"{target}: search for fewer cores", table, *lines)


# Print the comparison of thresholds per channel, per core and per population.


def variants_text(target: str, variants: Sequence[ThresholdVariant]) -> RenderableType:
    """Return a table of the choices, and the commands of those that share thresholds."""
    from .search import MEANINGS

    table = Table("thresholds", box=SIMPLE_HEAD, collapse_padding=True, padding=(0, 1, 0, 0))
    for heading in ("most per\npopulation", "fits", "cores", "accuracy", "predictions\nchanged"):
        table.add_column(heading, justify="right")
    for one in variants:
        table.add_row(
            MEANINGS[one.thresholds],
            str(one.most),
            short_verdict(one.report),
            UNKNOWN if one.report.cores is None else str(one.report.cores),
            UNKNOWN if one.accuracy is None else f"{one.accuracy:.2%}",
            f"{one.changed} of {one.samples}",
        )
    commands = [f"  {command}" for one in variants if one.thresholds != "own" for command in one.commands]
    measured = f"measured on {variants[0].samples} samples, against the given integers" if variants else ""
    title = f"{target}: thresholds, {measured}" if variants else target
    return Group(title, table, 'fits "depends": only if the chip holds a threshold per channel', *commands)
