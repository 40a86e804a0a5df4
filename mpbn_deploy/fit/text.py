"""Print fit reports: one as a table of layers with findings, several as a table of chips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from ..hardware import ProfileSummary
from ..hardware.place import RESOURCES
from .energy_text import headline, sample_costs, sample_kind, spread

if TYPE_CHECKING:  # `fit --targets` need not import what only a fit needs
    from .stage import FitReport, LayerFit

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
UNKNOWN = "?"
NO_BREAK = "\u00a0"  # keeps a number and its unit on one line
WIDE = ("placement", "thresholds", "messages")  # columns of the table of targets that are only in JSON


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
    """Return a table of layers, followed by costs and findings."""
    resources = shown_resources(report)
    table = Table(
        "layer", title=_headline(report), title_justify="left", box=SIMPLE_HEAD, collapse_padding=True
    )
    for heading in ("neurons", "cores", *(f"{column(name)}\n%" for name in resources)):
        table.add_column(heading, justify="right", overflow="fold")
    for layer in report.layers:
        cores = UNKNOWN if report.cores is None else str(layer.cores)
        table.add_row(layer.name, str(layer.neurons), cores, *(_percent(layer, name) for name in resources))
    return Group(table, *_legend(resources), *_cost_lines(report), *_finding_lines(report))


def _legend(resources: Sequence[str]) -> Iterator[str]:
    """Yield what the columns in percent mean, if there are any."""
    if resources:
        known = [COLUMNS[resource] for resource in resources if resource in COLUMNS]
        meanings = "".join(f"; {heading}: {meaning}" for heading, meaning in known)
        yield f"%: share of a core's capacity, on the fullest core of the layer{meanings}"


def comparison_text(reports: Sequence[FitReport]) -> RenderableType:
    """Return one row per chip, followed by the errors and warnings."""
    table = Table(box=SIMPLE_HEAD, collapse_padding=True)
    table.add_column("target", no_wrap=True)
    table.add_column("fits")
    for heading in ("cores", "chips", "errors", "warn-\nings", "not\nchecked", "energy", "time"):
        table.add_column(heading, justify="right", overflow="fold")
    for report in reports:
        table.add_row(
            report.target,
            verdict(report),
            *(UNKNOWN if n is None else str(n) for n in (report.cores, report.chips)),
            *(str(len(report.found(severity))) for severity in ("error", "warning", "not checked")),
            *_cost_cells(report),
        )
    reasons = [f"{r.target}: {line}" for r in reports for line in _finding_lines(r, ("error", "warning"))]
    legend = (
        'energy and time per sample; ">" marks a lower bound; a single --target lists the unchecked limits'
    )
    random = any(report.energy is not None and report.energy.random for report in reports)
    notes = ["energy and time are those of random inputs"] if random else []
    return Group(table, legend, *notes, *reasons)


def targets_text(chips: Sequence[ProfileSummary]) -> RenderableType:
    """Return a table of the chips in this package, as far as it fits a terminal."""
    rows = [{name: cell for name, cell in chip.cells().items() if name not in WIDE} for chip in chips]
    table = Table(box=SIMPLE_HEAD, collapse_padding=True)
    for heading in rows[0]:
        table.add_column(heading, no_wrap=heading == "target", overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    return Group(
        table, "?: not published, so not checked; for more about each target: --json, hw_profiles/README.md"
    )


def verdict(report: FitReport) -> str:
    return {True: "yes", False: "no", None: UNKNOWN}[report.fits]


def _headline(report: FitReport) -> str:
    found = {
        True: "fits",
        False: "does not fit",
        None: "no error found, but its core allocation is undocumented",
    }
    cores = UNKNOWN if report.cores is None else str(report.cores)
    if report.cores is not None and report.lower_bound is not None and report.lower_bound < report.cores:
        cores += f" (at least {report.lower_bound})"
    chips = UNKNOWN if report.chips is None else report.chips
    return f"{report.target}: {found[report.fits]}; cores {cores}, chips {chips}"


def _percent(layer: LayerFit, resource: str) -> str:
    use = layer.use.get(resource)
    return "" if use is None or use.percent is None else f"{use.percent:.2f}"


def _cost_cells(report: FitReport) -> list[str]:
    """Return energy and time per sample, each without line breaks."""
    if report.energy is None:
        return [UNKNOWN, UNKNOWN]
    return [text.replace(" ", NO_BREAK) for text in headline(report.energy)]


def _cost_lines(report: FitReport) -> Iterator[str]:
    if report.first_layer == "host":
        yield "the first layer runs on the host; its work and energy are not included"
    if report.readout == "host":
        yield "the readout runs on the host; its work and energy are not included"
    crossing = report.chip_map
    if crossing is not None and crossing.chips > 1:
        board = "no board known" if crossing.board is None else f"{crossing.boards} x {crossing.board}"
        yield (
            f"between chips: {crossing.crossings:,.0f} spikes per sample, {crossing.share:.1%} of all "
            f"(partition: {crossing.method}; {board})"
        )
    if report.energy is not None:
        energy, time = (
            f"{'at least ' if left_out and found else ''}{spread(found, *unit)}"
            for found, left_out, unit in sample_costs(report.energy)
        )
        details = (
            f"estimated from {report.energy.samples} {sample_kind(report.energy)}; --energy shows details"
        )
        yield f"per sample: energy {energy}, time {time} ({details})"


def _finding_lines(
    report: FitReport, severities: Sequence[str] = ("error", "warning", "not checked")
) -> Iterator[str]:
    for severity in severities:
        for finding in report.found(severity):
            yield finding.message if severity == "not checked" else f"{severity}: {finding.message}"
