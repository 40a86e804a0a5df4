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
import torch
from torch import Tensor

from ..base import Array, record
from ..hardware import HardwareProfile
from ..hardware.place import Tiling, place
from ..ir import (
    Connection,
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
from .scales import (
    FixedThresholds,
    Grid,
    NumberFormats,
    common_magnitudes,
    constant_neurons,
    largest_weights,
    mean_square,
    scale_limits,
    snap_scales,
    weight_limits,
)
from .voltage_samples import ThresholdLimits, ThresholdRanges, VoltageSamples, as_population, threshold_ranges

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


# Share few thresholds among many channels of a core; `thresholds` has the equations.


MAX_CANDIDATES = 32  # thresholds tried for the channels of one core
APPROXIMATION_PENALTY = 1.5  # factor on the expected flips of approximations, against exact alternatives


@record
class ScaleChoices:
    """The largest scales of a population's channels, and the rounding noise of any scale."""

    state: Array  # the largest scale for which states, and biases without offset, fit their formats
    weight: Array  # the largest scale that clips no weight
    grid: Grid
    population: Population[FloatFiringNeuron]
    entering: list[Connection]
    magnitudes: list[Array]  # of connections whose weights have only one
    powers: list[float]  # per connection: mean square of its inputs, accumulated over the time steps
    formats: NumberFormats

    @property
    def most(self) -> Array:
        most = np.minimum(self.state, self.weight)
        return np.where(np.isfinite(most), most, 1.0)

    def weights_of(self, channels: Array) -> list[Array]:
        """Return, per connection, the weights of some channels, a row for each."""
        return [c.synapse.weight.reshape(len(self.state), -1)[channels] for c in self.entering]

    def noise(self, weights: list[Array], scales: Array) -> Array:
        """Return the standard deviation of the voltage error due to rounding, in real units."""
        most, square = self.formats.weight, 1 / (12 * scales**2)  # variance of the rounded bias
        for c, weight, power, exponent in zip(
            self.entering, weights, self.powers, self.grid.exponents, strict=True
        ):
            quanta = (self.formats.quantum(exponent) / scales)[:, None]
            error = weight / quanta
            np.rint(error, out=error)
            np.clip(error, -most, most, out=error)
            error *= quanta
            error -= weight
            error *= error
            rows = len(c.synapse.weight) // len(self.state)  # more than one: dense, onto rows and columns
            square += power * error.sum(axis=1) / rows
        noise: Array = np.sqrt(square)
        return noise

    def snapped(self, channels: Array, scales: Array) -> Array:
        """Return slightly lower scales at which shortcuts need no rounding; NaN where there is none."""
        all_scales = np.ones(len(self.state))
        all_scales[channels] = np.where(np.isfinite(scales) & (scales > 0), scales, 1.0)
        grid = replace(self.grid, scales=all_scales)
        lower = snap_scales(grid, self.magnitudes, self.formats)
        return np.where(lower.scales != all_scales, lower.scales, np.nan)[channels]


def scale_choices(
    folded: FoldedNetwork,
    population: Population[FloatFiringNeuron],
    grid: Grid,
    most: Array,
    formats: NumberFormats,
) -> ScaleChoices:
    neuron, formats = population.neuron, formats.into(population.name)
    entering = folded.entering(population.name)
    memory = sum(float(np.max(neuron.leak)) ** (2 * step) for step in range(folded.timesteps))
    limits = scale_limits(folded, population, formats)
    return ScaleChoices(
        state=np.min([limits["state"], limits["bias"], most], axis=0),
        weight=weight_limits(folded, population, grid.exponents, formats),
        grid=grid,
        population=population,
        entering=entering,
        magnitudes=common_magnitudes(entering, population),
        powers=[memory * mean_square(folded, c) for c in entering],
        formats=formats,
    )


def share_thresholds(
    folded: FoldedNetwork,
    choices: ScaleChoices,
    samples: VoltageSamples,
    cores: Array,
    limits: ThresholdLimits,
) -> Grid:
    """Choose one threshold, or a few, for the channels of each core, and a scale for each channel."""
    population = choices.population
    ranges = threshold_ranges(folded, population, samples)
    thresholds, scales = np.zeros(len(cores), np.int32), np.ones(len(cores))
    for core in np.unique(cores):
        channels = np.flatnonzero(cores == core)
        candidates = _candidates(ranges, choices, channels, limits)
        cost, best = tabulate(ranges, choices, samples, channels, candidates)
        chosen = choose_values(cost, limits.per_core or 1)
        thresholds[channels] = candidates[chosen]
        scales[channels] = best[np.arange(len(channels)), chosen]
    fixed = FixedThresholds(
        thresholds=per_channel(thresholds, population.shape),
        offset=as_population(ranges.offset(scales, thresholds[:, None]), population),
        groups=np.unique(np.stack([cores, thresholds]), axis=1, return_inverse=True)[1].reshape(-1),
    )
    return replace(choices.grid, scales=scales, exponents=_exponents(choices, scales), fixed=fixed)


def _candidates(
    ranges: ThresholdRanges, choices: ScaleChoices, channels: Array, limits: ThresholdLimits
) -> Array:
    """Return an even selection of the channels' best thresholds, and a few lower ones."""
    with np.errstate(invalid="ignore"):
        suited = np.floor(choices.most * ranges.typical)[channels]
    suited = np.unique(suited[(suited > limits.lowest) & (suited <= limits.highest)]).astype(np.int64)
    if not len(suited):
        return np.array([limits.lowest])
    picked = np.linspace(0, len(suited) - 1, MAX_CANDIDATES).round().astype(int)
    below = [max(limits.lowest, suited[0] // divisor) for divisor in (2, 4, 16)]
    candidates: Array = np.unique([limits.lowest, *below, *suited[picked]])
    return candidates


def tabulate(
    ranges: ThresholdRanges,
    choices: ScaleChoices,
    samples: VoltageSamples,
    channels: Array,
    candidates: Array,
) -> tuple[Array, Array]:
    """Return, as [channels, candidates], the least expected share of flips, and the scale that gives it."""
    shape = len(channels), len(candidates)
    cost, best = np.full(shape, np.inf), np.ones(shape)
    some, seen, weights = ranges.at(channels), samples.at(channels), choices.weights_of(channels)
    typical, share = some.typical, torch.tensor(some.share.min(axis=1))
    effect = seen.growth * torch.where(seen.lowest < seen.highest, 1.0, share)
    for column, threshold in enumerate(candidates):
        for scales in _trials(some, typical, choices, channels, float(threshold)):
            fits = _fits(some, choices, channels, scales, float(threshold))
            if not fits.any():
                continue
            tried = np.where(fits, scales, 1.0)
            flips = _flips(seen, effect, float(threshold) / tried, choices.noise(weights, tried))
            if not some.memoryless:
                penalized = APPROXIMATION_PENALTY * flips + 1 / len(samples.fires)
                flips = np.where(_is_exact(some, tried, float(threshold)), flips, penalized)
            better = fits & (flips < cost[:, column])
            cost[better, column], best[better, column] = flips[better], tried[better]
    return cost, best


def _is_exact(ranges: ThresholdRanges, scales: Array, threshold: float) -> Array:
    """Return, per channel, whether the threshold is exact for every neuron without a bias offset."""
    slack = 1e-6 * max(1.0, threshold)
    low, high = scales[:, None] * ranges.lowest - slack, scales[:, None] * ranges.highest + slack
    exact: Array = np.all((threshold >= low) & (threshold <= high), axis=1)
    return exact


def _trials(
    ranges: ThresholdRanges, typical: Array, choices: ScaleChoices, channels: Array, threshold: float
) -> list[Array]:
    """Return scales to try for a threshold: the exact one, the finest that biases allow, and their mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = threshold / typical
        wanted = np.full((len(channels), 1), threshold)
        finest = np.minimum(choices.most[channels], ranges.bias_limits(wanted, choices.formats.bias))
        if ranges.memoryless:  # every scale is exact
            return [finest]
        return [exact, choices.snapped(channels, exact), finest, np.sqrt(exact * finest)]


def _fits(
    ranges: ThresholdRanges, choices: ScaleChoices, channels: Array, scales: Array, threshold: float
) -> Array:
    """Return, per channel, whether states and biases fit their formats."""
    with np.errstate(invalid="ignore"):
        sound = np.isfinite(scales) & (scales > 0) & (scales <= choices.state[channels])
    tried = np.where(sound, scales, 1.0)
    bias = tried[:, None] * ranges.bias + ranges.offset(tried, np.full((len(tried), 1), threshold))
    fits: Array = sound & (np.abs(bias).max(axis=1) <= choices.formats.bias)
    return fits


def _flips(samples: VoltageSamples, effect: Tensor, thresholds: Array, noise: Array) -> Array:
    """Return the expected share of flips per channel: the mean of Phi(-margin / noise) over the samples.

    `effect` is what the bias that makes up for a threshold higher by one adds to each voltage.
    """
    real = torch.tensor(thresholds)
    margin = real - torch.clamp(real.expand(effect.shape), samples.lowest, samples.highest)
    margin.mul_(effect).add_(samples.voltage).sub_(real)
    wrong = torch.where(samples.fires, -margin, margin).div_(torch.tensor(noise))
    flips: Array = torch.special.ndtr(wrong.to(torch.float32)).mean(dim=0).numpy()
    return flips


def choose_values(cost: Array, few: int) -> Array:
    """Choose a column for each row, at most `few` different ones, with the least total cost.

    The result is optimal if the cost of each row falls up to some column, its home, and rises after it.
    Each row then takes the nearest chosen column before or after its home, and for chosen columns i < j

        least(j)  =  min over i < j of  least(i) + sum over rows at home in i..j of min(cost_i, cost_j)
    """
    columns, home = cost.shape[1], cost.argmin(axis=1)
    least = np.array([cost[home < j, j].sum() for j in range(columns)])
    rest = np.array([cost[home >= j, j].sum() for j in range(columns)])
    between = np.full((columns, columns), np.inf)
    for i in range(columns):
        for j in range(i + 1, columns):
            between[i, j] = np.minimum(cost[:, i], cost[:, j])[(home >= i) & (home < j)].sum()
    chains = [[j] for j in range(columns)]
    best = (float((least + rest).min()), chains[int((least + rest).argmin())])
    for _ in range(min(few, columns) - 1):
        through = least[:, None] + between
        before, least = through.argmin(axis=0), through.min(axis=0)
        chains = [[*chains[before[j]], j] for j in range(columns)]
        best = min(best, (float((least + rest).min()), chains[int((least + rest).argmin())]))
    chosen = np.array(best[1])
    taken: Array = chosen[cost[:, chosen].argmin(axis=1)]
    return taken


def _exponents(choices: ScaleChoices, scales: Array) -> tuple[int, ...]:
    """Return the smallest weight exponents for these scales, none larger than those of the grid."""
    largest = largest_weights(choices.entering, choices.population)
    limit, finest = choices.formats.weight * choices.formats.step, choices.formats.finest
    needed = [max(float((values * scales).max()) / limit, 2.0**finest) for values in largest]
    return tuple(
        min(old, int(np.ceil(np.log2(need) - 1e-9)))
        for old, need in zip(choices.grid.exponents, needed, strict=True)
    )
