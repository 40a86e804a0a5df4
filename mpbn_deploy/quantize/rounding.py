"""FoldedNetwork + grids -> IntNetwork: real numbers rounded to integers, and no state that could overflow.

Weights and biases are rounded to the nearest integer and thresholds down: right after a reset
voltages are whole numbers, for which v > floor(threshold) decides as v > threshold; later, what is
left of a leaking voltage has fractions, and the threshold is off by less than one unit of weight.

Rounding can add up, so the proof is made on what was rounded (`bounds`): channels that could leave
the state get a lower scale, until none can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ..base import Array, QuantizeError
from ..ir import (
    DECAY_ONE,
    Connection,
    FloatLif,
    FloatPopulation,
    FloatReadout,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Lif,
    Neuron,
    Population,
    Readout,
    compact,
    fires,
    incoming,
    largest_per_channel,
    scale_channels,
    scaled,
    state_intervals,
)
from .scales import Formats, Grid, constant_neurons

MOST_TRIALS = 20  # of scales; the second nearly always fits
IMPATIENCE = 1.02  # by which the n-th trial lowers scales the n-th power more


def lower_scales(name: str, grid: Grid, excess: Array) -> Grid:
    """Scales that would just fit if rounding went as before, and a little less."""
    return replace(grid, scales=lowered(grid.scales, excess))


def lowered(scales: Array, excess: Array) -> Array:
    return np.where(excess > 1, 0.999 * scales / np.maximum(excess, 1), scales)


def round_without_overflow(
    folded: FoldedNetwork,
    grids: Mapping[str, Grid],
    formats: Formats,
    lower: Callable[[str, Grid, Array], Grid] = lower_scales,
) -> tuple[IntNetwork, dict[str, Grid]]:
    """Round, bound what was rounded, and lower the scales of channels that could overflow, until none can."""
    settled = dict(grids)
    for trial in range(MOST_TRIALS):
        network = round_network(folded, settled, formats)
        excess = {p.name: overflow(network, p, formats) for p in network.layers}
        if max(float(ratio.max()) for ratio in excess.values()) <= 1:
            return network, settled
        # Weights of few values may not move under a scale that is hardly lower; so ever lower ones.
        pressed = {name: np.where(r > 1, r * IMPATIENCE**trial, r) for name, r in excess.items()}
        settled = {
            name: lower(name, grid, pressed[name]) if pressed[name].max() > 1 else grid
            for name, grid in settled.items()
        }
    worst = max(excess, key=lambda name: float(excess[name].max()))
    raise QuantizeError(
        f"{worst}: even with weights rounded to zero its states could leave the 24-bit state; "
        "lower the range of the input, its bias or the number of time steps."
    )


def overflow(network: IntNetwork, population: IntPopulation, formats: Formats) -> Array:
    """How many times the state's limit a channel could reach; those of a readout share the worst."""
    current, voltage = state_intervals(network, population)
    edges = [largest_per_channel(edge) for edge in (*current, *voltage)]
    ratio: Array = np.max(edges, axis=0) / (formats.state * formats.room(population.name))
    return ratio if fires(population.neuron) else np.full_like(ratio, ratio.max())


def round_network(folded: FoldedNetwork, grids: Mapping[str, Grid], formats: Formats) -> IntNetwork:
    connections = {id(c): rounded for c, rounded in _rounded_connections(folded, grids, formats)}
    return IntNetwork(
        populations=(
            folded.input,
            *(round_population(folded, p, grids[p.name], formats) for p in folded.layers),
        ),
        connections=tuple(connections[id(c)] for c in folded.connections),
        timesteps=folded.timesteps,
        scales={name: grid.scales for name, grid in grids.items()},
    )


def _rounded_connections(
    folded: FoldedNetwork, grids: Mapping[str, Grid], formats: Formats
) -> list[tuple[Connection, Connection]]:
    return [
        (connection, round_connection(connection, grid.scales, exponent, formats))
        for name, grid in grids.items()
        for connection, exponent in zip(incoming(folded.connections, name), grid.exponents, strict=True)
    ]


def round_connection(connection: Connection, scales: Array, exponent: int, formats: Formats) -> Connection:
    """integer = step * round(scale * weight / (step * 2**exponent)), within the format"""
    quantum = formats.step * 2.0**exponent
    mantissa = np.rint(scaled_weight(connection, scales) / quantum)
    weight = formats.step * np.clip(mantissa, -formats.weight, formats.weight).astype(np.int32)
    return replace(connection, synapse=replace(connection.synapse, weight=weight, exponent=exponent))


def scaled_weight(connection: Connection, scales: Array) -> Array:
    """Weights times the scale of their channel."""
    return scaled(connection.synapse, scales).weight


def round_population(
    folded: FoldedNetwork, population: FloatPopulation, grid: Grid, formats: Formats
) -> IntPopulation:
    neuron, held = population.neuron, grid.held
    bias = round_biases(neuron.bias, grid.scales, formats, 0.0 if held is None else held.offset)
    # One more than the register holds, so never zero: a current always leaks a little.
    decay_current = max(1, round((1 - neuron.current_leak) * DECAY_ONE))
    decay_voltage = min(formats.decay, round((1 - neuron.leak) * DECAY_ONE))
    match neuron:
        case FloatReadout():
            rounded: Neuron = Readout(bias=bias, decay_current=decay_current, decay_voltage=decay_voltage)
        case FloatLif():
            lif = population.with_neuron(neuron)
            threshold = held.thresholds if held else round_thresholds(folded, lif, grid.scales, formats)
            rounded = Lif(
                threshold=threshold, bias=bias, decay_current=decay_current, decay_voltage=decay_voltage
            )
        case _:
            assert_never(neuron)
    return population.with_neuron(rounded)


def round_thresholds(
    folded: FoldedNetwork, population: Population[FloatLif], scales: Array, formats: Formats
) -> Array:
    """Thresholds rounded down; neurons that never (always) fire in float do so in integers too.

    They get the farthest threshold of the format, beyond which no voltage can go.
    """
    neuron = population.neuron
    never, always = constant_neurons(folded, population)
    floored = np.floor(scale_channels(np.where(np.isfinite(neuron.threshold), neuron.threshold, 0.0), scales))
    lowest = formats.lowest_threshold
    threshold = np.clip(floored, lowest, formats.threshold)
    threshold = np.where(never, formats.threshold, np.where(always, lowest, threshold))
    threshold = threshold.astype(np.int32)
    return compact(threshold) if neuron.threshold.shape != population.shape else threshold


def round_biases(values: Array, scales: Array, formats: Formats, offset: Array | float = 0.0) -> Array:
    """bias = round(scale * value + offset), within the format"""
    rounded = np.rint(scale_channels(values, scales) + offset)
    biases: Array = np.clip(rounded, -formats.bias, formats.bias).astype(np.int32)
    return biases


def as_held(neuron: FloatLif, grid: Grid) -> FloatLif:
    """The neuron that the integers of a grid stand for: with the thresholds and biases it is held to."""
    if grid.held is None:
        return neuron
    threshold, offset = (
        scale_channels(values, 1 / grid.scales) for values in (grid.held.thresholds, grid.held.offset)
    )
    return replace(neuron, threshold=threshold, bias=neuron.bias + offset)
