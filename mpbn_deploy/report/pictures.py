"""The pictures beside the diagram: thresholds, spikes, core use, agreement with the float network.

Each is a function Story -> Figure; `drawing.as_data_uri` makes it part of the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ..fit import LayerFit
from ..fit_text import COLUMNS
from ..graph import per_channel
from ..int_ir import IntNetwork, IntPopulation, Lif
from ..records import Array
from .drawing import BLUE, INK, MUTED, VERMILION, WIDTH, label
from .story import Story

PANELS = 4  # side by side
RASTER_ROWS = 200  # neurons of one population in the raster
NUMBERED_CELLS = 12  # time steps up to which each cell of the rates says its number
FULL = 100  # percent
FAR = 4.0  # interquartile ranges; what lies farther away would squeeze the rest of a histogram
NARROWEST_RANGE = 0.1  # of the median


# ---- thresholds -------------------------------------------------------------------------------


def thresholds(story: Story) -> Figure:
    """For each population that fires, how its thresholds spread."""
    populations = story.spiking()
    figure = Figure(figsize=(WIDTH, 2.1 * _rows(len(populations)) + 0.2), layout="constrained")
    for axes, (population, neuron) in zip(_grid(figure, len(populations)), populations, strict=True):
        values = real_thresholds(story.network, population, neuron).ravel()
        per = "neurons" if values.size == population.size else "channels"
        note = f"{values.size:,} {per}, {len(np.unique(neuron.threshold)):,} distinct integers"
        low, high = histogram_range(values)
        if beyond := int(((values < low) | (values > high)).sum()):
            note += f"\n{beyond:,} beyond, in the bars at the edge"
        _draw_histogram(axes, np.clip(values, low, high), (low, high))
        _entitle(axes, population.name, note)
        axes.set_ylabel(per)
    figure.supxlabel("threshold, in the unit of the trained membrane", size=8.5, color=MUTED)
    return figure


def real_thresholds(network: IntNetwork, population: IntPopulation, neuron: Lif) -> Array:
    """The integer thresholds, in the unit of the float network: threshold / scale."""
    thresholds = neuron.threshold.astype(np.float64)
    scales = network.scales.get(population.name)
    return thresholds if scales is None else thresholds / per_channel(scales, thresholds.shape)


def histogram_range(values: Array) -> tuple[float, float]:
    """All values, unless some lie far from the others; and never so narrow that rounding looks wide."""
    first, median, third = np.percentile(values, [25, 50, 75])
    narrow = max(NARROWEST_RANGE * abs(median), np.finfo(np.float32).tiny)
    far = max(FAR * (third - first), narrow)
    low, high = max(values.min(), first - far), min(values.max(), third + far)
    return float(min(low, median - narrow)), float(max(high, median + narrow))


def _draw_histogram(axes: Axes, values: Array, ends: tuple[float, float]) -> None:
    counts, edges = np.histogram(values, bins=min(24, max(8, values.size // 3)), range=ends)
    axes.bar(edges[:-1], counts, width=np.diff(edges) * 0.92, align="edge", color=BLUE)
    if edges[0] < 0 < edges[-1]:
        axes.axvline(0, color=MUTED, linewidth=0.8)
    axes.locator_params(axis="x", nbins=5)
    axes.locator_params(axis="y", nbins=4, integer=True)
    axes.grid(axis="y")
    axes.tick_params(length=0)


# ---- spikes -----------------------------------------------------------------------------------


def raster(story: Story) -> Figure:
    """Every spike of the first sample; of large populations, neurons at equal distances."""
    populations = story.spiking()
    figure = Figure(figsize=(WIDTH, 2.6 * _rows(len(populations)) + 0.2), layout="constrained")
    for axes, (population, _) in zip(_grid(figure, len(populations)), populations, strict=True):
        spikes = story.trace.spikes[population.name][0]
        shown = sampled_neurons(spikes.reshape(len(spikes), -1)).T
        _draw_raster(axes, shown)
        some = f"{len(shown):,} of " if len(shown) < population.size else ""
        _entitle(axes, population.name, f"{some}{population.size:,} neurons")
    figure.supxlabel("time step", size=8.5, color=MUTED)
    return figure


def sampled_neurons(spikes: Array) -> Array:
    """Spikes [timesteps, neurons] of at most so many neurons, at equal distances."""
    count = spikes.shape[1]
    chosen = np.linspace(0, count - 1, min(count, RASTER_ROWS)).round().astype(int)
    return spikes[:, chosen]


def _draw_raster(axes: Axes, spikes: Array) -> None:
    """Spikes [neurons, timesteps] as cells, the steps apart from each other."""
    colors = ListedColormap(["#f4f6f8", BLUE])
    axes.imshow(spikes != 0, cmap=colors, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    steps = spikes.shape[1]
    for border in range(1, steps):
        axes.axvline(border - 0.5, color="white", linewidth=2.0 if steps <= NUMBERED_CELLS else 0.5)
    axes.set_xticks(_step_ticks(steps), [str(step + 1) for step in _step_ticks(steps)])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def rates(story: Story) -> Figure:
    """The share of neurons that fire in each time step, over all samples."""
    populations = [population for population, _ in story.spiking()]
    table = np.array([FULL * _rate_per_step(story.trace.spikes[p.name]) for p in populations])
    return _heat_map(table, [population.name for population in populations], least=1.0, digits=1)


def _rate_per_step(spikes: Array) -> Array:
    """Of spikes [samples, timesteps, *shape]."""
    rate: Array = (spikes != 0).mean(axis=(0, *range(2, spikes.ndim)))
    return rate


def _heat_map(percents: Array, names: list[str], *, least: float, digits: int) -> Figure:
    """Percents [populations, timesteps] as cells; the scale reaches up to `least` at least."""
    figure = Figure(figsize=(WIDTH, 0.34 * len(percents) + 0.75), layout="constrained")
    axes = figure.add_subplot()
    # Twice the highest number, so that dark ones can be read on every cell.
    top = 2 * max(float(percents.max()), least)
    cells = axes.imshow(percents, cmap="Blues", vmin=0, vmax=top, aspect="auto", interpolation="nearest")
    if percents.shape[1] <= NUMBERED_CELLS:
        _draw_numbers(axes, percents, digits)
    else:
        figure.colorbar(cells, ax=axes, label="percent", aspect=30, pad=0.01).outline.set_visible(False)
    ticks = _step_ticks(percents.shape[1])
    axes.set_xticks(ticks, [str(step + 1) for step in ticks])
    axes.set_yticks(range(len(percents)), list(map(label, names)))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("time step")
    return figure


def _draw_numbers(axes: Axes, table: Array, digits: int) -> None:
    """The number in each cell, and white gaps between cells."""
    rows, columns = table.shape
    for (row, column), value in np.ndenumerate(table):
        axes.text(column, row, f"{value:.{digits}f} %", ha="center", va="center")
    for border in range(1, columns):
        axes.axvline(border - 0.5, color="white", linewidth=2.0)
    for border in range(1, rows):
        axes.axhline(border - 0.5, color="white", linewidth=2.0)


def _step_ticks(steps: int) -> range:
    return range(0, steps, max(1, -(-steps // NUMBERED_CELLS)))


# ---- cores ------------------------------------------------------------------------------------


def known_resources(story: Story) -> list[str]:
    """The resources of a core whose limit the profile knows."""
    return [name for name in COLUMNS if any(_percent(layer, name) is not None for layer in story.fit.layers)]


def core_use(story: Story) -> Figure:
    """For each resource, how full the fullest core of each layer is."""
    resources, layers = known_resources(story), story.fit.layers
    figure = Figure(figsize=(WIDTH, 0.3 * len(layers) + 0.75), layout="constrained")
    panels: Any = figure.subplots(1, len(resources), sharey=True, squeeze=False)[0]
    for axes, resource in zip(panels, resources, strict=True):
        _draw_bars(axes, [_percent(layer, resource) for layer in layers])
        axes.set_title(COLUMNS[resource])
        axes.set_yticks(range(len(layers)), [label(layer.name) for layer in layers])
    panels[0].invert_yaxis()
    return figure


def _percent(layer: LayerFit, resource: str) -> float | None:
    use = layer.use.get(resource)
    return use.percent if use else None


def _draw_bars(axes: Axes, percents: list[float | None]) -> None:
    """Bars on a track from 0 to 100 %; what does not fit fills its track in another colour."""
    for row, percent in enumerate(percents):
        axes.barh(row, FULL, height=0.5, color="#eef1f4")
        if percent is None:
            continue
        axes.barh(row, min(percent, FULL), height=0.5, color=VERMILION if percent > FULL else BLUE)
        axes.text(FULL + 4, row, _short_percent(percent), va="center", color=INK, size=8)
    axes.set_xlim(0, FULL + 52)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _short_percent(percent: float) -> str:
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:,.0f} %" if percent >= FULL else f"{percent:.1f} %"


# ---- agreement --------------------------------------------------------------------------------


def agreement(story: Story) -> Figure:
    """The share of spikes that are not those of the float network, in each time step."""
    assert story.verify.drift is not None
    populations = [population for population in story.verify.drift.populations if population.fires]
    flips = np.array([FULL * (1 - population.spike_agreement) for population in populations])
    return _heat_map(flips, [population.name for population in populations], least=0.1, digits=2)


# ---- panels -----------------------------------------------------------------------------------


def _rows(panels: int) -> int:
    return max(1, -(-panels // PANELS))


def _grid(figure: Figure, panels: int) -> Iterator[Axes]:
    """So many panels, from left to right and downward."""
    columns = min(panels, PANELS)
    for index in range(panels):
        yield figure.add_subplot(_rows(panels), columns, index + 1)


def _entitle(axes: Axes, name: str, note: str) -> None:
    """The name of a population above a panel, and below it what the panel holds of it."""
    axes.set_title(label(name), weight="bold", pad=19 + 13 * note.count("\n"))
    axes.annotate(note, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", color=MUTED)
