"""Thresholds under the limits of a chip: one for all, few per core, none below one.

A hard-reset neuron in each step:  v <- leak * v + I + b,  fire where v > t,  v <- 0 where it fired.
What may be done to it, exactly, for any s > 0 and any d:

    scale       s*I, s*b, s*t               fires the same: the voltage is s*v
    move        b + d, t + d                fires the same where no voltage outlives its step: leak 0, a
                                            single time step, or a neuron that fires in every step
    silence     I = 0, b = 0, t = infinity  for one whose voltage never reaches its threshold
                I = 0, b = 0, t < 0         for one whose current alone passes it in every step

So a channel whose threshold t is positive gets the integer threshold T by the scale s = T / t, without an
error but with weights that are coarser, or clipped, where s is not the scale that suits them. A channel
without memory gets any T by a bias of T - s*t more. For the rest (t <= 0, or thresholds that differ within
a channel, in neurons with memory) there is no exact way, and a bias approximates it:

    v + d * growth > T/s    for    v > t,    growth = 1 + leak + leak**2 + ..., a term per step since reset
    d = share * (T/s - t),  share = sum of growth / sum of growth**2     (least squares)

Which T and s a channel takes is decided by how many of its spikes would flip (`evidence`): of a voltage
that misses its new threshold by m, under rounding noise of standard deviation n, the share Phi(-m / n). With
K thresholds per core, the cost of every channel under every candidate is tabulated, and the K candidates
of the least total are found by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np
import torch

from ..base import Array, OptionError, record
from ..formats.options import Thresholds
from ..hardware import HardwareProfile
from ..hardware.place import place
from ..ir import (
    Connection,
    FloatLif,
    FloatPopulation,
    FoldedNetwork,
    IntNetwork,
    Population,
    compact,
    firing,
    incoming,
    per_channel,
    spiking,
)
from .evidence import Evidence, threshold_range
from .rounding import lowered, round_without_overflow
from .scales import (
    Formats,
    Grid,
    Held,
    constant_neurons,
    largest_weights,
    mean_square,
    scale_limits,
    snapped,
    weight_limits,
)

MOST_CANDIDATES = 32  # thresholds that are tried for the channels of one core
UP_TO_A_TIE = 0.5 - 1e-9  # rounds up what is no whole number, when it is added before rounding
DOUBT = 1.5  # an approximation must promise so many times fewer flips than an exact way
CLEAR = 1.5  # units by which a neuron that always fires passes its threshold


@record
class ThresholdLimits:
    """What a target, and the user, allow."""

    shared: bool
    lowest: int
    highest: int
    per_core: int | None

    @classmethod
    def of(cls, profile: HardwareProfile, thresholds: str, formats: Formats) -> ThresholdLimits:
        if thresholds not in get_args(Thresholds):
            raise OptionError(f"thresholds {thresholds!r}; allowed are {', '.join(get_args(Thresholds))}.")
        shared, per_core = thresholds == "shared", profile.limit("core.thresholds")
        few = None if shared or per_core is None else per_core.value
        lowest = formats.lowest_threshold if few is None and not shared else max(1, formats.lowest_threshold)
        return cls(shared=shared, lowest=lowest, highest=formats.threshold, per_core=few)

    @property
    def bind(self) -> bool:
        """Whether thresholds are not simply what rounding makes of them."""
        return self.shared or self.per_core is not None or self.lowest > -self.highest

    @property
    def words(self) -> str:
        if self.shared:
            return "shared by the population"
        if self.per_core is not None:
            return f"at most {self.per_core} per core"
        return f"own, at least {self.lowest}" if self.bind else "own"


# ---- constant neurons -------------------------------------------------------------------------


def constant_channels(folded: FoldedNetwork, population: Population[FloatLif]) -> tuple[Array, Array]:
    """Which channels never fire, and which fire in every step, with all their neurons."""
    never, always = (
        neurons.reshape(population.shape[0], -1).all(axis=1)
        for neurons in constant_neurons(folded, population)
    )
    return never, always


def silence_constants(folded: FoldedNetwork) -> FoldedNetwork:
    """Channels that never, or always, fire without weights and biases; exactly the same spikes."""
    silenced, constant = {}, {}
    for population in firing(folded):
        never, always = constant_channels(folded, population)
        constant[population.name] = never | always
        ends, neuron = np.where(never, np.inf, -np.inf), population.neuron
        silenced[population.name] = population.with_neuron(
            replace(
                neuron,
                threshold=_where_channel(never | always, ends, neuron.threshold),
                bias=_where_channel(never | always, 0.0, neuron.bias),
            )
        )
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


def _where_channel(channels: Array, value: Array | float, otherwise: Array) -> Array:
    """`value` in the rows of those channels."""
    repeat = len(otherwise) // len(channels)  # a dense layer onto a picture has a row per neuron
    chosen, values = (
        per_channel(np.repeat(np.broadcast_to(v, len(channels)), repeat), otherwise.shape)
        for v in (channels, value)
    )
    return np.where(chosen, values, otherwise)


# ---- a network --------------------------------------------------------------------------------


def cores_of_channels(network: IntNetwork, profile: HardwareProfile) -> dict[str, Array]:
    """Per population, a number for each channel; channels with another number sit on other cores."""
    return {
        layer.name: np.arange(layer.shape[0]) // layer.tile[0] for layer in place(network, profile).layers
    }


def one_core(network: IntNetwork) -> dict[str, Array]:
    """As if all channels of a population sat on one core."""
    return {p.name: np.zeros(p.shape[0], int) for p in network.layers}


def few_enough(network: IntNetwork, profile: HardwareProfile, limits: ThresholdLimits) -> bool:
    """Whether no core has more thresholds than it holds, where the network's neurons sit now."""
    if limits.per_core is None:
        return True
    placed = {layer.name: layer for layer in place(network, profile).layers}
    for population in firing(network):
        values = np.broadcast_to(population.neuron.threshold, population.shape)
        tiles = placed[population.name].tiles()
        if any(len(np.unique(values[tile])) > limits.per_core for tile in tiles):
            return False
    return True


def hold_thresholds(
    folded: FoldedNetwork,
    grids: Mapping[str, Grid],
    evidence: Mapping[str, Evidence],
    cores: Mapping[str, Array],
    limits: ThresholdLimits,
    formats: Formats,
) -> tuple[IntNetwork, dict[str, Grid]]:
    """Integers under the limits, in which no state can overflow, and their grids."""

    def hold(name: str, grid: Grid, most: Array) -> Grid:
        population = spiking(folded.layer(name))
        if population is None:
            return replace(grid, scales=np.minimum(grid.scales, most))
        if limits.per_core is None and not limits.shared:
            lower = replace(grid, scales=np.minimum(grid.scales, most))
            return raise_thresholds(folded, population, lower, evidence[name], limits, formats)
        room = _room(folded, population, grid, most, formats)
        return share_thresholds(folded, population, grid, evidence[name], room, cores[name], limits, formats)

    ceilings = {name: np.full(grid.scales.shape, np.inf) for name, grid in grids.items()}

    def lower(name: str, grid: Grid, excess: Array) -> Grid:
        less = np.where(excess > 1, lowered(grid.scales, excess), np.inf)
        ceilings[name] = np.minimum(ceilings[name], less)
        return hold(name, grids[name], ceilings[name])

    held = {name: hold(name, grid, ceilings[name]) for name, grid in grids.items()}
    return round_without_overflow(folded, held, formats, lower)


# ---- one population ---------------------------------------------------------------------------


def forgets(folded: FoldedNetwork, neuron: FloatLif) -> bool:
    """Whether no voltage outlives its step."""
    return neuron.leak == 0 or folded.timesteps == 1


@record
class Neurons:
    """A population as the choice of its thresholds sees it; arrays are [channels, neurons], or [channels].

    A channel whose neurons are all alike counts as one neuron.
    """

    bias: Array
    lowest: Array  # as in `threshold_range`
    highest: Array
    share: Array  # of what a threshold moves that a bias takes over
    forgets: bool

    @property
    def constant(self) -> Array:
        return self.lowest < self.highest

    @property
    def typical(self) -> Array:
        """Per channel, the median threshold; NaN if all its neurons are constant."""
        values = np.where(self.constant, np.nan, self.lowest)
        some = ~self.constant.all(axis=1)
        typical = np.full(len(values), np.nan)
        typical[some] = np.nanmedian(values[some], axis=1)
        return typical

    def offset(self, scales: Array, thresholds: Array) -> Array:
        """What the integer biases must add, [channels, neurons]; see the top of this file."""
        low, high = scales[:, None] * self.lowest, scales[:, None] * self.highest
        offset: Array = self.share * (thresholds - np.clip(thresholds, low, high))
        clear = np.where(self.constant & (offset > 0), CLEAR, 0.0)
        offset += np.where(self.constant, clear, UP_TO_A_TIE) if self.forgets else clear
        return offset

    def bias_limits(self, thresholds: Array, most: int) -> Array:
        """The largest scales under which |scale * bias + offset| <= most, where thresholds move to these."""
        towards = np.where(self.constant, np.clip(0.0, self.lowest, self.highest), self.lowest)
        rest = self.bias - self.share * towards
        moved = self.share * thresholds
        with np.errstate(divide="ignore", over="ignore"):  # by almost nothing: no limit
            above = np.where(rest > 0, (most - CLEAR - 1 - moved) / rest, np.inf)
            below = np.where(rest < 0, (most - CLEAR - 1 + moved) / -rest, np.inf)
        limits: Array = np.minimum(above, below).min(axis=1)
        return limits

    def at(self, channels: Array) -> Neurons:
        """Some of the channels."""
        parts = {name: getattr(self, name)[channels] for name in ("bias", "lowest", "highest", "share")}
        return replace(self, **parts)


def _neurons(folded: FoldedNetwork, population: Population[FloatLif], evidence: Evidence) -> Neurons:
    neuron, shape = population.neuron, population.shape
    lowest, highest = threshold_range(folded, population)
    growth = evidence.growth.numpy()
    fitted = per_channel(growth.sum(axis=0) / (growth**2).sum(axis=0), shape)
    # A neuron that always fires has no memory; one that never does is better held down too much.
    share = np.where(lowest < highest, 1.0, fitted)
    whole = [np.broadcast_to(values, shape) for values in (neuron.bias, lowest, highest, share)]
    if all(compact(values).size == shape[0] for values in whole):
        whole = [compact(values) for values in whole]
    bias, lowest, highest, share = (values.reshape(shape[0], -1) for values in whole)
    return Neurons(bias=bias, lowest=lowest, highest=highest, share=share, forgets=forgets(folded, neuron))


def _as_population(values: Array, population: FloatPopulation) -> Array:
    """[channels, neurons] in the shape of a population's parameters"""
    whole = values.shape[1] > 1 or len(population.shape) == 1
    return compact(values.reshape(population.shape)) if whole else per_channel(values, population.shape)


def raise_thresholds(
    folded: FoldedNetwork,
    population: Population[FloatLif],
    grid: Grid,
    evidence: Evidence,
    limits: ThresholdLimits,
    formats: Formats,
) -> Grid:
    """Each neuron keeps its own threshold, but none below the lowest: there, biases make up for it."""
    neurons = _neurons(folded, population, evidence)
    # Only thresholds that must rise lean on biases.
    rising = neurons.highest <= 0
    leaning = replace(
        neurons, lowest=np.where(rising, neurons.lowest, 0.0), highest=np.where(rising, neurons.highest, 0.0)
    )
    scales = np.minimum(grid.scales, leaning.bias_limits(np.where(rising, limits.lowest, 0), formats.bias))
    top = scales[:, None] * neurons.highest
    thresholds = np.clip(np.floor(top), limits.lowest, limits.highest)
    offset = np.where(top < limits.lowest, neurons.offset(scales, thresholds), 0.0)
    held = Held(
        thresholds=_as_population(thresholds.astype(np.int32), population),
        offset=_as_population(offset, population),
        groups=None,
    )
    return replace(grid, scales=scales, held=held)


# ---- few thresholds for many channels ---------------------------------------------------------


@record
class Room:
    """What bounds the scales of a population's channels, and the noise that rounding makes under them."""

    state: Array  # the largest scale that keeps states, and biases alone, within their formats
    weight: Array  # the largest that clips no weight
    grid: Grid
    population: FloatPopulation
    entering: list[Connection]
    powers: list[float]  # per connection: of what its weights multiply, as it adds up in a voltage
    formats: Formats

    @property
    def most(self) -> Array:
        most = np.minimum(self.state, self.weight)
        return np.where(np.isfinite(most), most, 1.0)

    def noise(self, channels: Array, scales: Array) -> Array:
        """The standard deviation of the voltage error, in real units: what rounding takes from weights."""
        square = 1 / (12 * scales**2)  # of the bias
        for c, power, exponent in zip(self.entering, self.powers, self.grid.exponents, strict=True):
            quanta = (self.formats.step * 2.0**exponent / scales)[:, None]
            weight = c.synapse.weight.reshape(len(self.state), -1)[channels]
            rounded = np.clip(np.rint(weight / quanta), -self.formats.weight, self.formats.weight) * quanta
            rows = len(c.synapse.weight) // len(self.state)  # of a dense layer onto a picture, one per neuron
            square += power * ((weight - rounded) ** 2).sum(axis=1) / rows
        noise: Array = np.sqrt(square)
        return noise

    def snapped(self, channels: Array, scales: Array) -> Array:
        """Scales a little lower, under which shortcuts need no rounding."""
        all_scales = np.ones(len(self.state))
        all_scales[channels] = np.where(np.isfinite(scales) & (scales > 0), scales, 1.0)
        lower = snapped(replace(self.grid, scales=all_scales), self.entering, self.population, self.formats)
        return np.where(lower.scales != all_scales, lower.scales, np.nan)[channels]


def _room(
    folded: FoldedNetwork, population: Population[FloatLif], grid: Grid, most: Array, formats: Formats
) -> Room:
    neuron = population.neuron
    entering = incoming(folded.connections, population.name)
    memory = sum(neuron.leak ** (2 * step) for step in range(folded.timesteps))
    limits = scale_limits(folded, population, formats)
    return Room(
        state=np.min([limits["state"], limits["bias"], most], axis=0),
        weight=weight_limits(folded, population, grid.exponents, formats),
        grid=grid,
        population=population,
        entering=entering,
        powers=[memory * mean_square(folded, c) for c in entering],
        formats=formats,
    )


def share_thresholds(
    folded: FoldedNetwork,
    population: Population[FloatLif],
    grid: Grid,
    evidence: Evidence,
    room: Room,
    cores: Array,
    limits: ThresholdLimits,
    formats: Formats,
) -> Grid:
    """For the channels of each core one threshold, or a few, with the scales that go with them."""
    neurons = _neurons(folded, population, evidence)
    thresholds, scales = np.zeros(len(cores), np.int32), np.ones(len(cores))
    for core in np.unique(cores):
        channels = np.flatnonzero(cores == core)
        candidates = _candidates(neurons, room, channels, limits)
        cost, best = tabulate(neurons, room, evidence, channels, candidates)
        chosen = choose_values(cost, limits.per_core or 1)
        thresholds[channels] = candidates[chosen]
        scales[channels] = best[np.arange(len(channels)), chosen]
    held = Held(
        thresholds=per_channel(thresholds, population.shape),
        offset=_as_population(neurons.offset(scales, thresholds[:, None]), population),
        groups=np.unique(np.stack([cores, thresholds]), axis=1, return_inverse=True)[1].reshape(-1),
    )
    exponents = _exponents(folded, population, grid, scales, formats)
    return replace(grid, scales=scales, exponents=exponents, held=held)


def _candidates(neurons: Neurons, room: Room, channels: Array, limits: ThresholdLimits) -> Array:
    """The thresholds that suit some channel best, evenly from all, and a few below these."""
    with np.errstate(invalid="ignore"):
        suited = np.floor(room.most * neurons.typical)[channels]
    suited = np.unique(suited[(suited > limits.lowest) & (suited <= limits.highest)]).astype(np.int64)
    if not len(suited):
        return np.array([limits.lowest])
    picked = np.linspace(0, len(suited) - 1, MOST_CANDIDATES).round().astype(int)
    below = [max(limits.lowest, suited[0] // divisor) for divisor in (2, 4, 16)]
    candidates: Array = np.unique([limits.lowest, *below, *suited[picked]])
    return candidates


def tabulate(
    neurons: Neurons, room: Room, evidence: Evidence, channels: Array, candidates: Array
) -> tuple[Array, Array]:
    """Per channel and candidate, the least share of spikes that would flip, and the scale that gives it."""
    shape = len(channels), len(candidates)
    cost, best = np.full(shape, np.inf), np.ones(shape)
    some = neurons.at(channels)
    for column, threshold in enumerate(candidates):
        for scales in _trials(some, room, channels, float(threshold)):
            fits = _fits(some, room, channels, scales, float(threshold))
            tried = np.where(fits, scales, 1.0)
            flips = _flips(evidence, some, channels, tried, float(threshold), room.noise(channels, tried))
            if not some.forgets:
                doubted = DOUBT * flips + 1 / len(evidence.fires)
                flips = np.where(_is_exact(some, tried, float(threshold)), flips, doubted)
            better = fits & (flips < cost[:, column])
            cost[better, column], best[better, column] = flips[better], tried[better]
    return cost, best


def _is_exact(neurons: Neurons, scales: Array, threshold: float) -> Array:
    """Per channel, whether biases need not stand in for the threshold of any neuron."""
    slack = 1e-6 * max(1.0, threshold)
    low, high = scales[:, None] * neurons.lowest - slack, scales[:, None] * neurons.highest + slack
    exact: Array = ((threshold >= low) & (threshold <= high)).all(axis=1)
    return exact


def _trials(neurons: Neurons, room: Room, channels: Array, threshold: float) -> list[Array]:
    """Scales for one threshold: that of the exact way, the finest that biases allow, and their middle."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = threshold / neurons.typical
        held = np.full((len(channels), 1), threshold)
        finest = np.minimum(room.most[channels], neurons.bias_limits(held, room.formats.bias))
        if neurons.forgets:  # then every scale is an exact way
            return [finest]
        return [exact, room.snapped(channels, exact), finest, np.sqrt(exact * finest)]


def _fits(neurons: Neurons, room: Room, channels: Array, scales: Array, threshold: float) -> Array:
    """Whether states and biases keep their formats."""
    with np.errstate(invalid="ignore"):
        sound = np.isfinite(scales) & (scales > 0) & (scales <= room.state[channels])
    tried = np.where(sound, scales, 1.0)
    bias = tried[:, None] * neurons.bias + neurons.offset(tried, np.full((len(tried), 1), threshold))
    fits: Array = sound & (np.abs(bias).max(axis=1) <= room.formats.bias)
    return fits


def _flips(
    evidence: Evidence, neurons: Neurons, channels: Array, scales: Array, threshold: float, noise: Array
) -> Array:
    """The expected share of spikes that flip: mean of Phi(-margin / noise) over the evidence."""
    voltage, growth, lowest, highest = (
        values[:, channels]
        for values in (evidence.voltage, evidence.growth, evidence.lowest, evidence.highest)
    )
    held = torch.tensor(threshold / scales)
    share = torch.tensor(neurons.share.min(axis=1))
    moved = held - torch.clamp(held.expand(lowest.shape), lowest, highest)
    moved = moved * torch.where(lowest < highest, 1.0, share)
    margin = voltage + moved * growth - held
    wrong = torch.where(evidence.fires[:, channels], -margin, margin) / torch.tensor(noise)
    flips: Array = torch.special.ndtr(wrong.to(torch.float32)).mean(dim=0).numpy()
    return flips


def choose_values(cost: Array, few: int) -> Array:
    """Per row one of at most `few` columns, such that the total is least.

    That holds where the cost of each row falls up to some column, its home, and rises from there on: then
    a row takes the nearest chosen column before its home, or after it, and with these in order

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


def _exponents(
    folded: FoldedNetwork, population: FloatPopulation, grid: Grid, scales: Array, formats: Formats
) -> tuple[int, ...]:
    """As small as the weights of these scales allow, but none larger than before."""
    largest = largest_weights(incoming(folded.connections, population.name), population)
    held = formats.weight * formats.step
    needed = [max(float((values * scales).max()) / held, 1.0) for values in largest]
    return tuple(
        min(old, int(np.ceil(np.log2(need) - 1e-9))) for old, need in zip(grid.exponents, needed, strict=True)
    )
