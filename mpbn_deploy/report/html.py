"""Render a ReportContent as one self-contained HTML file, without scripts, fonts or external images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from ..base import printable, write_atomically
from ..execute import EXECUTORS
from ..execute.outside import WITNESSES
from ..fit import FitReport, LayerFit, column, shown_resources
from ..ir import STATE_LIMIT
from ..quantize import RoundingErrors
from ..verify import VerifyReport
from .costs import core_map, costs
from .diagram import diagram_rows, network_diagram
from .histograms import agreement, raster, rates, threshold_lead, thresholds, weights
from .summary import ReportContent, cards, lava_lines, pipeline, reader_obstacle, shown_findings, verdicts
from .svg import NONE, UNKNOWN, arrange, dimensions, integer, number, percent, percentage, plural

WORST_CLASSES = 10  # and confusions: as many as are listed
TEMPLATE, STYLE = "page.html.j2", "page.css"


def write_html(path: Path, content: ReportContent) -> None:
    """Write the page; equal content gives equal bytes."""
    write_atomically(path, render(content).encode("utf-8"))


def render(content: ReportContent) -> str:
    """Return the page as text."""
    return render_template(TEMPLATE, _template_values(content))


def render_template(name: str, values: Mapping[str, Any]) -> str:
    """Return a page of this package's templates as text, with the style of all pages."""
    return _template(name).render(style=Markup(_file(STYLE)), **values) + "\n"


@cache
def _template(name: str) -> Template:
    """Return a compiled template; compiling takes longer than rendering."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.filters.update(integer=integer, percent=percent, number=number, percentage=percentage)
    environment.globals.update(plural=plural)
    return environment.from_string(_file(name))


def _shown(value: Any) -> Any:
    """Escape what a browser would obey, such as marks that reverse the direction of a name."""
    if isinstance(value, Markup):
        return Markup(printable(value))
    return printable(value) if isinstance(value, str) else value


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _template_values(content: ReportContent) -> dict[str, Any]:
    """Return the variables of the template, section by section."""
    fit, drift, fires = content.fit, content.verify.drift, bool(content.spiking())
    obstacle = reader_obstacle(content.network, content.verify)
    return {
        "content": content,
        "verify": content.verify,
        "fit": fit,
        "verdicts": verdicts(content),
        "pipeline": pipeline(content),
        "cards": cards(content),
        "colors": content.colors,
        "diagram": network_diagram(content),
        "diagram_rows": diagram_rows(content),
        "reader_obstacle": obstacle,
        "lava_lines": None if obstacle is not None else lava_lines(content.network),
        "thresholds": arrange(thresholds(content)),
        "threshold_lead": threshold_lead(content),
        "weights": arrange(weights(content.network)),
        "raster": arrange(raster(content)),
        "rates": rates(content) if fires else None,
        "lava_claim": content.verify.lava_claim,
        "authors": {executor.name: executor.author for executor in EXECUTORS.values()}
        | {witness.name: witness.author for witness in WITNESSES.values()},
        "differences": _differences(content.verify),
        "agreement": agreement(content, drift) if drift is not None and drift.spike_agreement else None,
        "classes": _classes(content.verify),
        "drifts": _drifts(content.verify),
        "changes": [_change(errors, content) for errors in content.quantization],
        "state_limit": STATE_LIMIT,
        "fit_sentences": list(_fit_sentences(fit)),
        "errors": shown_findings(fit, "error"),
        "unknowns": shown_findings(fit, "not known"),
        "warnings": shown_findings(fit, "warning"),
        "not_checked": fit.found("not checked"),
        "columns": {name: column(name) for name in shown_resources(fit)},
        "layers": [_layer(layer, fit) for layer in fit.layers],
        "core_map": core_map(fit.placement, fit.layers, fit.chip_map, content.profile),
        "costs": None if fit.energy is None else costs(fit.energy),
    }


# ---- the sections -----------------------------------------------------------------------------


def _differences(report: VerifyReport) -> list[tuple[str, str]]:
    """Return the first difference of each execution that has one."""
    return [(c.execution, str(c.first_mismatch)) for c in report.comparisons if c.first_mismatch]


def _classes(report: VerifyReport) -> dict[str, Any] | None:
    """Return the confusion matrix with the accuracy per class, or the worst classes if there are many."""
    found = None if report.accuracy is None else report.accuracy.per_class
    if found is None:
        return None
    matrix = found.matrix
    shown = (
        found.classes if matrix else sorted(found.classes, key=lambda c: c.integer_network)[:WORST_CLASSES]
    )
    rows = [
        {
            **asdict(one),
            "cells": [(n, f"{100 * n / one.samples:.0f}%") for n in matrix[one.label]] if matrix else [],
        }
        for one in shown
    ]
    frequent = [f"{c.label} → {c.predicted}: {c.samples}" for c in found.confusions[:WORST_CLASSES]]
    return {
        "rows": rows,
        "columns": range(len(matrix or ())),
        "matrix": matrix is not None,
        "count": len(found.classes),
        "confusions": ", ".join(frequent),
    }


def _drifts(report: VerifyReport) -> list[dict[str, Any]]:
    """Return the drift of each population over all steps, as table rows."""
    populations = () if report.drift is None else report.drift.populations
    return [
        {
            **population.to_json(),
            "name": population.name,
            "fires": population.fires,
            "relative_error": population.relative_error if isfinite(population.relative_error) else None,
        }
        for population in populations
    ]


def _change(errors: RoundingErrors, content: ReportContent) -> dict[str, Any]:
    """Return one row of the quantization table; a readout has no leak and no threshold."""
    limits = {limit: count for limit, count in errors.channels_limited_by.items() if count}
    bound = content.verify.bounds.get(errors.name)
    return {
        "rounding": errors,
        "limited_by": ", ".join(f"{limit} ({count})" for limit, count in limits.items()),
        "bound": bound,
        "share": None if bound is None else bound / STATE_LIMIT,
    }


def _fit_sentences(report: FitReport) -> Iterator[str]:
    """Yield sentences on cores, chips, and spikes that cross between chips."""
    if report.cores is None:
        yield "The core allocation of this chip is not documented, so the number of cores is unknown."
        return
    cores, lower_bound, chip_map = report.cores, report.lower_bound, report.chip_map
    if report.chips is None:
        chips = "number of chips unknown, because the profile has no cores per chip"
    else:
        chips = plural(report.chips, "chip")
    bound = ""
    if lower_bound and lower_bound < cores:
        bound = f" Lower bound for any partition: {plural(lower_bound, 'core')}."
    yield f"{plural(cores, 'core')}; {chips}.{bound}"
    if chip_map is not None and chip_map.chips > 1:
        board = "" if chip_map.board is None else f" Boards needed: {chip_map.boards} × {chip_map.board}."  # noqa: RUF001
        spikes = f"{number(chip_map.crossings)} spikes per sample, {percent(chip_map.share)} of all"
        yield f"Traffic between chips: {spikes} (partition: {chip_map.method}).{board}"


def _layer(layer: LayerFit, report: FitReport) -> dict[str, Any]:
    return {
        "name": layer.name,
        "neurons": layer.neurons,
        "cores": UNKNOWN if report.cores is None else integer(layer.cores),
        "tile": NONE if report.cores is None else dimensions(layer.tile),
        "use": layer.use,
    }
