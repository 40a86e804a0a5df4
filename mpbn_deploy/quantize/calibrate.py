"""Rounding that learns from data: the integers under which the fewest spikes flip.

Population after population, each seeing what the integer network before it really sends:

1.  Weights. At some places of the calibration samples, what the rounding of one weight does wrong, the
    weights not yet rounded put right as far as what they multiply is correlated with it (the OBQ/GPTQ
    recursion, with H the covariance of the inputs):

        w        <-  w + H^-1 X'(what the other connections left wrong)
        error     =  (w_j - rounded w_j) / U_jj         U the Cholesky factor of H^-1
        w_(>j)   <-  w_(>j) - error * U_j,(>j)

2.  Biases take the mean error that is left.
3.  Thresholds. With the float network's spikes as labels, and its resets, a threshold is a decision
    stump on the voltage: the one with the fewest flips is found by sorting.
4.  Scales. All of this is done for several scales of each channel, coarse grids that hold the largest
    weight and finer ones that clip it, and each channel takes the one with the fewest flips.

Where thresholds are held (`thresholds`), biases take the cut: a bias d adds d * growth to a voltage, where
growth counts the steps since the last reset, so that

    voltage + d * growth > threshold    where    (voltage - threshold) / growth > -d

and -d is again found by sorting. Then scales and thresholds are tried together, f * scale and
f * threshold, one f for all channels that share a threshold.

A channel keeps its plain rounding where that flips fewer spikes when the population really runs, and
where the new one could overflow. Nothing is random but the places, and they are drawn by a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..base import Array, record, track
from ..execute.emulator import emulate, respond
from ..ir import (
    STATE_EXPONENT,
    Connection,
    Dense,
    FloatLif,
    FloatPopulation,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Population,
    fires,
    incoming,
    largest_per_channel,
    neuron_bias,
    neuron_threshold,
    per_channel,
    scale_channels,
    spiking,
    with_values,
)
from .joint_rounding import (
    ROWS,
    ROWS_PER_INPUT,
    Places,
    at_places,
    best_cut,
    current,
    draw_places,
    growth,
    inputs_at,
    round_jointly,
    voltages,
)
from .rounding import as_held, overflow, round_population
from .scales import Formats, Grid, Held, scale_limits

FINER = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)  # scales tried, times the one that holds the largest weight
FEW_BITS = 7  # mantissas up to this (4 bits) gain from finer grids that clip

Sent = Mapping[str, Array]  # what populations send: [samples, timesteps, *shape], or [samples, *shape]


def calibrate(
    folded: FoldedNetwork, network: IntNetwork, grids: Mapping[str, Grid], inputs: Array, formats: Formats
) -> IntNetwork:
    """The integer network with rounding, biases, thresholds and scales fitted to the calibration inputs."""
    wanted: dict[str, Array] = {folded.input.name: np.asarray(inputs)}
    found = dict(wanted)
    wanted |= recurrent_spikes(folded, inputs)
    names = [population.name for population in folded.populations]
    for population in track(folded.layers, "calibrate", len(folded.layers), quiet_seconds=5.0):
        name = population.name
        real = respond(folded, name, wanted)
        plain = respond(network, name, wanted | found)
        trial = _fitted(folded, network, population, grids[name], (wanted, wanted | found, real[0]), formats)
        fitted = respond(trial, name, wanted | found)
        better = _better(network, trial, population, (real, plain, fitted), grids[name].held, formats)
        network = _mixed(network, trial, name, better)
        wanted[name] = real[0]
        found[name] = np.where(per_channel(better, population.shape), fitted[0], plain[0])
        forget(folded, names, name, wanted, found)
    return network


def recurrent_spikes(folded: FoldedNetwork, inputs: Array) -> dict[str, Array]:
    """What reaches a population from itself or later ones: taken from the float network's own run."""
    place = {population.name: index for index, population in enumerate(folded.populations)}
    backward = {c.source for c in folded.connections if place[c.source] >= place[c.target]}
    if not backward:
        return {}
    spikes = emulate(folded, inputs).spikes
    return {name: spikes[name] for name in backward}


def forget(folded: FoldedNetwork, names: list[str], done: str, *activities: dict[str, Array]) -> None:
    """Drop what no population to come will read, so that the memory stays that of a few layers."""
    later = names[names.index(done) + 1 :]
    read = {c.source for c in folded.connections if c.target in later}
    for activity in activities:
        for name in set(activity) - read:
            del activity[name]


# ---- one population ---------------------------------------------------------------------------


def _fitted(
    folded: FoldedNetwork,
    network: IntNetwork,
    population: FloatPopulation,
    grid: Grid,
    activity: tuple[Sent, Sent, Array],
    formats: Formats,
) -> IntNetwork:
    """The network with new integers in one population; see the top of this file."""
    wanted, found, spikes = activity
    entering = incoming(folded.connections, population.name)
    if len(population.shape) == 3 and any(isinstance(c.synapse, Dense) for c in entering):
        return network  # a matrix onto a picture has no kernel whose places could be drawn
    factors, allowed = _factors(folded, population, grid, formats)
    scales = factors * torch.tensor(grid.scales)
    rows = max(ROWS, ROWS_PER_INPUT * max(c.synapse.weight[0].size for c in entering))
    places = draw_places(len(spikes), folded.timesteps, population.shape[1:], rows)
    weights, currents, errors = _fit_weights(folded, entering, places, (wanted, found), scales, grid, formats)
    shift = errors.mean(dim=1)
    if (lif := spiking(population)) is None:
        cut = torch.zeros_like(shift)
        cost = ((errors - shift[:, None]) ** 2).mean(dim=(1, 2), keepdim=True)[:, 0].expand(shift.shape)
    else:
        cut, cost = _fit_thresholds(lif, grid, currents - errors + shift[:, None], spikes, places)
        cost = _group_cost(cost, allowed, grid.held)
    if grid.held is not None:
        shift, cut = shift - cut, torch.zeros_like(cut)
    chosen, channels = cost.argmin(dim=0), torch.arange(cost.shape[1])
    fit = _Fit(
        scales=scales[chosen, channels].numpy(),
        factors=factors[chosen, channels].numpy(),
        weights=[weight[chosen, channels].numpy() for weight in weights],
        bias=shift[chosen, channels].numpy(),
        threshold=cut[chosen, channels].numpy(),
    )
    return _with_fit(folded, network, population, grid, fit, formats)


def _factors(
    folded: FoldedNetwork, population: FloatPopulation, grid: Grid, formats: Formats
) -> tuple[Tensor, Tensor]:
    """[trials, channels]: what scales are multiplied by, and whether that is allowed.

    Held thresholds are multiplied too, and must be whole again; the first factor is one.
    """
    finer = torch.tensor(FINER if formats.weight <= FEW_BITS else FINER[:1], dtype=torch.float64)[:, None]
    held, channels = grid.held, len(grid.scales)
    if held is None or held.groups is None:
        factors = (finer if held is None else finer[:1]).expand(-1, channels)
        return factors, torch.ones_like(factors, dtype=torch.bool)
    thresholds = torch.tensor(held.thresholds.reshape(-1), dtype=torch.float64)
    factors = (finer * thresholds).round() / thresholds
    states = scale_limits(folded, population, formats)["state"] / grid.scales
    bias = neuron_bias(population.neuron) + scale_channels(held.offset, 1 / grid.scales)
    biases = formats.bias / np.maximum(largest_per_channel(scale_channels(bias, grid.scales)), 1)
    allowed = factors <= torch.tensor(np.minimum(states, biases))
    allowed &= factors * thresholds <= formats.threshold
    allowed[0] = True
    return factors, allowed


def _group_cost(cost: Tensor, allowed: Tensor, held: Held | None) -> Tensor:
    """The cost of a trial to all channels that must take the same one; infinite where it is not allowed."""
    cost = cost.to(torch.float64).masked_fill(~allowed, torch.inf)
    if held is None or held.groups is None:
        return cost
    groups = torch.tensor(held.groups)
    totals = torch.zeros(len(cost), int(groups.max()) + 1, dtype=torch.float64)
    return totals.index_add_(1, groups, cost)[:, groups]


def _fit_weights(
    folded: FoldedNetwork,
    entering: list[Connection],
    places: Places,
    activity: tuple[Sent, Sent],
    scales: Tensor,
    grid: Grid,
    formats: Formats,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Weights on their grids per connection, the wanted currents, and what is left of their errors.

    Connections with many weights come last: they can put right what the others had to leave.
    """
    shapes = {p.name: p.shape for p in folded.populations}
    exact = [torch.tensor(c.synapse.weight).flatten(1) for c in entering]
    taken, wanted = [], torch.zeros(())
    for connection, weight in zip(entering, exact, strict=True):
        name = connection.source
        wanted_inputs, inputs = (
            inputs_at(connection, sent[name], shapes[name], places, folded.timesteps) for sent in activity
        )
        wanted = wanted + current(weight, wanted_inputs)
        taken.append(inputs)
    flipped = wanted - sum(map(current, exact, taken))  # what spikes that flipped upstream changed
    left = torch.zeros(len(scales), *wanted.shape, dtype=wanted.dtype)
    rounded = list(exact)
    for index in sorted(range(len(entering)), key=lambda k: exact[k].shape[1]):
        quanta = formats.step * 2.0 ** grid.exponents[index] / scales
        # Weights are not fitted to what flips changed: regression on noisy spikes would shrink them all.
        rounded[index] = round_jointly(exact[index], taken[index], left, quanta, formats.weight)
        left = left - current(rounded[index] - exact[index], taken[index])
    return rounded, wanted, flipped + left


def _fit_thresholds(
    population: Population[FloatLif], grid: Grid, currents: Tensor, spikes: Array, places: Places
) -> tuple[Tensor, Tensor]:
    """What is added to the thresholds of each channel, per trial, and how many spikes flip then.

    Where thresholds are held, it is subtracted from the biases instead.
    """
    neuron = as_held(population.neuron, grid)
    labels = at_places(spikes, places)
    timed = currents.reshape(len(currents), *labels.shape)
    bias, threshold = (
        at_places(np.broadcast_to(values, (int(places.sample.max()) + 1, 1, *population.shape)), places)
        for values in (neuron.bias, neuron.threshold)
    )
    margins = voltages(timed, bias[:, 0], labels, neuron.leak, neuron.current_leak) - threshold
    if grid.held is not None:
        margins = margins / growth(labels, neuron.leak)
    return best_cut(margins.flatten(1, 2), labels.flatten(0, 1))


@record
class _Fit:
    """What one population shall have, in real numbers; thresholds and biases as what is added to them."""

    scales: Array
    factors: Array  # by which scales were multiplied
    weights: list[Array]  # [channel, inputs of its group], per connection
    bias: Array
    threshold: Array


def _with_fit(
    folded: FoldedNetwork,
    network: IntNetwork,
    population: FloatPopulation,
    grid: Grid,
    fit: _Fit,
    formats: Formats,
) -> IntNetwork:
    name, shape = population.name, population.shape
    new = {}
    for old, weight, exponent in zip(
        incoming(network.connections, name), fit.weights, grid.exponents, strict=True
    ):
        mantissa = np.rint(weight * fit.scales[:, None] / (formats.step * 2.0**exponent)).astype(np.int32)
        integers = (formats.step * mantissa).reshape(old.synapse.weight.shape)
        new[id(old)] = replace(old, synapse=replace(old.synapse, weight=integers))
    neuron, threshold = population.neuron, neuron_threshold(population.neuron)
    shifted = with_values(
        neuron,
        bias=neuron_bias(neuron) + per_channel(fit.bias, shape),
        threshold=None if threshold is None else threshold + per_channel(fit.threshold, shape),
    )
    moved = replace(grid, scales=fit.scales, held=grid.held and _multiplied(grid.held, fit.factors))
    rounded = round_population(folded, population.with_neuron(shifted), moved, formats)
    return replace(
        network,
        populations=tuple(rounded if p.name == name else p for p in network.populations),
        connections=tuple(new.get(id(c), c) for c in network.connections),
        scales={**network.scales, name: fit.scales},
    )


def _multiplied(held: Held, factors: Array) -> Held:
    """Thresholds, and what biases add for them, of scales multiplied by factors."""
    thresholds = np.rint(scale_channels(held.thresholds, factors)).astype(np.int32)
    return replace(held, thresholds=thresholds, offset=scale_channels(held.offset, factors))


def _better(
    network: IntNetwork,
    trial: IntNetwork,
    population: FloatPopulation,
    responses: tuple[tuple[Array, Array], ...],
    held: Held | None,
    formats: Formats,
) -> Array:
    """Per channel, whether the trial does better than plain rounding, and cannot overflow."""
    name = population.name
    real, plain, fitted = responses
    safe = overflow(trial, trial.layer(name), formats) <= 1
    if not fires(population.neuron):
        errors = [
            np.mean((_outputs(which, name, got[1]) - real[1]) ** 2)
            for which, got in ((network, plain), (trial, fitted))
        ]
        return np.full(population.shape[0], bool(safe.all() and errors[1] < errors[0]))
    others = tuple(axis for axis in range(real[0].ndim) if axis != 2)
    flips = [np.count_nonzero(got[0] != real[0], axis=others) for got in (plain, fitted)]
    better: Array = safe & (flips[1] < flips[0])
    if held is None or held.groups is None:
        return better
    # A group whose threshold moved takes the trial as a whole, or not at all.
    before, after = (_channel_thresholds(which, name) for which in (network, trial))
    moved = np.bincount(held.groups, before != after) > 0
    fewer = np.bincount(held.groups, flips[1]) < np.bincount(held.groups, flips[0])
    whole = fewer & (np.bincount(held.groups, ~safe) == 0)
    return np.where(moved[held.groups], whole[held.groups], better)


def _channel_thresholds(network: IntNetwork, name: str) -> Array:
    threshold = neuron_threshold(network.layer(name).neuron)
    assert threshold is not None, "held thresholds are those of neurons that fire"
    return threshold.reshape(-1)


def _outputs(network: IntNetwork, name: str, voltages: Array) -> Array:
    """A readout's voltages as real numbers: those of the float network are divided by the time steps."""
    scales = per_channel(network.scales[name], voltages.shape[1:])
    outputs: Array = voltages / (2**STATE_EXPONENT * scales * network.timesteps)
    return outputs


def _mixed(network: IntNetwork, trial: IntNetwork, name: str, better: Array) -> IntNetwork:
    """The trial's integers in channels where it is better, elsewhere those of the network."""

    def pick(new: Array, old: Array) -> Array:
        rows = np.repeat(better, len(new) // len(better))
        return np.where(rows.reshape(-1, *(1 for _ in new.shape[1:])), new, old)

    def population(old: IntPopulation, new: IntPopulation) -> IntPopulation:
        if old.name != name:
            return old
        bias = pick(neuron_bias(new.neuron), neuron_bias(old.neuron))
        after, before = neuron_threshold(new.neuron), neuron_threshold(old.neuron)
        threshold = None if after is None or before is None else pick(after, before)
        return old.with_neuron(with_values(new.neuron, bias, threshold))

    def connection(old: Connection, new: Connection) -> Connection:
        if old.target != name:
            return old
        weight = pick(new.synapse.weight, old.synapse.weight)
        return replace(old, synapse=replace(old.synapse, weight=weight))

    return replace(
        network,
        populations=(network.input, *map(population, network.layers, trial.layers)),
        connections=tuple(map(connection, network.connections, trial.connections)),
        scales={**network.scales, name: pick(trial.scales[name], network.scales[name])},
    )
