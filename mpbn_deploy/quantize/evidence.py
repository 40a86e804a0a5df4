"""By what thresholds are judged before anything is rounded: voltages of the float network, and its spikes.

With calibration data they are measured, at some places of some samples, each neuron reset where the float
network resets it. Without, they are imagined: currents are drawn from normal distributions with the mean
and variance that independent inputs would give them, and neurons run on these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..base import Array, record
from ..execute.emulator import respond
from ..ir import (
    Dense,
    FloatLif,
    FloatPopulation,
    FoldedNetwork,
    Population,
    firing,
    incoming,
    membrane,
    spiking,
    value_range,
)
from .calibrate import forget, recurrent_spikes
from .joint_rounding import Places, at_places, current, draw_places, growth, inputs_at, voltages
from .scales import SPIKE_POWER, constant_neurons, reachable

ROWS = 1024  # voltages per channel
SAMPLES = 64  # of the calibration data


@record
class Evidence:
    """All [rows, channels]: what neurons of each channel did in a time step.

    Any threshold from `lowest` to `highest` would do the same to a neuron. They are one but for neurons
    that never, or always, fire.
    """

    voltage: Tensor  # when it is compared with the threshold
    growth: Tensor  # what a bias of one adds to it
    fires: Tensor
    lowest: Tensor
    highest: Tensor


def gather_evidence(folded: FoldedNetwork, inputs: Array | None) -> dict[str, Evidence]:
    """For every population that fires."""
    if inputs is None:
        return {population.name: imagine(folded, population) for population in firing(folded)}
    return _measure(folded, np.asarray(inputs)[:SAMPLES])


def threshold_range(folded: FoldedNetwork, population: Population[FloatLif]) -> tuple[Array, Array]:
    """Per neuron, the lowest and the highest threshold under which it fires as with its own.

    Both are that threshold, but for one that never fires: anything from the highest voltage it can reach
    on; and for one that always fires: anything below what it reaches in every step, starting from zero.
    """
    neuron = population.neuron
    own = np.broadcast_to(neuron.threshold, population.shape)
    never, always = constant_neurons(folded, population)
    (low, _), (lowest, reached) = reachable(folded, population)
    least = low + neuron.bias if neuron.current_leak == 0 else lowest
    below = np.nextafter(least, -np.inf)  # strictly: at its threshold, none fires
    return (
        np.where(never, reached, np.where(always, -np.inf, own)),
        np.where(never, np.inf, np.where(always, below, own)),
    )


# ---- measured ---------------------------------------------------------------------------------


def _measure(folded: FoldedNetwork, inputs: Array) -> dict[str, Evidence]:
    sent = {folded.input.name: inputs, **recurrent_spikes(folded, inputs)}
    names = [population.name for population in folded.populations]
    found = {}
    for population in folded.layers:
        name = population.name
        spikes = respond(folded, name, sent)[0]
        if (lif := spiking(population)) is not None:
            found[name] = _measure_population(folded, lif, sent, spikes)
        sent[name] = spikes
        forget(folded, names, name, sent)
    return found


def _measure_population(
    folded: FoldedNetwork, population: Population[FloatLif], sent: dict[str, Array], spikes: Array
) -> Evidence:
    entering, neuron = incoming(folded.connections, population.name), population.neuron
    if len(population.shape) == 3 and any(isinstance(c.synapse, Dense) for c in entering):
        return imagine(
            folded, population
        )  # a matrix onto a picture has no kernel whose places could be drawn
    shapes = {p.name: p.shape for p in folded.populations}
    places = draw_places(len(spikes), folded.timesteps, population.shape[1:], ROWS)
    fires = at_places(spikes, places)
    currents = torch.zeros(fires.shape[0] * fires.shape[1], fires.shape[2], dtype=torch.float64)
    for c in entering:
        arriving = inputs_at(c, sent[c.source], shapes[c.source], places, folded.timesteps)
        currents += current(torch.tensor(c.synapse.weight).flatten(1), arriving)
    bias, *ends = (
        _at_neurons(values, population, places)
        for values in (neuron.bias, *threshold_range(folded, population))
    )
    timed = currents.reshape(1, *fires.shape)
    return _evidence(neuron, voltages(timed, bias, fires, neuron.leak, neuron.current_leak)[0], fires, ends)


def _at_neurons(values: Array, population: FloatPopulation, places: Places) -> Tensor:
    """What belongs to neurons, at places: [places, channels]"""
    samples = int(places.sample.max()) + 1
    return at_places(np.broadcast_to(values, (samples, 1, *population.shape)), places)[:, 0]


def _evidence(neuron: FloatLif, voltage: Tensor, fires: Tensor, ends: list[Tensor]) -> Evidence:
    """Of tensors [places, timesteps, channels], and [places, channels] that hold for all steps."""
    lowest, highest = (end[:, None].expand(voltage.shape).flatten(0, 1) for end in ends)
    return Evidence(
        voltage=voltage.flatten(0, 1),
        growth=growth(fires, neuron.leak).flatten(0, 1),
        fires=fires.flatten(0, 1),
        lowest=lowest,
        highest=highest,
    )


# ---- imagined ---------------------------------------------------------------------------------


def imagine(folded: FoldedNetwork, population: Population[FloatLif]) -> Evidence:
    """Neurons of each channel that run on normally distributed currents, drawn by a fixed seed."""
    neuron = population.neuron
    generator, channels = np.random.default_rng(0), population.shape[0]
    places, timesteps = max(1, ROWS // folded.timesteps), folded.timesteps
    pixels = generator.integers(population.size // channels, size=places)
    bias, threshold, *ends = (
        np.broadcast_to(values, population.shape).reshape(channels, -1)[:, pixels].T.copy()
        for values in (neuron.bias, neuron.threshold, *threshold_range(folded, population))
    )
    currents = np.zeros((places, timesteps, channels))
    for still, mean, deviation in _currents(folded, population):
        drawn = generator.standard_normal((places, 1 if still else timesteps, channels))
        currents += mean + deviation * drawn
    rule = replace(membrane(neuron, timesteps), bias=bias, threshold=threshold)
    voltage, fires = np.empty(currents.shape), np.empty(currents.shape, bool)
    state = np.zeros(bias.shape), np.zeros(bias.shape)
    for step in range(timesteps):
        state = rule.integrate(state, currents[:, step])
        voltage[:, step] = state[1]
        state, fires[:, step] = rule.fire(state)
    return _evidence(neuron, torch.tensor(voltage), torch.tensor(fires), [torch.tensor(end) for end in ends])


def _currents(folded: FoldedNetwork, population: FloatPopulation) -> Iterator[tuple[bool, Array, Array]]:
    """Per connection: whether it stands still, and the mean and deviation of a current per channel."""
    channels = population.shape[0]
    for connection in incoming(folded.connections, population.name):
        weight, still = connection.synapse.weight, connection.source == folded.input.name
        low, high = value_range(folded.input_range)
        mean, variance = SPIKE_POWER, SPIKE_POWER * (1 - SPIKE_POWER)
        if still:
            mean, variance = (low + high) / 2, (high - low) ** 2 / 12
        rows = len(weight) // channels  # of a dense layer onto a picture, one per neuron
        flat = weight.reshape(channels, -1)
        yield still, mean * flat.sum(axis=1) / rows, np.sqrt(variance * (flat**2).sum(axis=1) / rows)
