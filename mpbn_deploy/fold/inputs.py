"""Change what a folded network takes: values before normalization, less an offset, or of fewer bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ..base import Array, FoldError, OptionError, layer_name
from ..ir import (
    Connection,
    FloatNeuron,
    FloatPopulation,
    FoldedNetwork,
    compact,
    constant_source,
    has_current,
    map_steps,
    neuron_bias,
    scaled,
    sum_of_weights,
    with_values,
)


def normalize_inputs(folded: FoldedNetwork, mean: float, deviation: float) -> FoldedNetwork:
    """Return the network that computes from x what the given one computes from (x - mean) / deviation.

    Weights are divided by the deviation, and what the mean adds in every step becomes a bias.
    """
    source, factor = folded.input, 1 / deviation
    layers, connections = [], []
    for population in folded.layers:
        entering = folded.entering(population.name)
        shift = np.zeros(population.shape)
        for connection in entering:
            if connection.source != source.name:
                connections.append(connection)
                continue
            if mean and connection.delay:
                raise FoldError(
                    f"{layer_name(population.name)}: its inputs arrive {connection.delay} steps late, so "
                    "that a mean cannot become a bias. Give --normalize 0 DEVIATION, or drop it."
                )
            channels = np.full(population.shape[0], factor)
            synapse = scaled(connection.synapse, channels)
            connections.append(replace(connection, synapse=synapse))
            shift -= mean * sum_of_weights(synapse, source.shape).reshape(population.shape)
        for added, joins in _shifted(folded, population, shift):
            layers.append(added)
            connections += joins
    return replace(folded, populations=(source, *layers), connections=tuple(connections))


def _shifted(
    folded: FoldedNetwork, population: FloatPopulation, shift: Array
) -> Iterator[tuple[FloatPopulation, tuple[Connection, ...]]]:
    """Yield the population with a constant added to its current: as a bias, or as spikes if it builds up."""
    neuron = population.neuron
    if not shift.any():
        yield population, ()
    elif has_current(neuron):
        name = f"{population.name}_mean"
        while any(other.name == name for other in folded.populations):
            name += "_"
        yield constant_source(name, population.name, shift, folded.input)
        yield population, ()
    else:
        yield population.with_neuron(map_steps(neuron, partial(_with_constant, constant=shift))), ()


def _with_constant(neuron: FloatNeuron, constant: Array) -> FloatNeuron:
    return with_values(neuron, compact(np.broadcast_to(neuron_bias(neuron), constant.shape) + constant), None)


def offset_inputs(folded: FoldedNetwork, offset: int) -> FoldedNetwork:
    """Return the network that takes x - offset in place of x; what the offset adds becomes a bias."""
    taken = folded.input_range
    largest = max(abs(taken.minimum), abs(taken.maximum))
    if abs(offset) > largest:
        raise OptionError(
            f"--input-offset {offset}; inputs are {taken.minimum}..{taken.maximum}, so an offset from "
            f"{-largest} to {largest} is needed. Their middle leaves the most bits to weights."
        )
    added = normalize_inputs(folded, -offset, 1.0)
    first, *layers = added.populations
    return replace(added, populations=(first.with_neuron(taken.shifted(offset)), *layers))


def coarsen_inputs(folded: FoldedNetwork, bits: int) -> FoldedNetwork:
    """Return the network that takes round(x / divisor) in place of x, of `bits` bits (`Input.coarser`)."""
    coarse = folded.input_range.coarser(bits)
    multiplied = normalize_inputs(folded, 0.0, 1 / coarse.divisor)
    first, *layers = multiplied.populations
    return replace(multiplied, populations=(first.with_neuron(coarse), *layers))
