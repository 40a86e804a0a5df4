"""Story -> one HTML file that needs nothing but itself: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from ..files import write_atomically
from ..fit import LayerFit
from ..fit_text import COLUMNS
from ..int_ir import STATE_LIMIT
from ..records import record
from ..rules import Finding
from ..verify import LAVA_CLAIM, Mismatch, VerifyReport
from .diagram import network_diagram
from .drawing import as_data_uri
from .pictures import agreement, core_use, known_resources, raster, rates, thresholds
from .story import Story

TEMPLATE = "page.html.j2"
LAVA = "Lava"  # the execution that the claim is about
NONE = "–"  # noqa: RUF001  (what a table shows where there is nothing to show)

Tone = Literal["good", "bad", "unknown"]


@record
class Verdict:
    """One part of the line at the top."""

    text: str
    tone: Tone


@record
class Card:
    """One number of the summary, and what it is about."""

    label: str
    value: str
    note: str = ""


def write_html(path: Path, story: Story) -> None:
    """Write the page; the same story gives the same bytes."""
    write_atomically(path, render(story).encode("utf-8"))


def render(story: Story) -> str:
    """The page as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(whole=_whole, percent=_percent, number=_number, hundredths=_hundredths)
    source = files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(source).render(_content(story)) + "\n"


def _content(story: Story) -> dict[str, Any]:
    """What the template shows, section by section."""
    return {
        "story": story,
        "verify": story.verify,
        "fit": story.fit,
        "verdicts": [_exactness(story.verify), _fitting(story), *_accuracy(story.verify)],
        "cards": _cards(story),
        "pictures": _pictures(story),
        "lava_claim": _lava_claim(story.verify),
        "differences": _differences(story.verify),
        "drifts": _drifts(story.verify),
        "changes": [_change(described, story) for described in story.quantization],
        "state_limit": STATE_LIMIT,
        "columns": {name: COLUMNS[name] for name in known_resources(story)},
        "layers": [_layer(layer) for layer in story.fit.layers],
        "errors": _findings(story, "error"),
        "not_checked": _findings(story, "not checked"),
    }


# ---- the verdict ------------------------------------------------------------------------------


def _exactness(report: VerifyReport) -> Verdict:
    if not report.bit_exact:
        return Verdict(text=report.verdict, tone="bad")
    return Verdict(
        text=report.verdict, tone="good" if report.executed == len(report.comparisons) else "unknown"
    )


def _fitting(story: Story) -> Verdict:
    cores = _plural(story.fit.cores or 0, "core")
    if story.fit.fits:
        return Verdict(text=f"fits {story.profile.title} on {cores}", tone="good")
    errors = _plural(len(_findings(story, "error")), "reason")
    return Verdict(text=f"does not fit {story.profile.title} ({errors})", tone="bad")


def _accuracy(report: VerifyReport) -> list[Verdict]:
    if report.accuracy is None:
        return []
    before, after = report.accuracy.float_network, report.accuracy.integer_network
    return [Verdict(text=f"accuracy {_percent(before)} float → {_percent(after)} integer", tone="unknown")]


# ---- the summary ------------------------------------------------------------------------------


def _cards(story: Story) -> list[Card]:
    network = story.network
    neurons = sum(population.size for population in network.populations[1:])
    weights = sum(connection.synapse.weight.size for connection in network.connections)
    return [
        _differences_card(story.verify),
        *_accuracy_cards(story.verify),
        _cores_card(story),
        Card(label="neurons", value=_whole(neurons), note=f"in {len(network.populations) - 1} populations"),
        Card(label="weights", value=_whole(weights), note=_plural(len(network.connections), "connection")),
        Card(label="time steps", value=_whole(network.timesteps), note="for each sample"),
        *_activity_cards(story),
        _overflow_card(story.verify),
    ]


def _differences_card(report: VerifyReport) -> Card:
    kinds = ("spikes", "voltages", "outputs")
    different = sum(report.total(f"{kind}_mismatched") for kind in kinds)
    compared = sum(report.total(f"{kind}_compared") for kind in kinds)
    return Card(label="values that differ", value=_whole(different), note=f"of {_whole(compared)} compared")


def _accuracy_cards(report: VerifyReport) -> list[Card]:
    found = report.accuracy
    if found is None:
        return []
    note = f"float {_percent(found.float_network)}, {_whole(found.samples)} samples"
    return [Card(label="integer accuracy", value=_percent(found.integer_network), note=note)]


def _cores_card(story: Story) -> Card:
    per_chip = story.profile.limit("chip.cores")
    note = "the cores of a chip are not known"
    if story.fit.chips is not None and per_chip is not None:
        note = f"{_plural(story.fit.chips, 'chip')} of {_whole(per_chip.value)} cores"
    return Card(label="cores", value=_whole(story.fit.cores), note=note)


def _activity_cards(story: Story) -> list[Card]:
    rate = story.firing_rate()
    return (
        [] if rate is None else [Card(label="firing rate", value=_percent(rate), note="mean per time step")]
    )


def _overflow_card(report: VerifyReport) -> Card:
    largest = max(report.bounds.values(), default=0)
    value = "impossible" if largest <= STATE_LIMIT else "possible"
    note = f"at most {_percent(largest / STATE_LIMIT)} of the range"
    return Card(label="overflow of 24-bit states", value=value, note=note)


# ---- the sections -----------------------------------------------------------------------------


def _pictures(story: Story) -> dict[str, str | None]:
    """Each picture as a data URI; None where there is nothing to draw."""
    fires, drift = bool(story.spiking()), story.verify.drift
    wanted: dict[str, tuple[Callable[[Story], Figure], bool]] = {
        "network": (network_diagram, True),
        "thresholds": (thresholds, fires),
        "raster": (raster, fires),
        "rates": (rates, fires),
        "agreement": (agreement, drift is not None and bool(drift.spike_agreement)),
        "core_use": (core_use, bool(known_resources(story))),
    }
    return {name: as_data_uri(draw, story) if there else None for name, (draw, there) in wanted.items()}


def _lava_claim(report: VerifyReport) -> str | None:
    """What equality with Lava lets us say: its simulator was run, and no chip."""
    proved = any(c.execution == LAVA and c.exact and not c.not_run for c in report.comparisons)
    return LAVA_CLAIM if proved else None


def _differences(report: VerifyReport) -> list[tuple[str, str]]:
    """The first difference of each execution that has one."""
    found = [(c.execution, c.first_mismatch) for c in report.comparisons]
    return [(execution, _place(mismatch)) for execution, mismatch in found if mismatch is not None]


def _place(mismatch: Mismatch) -> str:
    step = "" if mismatch.time_step is None else f", time step {mismatch.time_step}"
    return (
        f"{mismatch.quantity} of {mismatch.population}, sample {mismatch.sample}{step}, "
        f"neuron {list(mismatch.index)}: expected {mismatch.expected}, got {mismatch.got}"
    )


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


def _layer(layer: LayerFit) -> dict[str, Any]:
    return {
        "name": layer.name,
        "neurons": layer.neurons,
        "cores": layer.cores,
        "tile": " × ".join(map(str, layer.tile)),  # noqa: RUF001
        "percents": {name: use.percent for name, use in layer.use.items()},
    }


def _findings(story: Story, severity: str) -> list[Finding]:
    return [finding for finding in story.fit.findings if finding.severity == severity]


# ---- words and numbers ------------------------------------------------------------------------


def _plural(count: int, noun: str) -> str:
    return f"{_whole(count)} {noun}" if count == 1 else f"{_whole(count)} {noun}s"


def _whole(number: int | None) -> str:
    return NONE if number is None else f"{number:,}"


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.2%}".replace("%", " %")


def _number(value: float | None) -> str:
    """Four digits that count, or all before the point."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _hundredths(percent: float | None) -> str:
    return NONE if percent is None else f"{percent:,.2f} %"
