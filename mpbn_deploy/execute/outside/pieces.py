"""Cut a population into pieces that another simulator can hold.

Axons carry zeros and ones. A graded input becomes several axons, one per binary digit and sign, whose weights
are multiplied by that digit's value. A delayed connection becomes axons whose spikes are sent later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from typing_extensions import assert_never

from ...base import Array, SimulationError, record
from ...ir import (
    STATE_EXPONENT,
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    Membrane,
    Shape,
    Synapse,
    membrane,
    patches as receptive_fields,
    window,
)

LARGEST_PIECE = 1024  # neurons of a core of Loihi


class ObstacleError(SimulationError):
    """Something that a witness cannot express."""


class WitnessFailedError(SimulationError):
    """A witness stopped in the middle of a run."""


@record
class Piece:
    """Some neurons of a population, and the axons that reach them. In units of the state, synapse k adds

        weight[k] to the current of neuron[k] where spikes[sample, step, axon[k]]

    Synapses are sorted by axon. Axons without a spike are left out.
    """

    neurons: Array  # places in the flattened population
    rule: Membrane  # with one bias, threshold and subtrahend per neuron
    spikes: Array  # bool [samples, timesteps, axons]
    axon: Array
    neuron: Array
    weight: Array

    @property
    def steps(self) -> tuple[int, int]:
        """The number of samples, and of time steps of each."""
        samples, timesteps, _ = self.spikes.shape
        return samples, timesteps

    @property
    def axons(self) -> int:
        return int(self.spikes.shape[2])


@record
class Answer:
    """What the neurons of a piece did, [samples, timesteps, neurons]."""

    spikes: Array
    voltages: Array


@record
class _Bundle:
    """The axons of one connection into a piece."""

    spikes: Array
    axon: Array
    neuron: Array
    weight: Array


def cut_pieces(
    network: IntNetwork, name: str, sent: Mapping[str, Array], size: int = LARGEST_PIECE
) -> Iterator[Piece]:
    """Yield the pieces of a population; `sent` has what each source sent, [samples, timesteps, *shape]."""
    population = network.layer(name)
    samples = len(next(iter(sent.values())))
    rule, entering = membrane(population.neuron, network.timesteps), network.entering(name)
    for neurons in neurons_of_pieces(population.shape, size):

        def of_neurons(values: Array, neurons: Array = neurons) -> Array:
            chosen: Array = np.broadcast_to(values, population.shape).ravel()[neurons]
            return chosen

        bundles = [
            bundle
            for connection in entering
            for bundle in _bundles(network, connection, sent[connection.source], neurons)
        ]
        yield _piece(neurons, rule.mapped(of_neurons), bundles, samples, network.timesteps)


def neurons_of_pieces(shape: Shape, size: int) -> list[Array]:
    """Return the neurons of each piece: pixel by pixel, so that a piece has few sources."""
    places = np.moveaxis(np.arange(int(np.prod(shape))).reshape(shape), 0, -1).ravel()
    return [places[start : start + size] for start in range(0, len(places), size)]


def binary_digits(values: Array) -> list[tuple[int, Array]]:
    """Return (factor, zeros and ones) with values = sum of factor * zeros and ones."""
    if values.dtype == np.bool_:
        return [(1, values)]
    largest = int(np.abs(values).max(initial=0)).bit_length()
    found = [
        (sign << digit, (np.maximum(sign * values, 0) >> digit & 1).astype(bool))
        for sign in (1, -1)
        for digit in range(largest)
    ]
    return [(factor, ones) for factor, ones in found if ones.any()]


def _piece(neurons: Array, rule: Membrane, bundles: list[_Bundle], *steps: int) -> Piece:
    counts = [bundle.spikes.shape[2] for bundle in bundles]
    first = np.cumsum([0, *counts])
    none = np.zeros(0, np.int64)
    return Piece(
        neurons=neurons,
        rule=rule,
        spikes=np.concatenate([np.zeros((*steps, 0), bool), *(bundle.spikes for bundle in bundles)], axis=2),
        axon=np.concatenate([none, *(b.axon + start for b, start in zip(bundles, first[:-1], strict=True))]),
        neuron=np.concatenate([none, *(bundle.neuron for bundle in bundles)]),
        weight=np.concatenate([none, *(bundle.weight for bundle in bundles)]),
    )


def _bundles(network: IntNetwork, connection: Connection, values: Array, neurons: Array) -> Iterator[_Bundle]:
    """Yield the axons of a connection, one bundle for each binary digit of its source."""
    shapes = network.shapes
    source, neuron, weight = _synapses(
        connection.synapse, shapes[connection.source], shapes[connection.target], neurons
    )
    arriving = np.zeros_like(values).reshape(*values.shape[:2], -1)
    arriving[:, connection.delay :] = values.reshape(arriving.shape)[
        :, : max(0, network.timesteps - connection.delay)
    ]
    for factor, ones in binary_digits(arriving):
        used = np.any(ones, axis=(0, 1))  # [source]
        axon_of = np.cumsum(used) - 1
        kept = used[source]
        order = np.argsort(source[kept], kind="stable")
        yield _Bundle(
            spikes=ones[:, :, used],
            axon=axon_of[source[kept]][order],
            neuron=neuron[kept][order],
            weight=_in_units_of_state(weight[kept][order] * factor),
        )


def _in_units_of_state(weight: Array) -> Array:
    scaled: Array = (weight * 2.0**STATE_EXPONENT).astype(
        np.int64
    )  # exact: sums of a network are below 2**53
    return scaled


def _synapses(synapse: Synapse, source: Shape, target: Shape, neurons: Array) -> tuple[Array, Array, Array]:
    """Return the source, the place in `neurons` and the weight (with its exponent) of each synapse."""
    match synapse:
        case Dense():
            weight = synapse.weight[neurons] * 2.0**synapse.exponent
            sources = np.broadcast_to(np.arange(weight.shape[1]), weight.shape)
            there = weight != 0
        case Conv2d():
            sources, weight, there = _taps(synapse, source, target, neurons)
        case _:
            assert_never(synapse)
    place = np.nonzero(there)[0]
    return sources[there], place, weight[there]


def _taps(synapse: Conv2d, source: Shape, target: Shape, neurons: Array) -> tuple[Array, Array, Array]:
    """[neuron, input, a, b]: the source that each weight of a kernel reads, the weight, whether it counts."""
    channel, y, x = np.unravel_index(neurons, target)
    numbers = np.arange(1, 1 + int(np.prod(source))).reshape(source)  # zero is the padding
    fields = receptive_fields(synapse, numbers)  # [channel, y, x, a, b]
    inputs = synapse.weight.shape[1]
    first = channel // (target[0] // synapse.groups) * inputs
    read = fields[first[:, None] + np.arange(inputs), y[:, None], x[:, None]]
    weight = synapse.weight[channel] * 2.0**synapse.exponent
    audible = np.zeros(target[1:], bool)
    audible[window(synapse, target)] = True
    there = (read > 0) & (weight != 0) & audible[y, x][:, None, None, None]
    return read - 1, weight, there
