"""Spike raster of one sample, and heat maps of shares of neurons per time step."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from markupsafe import Markup

from ..base import Array, record
from ..verify import Drift
from .content import ReportContent
from .formatting import integer, percent
from .panels import Panel
from .svg import element, picture, rectangle

ROWS = 200  # most neurons of one population in the raster
STEPS = 256  # most time steps in the raster
NUMBERED_CELLS = 12  # most time steps for which each cell shows its number
LEVELS = 10  # of color, in cells without numbers
BLUE = (0x2F, 0x86, 0xC8)  # visible on white and on black


# ---- raster -----------------------------------------------------------------------------------


def raster(content: ReportContent) -> list[Panel]:
    """Draw the spikes of the first sample; large populations show equidistant neurons."""
    panels = []
    for population in content.spiking():
        spikes = content.trace.spikes[population.name][0]
        shown = sampled_neurons(spikes.reshape(len(spikes), -1)).T[:, :STEPS]
        some = f"{integer(len(shown))} of " if len(shown) < population.size else ""
        notes = [f"{some}{integer(population.size)} neurons"]
        if len(spikes) > STEPS:
            notes.append(f"the first {STEPS} of {integer(len(spikes))} steps")
        drawn = _raster(shown, f"Spikes of {population.name}")
        color = content.colors[population.name]
        panels.append(Panel(name=population.name, notes=tuple(notes), picture=drawn, color=color))
    return panels


def sampled_neurons(spikes: Array) -> Array:
    """Select at most ROWS equidistant neurons of spikes [timesteps, neurons]."""
    count = spikes.shape[1]
    chosen = np.linspace(0, count - 1, min(count, ROWS)).round().astype(int)
    return spikes[:, chosen]


def _raster(spikes: Array, label: str) -> Markup:
    """Draw spikes [neurons, timesteps], one pixel each, scaled by the page; few steps get gaps."""
    steps = spikes.shape[1]
    uri = "data:image/png;base64," + base64.b64encode(bitmap(spikes != 0, BLUE)).decode("ascii")
    img = Markup('<img src="{}" alt="{}">').format(uri, label)
    class_ = "raster apart" if steps <= 4 * NUMBERED_CELLS else "raster"
    axis = Markup("<small><span>1</span><span>{}</span></small>").format(steps)
    return element("div", img, class_=class_, style=f"--steps: {steps}") + axis


def bitmap(pixels: Array, color: tuple[int, int, int]) -> bytes:
    """Encode pixels [height, width] as a one-bit PNG: `color` where set, transparent elsewhere."""
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


# ---- shares per time step ---------------------------------------------------------------------


@record
class HeatRow:
    """One population: shares per step as numbered cells or as a color strip, and their mean."""

    name: str
    color: str
    cells: tuple[tuple[str, str], ...]  # text, and darkness in percent
    strip: Markup | None
    mean: str


@record
class HeatMap:
    """Shares of neurons, [populations, timesteps]; `top` is the value of the darkest cell."""

    rows: tuple[HeatRow, ...]
    steps: tuple[str, ...]
    top: str


def rates(content: ReportContent) -> HeatMap:
    """Return the share of neurons that fire, over all samples."""
    table = {p.name: content.counted.rates(p.name) for p in content.spiking()}
    return heat_map(table, content.colors, digits=1)


def agreement(content: ReportContent, drift: Drift) -> HeatMap:
    """Return the share of neurons whose decision differs from the float network's."""
    table = {p.name: 1 - p.spike_agreement for p in drift.populations if p.fires}
    return heat_map(table, content.colors, digits=2)


def heat_map(table: dict[str, Array], colors: dict[str, str], *, digits: int) -> HeatMap:
    """Build a heat map from shares [timesteps] per population; the scale ends at the largest share."""
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


def _cells(values: Array, top: float, digits: int) -> tuple[tuple[str, str], ...]:
    shares = values / top if top else values
    return tuple(
        (percent(float(value), digits), f"{100 * share:.0f}%")
        for value, share in zip(values, shares, strict=True)
    )


def _strip(values: Array, top: float, name: str) -> Markup:
    """Draw one cell per step, with one path for each level of color."""
    levels = np.rint(LEVELS * values / top).astype(int) if top else np.zeros(len(values), int)
    parts = []
    for level in range(1, LEVELS + 1):
        if cells := "".join(rectangle(float(step), 0, 1, 1) for step in np.flatnonzero(levels == level)):
            parts.append(element("path", d=cells, class_="heat", opacity=level / LEVELS))
    label = f"{name}, step by step"
    return picture(parts, len(values), 1, label, class_="strip", preserveAspectRatio="none")
