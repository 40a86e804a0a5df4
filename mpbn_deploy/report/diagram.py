"""Network diagram: one row per population, in order, and arrows for connections.

A connection to the next row is a straight arrow. Every other connection (a skip, a delayed back edge) runs
through its own lane to the left of the boxes, so any graph can be drawn. Convolutions that each serve a
window of the same target are one arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from markupsafe import Markup
from typing_extensions import assert_never

from ..base import record
from ..ir import (
    NO_BORDER,
    Connection,
    Conv2d,
    Delta,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Neuron,
    Population,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SoftLif,
    Synapse,
    Xylo,
    at_step,
    fires,
    sends,
    varies,
)
from .summary import ReportContent
from .svg import dimensions, element, group, integer, percent, picture, rectangle, short, shortened, text

# All lengths in pixels; the box of row i is centred on y = TOP + i * ROW.
TOP, ROW, BOX, LANE = 52.0, 82.0, 50.0, 34.0
WIDTH, NARROWEST = 1040.0, 760.0  # width of the figure; smallest width of a box
COLUMN, PADDING, STRIP = 112.0, 20.0, 6.0
PORT = 11.0  # distance between the middle of a box and the end of a lane
ARROW = 7.0
LETTERS = 34  # longest name in a box
HEADINGS = ("shape", "neurons", "firing rate", "cores")

AnyBox = Population[Input | Neuron]
Ports = tuple[float, float]  # y coordinates of the two ends of a lane
Lanes = list[tuple[Connection, int]]


def network_diagram(content: ReportContent) -> Markup:
    """Draw boxes with shape, neurons, firing rate and cores, and arrows between them."""
    network = content.network
    straight, lanes = split_connections(network)
    left = LANE * (1 + max((lane for _, lane in lanes), default=-1))
    width = max(WIDTH, left + NARROWEST)
    height = TOP + ROW * len(network.populations) - (ROW - BOX) / 2
    parts = [group(_columns(HEADINGS, 14.0, width), class_="muted")]
    for row, population in enumerate(network.populations):
        parts.append(
            _box(population, row, (left, width), content.colors.get(population.name, "var(--muted)"))
        )
        parts.append(group(_columns(_facts(content, population), _middle(row) + 4, width)))
    rows, bundled = network.order, bundles(network)
    parts += [_straight(bundled[c], rows[c.source], left) for c in straight]
    parts += [_lane(bundled[c], _ports(c, rows), lane, left) for c, lane in lanes]
    label = f"Diagram of populations and connections, from {network.input.name} to {network.output.name}"
    return picture(parts, width, height, label, class_="diagram", style=f"min-width: {short(width * 0.8)}px")


@record
class DiagramRow:
    """A population as text, for screens that are too narrow for the diagram."""

    name: str
    kind: str
    facts: tuple[str, ...]
    connections: tuple[str, ...]  # those that end here


def diagram_rows(content: ReportContent) -> list[DiagramRow]:
    """Return the content of the diagram, one row per population."""
    network = content.network
    bundled = bundles(network)
    return [
        DiagramRow(
            name=population.name,
            kind=_kind(population),
            facts=tuple(
                f"{heading} {fact}"
                for heading, fact in zip(HEADINGS, _facts(content, population), strict=True)
                if fact
            ),
            connections=tuple(
                f"{connection_text(parts)} from {first.source}"
                for first, parts in bundled.items()
                if first.target == population.name
            ),
        )
        for population in network.populations
    ]


def bundles(network: IntNetwork) -> dict[Connection, list[Connection]]:
    """Group the connections that are drawn as one arrow, keyed by the first one."""
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
    """Return the straight connections, at most one per row, and all others with their lanes."""
    rows = network.order
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
    """Assign each span the innermost lane without overlap; short spans choose first."""
    spans = [(min(ends), max(ends)) for ends in ports]
    lanes: dict[int, int] = {}
    for index in sorted(range(len(spans)), key=lambda i: spans[i][1] - spans[i][0]):
        first, last = spans[index]
        taken = {lane for i, lane in lanes.items() if spans[i][0] <= last and first <= spans[i][1]}
        lanes[index] = next(lane for lane in range(len(spans)) if lane not in taken)
    return [lanes[index] for index in range(len(spans))]


def _middle(row: int) -> float:
    return TOP + row * ROW


def _ports(connection: Connection, rows: Mapping[str, int]) -> Ports:
    """Return the ends of a lane: below the middle of its source, above the middle of its target."""
    return _middle(rows[connection.source]) + PORT, _middle(rows[connection.target]) - PORT


# ---- labels -----------------------------------------------------------------------------------


def synapse_text(synapse: Synapse) -> str:
    """Return 'conv 3 × 3, stride 2' or 'dense'."""  # noqa: RUF002
    match synapse:
        case Dense():
            return "dense"
        case Conv2d():
            words = [f"conv {dimensions(synapse.weight.shape[2:])}"]
            if synapse.stride != (1, 1):
                words.append(f"stride {_pair(synapse.stride)}")
            if synapse.dilation != (1, 1):
                words.append(f"dilation {_pair(synapse.dilation)}")
            if synapse.groups != 1:
                words.append(f"{synapse.groups} groups")
            return ", ".join(words)
        case _:
            assert_never(synapse)


def connection_text(parts: Sequence[Connection]) -> str:
    """Return 'conv 7 × 4, 6 windows, delay 1'."""  # noqa: RUF002
    words, delay = synapse_text(parts[0].synapse), parts[0].delay
    words = f"{words}, {len(parts)} windows" if len(parts) > 1 else words
    return f"{words}, delay {delay}" if delay else words


def _pair(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else dimensions(pair)


def _kind(population: AnyBox) -> str:
    if not isinstance(population.neuron, Input) and varies(population.neuron):
        return f"{_kind(population.with_neuron(at_step(population.neuron, 0)))}, numbers per time step"
    match neuron := population.neuron:
        case Input():
            return f"input, {neuron.minimum}..{neuron.maximum}"
        case Lif():
            per = "neuron" if neuron.threshold.shape == population.shape else "channel"
            return f"spiking, one threshold per {per}"
        case SoftLif():
            per = "neuron" if neuron.threshold.shape == population.shape else "channel"
            return f"spiking, one threshold per {per}, soft reset"
        case Readout():
            return f"{'leaky ' if np.any(neuron.decay_voltage) else ''}readout, never fires"
        case Relay():
            return f"relay, graded messages of {neuron.minimum}..{neuron.maximum}"
        case Delta():
            return "delta encoder, graded messages"
        case SigmaDelta():
            return "sigma-delta, graded messages"
        case Sigma():
            return "sigma, sums messages and sends none"
        case Xylo():
            return f"Xylo, one threshold per neuron, up to {neuron.max_spikes} spikes per step"
        case _:
            assert_never(neuron)


def _facts(content: ReportContent, population: AnyBox) -> tuple[str, ...]:
    """Return the texts of the columns; the input has no neurons and takes no core."""
    if population is content.network.input:
        return (dimensions(population.shape), "", "", "")
    rate = (
        percent(float(content.counted.rates(population.name).mean()), 1) if sends(population.neuron) else ""
    )
    layers = content.fit.layers if content.fit.cores is not None else ()
    cores = next((layer.cores for layer in layers if layer.name == population.name), None)
    return (
        dimensions(population.shape),
        integer(population.size),
        rate,
        "" if cores is None else integer(cores),
    )


# ---- shapes -----------------------------------------------------------------------------------


def _columns(words: Sequence[str], height: float, width: float) -> Iterator[Markup]:
    """Draw texts in columns, the last one at the right end of the boxes."""
    for place, word in enumerate(reversed(words)):
        yield text(width - PADDING - place * COLUMN, height, word, anchor="end")


def _box(population: AnyBox, row: int, ends: tuple[float, float], color: str) -> Markup:
    (left, right), top = ends, _middle(row) - BOX / 2
    class_ = "box fires" if fires(population.neuron) else "box"
    return group(
        [
            element("rect", x=left + 1, y=top, width=right - left - 2, height=BOX, rx=7, class_=class_),
            element("path", d=rectangle(left + 1, top + 7, STRIP, BOX - 14), fill=color),
            text(left + PADDING, top + 21, shortened(population.name, LETTERS), "name"),
            text(left + PADDING, top + 39, _kind(population), "muted small"),
        ]
    )


def _straight(parts: Sequence[Connection], row: int, left: float) -> Markup:
    x, top, bottom = left + 2 * PADDING, _middle(row) + BOX / 2, _middle(row + 1) - BOX / 2
    weights = sum(connection.synapse.weight.size for connection in parts)
    words = f"{connection_text(parts)}, {integer(weights)} weights"
    label = text(x + 14, (top + bottom) / 2 + 4, words, "muted small")
    return group([*_arrow([(x, top), (x, bottom)]), label], class_="arrow")


def _lane(parts: Sequence[Connection], ports: Ports, lane: int, left: float) -> Markup:
    x, (start, end) = left - (lane + 0.6) * LANE, ports
    corners = [(left, start), (x, start), (x, end), (left, end)]
    middle = (start + end) / 2
    turn = f"rotate(-90 {short(x - 5)} {short(middle)})"
    label = element(
        "text", connection_text(parts), x=x - 5, y=middle, class_="muted small", text_anchor="middle",
        transform=turn,
    )  # fmt: skip
    return group([*_arrow(corners), label], class_="arrow delayed" if parts[0].delay else "arrow skip")


def _arrow(corners: Sequence[tuple[float, float]]) -> Iterator[Markup]:
    """Draw a line and an arrowhead that points down or to the right."""
    way = "L".join(f"{short(x)} {short(y)}" for x, y in corners)
    yield element("path", d=f"M{way}", class_="way")
    (x, y), (before, _) = corners[-1], corners[-2]
    down = before == x
    spread = f"l{short(-ARROW / 2)} {short(-ARROW)}h{short(ARROW)}z"
    aside = f"l{short(-ARROW)} {short(-ARROW / 2)}v{short(ARROW)}z"
    yield element("path", d=f"M{short(x)} {short(y)}{spread if down else aside}", class_="head")
