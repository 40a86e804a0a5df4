"""Round to integers such that no state can overflow: FoldedNetwork + grids -> IntNetwork.

Weights, biases and subtrahends are rounded to the nearest integer, thresholds down. Right after a reset to
zero, voltages are whole numbers, for which v > floor(threshold) and v > threshold are equivalent; later, a
leaking voltage has a fraction, and the threshold is off by less than one unit of weight.

Rounding errors can accumulate, so overflow is ruled out for the rounded network (`ir.state_intervals`):
scales of channels that could overflow are lowered until none can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ..base import Array, QuantizeError, layer_name
from ..ir import (
    DECAY_ONE,
    LARGEST_GROWTH,
    Connection,
    FloatFiringNeuron,
    FloatNeuron,
    FloatPopulation,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Neuron,
    compact,
    fires,
    integer_neuron,
    largest_per_channel,
    map_steps,
    neuron_subtrahend,
    neuron_threshold,
    scale_channels,
    scaled,
    spiking,
    state_intervals,
)
from .scales import Grid, NumberFormats, constant_neurons

MAX_TRIALS = 20  # of scales; the second nearly always succeeds
EXTRA_LOWERING = 1.02  # scales are lowered by this factor more in each further trial


def lower_scales(name: str, grid: Grid, excess: Array) -> Grid:
    """Lower the scales of channels that could overflow."""
    return replace(grid, scales=lowered(grid.scales, excess))


def lowered(scales: Array, excess: Array) -> Array:
    """Divide scales by their excess, where it is above one, and by a little more."""
    return np.where(excess > 1, 0.999 * scales / np.maximum(excess, 1), scales)


def round_without_overflow(
    folded: FoldedNetwork,
    grids: Mapping[str, Grid],
    formats: NumberFormats,
    lower: Callable[[str, Grid, Array], Grid] = lower_scales,
) -> tuple[IntNetwork, dict[str, Grid]]:
    """Round, and lower the scales of channels that could overflow, until none can; return the final grids."""
    settled = dict(grids)
    for trial in range(MAX_TRIALS):
        network = round_network(folded, settled, formats)
        excess = {p.name: overflow(network, p, formats) for p in network.layers}
        if max(float(ratio.max()) for ratio in excess.values()) <= 1:
            return network, settled
        # Weights of few bits may not change under a slightly lower scale, so each trial lowers it further.
        pressed = {name: np.where(r > 1, r * EXTRA_LOWERING**trial, r) for name, r in excess.items()}
        settled = {
            name: lower(name, grid, pressed[name]) if pressed[name].max() > 1 else grid
            for name, grid in settled.items()
        }
    worst = max(excess, key=lambda name: float(excess[name].max()))
    raise QuantizeError(
        f"{layer_name(worst)}: even with weights rounded to zero, its states could overflow 24 bits; reduce "
        "the range of the input, the bias or the number of time steps."
    )


def overflow(network: IntNetwork, population: IntPopulation, formats: NumberFormats) -> Array:
    """Return, per channel, the largest reachable state / limit; for a readout, that of all channels."""
    current, voltage = state_intervals(network, population)
    edges = [largest_per_channel(edge) for edge in (*current, *voltage)]
    ratio: Array = np.max(edges, axis=0) / (formats.state * formats.allowance(population.name))
    return ratio if fires(population.neuron) else np.full_like(ratio, ratio.max())


def round_network(folded: FoldedNetwork, grids: Mapping[str, Grid], formats: NumberFormats) -> IntNetwork:
    """Round all numbers of a network to the given grids."""
    exponents = {
        connection: exponent
        for name, grid in grids.items()
        for connection, exponent in zip(folded.entering(name), grid.exponents, strict=True)
    }
    return IntNetwork(
        populations=(
            folded.input,
            *(round_population(folded, p, grids[p.name], formats) for p in folded.layers),
        ),
        connections=tuple(
            round_connection(c, grids[c.target].scales, exponents[c], formats) for c in folded.connections
        ),
        timesteps=folded.timesteps,
        scales={name: grid.scales for name, grid in grids.items()},
    )


def round_connection(
    connection: Connection, scales: Array, exponent: int, formats: NumberFormats
) -> Connection:
    """integer * 2**max(exponent, 0) = quantum * round(scale * weight / quantum), within the format"""
    formats = formats.into(connection.target)
    mantissa = np.rint(scaled(connection.synapse, scales).weight / formats.quantum(exponent))
    weight = formats.weight_step(exponent) * np.clip(mantissa, -formats.weight, formats.weight)
    synapse = replace(connection.synapse, weight=weight.astype(np.int32), exponent=max(exponent, 0))
    return replace(connection, synapse=synapse)


def round_population(
    folded: FoldedNetwork, population: FloatPopulation, grid: Grid, formats: NumberFormats
) -> IntPopulation:
    """Round all numbers of a population's neurons."""
    never, always = (None, None) if (lif := spiking(population)) is None else constant_neurons(folded, lif)

    def rounded(neuron: FloatNeuron) -> Neuron:
        fixed, threshold = grid.fixed, None
        if never is not None and always is not None and (own := neuron_threshold(neuron)) is not None:
            whole = own.shape == population.shape
            threshold = fixed.thresholds if fixed else _thresholds(own, never, always, grid.scales, formats)
            threshold = threshold if fixed or whole else compact(threshold)
        return integer_neuron(
            neuron,
            threshold,
            round_subtrahends(neuron, threshold, grid.scales, formats),
            bias=round_biases(neuron.bias, grid.scales, formats, 0.0 if fixed is None else fixed.offset),
            # The register stores this decay less one, so it is at least one: a current always leaks a little.
            decay_current=_rounded_decay(neuron.current_leak, 1, DECAY_ONE),
            decay_voltage=_rounded_decay(neuron.leak, 0, formats.decay),
        )

    return population.with_neuron(map_steps(population.neuron, rounded))


def _rounded_decay(leak: float | Array, least: int, most: int) -> int | Array:
    """Return 4096 * (1 - leak); states of numbers per step may grow, so that the decay is negative."""
    lowest = least if np.max(leak) <= 1 else (1 - LARGEST_GROWTH) * DECAY_ONE
    decay = np.clip(np.rint((1 - np.asarray(leak)) * DECAY_ONE), lowest, most).astype(np.int32)
    return decay if decay.ndim else int(decay)


def _thresholds(values: Array, never: Array, always: Array, scales: Array, formats: NumberFormats) -> Array:
    """Round thresholds down.

    Neurons that never (always) fire get the highest (lowest) threshold of the format, so that they never
    (always) fire as integers too.
    """
    floored = np.floor(scale_channels(np.where(np.isfinite(values), values, 0.0), scales))
    lowest = formats.lowest_threshold
    threshold = np.clip(floored, lowest, formats.threshold)
    threshold = np.where(never, formats.threshold, np.where(always, lowest, threshold))
    return threshold.astype(np.int32)


def round_subtrahends(
    neuron: FloatNeuron, integers: Array | None, scales: Array, formats: NumberFormats
) -> Array | None:
    """Round what soft resets subtract to the nearest integers; None for other neurons.

    A neuron that subtracts its threshold keeps doing so, because some chips can do nothing else: its
    subtrahend is rounded like its threshold, to `integers`, unless they had to move by more.
    """
    threshold, subtrahend = neuron_threshold(neuron), neuron_subtrahend(neuron)
    if threshold is None or subtrahend is None or integers is None:
        return None
    exact = scale_channels(subtrahend, scales)
    own = (threshold == subtrahend) & (np.abs(integers - exact) < 1)
    rounded = np.where(own, integers, np.clip(np.rint(exact), -formats.threshold, formats.threshold))
    return rounded.astype(np.int32)


def round_biases(values: Array, scales: Array, formats: NumberFormats, offset: Array | float = 0.0) -> Array:
    """bias = round(scale * value + offset), within the format"""
    rounded = np.rint(scale_channels(values, scales) + offset)
    biases: Array = np.clip(rounded, -formats.bias, formats.bias).astype(np.int32)
    return biases


def with_fixed_threshold(neuron: FloatFiringNeuron, grid: Grid) -> FloatFiringNeuron:
    """Return the neuron with the fixed thresholds and bias offsets of a grid, if any, as real numbers."""
    if grid.fixed is None:
        return neuron
    threshold, offset = (
        scale_channels(values, 1 / grid.scales) for values in (grid.fixed.thresholds, grid.fixed.offset)
    )
    return replace(neuron, threshold=threshold, bias=neuron.bias + offset)
