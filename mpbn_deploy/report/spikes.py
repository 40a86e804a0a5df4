"""Spikes: a raster of one sample, and shares of neurons in each time step as cells of a table."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from ..base import Array, record
from ..verify import Drift
from .panels import Panel
from .story import Story
from .svg import element, picture, population_colors, rectangle
from .wording import percent, whole

ROWS = 200  # neurons of one population in the raster
STEPS = 256  # of a sample in the raster
NUMBERED_CELLS = 12  # time steps up to which each cell says its number
LEVELS = 10  # of color, where cells have none
BLUE = (0x2F, 0x86, 0xC8)  # is seen on white and on black


# ---- raster -----------------------------------------------------------------------------------


def raster(story: Story) -> list[Panel]:
    """Every spike of the first sample; of large populations, neurons at equal distances."""
    colors = population_colors([population.name for population in story.network.populations[1:]])
    panels = []
    for population, _ in story.spiking():
        spikes = story.trace.spikes[population.name][0]
        shown = sampled_neurons(spikes.reshape(len(spikes), -1)).T[:, :STEPS]
        some = f"{whole(len(shown))} of " if len(shown) < population.size else ""
        notes = [f"{some}{whole(population.size)} neurons"]
        if len(spikes) > STEPS:
            notes.append(f"the first {STEPS} of {whole(len(spikes))} steps")
        drawn = _raster(shown, f"Spikes of {population.name}")
        color = colors[population.name]
        panels.append(Panel(name=population.name, notes=tuple(notes), picture=drawn, color=color))
    return panels


def sampled_neurons(spikes: Array) -> Array:
    """Spikes [timesteps, neurons] of at most so many neurons, at equal distances."""
    count = spikes.shape[1]
    chosen = np.linspace(0, count - 1, min(count, ROWS)).round().astype(int)
    return spikes[:, chosen]


def _raster(spikes: Array, label: str) -> Markup:
    """Spikes [neurons, timesteps], one pixel each, which the page makes larger; few steps lie apart."""
    steps = spikes.shape[1]
    uri = "data:image/png;base64," + base64.b64encode(bitmap(spikes != 0, BLUE)).decode("ascii")
    img = Markup('<img src="{}" alt="{}">').format(uri, label)
    class_ = "raster apart" if steps <= 4 * NUMBERED_CELLS else "raster"
    axis = Markup("<small><span>1</span><span>{}</span></small>").format(steps)
    return element("div", img, class_=class_, style=f"--steps: {steps}") + axis


def bitmap(pixels: Array, color: tuple[int, int, int]) -> bytes:
    """A PNG of [height, width], one bit for each pixel: the color where it is set, nothing where not."""
    height, width = pixels.shape
    rows = np.packbits(pixels, axis=1)
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 1, 3, 0, 0, 0),
        b"PLTE": bytes((255, 255, 255, *color)),
        b"tRNS": bytes((0, 255)),
        b"IDAT": zlib.compress(data, 9),
        b"IEND": b"",
    }
    written = (
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


# ---- shares in each time step -----------------------------------------------------------------


@record
class HeatRow:
    """A population; its share in each step as cells with numbers, or as a strip of colors, and its mean."""

    name: str
    color: str
    cells: tuple[tuple[str, str], ...]  # what it says, and how dark it is: a percentage
    strip: Markup | None
    mean: str


@record
class HeatMap:
    """Shares of neurons, [populations, timesteps]; `top` is what the darkest cell stands for."""

    rows: tuple[HeatRow, ...]
    steps: tuple[str, ...]
    top: str


def rates(story: Story) -> HeatMap:
    """The share of neurons that fire, over all samples."""
    table = {p.name: _rate_per_step(story.trace.spikes[p.name]) for p, _ in story.spiking()}
    return heat_map(table, _colors(story), digits=1)


def agreement(story: Story, drift: Drift) -> HeatMap:
    """The share of spikes that are not those of the float network."""
    table = {p.name: 1 - p.spike_agreement for p in drift.populations if p.fires}
    return heat_map(table, _colors(story), digits=2)


def heat_map(table: dict[str, Array], colors: dict[str, str], *, digits: int) -> HeatMap:
    """Shares [timesteps] of each population; the scale ends at the largest."""
    top = max((float(values.max()) for values in table.values()), default=0.0)
    steps = max((len(values) for values in table.values()), default=0)
    rows = [
        HeatRow(
            name=name,
            color=colors[name],
            cells=_cells(values, top, digits) if steps <= NUMBERED_CELLS else (),
            strip=None if steps <= NUMBERED_CELLS else _strip(values, top, name),
            mean=percent(float(values.mean()), digits),
        )
        for name, values in table.items()
    ]
    numbered = range(1, steps + 1) if steps <= NUMBERED_CELLS else (1, steps)
    return HeatMap(rows=tuple(rows), steps=tuple(map(str, numbered)), top=percent(top, digits))


def _colors(story: Story) -> dict[str, str]:
    return population_colors([population.name for population in story.network.populations[1:]])


def _rate_per_step(spikes: Array) -> Array:
    """Of spikes [samples, timesteps, *shape]."""
    rate: Array = (spikes != 0).mean(axis=(0, *range(2, spikes.ndim)))
    return rate


def _cells(values: Array, top: float, digits: int) -> tuple[tuple[str, str], ...]:
    shares = values / top if top else values
    return tuple(
        (percent(float(value), digits), f"{100 * share:.0f}%")
        for value, share in zip(values, shares, strict=True)
    )


def _strip(values: Array, top: float, name: str) -> Markup:
    """One cell for each step, in some levels of color: a path for each level."""
    levels = np.rint(LEVELS * values / top).astype(int) if top else np.zeros(len(values), int)
    parts = [
        element("path", d=_cells_at(np.flatnonzero(levels == level)), class_="heat", opacity=level / LEVELS)
        for level in range(1, LEVELS + 1)
        if (levels == level).any()
    ]
    label = f"{name}, step by step"
    return picture(parts, len(values), 1, label, class_="strip", preserveAspectRatio="none")


def _cells_at(steps: Sequence[int] | Array) -> str:
    return "".join(rectangle(float(step), 0, 1, 1) for step in steps)
