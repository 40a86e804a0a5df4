"""Choose thresholds within the limits of a chip: one per population, few per core, or none below one.

In each time step, a neuron computes  v <- leak * v + I + b,  fires if v > t, and then  v <- 0  or, with a
soft reset,  v <- v - r.  For any s > 0 and any d, these changes keep its spikes exactly:

    scale       s*I, s*b, s*t, s*r          always: the voltage becomes s*v
    move        b + d, t + d                if no voltage is kept from one step to the next: leak 0, a
                                            single time step, or a neuron that fires in every step and
                                            resets to zero
    silence     I = 0, b = 0, t = infinity  if the voltage never exceeds the threshold
                I = 0, b = 0, t < 0         if the current alone exceeds it in every step

A channel with a positive threshold t gets the integer threshold T exactly by the scale s = T / t, but its
weights become coarser, or are clipped, if s is not the best scale for them. A memoryless channel gets any T
exactly if T - s*t is added to its bias. In all other channels (t <= 0, or thresholds that differ within a
channel, in neurons with memory), a bias approximates the threshold:

    v + d * growth > T/s    for    v > t,    growth = 1 + leak + leak**2 + ..., a term per step since the
                                             reset to zero; a soft reset ends no sum
    d = share * (T/s - t),  share = sum of growth / sum of growth**2     (least squares)

T and s of a channel are chosen by the expected share of flips on sampled voltages (`voltage_samples`): a
voltage at distance m from its new threshold, under rounding noise of standard deviation n, flips with
probability Phi(-m / n). With K thresholds per core, the cost of every channel for every candidate is
tabulated, and the K candidates with the least total cost are found by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ..base import Array
from ..hardware import HardwareProfile
from ..hardware.place import Tiling, place
from ..ir import (
    FloatFiringNeuron,
    FloatNeuron,
    FoldedNetwork,
    IntNetwork,
    Population,
    firing,
    map_steps,
    neuron_subtrahend,
    per_channel,
    spiking,
    with_values,
)
from .rounding import lowered, round_without_overflow
from .scales import FixedThresholds, Grid, NumberFormats, constant_neurons
from .shared_thresholds import scale_choices, share_thresholds
from .threshold_ranges import ThresholdLimits, as_population, threshold_ranges
from .voltage_samples import VoltageSamples

# ---- constant neurons -------------------------------------------------------------------------


def constant_channels(
    folded: FoldedNetwork, population: Population[FloatFiringNeuron]
) -> tuple[Array, Array]:
    """Return masks of the channels whose neurons all never fire, and of those that all fire in every step."""
    never, always = (
        np.all(neurons.reshape(population.shape[0], -1), axis=1)
        for neurons in constant_neurons(folded, population)
    )
    return never, always


def silence_constants(folded: FoldedNetwork) -> FoldedNetwork:
    """Remove weights, biases and subtrahends of channels that never, or always, fire; no spike changes."""
    silenced, constant = {}, {}
    for population in firing(folded):
        never, always = constant_channels(folded, population)
        constant[population.name] = never | always
        silent = partial(_silenced, never=never, always=always)
        silenced[population.name] = population.with_neuron(map_steps(population.neuron, silent))
    if not any(channels.any() for channels in constant.values()):
        return folded
    populations = tuple(silenced.get(p.name, p) for p in folded.populations)
    connections = [
        replace(
            c, synapse=replace(c.synapse, weight=_where_channel(constant[c.target], 0.0, c.synapse.weight))
        )
        if c.target in constant
        else c
        for c in folded.connections
    ]
    return replace(folded, populations=populations, connections=tuple(connections))


def _silenced(neuron: FloatFiringNeuron, never: Array, always: Array) -> FloatNeuron:
    ends, subtrahend = np.where(never, np.inf, -np.inf), neuron_subtrahend(neuron)
    return with_values(
        neuron,
        bias=_where_channel(never | always, 0.0, neuron.bias),
        threshold=_where_channel(never | always, ends, neuron.threshold),
        subtrahend=None if subtrahend is None else _where_channel(never | always, 0.0, subtrahend),
    )


def _where_channel(channels: Array, value: Array | float, otherwise: Array) -> Array:
    """Return `value` in the rows of the masked channels, and `otherwise` in the others."""
    repeat = len(otherwise) // len(channels)  # a dense layer onto rows and columns has one row per neuron
    chosen, values = (
        per_channel(np.repeat(np.broadcast_to(v, len(channels)), repeat), otherwise.shape)
        for v in (channels, value)
    )
    return np.where(chosen, values, otherwise)


# ---- a network --------------------------------------------------------------------------------


def cores_of_channels(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> dict[str, Array]:
    """Return, per population, a number for each channel; channels share a core only if theirs are equal."""
    placed = place(network, profile, tiling=tiling).layers
    return {layer.name: np.arange(layer.shape[0]) // layer.tile[0] for layer in placed}


def one_core(network: IntNetwork) -> dict[str, Array]:
    """Return core numbers as if every population were on one core."""
    return {p.name: np.zeros(p.shape[0], int) for p in network.layers}


def core_limits_hold(
    network: IntNetwork, profile: HardwareProfile, limits: ThresholdLimits, tiling: Tiling
) -> bool:
    """Whether no core of the network's placement has more distinct thresholds than it supports."""
    if limits.per_core is None:
        return True
    placed = {layer.name: layer for layer in place(network, profile, tiling=tiling).layers}
    counts = (placed[p.name].most_distinct(p.neuron.threshold) for p in firing(network))
    return all(count <= limits.per_core for count in counts)


def fix_thresholds(
    folded: FoldedNetwork,
    grids: Mapping[str, Grid],
    samples: Mapping[str, VoltageSamples],
    cores: Mapping[str, Array],
    limits: ThresholdLimits,
    formats: NumberFormats,
) -> tuple[IntNetwork, dict[str, Grid]]:
    """Return integers within the limits, for which no state can overflow, and their grids."""

    def fix(name: str, grid: Grid, most: Array) -> Grid:
        population = spiking(folded.layer(name))
        if population is None:
            return replace(grid, scales=np.minimum(grid.scales, most))
        if limits.per_core is None and not limits.shared:
            lower = replace(grid, scales=np.minimum(grid.scales, most))
            return raise_thresholds(folded, population, lower, samples[name], limits, formats)
        choices = scale_choices(folded, population, grid, most, formats)
        return share_thresholds(folded, choices, samples[name], cores[name], limits)

    ceilings = {name: np.full(grid.scales.shape, np.inf) for name, grid in grids.items()}

    def lower(name: str, grid: Grid, excess: Array) -> Grid:
        less = np.where(excess > 1, lowered(grid.scales, excess), np.inf)
        ceilings[name] = np.minimum(ceilings[name], less)
        return fix(name, grids[name], ceilings[name])

    fixed = {name: fix(name, grid, ceilings[name]) for name, grid in grids.items()}
    return round_without_overflow(folded, fixed, formats, lower)


# ---- one population ---------------------------------------------------------------------------


def raise_thresholds(
    folded: FoldedNetwork,
    population: Population[FloatFiringNeuron],
    grid: Grid,
    samples: VoltageSamples,
    limits: ThresholdLimits,
    formats: NumberFormats,
) -> Grid:
    """Keep each neuron's own threshold; raise those below the lowest allowed, and let biases compensate."""
    ranges = threshold_ranges(folded, population, samples)
    # Biases compensate only thresholds that are raised.
    raised = ranges.highest <= 0
    compensated = replace(
        ranges, lowest=np.where(raised, ranges.lowest, 0.0), highest=np.where(raised, ranges.highest, 0.0)
    )
    scales = np.minimum(
        grid.scales, compensated.bias_limits(np.where(raised, limits.lowest, 0), formats.bias)
    )
    top = scales[:, None] * ranges.highest
    thresholds = np.clip(np.floor(top), limits.lowest, limits.highest)
    offset = np.where(top < limits.lowest, ranges.offset(scales, thresholds), 0.0)
    fixed = FixedThresholds(
        thresholds=as_population(thresholds.astype(np.int32), population),
        offset=as_population(offset, population),
        groups=None,
    )
    return replace(grid, scales=scales, fixed=fixed)
