"""The picture of a network: one row for each population, in order, and arrows between them.

A connection to the next row is a straight arrow. Every other one (a skip, a delayed loop back)
runs through a lane of its own to the left of the boxes, so any graph can be drawn. Convolutions
that share one target out among them, each for a window of it, are one arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from typing_extensions import assert_never

from ..graph import NO_BORDER, Connection, Conv2d, Dense, Synapse
from ..int_ir import Input, IntNetwork, IntPopulation, Lif, Readout
from .drawing import BLUE, INK, MUTED, ORANGE, PALE, WIDTH, label
from .story import Story

# All lengths in inches; y grows downward, and the box of row i is centred on y = i * ROW.
ROW, BOX_HEIGHT, LANE = 0.92, 0.56, 0.36
HEADINGS = ("shape", "neurons", "firing rate", "cores")
COLUMN, PADDING, MARGIN = 1.3, 0.18, 0.03
NARROWEST = 2.6 + COLUMN * len(HEADINGS)  # a box with a name and all columns
PORT = 0.13  # how far above or below a box's middle a lane meets it

Ports = tuple[float, float]  # the heights at which a lane begins and ends
Lanes = list[tuple[Connection, int]]


def network_diagram(story: Story) -> Figure:
    """Boxes, each with its shape, neurons, firing rate and cores, and arrows between them."""
    network = story.network
    straight, lanes = split_connections(network)
    left = MARGIN + LANE * (1 + max((lane for _, lane in lanes), default=-1))
    width = max(WIDTH, left + NARROWEST)
    height = ROW * len(network.populations) + 0.25
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height - ROW / 2 - 0.25, -ROW / 2 - 0.25))
    axes.axis("off")
    _draw_columns(axes, HEADINGS, -ROW / 2, width, MUTED)
    for row, population in enumerate(network.populations):
        _draw_box(axes, population, row, (left, width - MARGIN))
        _draw_columns(axes, _facts(story, population), row * ROW, width, INK)
    rows = {population.name: row for row, population in enumerate(network.populations)}
    parts = bundles(network)
    for connection in straight:
        _draw_straight(axes, parts[connection], rows[connection.source], left)
    for connection, lane in lanes:
        _draw_lane(axes, parts[connection], _ports(connection, rows), lane, left)
    return figure


def bundles(network: IntNetwork) -> dict[Connection, list[Connection]]:
    """Connections that are drawn as one arrow, under the first of them."""
    first: dict[tuple[str, str, int], Connection] = {}
    found: dict[Connection, list[Connection]] = {}
    for connection in network.connections:
        synapse, key = connection.synapse, (connection.source, connection.target, connection.delay)
        if isinstance(synapse, Conv2d) and synapse.silent != NO_BORDER:
            found.setdefault(first.setdefault(key, connection), []).append(connection)
        else:
            found[connection] = [connection]
    return found


def split_connections(network: IntNetwork) -> tuple[list[Connection], Lanes]:
    """Those that reach the next row at once, one for each row, and all others with their lanes."""
    rows = {population.name: row for row, population in enumerate(network.populations)}
    straight: dict[str, Connection] = {}
    others: list[Connection] = []
    for connection in bundles(network):
        hop = rows[connection.target] - rows[connection.source]
        if hop == 1 and connection.delay == 0 and connection.source not in straight:
            straight[connection.source] = connection
        else:
            others.append(connection)
    lanes = choose_lanes([_ports(connection, rows) for connection in others])
    return list(straight.values()), list(zip(others, lanes, strict=True))


def choose_lanes(ports: Sequence[Ports]) -> list[int]:
    """For each pair of ends the innermost lane in which it meets no other; short ones choose first."""
    spans = [(min(ends), max(ends)) for ends in ports]
    lanes: dict[int, int] = {}
    for index in sorted(range(len(spans)), key=lambda i: spans[i][1] - spans[i][0]):
        first, last = spans[index]
        taken = {lane for i, lane in lanes.items() if spans[i][0] <= last and first <= spans[i][1]}
        lanes[index] = next(lane for lane in range(len(spans)) if lane not in taken)
    return [lanes[index] for index in range(len(spans))]


def _ports(connection: Connection, rows: Mapping[str, int]) -> Ports:
    """Where a lane begins, below the middle of its source, and ends, above that of its target."""
    return rows[connection.source] * ROW + PORT, rows[connection.target] * ROW - PORT


def synapse_text(synapse: Synapse) -> str:
    """'conv 3x3, stride 2' or 'dense'"""
    match synapse:
        case Dense():
            return "dense"
        case Conv2d():
            words = [f"conv {_by(synapse.weight.shape[2:])}"]
            if synapse.stride != (1, 1):
                words.append(f"stride {_pair(synapse.stride)}")
            if synapse.dilation != (1, 1):
                words.append(f"dilation {_pair(synapse.dilation)}")
            if synapse.groups != 1:
                words.append(f"{synapse.groups} groups")
            return ", ".join(words)
        case _:
            assert_never(synapse)


def _connection_text(parts: Sequence[Connection]) -> str:
    text, delay = synapse_text(parts[0].synapse), parts[0].delay
    text = f"{text}, {len(parts)} windows" if len(parts) > 1 else text
    return f"{text}, delay {delay}" if delay else text


def _by(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes))  # noqa: RUF001


def _pair(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else _by(pair)


def _kind(population: IntPopulation) -> str:
    match neuron := population.neuron:
        case Input():
            return f"input, {neuron.minimum}..{neuron.maximum}"
        case Lif():
            per = "neuron" if neuron.threshold.shape == population.shape else "channel"
            return f"fires, a threshold per {per}"
        case Readout():
            return f"integrates{' and leaks' if neuron.decay_voltage else ''}, never fires"
        case _:
            assert_never(neuron)


def _facts(story: Story, population: IntPopulation) -> tuple[str, ...]:
    """What the columns say; the input has no neurons and takes no core."""
    if isinstance(population.neuron, Input):
        return (_by(population.shape), "", "", "")
    spikes = story.trace.spikes[population.name]
    rate = f"{spikes.mean():.1%}".replace("%", " %") if isinstance(population.neuron, Lif) else ""
    cores = next((layer.cores for layer in story.fit.layers if layer.name == population.name), None)
    return (_by(population.shape), f"{population.size:,}", rate, "" if cores is None else f"{cores:,}")


def _draw_columns(axes: Axes, texts: Sequence[str], height: float, width: float, color: str) -> None:
    """Texts one beside the other, the last one at the right end of the boxes."""
    right = width - MARGIN - PADDING
    for place, text in enumerate(reversed(texts)):
        axes.text(right - place * COLUMN, height, text, ha="right", va="center", color=color)


def _draw_box(axes: Axes, population: IntPopulation, row: int, ends: tuple[float, float]) -> None:
    (left, right), middle = ends, row * ROW
    fires = isinstance(population.neuron, Lif)
    box = FancyBboxPatch(
        (left, middle - BOX_HEIGHT / 2),
        right - left,
        BOX_HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.07",
        facecolor=PALE if fires else "white",
        edgecolor=BLUE if fires else MUTED,
        linewidth=1.0,
    )
    axes.add_patch(box)
    axes.text(left + PADDING, middle - 0.1, label(population.name), va="center", size=9.5, weight="bold")
    axes.text(left + PADDING, middle + 0.12, _kind(population), va="center", size=7.5, color=MUTED)


def _draw_straight(axes: Axes, parts: Sequence[Connection], row: int, left: float) -> None:
    x, top = left + 2 * PADDING, row * ROW + BOX_HEIGHT / 2
    bottom = (row + 1) * ROW - BOX_HEIGHT / 2
    _draw_arrow(axes, [(x, top), (x, bottom)], MUTED)
    weights = sum(connection.synapse.weight.size for connection in parts)
    text = f"{_connection_text(parts)}, {weights:,} weights"
    axes.text(x + 0.16, (top + bottom) / 2, text, va="center", size=7.5, color=MUTED)


def _draw_lane(axes: Axes, parts: Sequence[Connection], ports: Ports, lane: int, left: float) -> None:
    x, (start, end), delay = left - (lane + 0.65) * LANE, ports, parts[0].delay
    color = ORANGE if delay else BLUE
    corners = [(left, start), (x, start), (x, end), (left, end)]
    _draw_arrow(axes, corners, color, dashed=delay > 0)
    text = _connection_text(parts)
    axes.text(x - 0.05, (start + end) / 2, text, rotation=90, ha="right", va="center", size=7, color=MUTED)


def _draw_arrow(axes: Axes, corners: list[tuple[float, float]], color: str, *, dashed: bool = False) -> None:
    axes.add_patch(
        FancyArrowPatch(
            path=Path(corners),
            arrowstyle="-|>",
            mutation_scale=8,
            color=color,
            linewidth=1.1,
            linestyle="--" if dashed else "-",
        )
    )
