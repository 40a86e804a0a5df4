"""Calibrate: choose the integers that flip the fewest spikes on calibration samples.

Populations are calibrated in order, each on the spikes that the integer network sends to it:

1.  Weights are rounded one after another, and those not yet rounded compensate the error as far as their
    inputs are correlated with it (the OBQ/GPTQ recursion). X are the inputs at some places of the
    calibration samples, and H is their covariance:

        w        <-  w + H^-1 X'(error of the other connections)
        error     =  (w_j - rounded w_j) / U_jj         U the Cholesky factor of H^-1
        w_(>j)   <-  w_(>j) - error * U_j,(>j)

2.  Biases compensate the mean of the remaining error.
3.  Thresholds are decision stumps on the voltage, with the float network's spikes as labels, and neurons
    reset by these spikes. The threshold with the fewest flips is found by sorting.
4.  Scales: steps 1 to 3 are repeated for several scales of each channel, from the one at which the largest
    weight fits to larger ones at which it is clipped. Each channel takes the scale with the fewest flips.

If thresholds are fixed (`thresholds`), biases are shifted instead: a bias d adds d * growth to a voltage,
where growth = 1 + leak + leak**2 + ..., a term per step since the last reset, so that

    voltage + d * growth > threshold    if and only if    (voltage - threshold) / growth > -d

and -d is again found by sorting. Scales and thresholds are then tried together, f * scale and f * threshold,
with one f for all channels that share a threshold.

A channel keeps its nearest rounding if the new integers could overflow, or do not flip fewer spikes when the
population runs. Only the places are random, drawn with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..base import QUIET_SECONDS, Array, record, track
from ..execute.emulator import emulate, respond
from ..ir import (
    STATE_EXPONENT,
    Connection,
    FloatFiringNeuron,
    FloatPopulation,
    FoldedNetwork,
    IntNetwork,
    IntPopulation,
    Neuron,
    Population,
    at_step,
    fires,
    in_steps,
    largest_per_channel,
    neuron_bias,
    neuron_subtrahend,
    neuron_threshold,
    per_channel,
    scale_channels,
    spiking,
    varies,
    with_values,
)
from .joint_rounding import (
    ROWS,
    ROWS_PER_INPUT,
    Places,
    Tie,
    at_places,
    best_cut,
    current,
    draw_places,
    growth,
    has_places,
    inputs_at,
    neurons_at,
    numbers_at,
    round_jointly,
    voltages,
)
from .rounding import overflow, round_population, with_fixed_threshold
from .scales import FixedThresholds, Grid, NumberFormats, scale_limits

FINER = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)  # scales tried, relative to the one at which the largest weight fits
FEW_BITS = 7  # largest mantissa (4 bits) for which clipping on finer grids pays off

Sent = Mapping[str, Array]  # values sent by populations: [samples, timesteps, *shape] or [samples, *shape]


def calibrate(
    folded: FoldedNetwork,
    network: IntNetwork,
    grids: Mapping[str, Grid],
    inputs: Array,
    formats: NumberFormats,
    *,
    tied: bool = False,
) -> IntNetwork:
    """Fit the rounding, biases, thresholds and scales of a network to the calibration inputs.

    With `tied`, weights under one window of a pooling stay equal, so that relays can pool in their place.
    """
    wanted: dict[str, Array] = {folded.input.name: np.asarray(inputs)}
    found = dict(wanted)
    wanted |= recurrent_spikes(folded, inputs)
    for population in track(folded.layers, "calibrate", len(folded.layers), quiet_seconds=QUIET_SECONDS):
        name = population.name
        real = respond(folded, name, wanted)
        plain = respond(network, name, wanted | found)
        activity = (wanted, wanted | found, real[0])
        trial = _fitted(folded, network, population, grids[name], activity, formats.into(name), tied)
        fitted = respond(trial, name, wanted | found)
        better = _better(network, trial, population, (real, plain, fitted), grids[name].fixed, formats)
        network = _mixed(network, trial, name, better)
        wanted[name] = real[0]
        found[name] = np.where(per_channel(better, population.shape), fitted[0], plain[0])
        drop_unused(folded, name, wanted, found)
    return network


def recurrent_spikes(folded: FoldedNetwork, inputs: Array) -> dict[str, Array]:
    """Return the float network's spikes of populations that feed back into themselves or earlier ones."""
    if not folded.feedback:
        return {}
    spikes = emulate(folded, inputs).spikes
    return {connection.source: spikes[connection.source] for connection in folded.feedback}


def drop_unused(folded: FoldedNetwork, done: str, *activities: dict[str, Array]) -> None:
    """Drop spikes that no later population reads, so that memory holds only a few layers."""
    for activity in activities:
        for name in set(activity) - folded.sources_after(done):
            del activity[name]


# ---- one population ---------------------------------------------------------------------------


def _fitted(
    folded: FoldedNetwork,
    network: IntNetwork,
    population: FloatPopulation,
    grid: Grid,
    activity: tuple[Sent, Sent, Array],
    formats: NumberFormats,
    tied: bool,
) -> IntNetwork:
    """Return the network with new integers in one population, chosen as described at the top of this file."""
    wanted, found, spikes = activity
    entering = folded.entering(population.name)
    if not has_places(population.shape, entering):
        return network
    factors, allowed = _factors(folded, population, grid, formats)
    scales = factors * torch.tensor(grid.scales)
    rows = max(ROWS, ROWS_PER_INPUT * max(c.synapse.weight[0].size for c in entering))
    places = draw_places(len(spikes), folded.timesteps, population.shape[1:], rows)
    ties = [Tie.of(c, folded.shapes[c.source]) if tied else Tie(shape=()) for c in entering]
    weights, currents, errors = _fit_weights(
        folded, entering, ties, places, (wanted, found), scales, grid, formats
    )
    shift = errors.mean(dim=1)
    if (lif := spiking(population)) is None:
        cut = torch.zeros_like(shift)
        cost = ((errors - shift[:, None]) ** 2).mean(dim=(1, 2), keepdim=True)[:, 0].expand(shift.shape)
    else:
        cut, cost = _fit_thresholds(lif, grid, currents - errors + shift[:, None], spikes, places)
        cost = _group_cost(cost, allowed, grid.fixed)
    if grid.fixed is not None:
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
    folded: FoldedNetwork, population: FloatPopulation, grid: Grid, formats: NumberFormats
) -> tuple[Tensor, Tensor]:
    """Return, as [trials, channels], factors for the scales, and whether each is allowed.

    Fixed thresholds are multiplied too, so their factors are chosen to give whole numbers. The first factor
    is one.
    """
    finer = torch.tensor(FINER if formats.weight <= FEW_BITS else FINER[:1], dtype=torch.float64)[:, None]
    fixed, channels = grid.fixed, len(grid.scales)
    if fixed is None or fixed.groups is None:
        factors = (finer if fixed is None else finer[:1]).expand(-1, channels)
        return factors, torch.ones_like(factors, dtype=torch.bool)
    thresholds = torch.tensor(fixed.thresholds.reshape(-1), dtype=torch.float64)
    factors = (finer * thresholds).round() / thresholds
    states = scale_limits(folded, population, formats)["state"] / grid.scales
    bias = neuron_bias(population.neuron) + scale_channels(fixed.offset, 1 / grid.scales)
    biases = formats.bias / np.maximum(largest_per_channel(scale_channels(bias, grid.scales)), 1)
    allowed = factors <= torch.tensor(np.minimum(states, biases))
    allowed &= factors * thresholds <= formats.threshold
    allowed[0] = True
    return factors, allowed


def _group_cost(cost: Tensor, allowed: Tensor, fixed: FixedThresholds | None) -> Tensor:
    """Sum the cost of a trial over the channels that share a threshold; infinity if it is not allowed."""
    cost = cost.to(torch.float64).masked_fill(~allowed, torch.inf)
    if fixed is None or fixed.groups is None:
        return cost
    groups = torch.tensor(fixed.groups)
    totals = torch.zeros(len(cost), int(groups.max()) + 1, dtype=torch.float64)
    return totals.index_add_(1, groups, cost)[:, groups]


def _fit_weights(
    folded: FoldedNetwork,
    entering: list[Connection],
    ties: list[Tie],
    places: Places,
    activity: tuple[Sent, Sent],
    scales: Tensor,
    grid: Grid,
    formats: NumberFormats,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return the rounded weights per connection, the currents of the float network, and the remaining errors.

    Connections with many weights come last, because they can compensate the errors of the others.
    """
    shapes = folded.shapes
    exact = [
        tie.firsts(torch.tensor(c.synapse.weight).flatten(1)) for tie, c in zip(ties, entering, strict=True)
    ]
    taken, wanted = [], torch.zeros(())
    for connection, tie, weight in zip(entering, ties, exact, strict=True):
        name = connection.source
        wanted_inputs, inputs = (
            tie.sums(inputs_at(connection, sent[name], shapes[name], places, folded.timesteps))
            for sent in activity
        )
        wanted = wanted + current(weight, wanted_inputs)
        taken.append(inputs)
    flipped = wanted - sum(map(current, exact, taken))  # current errors due to flips upstream
    left = torch.zeros(len(scales), *wanted.shape, dtype=wanted.dtype)
    rounded = list(exact)
    for index in sorted(range(len(entering)), key=lambda k: exact[k].shape[1]):
        quanta = formats.quantum(grid.exponents[index]) / scales
        # Weights do not compensate flips upstream: regression on noisy spikes would shrink them all.
        rounded[index] = round_jointly(exact[index], taken[index], left, quanta, formats.weight)
        left = left - current(rounded[index] - exact[index], taken[index])
    spread = [tie.spread(weight) for tie, weight in zip(ties, rounded, strict=True)]
    return spread, wanted, flipped + left


def _fit_thresholds(
    population: Population[FloatFiringNeuron], grid: Grid, currents: Tensor, spikes: Array, places: Places
) -> tuple[Tensor, Tensor]:
    """Return, as [trials, channels], the best shift of the thresholds, and how many spikes flip with it.

    If thresholds are fixed, the shift is to be subtracted from the biases instead.
    """
    neuron = with_fixed_threshold(population.neuron, grid)
    labels = at_places(spikes, places)
    timed = currents.reshape(len(currents), *labels.shape)
    threshold = numbers_at(neuron.threshold, population, places)
    margins = voltages(timed, labels, population.with_neuron(neuron), places) - threshold
    if grid.fixed is not None:
        leak = neurons_at(np.asarray(neuron.leak), population.shape, places)
        margins = margins / growth(labels, neuron, leak)
    return best_cut(margins.flatten(1, 2), labels.flatten(0, 1))


@record
class _Fit:
    """New numbers for one population, in real units."""

    scales: Array
    factors: Array  # of the scales, relative to before
    weights: list[Array]  # per connection: [channels, inputs of a group]
    bias: Array  # added to the biases
    threshold: Array  # added to the thresholds


def _with_fit(
    folded: FoldedNetwork,
    network: IntNetwork,
    population: FloatPopulation,
    grid: Grid,
    fit: _Fit,
    formats: NumberFormats,
) -> IntNetwork:
    """Return the network with the integers of a fit in one population."""
    name, shape = population.name, population.shape
    new = {}
    for old, weight, exponent in zip(network.entering(name), fit.weights, grid.exponents, strict=True):
        mantissa = np.rint(weight * fit.scales[:, None] / formats.quantum(exponent)).astype(np.int32)
        integers = (formats.weight_step(exponent) * mantissa).reshape(old.synapse.weight.shape)
        new[old] = replace(old, synapse=replace(old.synapse, weight=integers))
    neuron, threshold = population.neuron, neuron_threshold(population.neuron)
    shifted = with_values(
        neuron,
        bias=neuron_bias(neuron) + per_channel(fit.bias, shape),
        threshold=None if threshold is None else threshold + per_channel(fit.threshold, shape),
    )
    moved = replace(grid, scales=fit.scales, fixed=grid.fixed and _multiplied(grid.fixed, fit.factors))
    rounded = round_population(folded, population.with_neuron(shifted), moved, formats)
    return replace(
        network,
        populations=tuple(rounded if p.name == name else p for p in network.populations),
        connections=tuple(new.get(c, c) for c in network.connections),
        scales={**network.scales, name: fit.scales},
    )


def _multiplied(fixed: FixedThresholds, factors: Array) -> FixedThresholds:
    """Multiply thresholds and bias offsets by the factors of their channels."""
    thresholds = np.rint(scale_channels(fixed.thresholds, factors)).astype(np.int32)
    return replace(fixed, thresholds=thresholds, offset=scale_channels(fixed.offset, factors))


def _better(
    network: IntNetwork,
    trial: IntNetwork,
    population: FloatPopulation,
    responses: tuple[tuple[Array, Array], ...],
    fixed: FixedThresholds | None,
    formats: NumberFormats,
) -> Array:
    """Return, per channel, whether the trial is better than nearest rounding and cannot overflow."""
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
    if fixed is None or fixed.groups is None:
        return better
    # If the threshold of a group changed, all of its channels take the trial, or none.
    before, after = (_channel_thresholds(which, name) for which in (network, trial))
    moved = np.bincount(fixed.groups, before != after) > 0
    fewer = np.bincount(fixed.groups, flips[1]) < np.bincount(fixed.groups, flips[0])
    whole = fewer & (np.bincount(fixed.groups, ~safe) == 0)
    return np.where(moved[fixed.groups], whole[fixed.groups], better)


def _channel_thresholds(network: IntNetwork, name: str) -> Array:
    threshold = neuron_threshold(network.layer(name).neuron)
    assert threshold is not None, "only neurons that fire have fixed thresholds"
    return threshold.reshape(-1)


def _outputs(network: IntNetwork, name: str, voltages: Array) -> Array:
    """Convert a readout's voltages to real numbers, divided by the time steps as in the float network."""
    scales = per_channel(network.scales[name], voltages.shape[1:])
    outputs: Array = voltages / (2**STATE_EXPONENT * scales * network.timesteps)
    return outputs


def _mixed(network: IntNetwork, trial: IntNetwork, name: str, better: Array) -> IntNetwork:
    """Return the network with the trial's integers in the channels where it is better."""

    def pick(new: Array, old: Array) -> Array:
        rows = np.repeat(better, len(new) // len(better))
        return np.where(rows.reshape(-1, *(1 for _ in new.shape[1:])), new, old)

    def population(old: IntPopulation, new: IntPopulation) -> IntPopulation:
        if old.name != name:
            return old
        if not (varies(old.neuron) or varies(new.neuron)):
            return old.with_neuron(neuron(old.neuron, new.neuron))
        steps = range(network.timesteps)
        return old.with_neuron(
            in_steps([neuron(at_step(old.neuron, t), at_step(new.neuron, t)) for t in steps])
        )

    def neuron(old: Neuron, new: Neuron) -> Neuron:
        bias = pick(neuron_bias(new), neuron_bias(old))
        threshold, subtrahend = (
            None if (after := values(new)) is None or (before := values(old)) is None else pick(after, before)
            for values in (neuron_threshold, neuron_subtrahend)
        )
        return with_values(new, bias, threshold, subtrahend)

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
