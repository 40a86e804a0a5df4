"""Story -> one HTML file that needs nothing but itself: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..base import write_atomically
from ..fit import FitReport, LayerFit, column, shown_resources
from ..ir import STATE_LIMIT
from ..verify import LAVA_CLAIM, VerifyReport
from .core_map import core_map
from .costs import costs
from .diagram import network_diagram
from .findings import by_rule
from .histograms import thresholds, weights
from .panels import arrange
from .spikes import agreement, raster, rates
from .story import Story
from .summary import cards, pipeline, verdicts
from .svg import population_colors
from .wording import NONE, UNKNOWN, by, hundredths, number, percent, plural, whole

TEMPLATE, STYLE = "page.html.j2", "page.css"
LAVA = "Lava"  # the execution that the claim is about


def write_html(path: Path, story: Story) -> None:
    """Write the page; the same story gives the same bytes."""
    write_atomically(path, render(story).encode("utf-8"))


def render(story: Story) -> str:
    """The page as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(whole=whole, percent=percent, number=number, hundredths=hundredths)
    environment.globals.update(plural=plural)
    template = environment.from_string(_file(TEMPLATE))
    return template.render(style=Markup(_file(STYLE)), **_content(story)) + "\n"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _content(story: Story) -> dict[str, Any]:
    """What the template shows, section by section."""
    fit, drift, fires = story.fit, story.verify.drift, bool(story.spiking())
    return {
        "story": story,
        "verify": story.verify,
        "fit": fit,
        "verdicts": verdicts(story),
        "pipeline": pipeline(story),
        "cards": cards(story),
        "colors": population_colors([population.name for population in story.network.populations[1:]]),
        "diagram": network_diagram(story),
        "thresholds": arrange(thresholds(story)),
        "weights": arrange(weights(story.network)),
        "raster": arrange(raster(story)),
        "rates": rates(story) if fires else None,
        "lava_claim": _lava_claim(story.verify),
        "differences": _differences(story.verify),
        "agreement": agreement(story, drift) if drift is not None and drift.spike_agreement else None,
        "drifts": _drifts(story.verify),
        "changes": [_change(described, story) for described in story.quantization],
        "state_limit": STATE_LIMIT,
        "fit_sentences": list(_fit_sentences(fit)),
        "errors": by_rule(fit, "error"),
        "warnings": by_rule(fit, "warning"),
        "not_checked": fit.found("not checked"),
        "columns": {name: column(name) for name in shown_resources(fit)},
        "layers": [_layer(layer, fit) for layer in fit.layers],
        "core_map": core_map(fit.placement, fit.layers, fit.chip_map, story.profile),
        "costs": None if fit.energy is None else costs(fit.energy),
    }


# ---- the sections -----------------------------------------------------------------------------


def _lava_claim(report: VerifyReport) -> str | None:
    """What equality with Lava lets us say: its simulator was run, and no chip."""
    proved = any(c.execution == LAVA and c.exact and not c.not_run for c in report.comparisons)
    return LAVA_CLAIM if proved else None


def _differences(report: VerifyReport) -> list[tuple[str, str]]:
    """The first difference of each execution that has one."""
    return [(c.execution, str(c.first_mismatch)) for c in report.comparisons if c.first_mismatch]


def _drifts(report: VerifyReport) -> list[dict[str, Any]]:
    """Rows of float against integer: the numbers of each population over all steps."""
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


def _change(described: dict[str, Any], story: Story) -> dict[str, Any]:
    """One row of what quantization changed; a readout has no leak and no threshold."""
    name = described["name"]
    limits = {limit: count for limit, count in described["channels_limited_by"].items() if count}
    bound = story.verify.bounds.get(name)
    return {
        "name": name,
        "scales": (described["scale_minimum"], described["scale_maximum"]),
        "limited_by": ", ".join(f"{limit} ({count})" for limit, count in limits.items()),
        "weight_error": described["weight_error_rms"],
        "leak_error": described.get("leak_error"),
        "beyond_reach": described.get("thresholds_beyond_reach"),
        "thresholds": described.get("thresholds"),
        "notes": described.get("notes", []),
        "bound": bound,
        "share": None if bound is None else bound / STATE_LIMIT,
    }


def _fit_sentences(report: FitReport) -> Iterator[str]:
    """How many cores and chips, and what crosses from one to another."""
    if report.cores is None:
        yield "How the cores of this chip are filled is not known, and so neither is how many it takes."
        return
    cores, lower_bound, chip_map = report.cores, report.lower_bound, report.chip_map
    if report.chips is None:
        chips = "how many chips that takes is not known, for the profile does not know the cores of one"
    else:
        chips = plural(report.chips, "chip")
    bound = ""
    if lower_bound and lower_bound < cores:
        bound = f" Fewer than {whole(lower_bound)} cores cannot do, however layers are cut."
    yield f"{plural(cores, 'core')}; {chips}.{bound}"
    if chip_map is not None and chip_map.chips > 1:
        board = "" if chip_map.board is None else f" It takes {chip_map.boards} × {chip_map.board}."  # noqa: RUF001
        spikes = f"{number(chip_map.crossings)} spikes per sample, {percent(chip_map.share)} of all"
        yield f"Between chips go {spikes} (cut by {chip_map.method}).{board}"


def _layer(layer: LayerFit, report: FitReport) -> dict[str, Any]:
    return {
        "name": layer.name,
        "neurons": layer.neurons,
        "cores": UNKNOWN if report.cores is None else whole(layer.cores),
        "tile": NONE if report.cores is None else by(layer.tile),
        "use": layer.use,
    }
