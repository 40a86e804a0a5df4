"""Decide how a network is computed in C, before any text is written: types, tables, order, memory.

Neurons are stored pixel by pixel, the channels of a pixel next to each other. Populations run one after the
other, each over all time steps; those of a loop run together, step by step. `Style` says what the program is
for: `SMALL` for a microcontroller (one bit per spike, no voltage stored beyond a pixel), `FAST` for this
machine (lists of the neurons that fired, tiles of pixels whose sums and weights stay in the cache).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ...base import Array, FormatError, array_record, layer_name, record
from ...ir import (
    DECAY_ONE,
    LARGEST_GROWTH,
    STATE_LIMIT,
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    IntPopulation,
    Membrane,
    Modulator,
    Population,
    Rule,
    Truncation,
    bounds,
    counting,
    fires,
    has_current,
    is_graded,
    update_rule,
    value_range,
    varies,
    wide_sums,
)

INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64)  # narrow ones first
PACKED_BITS = 4  # weights of up to so many bits share a byte
CACHED = 2**14  # bytes of weights that stay in the first cache beside sums
TILE_SUMS = 32  # pixels * time steps whose sums a fast program computes together: they reuse rows of weights
MOST_PARTS = 8  # into which sums are divided
SHORT = 2**15 - 1
SHORT_SUM = "int16_t"
BLOCKS = (128, 64, 32, 16)  # channels whose sums a fast program keeps in registers, and weights in a cache


class Style(Enum):
    """What a program is for: a microcontroller, or this machine."""

    SMALL = "small"
    FAST = "fast"


SMALL, FAST = Style.SMALL, Style.FAST


@array_record
class Table:
    """Constant numbers of a program."""

    name: str
    values: Array

    @property
    def c_type(self) -> str:
        return c_type(self.values.dtype)


@record
class Parameter:
    """A number of each neuron: the same for all, or a table of classes of pixels, [class][channel].

    `classes` holds the class of each pixel, unless there is one class only, or each pixel is its own one.
    Table entries are multiplied by `factor`. Where numbers depend on the time step, `pixel` is the C
    expression in place of the pixel: the step, or the step and the pixel.
    """

    value: int | Table
    classes: Table | None = None
    per_pixel: bool = False
    factor: int = 1
    pixel: str = "pixel"

    @property
    def tables(self) -> list[Table]:
        return [each for each in (self.value, self.classes) if isinstance(each, Table)]


@record
class Sender:
    """What a population sends, as others read it: the input, spikes, or graded messages."""

    number: int
    population: Population[Any]
    kind: str  # "input", "spikes", "messages"
    c_type: str  # of a value
    latest: int  # delay after which the last reader has read

    @property
    def channels(self) -> int:
        return self.population.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        height, width = self.population.shape[1:] or (1, 1)
        return height, width

    @property
    def pixels(self) -> int:
        return prod(self.size)


@array_record
class Arrival:
    """Currents of one connection, or of the taps from `taps[0]` to `taps[1] - 1` of its kernel.

    The weights of each tap (of a matrix: of each source pixel) are rows, [source channel][target channel of
    its group]; a matrix has one row for each target pixel. Sums count in units of 2**unit.
    """

    source: Sender
    connection: Connection
    weights: Table
    packed: bool
    factor: int  # of all weights, a power of two
    taps: tuple[int, int]
    reach: Array  # [tap, target channel]: the largest magnitude of a partial sum, in units of the sum
    wraps: bool = False  # at 24 bits, in networks of others
    paired: bool = False  # two weights in a lane of 16 bits
    span: int = 1  # taps of a row of the kernel (source pixels of a row) that one list of spikes covers

    @property
    def groups(self) -> int:
        synapse = self.connection.synapse
        return synapse.groups if isinstance(synapse, Conv2d) else 1

    @property
    def depthwise(self) -> bool:
        """Whether each channel of the source reaches one channel of the target."""
        synapse = self.connection.synapse
        return (
            isinstance(synapse, Conv2d) and synapse.groups == synapse.weight.shape[0] == self.source.channels
        )


@record
class Layer:
    """One population of the program."""

    number: int
    population: IntPopulation
    rule: Rule
    arrivals: tuple[Arrival, ...]
    sum_type: str  # of the sums of one arrival
    total_type: str | None  # of the sums of all of them; None if they need no other type
    scale: int  # of a sum, in units of the state
    arithmetic: str  # the type that states are computed in
    parameters: Mapping[str, Parameter]
    checked: bool  # states might leave 24 bits: each step checks
    narrows: bool  # they might, and continue as in Lava
    has_current: bool
    tile: int  # pixels at once
    steps: int  # time steps at once
    block: int  # channels at once

    @property
    def channels(self) -> int:
        return self.population.shape[0]

    @property
    def width(self) -> int:
        return (self.population.shape[1:] or (1, 1))[1]

    @property
    def pixels(self) -> int:
        return self.population.size // self.channels

    @property
    def has_voltage(self) -> bool:
        return not (isinstance(self.rule, Membrane) and self.rule.graded)

    @property
    def sends_spikes(self) -> bool:
        return fires(self.population.neuron)

    @property
    def reads_only_input(self) -> bool:
        """Whether its sums are those of the first step if the input does not change."""
        return all(a.source.kind == "input" and not a.connection.delay for a in self.arrivals)

    @property
    def tables(self) -> Iterator[Table]:
        seen = {a.weights.name: a.weights for a in self.arrivals}
        yield from seen.values()
        for parameter in self.parameters.values():
            yield from parameter.tables


@record
class Program:
    """A network as it will be computed."""

    network: IntNetwork
    style: Style
    senders: Mapping[str, Sender]
    layers: tuple[Layer, ...]

    @property
    def fast(self) -> bool:
        return self.style is FAST

    @property
    def tables(self) -> list[Table]:
        return [table for layer in self.layers for table in layer.tables]

    @property
    def index_type(self) -> str:
        """The type of a channel's number; in a fast program, of its number in a row of pixels."""
        most = max(s.channels * (s.size[1] if self.fast else 1) for s in self.senders.values())
        return "uint8_t" if most <= 2**8 else "uint16_t" if most <= 2**16 else "int32_t"

    @property
    def input_type(self) -> str:
        return self.senders[self.network.input.name].c_type

    def readers(self, name: str) -> list[tuple[Layer, Arrival]]:
        """Return who reads what a population sends."""
        return [
            (layer, a) for layer in self.layers for a in layer.arrivals if a.source.population.name == name
        ]


def plan_program(network: IntNetwork, style: Style = SMALL) -> Program:
    """Decide how a network is computed."""
    for population in network.layers:
        if counting(population.neuron) is not None:
            raise FormatError(
                f"{layer_name(population.name)}: neurons of Xylo, which fire several times in a step; "
                "those of C programs fire once. Drop --emit c, or train without --neuron xylo."
            )
    senders = {p.name: _sender(network, number, p) for number, p in enumerate(network.populations)}
    proved = bounds(network)
    layers = [
        _layer(network, senders, number, population, style, proved[population.name].fits)
        for number, population in enumerate(network.layers, start=1)
    ]
    return Program(network=network, style=style, senders=senders, layers=tuple(layers))


def _sender(network: IntNetwork, number: int, population: Population[Any]) -> Sender:
    neuron = network.populations[number].neuron
    low, high = value_range(neuron)
    kind = "input" if number == 0 else "messages" if is_graded(neuron) else "spikes"
    delays = [c.delay for c in network.connections if c.source == population.name]
    found = narrowest(low, high)
    if kind == "input" and found == np.int64:
        raise FormatError(
            f"{layer_name(population.name)}: values of {low}..{high}; C programs take inputs of up to 32 "
            "bits. Choose a smaller range, for example with --input-bits 8."
        )
    return Sender(
        number=number,
        population=population,
        kind=kind,
        c_type=c_type(found if kind == "input" else np.promote_types(found, np.int32)),
        latest=max(delays, default=0),
    )


def _layer(
    network: IntNetwork,
    senders: Mapping[str, Sender],
    number: int,
    population: IntPopulation,
    style: Style,
    proved: bool,
) -> Layer:
    rule, channels, pixels = (
        update_rule(population.neuron, 1),
        population.shape[0],
        prod(population.shape[1:]),
    )
    entering = [c for c in network.entering(population.name) if c.delay < network.timesteps]
    narrows = network.foreign and not proved and isinstance(rule, Membrane) and not rule.graded
    moduli = wide_sums(network, population.name) if narrows else {}
    unit = _unit(entering, factored=not moduli)
    wholes = [
        _arrival(f"weights_{number}_{k}", c, senders[c.source], channels, unit, style, c in moduli)
        for k, c in enumerate(entering)
    ]
    arrivals, sum_type, total_type = _typed(wholes, style)
    scale = int(rule.unit * 2.0**unit)
    arriving = scale * sum(_largest(each.reach) for each in wholes)
    relay = isinstance(rule, Membrane) and rule.graded
    checked = not (relay or narrows or proved) or (isinstance(rule, Modulator) and arriving > STATE_LIMIT)
    growth = 2 * LARGEST_GROWTH if varies(population.neuron) else 2
    largest = arriving + (growth + 2) * STATE_LIMIT + 2
    once = all(senders[c.source].kind == "input" and not c.delay for c in entering)
    steps = 1 if once or style is SMALL else min(network.timesteps, TILE_SUMS)
    grouped = any(a.groups > 1 for a in arrivals)
    blocks = [] if style is SMALL or grouped else [size for size in BLOCKS if channels % size == 0]
    block = next(iter(blocks), channels)
    return Layer(
        number=number,
        population=population,
        rule=rule,
        arrivals=tuple(_paired(a, block) if blocks and sum_type == SHORT_SUM else a for a in arrivals),
        sum_type=sum_type,
        total_type=total_type,
        scale=scale,
        arithmetic="int64_t" if narrows or largest >= 2**31 else "int32_t",
        parameters=dict(_parameters(str(number), population, rule)),
        checked=checked,
        narrows=narrows,
        has_current=has_current(population.neuron) or (isinstance(rule, Modulator) and rule.graded),
        tile=min(pixels, max(1, TILE_SUMS // steps)) if style is FAST else 1,
        steps=steps,
        block=block,
    )


# ---- weights ----------------------------------------------------------------------------------


def _unit(entering: Sequence[Connection], *, factored: bool) -> int:
    """Return the exponent of the finest weight; if `factored`, after taking out common powers of two."""
    finest = [c.synapse.exponent + (_zeros(c.synapse.weight) if factored else 0) for c in entering]
    return min(finest, default=0)


def _zeros(weight: Array) -> int:
    """Return how many zero bits all weights end with; 0 if there are no others."""
    joined = int(np.bitwise_or.reduce(np.abs(weight.astype(np.int64)).ravel(), initial=0))
    return (joined & -joined).bit_length() - 1 if joined else 0


def _arrival(
    name: str, connection: Connection, source: Sender, target: int, unit: int, style: Style, wraps: bool
) -> Arrival:
    """Return all currents of a connection into a population of `target` channels."""
    synapse, shift = connection.synapse, connection.synapse.exponent - unit
    weight = synapse.weight.astype(np.int64) >> max(0, -shift)  # drops zeros only
    match synapse:
        case Dense():
            rows = _matrix_rows(weight, source, target)
        case Conv2d():
            rows = _kernel_rows(weight, synapse.groups)
        case _:
            assert_never(synapse)
    limit = 2 ** (PACKED_BITS - 1)
    packed = style is SMALL and rows.shape[-1] > 1 and -limit <= rows.min() and rows.max() < limit
    factor, span = 2 ** max(0, shift), _span(connection, source, style)
    groups = synapse.groups if isinstance(synapse, Conv2d) else 1
    reach = _reach(rows.reshape(len(rows), groups, source.channels // groups, -1), source)
    return Arrival(
        source=source,
        connection=connection,
        weights=Table(name=name, values=_packed(rows) if packed else as_narrow(rows, signed=True)),
        packed=packed,
        factor=factor,
        taps=(0, len(rows) // span),
        reach=factor * reach.reshape(-1, span, reach.shape[-1]).sum(axis=1),
        wraps=wraps,
        span=span,
    )


def _span(connection: Connection, source: Sender, style: Style) -> int:
    """Return how many source pixels of a row one list covers: all that a row of the kernel reads."""
    synapse = connection.synapse
    if style is SMALL or source.kind != "spikes":
        return 1
    if isinstance(synapse, Dense):
        return source.size[1]
    width, channels = synapse.weight.shape[3], len(synapse.weight)
    together = width * source.channels * min(channels, BLOCKS[0])  # bytes of weights
    plain = synapse.groups == synapse.dilation[1] == 1
    return width if plain and together <= CACHED else 1


def _matrix_rows(weight: Array, source: Sender, target: int) -> Array:
    """[source pixel][source channel][target pixel][target channel]"""
    rows = weight.reshape(target, -1, source.channels, source.pixels).transpose(3, 2, 1, 0)
    return np.ascontiguousarray(rows)


def _kernel_rows(weight: Array, groups: int) -> Array:
    """[tap][source channel][target channel of its group]"""
    out, sources, height, width = weight.shape
    grouped = weight.reshape(groups, out // groups, sources, height * width).transpose(3, 0, 2, 1)
    return np.ascontiguousarray(grouped).reshape(height * width, groups * sources, out // groups)


def _packed(rows: Array) -> Array:
    """Two weights + 8 in a byte: the first half of a row in the low bits, the second in the high bits."""
    padded = np.concatenate([rows, np.zeros((*rows.shape[:-1], rows.shape[-1] % 2), rows.dtype)], axis=-1)
    low, high = np.split((padded + 2 ** (PACKED_BITS - 1)).astype(np.uint8), 2, axis=-1)
    both: Array = low | high << PACKED_BITS
    return both


def _paired(arrival: Arrival, block: int) -> Arrival:
    """Return spikes whose weights are lanes of 16 bits: two weights, one of each half of a block.

    A lane is 256 * second + first + 128, so that its high byte is the second weight.
    """
    rows = arrival.weights.values
    if arrival.source.kind != "spikes" or rows.dtype != np.int8 or arrival.factor > 1:
        return arrival
    first, second = np.split(rows.reshape(*rows.shape[:-1], -1, block).astype(np.int16), 2, axis=-1)
    lanes = (256 * second + first + 128).astype(np.int16).reshape(*rows.shape[:-1], -1)
    return replace(arrival, weights=Table(name=arrival.weights.name, values=lanes), paired=True)


def _reach(rows: Array, source: Sender) -> Array:
    """Return the largest magnitude of a partial sum, [tap, target], of rows [tap, group, source, target].

    Whatever the order of its terms, a sum stays between those of its negative and its positive terms.
    """
    low, high = value_range(source.population.neuron)
    positive, negative = np.maximum(rows, 0).sum(axis=2), -np.minimum(rows, 0).sum(axis=2)
    low, high = max(0, -low), max(0, high)
    either = np.maximum(positive * high + negative * low, negative * high + positive * low)
    flat: Array = either.reshape(len(rows), -1)
    return flat


def _largest(reach: Array) -> int:
    return int(reach.sum(axis=0).max())


def _typed(wholes: list[Arrival], style: Style) -> tuple[list[Arrival], str, str | None]:
    """Return arrivals, the type of their sums, and that of the total if it is another one.

    Sums of 16 bits are twice as fast as those of 32: a fast program divides long sums into parts of 16 bits.
    """
    everything = sum(_largest(each.reach) for each in wholes)
    total = c_type(np.promote_types(narrowest(-everything, everything), np.int16))
    if any(each.wraps for each in wholes):
        return wholes, "int64_t", "int64_t"
    if style is SMALL or total != "int32_t":
        return wholes, total, None
    parts = [part for each in wholes for part in _parts(each)]
    if len(parts) > MOST_PARTS or any(_largest(part.reach) > SHORT for part in parts):
        return wholes, total, None
    return parts, SHORT_SUM, total


def _parts(whole: Arrival) -> Iterator[Arrival]:
    """Divide the taps of a kernel into as few runs as have sums of 16 bits."""
    start = 0
    for tap in range(len(whole.reach)):
        if tap > start and _largest(whole.reach[start : tap + 1]) > SHORT:
            yield replace(whole, taps=(start, tap), reach=whole.reach[start:tap])
            start = tap
    yield replace(whole, taps=(start, len(whole.reach)), reach=whole.reach[start:])


# ---- numbers of neurons -----------------------------------------------------------------------


def _parameters(layer: str, population: IntPopulation, rule: Rule) -> Iterator[tuple[str, Parameter]]:
    """Yield the numbers of a population by name: bias, threshold, subtrahend, kept fractions of the state."""
    found: dict[str, int | Array | None] = {"bias": rule.bias, "threshold": rule.threshold}
    if isinstance(rule, Membrane):
        found["subtrahend"] = rule.subtrahend
        for name, decay in (("kept_current", rule.decay_current), ("kept_voltage", rule.decay_voltage)):
            assert isinstance(decay, Truncation), "integers are truncated"
            found[name] = DECAY_ONE - decay.amount
    for name, values in found.items():
        if values is not None:
            yield name, _stepped_parameter(f"{name}_{layer}", np.asarray(values), population)


def _stepped_parameter(name: str, values: Array, population: IntPopulation) -> Parameter:
    """Store a number per neuron, and per time step if it depends on the step."""
    shape, timed = population.shape, varies(population.neuron) and values.ndim > 0
    if not timed:
        return _parameter(name, values, shape)
    by_step = np.ascontiguousarray(values.swapaxes(0, 1))  # [channel, step, ...]: steps are pixels, too
    if values[0].size == shape[0]:
        return replace(_parameter(name, by_step.reshape(shape[0], -1), (shape[0], len(values))), pixel="t")
    pixels = prod(shape[1:])
    whole = by_step.reshape(shape[0], -1)
    return replace(_parameter(name, whole, whole.shape), pixel=f"(t * {pixels} + pixel)")


def _parameter(name: str, values: Array, shape: tuple[int, ...]) -> Parameter:
    """Store a number per neuron in as few bytes as classes of equal pixels allow."""
    whole = np.broadcast_to(values.reshape(-1) if values.size == 1 else values, shape)
    by_pixel = whole.reshape(shape[0], -1).T.astype(np.int64)
    if (by_pixel == by_pixel[0, 0]).all():
        return Parameter(value=int(by_pixel[0, 0]))
    zeros = _zeros(by_pixel)
    classes, of_pixel = np.unique(by_pixel >> zeros, axis=0, return_inverse=True)
    table = Table(name=name, values=as_narrow(classes, signed=True))
    if len(classes) == 1:
        return Parameter(value=table, factor=2**zeros)
    numbers = as_narrow(of_pixel.reshape(-1))
    if numbers.nbytes + table.values.nbytes >= by_pixel.size * table.values.itemsize:
        classes, numbers = by_pixel >> zeros, np.arange(len(by_pixel))
        table = Table(name=name, values=as_narrow(classes, signed=True))
        return Parameter(value=table, per_pixel=True, factor=2**zeros)
    return Parameter(value=table, classes=Table(name=f"{name}_class", values=numbers), factor=2**zeros)


# ---- types ------------------------------------------------------------------------------------


def c_type(kind: Any) -> str:
    """Return the C type of a NumPy type: int8_t, uint8_t, ..."""
    return f"{np.dtype(kind).name}_t"


def narrowest(low: int, high: int, *, signed: bool = False) -> type[np.integer[Any]]:
    """Return the narrowest integer type that holds the values from low to high."""
    kinds = (kind for kind in INTEGERS if not signed or np.iinfo(kind).min < 0)
    return next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)


def as_narrow(values: Array, *, signed: bool = False) -> Array:
    """Return the values in the narrowest type that holds them."""
    return values.astype(narrowest(int(values.min()), int(values.max()), signed=signed))
