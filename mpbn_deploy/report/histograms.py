"""Histograms: thresholds of each spiking population, and weights of each connection."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from markupsafe import Markup

from ..base import Array, record
from ..ir import (
    Connection,
    FiringNeuron,
    FoldedNetwork,
    IntNetwork,
    Population,
    Shape,
    firing,
    per_channel,
    varies,
)
from ..quantize import constant_channels, constant_neurons
from ..verify import Drift
from .diagram import bundles, connection_text
from .summary import ReportContent
from .svg import (
    Panel,
    element,
    integer,
    line,
    number,
    percent,
    picture,
    plural,
    population_colors,
    rectangle,
    short,
    text,
    ticks,
)

# Pixels: the figure, and the space below the bars for the axis and above them for the largest count.
WIDTH, HEIGHT, BELOW, ABOVE = 240.0, 132.0, 20.0, 14.0
FEWEST_BINS, MAX_BINS, VALUES_PER_BIN = 8, 24, 3
MAX_INTEGERS = 64  # with one bar each; beyond, several integers share a bar
FAR = 4.0  # interquartile ranges; outliers beyond this would squeeze the rest of a histogram
NARROWEST_RANGE = 0.1  # relative to the median
X_TICKS = 7

Ends = tuple[float, float]


# ---- thresholds -------------------------------------------------------------------------------


def thresholds(content: ReportContent) -> list[Panel]:
    """Draw the thresholds of each spiking population: an outline before quantization, bars after."""
    return [_threshold_panel(content, population) for population in content.spiking()]


def threshold_lead(content: ReportContent) -> str:
    """Say what folding did to thresholds, if this network has such a norm, and what negative ones mean."""
    spiking, sentences = content.spiking(), []
    if count := sum(population.name.removesuffix("@2") in content.normalized for population in spiking):
        where = "" if count == len(spiking) else f" of {count} of {len(spiking)} populations"
        sentences.append(
            f"The membrane-potential batch norm (MPBN){where} costs nothing on the chip: it is folded into "
            "the thresholds. The single threshold of a layer, which applied to the normalized membrane "
            "potential, becomes one threshold per channel or neuron for the potential itself."
        )
    if any((population.neuron.threshold < 0).any() for population in spiking):
        sentences.append("A neuron with a negative threshold fires unless it is inhibited.")
    return " ".join(sentences)


def _threshold_panel(content: ReportContent, population: Population[FiringNeuron]) -> Panel:
    after = real_thresholds(content.network, population)
    if varies(population.neuron):
        return _step_panel(content, population, after)
    before = None if content.folded is None else folded_thresholds(content.folded, population.name)
    constant: tuple[str, ...] = ()
    if before is not None:
        # Thresholds per channel may have been one per neuron before quantization.
        before, after = np.broadcast_arrays(before, after)
        never, always = _constant(content, population.name, after.shape)
        constant = tuple(_constant_notes(population, never, always))
        # Any threshold beyond reach is as good as any other, so its distance from the folded one is no error.
        before, after = (values[~(never | always)] for values in (before, after))
    known = after if before is None else np.stack([before, after])
    ends = histogram_range(known[np.isfinite(known)])
    beyond = int(((after < ends[0]) | (after > ends[1])).sum())
    aside = [f"{integer(beyond)} outside the range, in the edge bars"] if beyond else []
    return Panel(
        name=population.name,
        notes=(*_threshold_notes(content, population, before, after), *constant, *aside),
        picture=histogram(
            after.ravel(),
            ends,
            outline=None if before is None else before.ravel(),
            mark=content.trained_thresholds.get(population.name),
            label=f"Thresholds of {population.name}",
        ),
        color=content.colors[population.name],
    )


def _step_panel(content: ReportContent, population: Population[FiringNeuron], thresholds: Array) -> Panel:
    """Draw thresholds over time steps: their median over channels or neurons, and the middle half of them."""
    by_step = thresholds.reshape(len(thresholds), -1)
    low, median, high = np.percentile(by_step, (25, 50, 75), axis=1)
    unit = _unit(population, by_step.shape[1])
    return Panel(
        name=population.name,
        notes=(
            f"{plural(by_step.shape[1], unit)}, each with a threshold for each of {len(by_step)} time steps",
            f"the line is the median of the {unit}s, the band their middle half",
        ),
        picture=_over_steps(low, median, high, f"Thresholds of {population.name} over time steps"),
        color=content.colors[population.name],
    )


def _over_steps(low: Array, median: Array, high: Array, label: str) -> Markup:
    """Draw a line in a band, with a point for each time step."""
    least, most = min(0.0, float(low.min())), max(0.0, float(high.max()))
    most = most if most > least else least + 1.0
    across = np.linspace(0, WIDTH, len(median) + 2)[1:-1]
    ends = HEIGHT - BELOW, HEIGHT - BELOW - ABOVE

    def path(values: Array) -> list[str]:
        down = ends[0] - ends[1] * (values - least) / (most - least)
        return [f"{short(float(x))} {short(float(y))}" for x, y in zip(across, down, strict=True)]

    zero = ends[0] + ends[1] * least / (most - least)
    band = "M" + "L".join([*path(high), *reversed(path(low))]) + "z"
    parts = [
        element("path", d=band, class_="bars", opacity=0.35),
        element("path", d="M" + "L".join(path(median)), class_="outline"),
        line((0, zero), (WIDTH, zero), "axis"),
        text(0, 10, f"up to {float(high.max()):.3g}", "muted small"),
        *(text(float(x), HEIGHT - 5, str(step), "muted small", "middle") for step, x in enumerate(across, 1)),
    ]
    return picture(parts, WIDTH, HEIGHT, label, class_="histogram")


def _threshold_notes(
    content: ReportContent, population: Population[FiringNeuron], before: Array | None, after: Array
) -> Iterator[str]:
    integers = population.neuron.threshold
    distinct = plural(len(np.unique(integers)), "distinct integer")
    yield f"{plural(integers.size, _unit(population, integers.size))}, {distinct}"
    if (trained := content.trained_thresholds.get(population.name)) is not None:
        yield f"{number(trained)} for all before folding"
    if before is not None and before.size:
        distance = np.abs(after - before)
        farthest = distance[np.isfinite(distance)].max(initial=0.0)
        yield f"rounding error at most {farthest:.2g}"


def _unit(population: Population[FiringNeuron], count: int) -> str:
    return "neuron" if count == population.size else "channel"


def _constant(content: ReportContent, name: str, shape: Shape) -> tuple[Array, Array]:
    """Return masks of the thresholds that are never reached, and of those that are always exceeded."""
    assert content.folded is not None, "thresholds before quantization are known"
    population = next(p for p in firing(content.folded) if p.name == name)
    if prod(shape) == population.size:
        never, always = constant_neurons(content.folded, population)
    else:
        never, always = constant_channels(content.folded, population)
    return never.reshape(shape), always.reshape(shape)


def _constant_notes(population: Population[FiringNeuron], never: Array, always: Array) -> Iterator[str]:
    for verb, mask in (("never fire", never), ("always fire", always)):
        if count := int(mask.sum()):
            unit = _unit(population, mask.size)
            yield f"{integer(count)} of {plural(mask.size, unit)} {verb}, for any input: left out here"


def real_thresholds(network: IntNetwork, population: Population[FiringNeuron]) -> Array:
    """Return the integer thresholds in the unit of the float network: threshold / scale."""
    values = population.neuron.threshold.astype(np.float64)
    scales = network.scales.get(population.name)
    if scales is None:
        return values
    return values / per_channel(scales, values.shape[varies(population.neuron) :])


def folded_thresholds(folded: FoldedNetwork, name: str) -> Array | None:
    """Return the thresholds of one population before rounding."""
    return next((p.neuron.threshold for p in firing(folded) if p.name == name), None)


def histogram_range(values: Array) -> Ends:
    """Return the range of values without outliers, and not so narrow that rounding errors look large."""
    if not values.size:
        return 0.0, 1.0
    first, median, third = np.percentile(values, [25, 50, 75])
    narrow = max(NARROWEST_RANGE * abs(median), np.finfo(np.float32).tiny)
    far = max(FAR * (third - first), narrow)
    low, high = max(values.min(), first - far), min(values.max(), third + far)
    return float(min(low, median - narrow)), float(max(high, median + narrow))


# ---- weights ----------------------------------------------------------------------------------


def weights(network: IntNetwork) -> list[Panel]:
    """Draw the integer weights of each connection."""
    colors = population_colors([population.name for population in network.layers])
    return [_weight_panel(parts, colors[parts[0].target]) for parts in bundles(network).values()]


def _weight_panel(parts: Sequence[Connection], color: str) -> Panel:
    name = f"{parts[0].source} → {parts[0].target}"
    values = np.concatenate([connection.synapse.weight.ravel() for connection in parts])
    zeros = np.count_nonzero(values == 0) / values.size
    notes = (
        connection_text(parts),
        f"{plural(values.size, 'weight')}, {values.min()} to {values.max()}",
        f"{percent(float(zeros), 1)} are zero",
    )
    edges = integer_edges(int(values.min()), int(values.max()))
    counts = np.histogram(values, bins=edges)[0]
    drawn = _drawn(counts, edges.astype(np.float64), label=f"Weights of {name}")
    return Panel(name=name, notes=notes, picture=drawn, color=color)


def integer_edges(low: int, high: int) -> Array:
    """Return bin edges between integers, at most MAX_INTEGERS + 1 bins; zero lies inside a bin."""
    step = -(-(high - low + 1) // MAX_INTEGERS)
    first, last = low // step, high // step
    return np.arange(first, last + 2) * step - 0.5


# ---- bars -------------------------------------------------------------------------------------


def histogram(
    values: Array, ends: Ends, *, label: str, outline: Array | None = None, mark: float | None = None
) -> Markup:
    """Draw values as bars, outliers in the edge bars, and `outline` values in the same bins."""
    bins = min(MAX_BINS, max(FEWEST_BINS, values.size // VALUES_PER_BIN))
    counts, edges = np.histogram(np.clip(values, *ends), bins=bins, range=ends)
    around = None if outline is None else np.histogram(np.clip(outline, *ends), bins=bins, range=ends)[0]
    return _drawn(counts, edges, label=label, outline=around, mark=mark)


def _drawn(
    counts: Array, edges: Array, *, label: str, outline: Array | None = None, mark: float | None = None
) -> Markup:
    low, high = float(edges[0]), float(edges[-1])
    top = max(float(counts.max()), 0.0 if outline is None else float(outline.max()), 1.0)

    def across(value: float) -> float:
        return WIDTH * (value - low) / (high - low)

    def down(count: float) -> float:
        return HEIGHT - BELOW - (HEIGHT - BELOW - ABOVE) * count / top

    gap = 1.0 if len(counts) <= MAX_BINS + 1 else 0.0
    bars = "".join(
        rectangle(across(a) + gap / 2, down(n), across(b) - across(a) - gap, down(0) - down(n))
        for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
        if n
    )
    parts = [element("path", d=bars, class_="bars"), line((0, down(0)), (WIDTH, down(0)), "axis")]
    if outline is not None:
        parts.append(
            element("path", d=_steps(list(map(across, edges)), list(map(down, outline))), class_="outline")
        )
    for value, class_ in ((0.0, "zero"), (mark, "mark")):
        if value is not None and low < value < high:
            parts.append(line((across(value), ABOVE), (across(value), down(0)), class_))
    parts.append(text(0, 10, f"highest bar: {integer(int(counts.max()))}", "muted small"))
    parts += [_tick(across(value), value) for value in ticks(low, high, X_TICKS)]
    return picture(parts, WIDTH, HEIGHT, label, class_="histogram")


def _steps(across: Sequence[float], down: Sequence[float]) -> str:
    """Return path data along the tops of bars."""
    way = [f"M{short(across[0])} {short(down[0])}"]
    for right, height in zip(across[1:], down, strict=True):
        way.append(f"V{short(height)}H{short(right)}")
    return "".join(way)


def _tick(x: float, value: float) -> Markup:
    """Draw a number under the axis, inside the figure."""
    anchor = "start" if x < 12 else "end" if x > WIDTH - 12 else "middle"
    return text(x, HEIGHT - 5, f"{value:g}", "muted small", anchor)


# Spike raster of one sample, and heat maps of shares of neurons per time step.


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
