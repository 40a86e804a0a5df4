"""Share few thresholds among many channels of a core; `thresholds` has the equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..base import Array, record
from ..ir import Connection, FloatFiringNeuron, FoldedNetwork, Population, per_channel
from .scales import (
    FixedThresholds,
    Grid,
    NumberFormats,
    common_magnitudes,
    largest_weights,
    mean_square,
    scale_limits,
    snap_scales,
    weight_limits,
)
from .threshold_ranges import ThresholdLimits, ThresholdRanges, as_population, threshold_ranges
from .voltage_samples import VoltageSamples

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
