"""Change what a folded network takes: values before normalization, less an offset, or of fewer bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from typing_extensions import assert_never

from ..base import Array, FoldError, OptionError, array_record, layer_name
from ..ir import (
    BatchNorm,
    Connection,
    Conv2d,
    Dense,
    FloatNeuron,
    FloatPopulation,
    FoldedNetwork,
    Shape,
    Spike,
    Synapse,
    TrainedNetwork,
    compact,
    constant_source,
    has_current,
    map_steps,
    neuron_bias,
    per_channel,
    regroup,
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


# Mirrored channels: gains of both signs among neurons that share a kernel.
#
# A neuron of negative gain needs negated weights, which the neurons of a convolution channel can only have
# together. A channel with gains of both signs is therefore folded twice, as it is and mirrored (weights,
# bias, threshold and subtrahend negated). Each trained neuron is live in the copy that has the sign of its
# gain and never fires in the other. So at most one of two copies fires, and readers take their sum,
#
#     trained spike[c] = sum of the folded spikes over all copies of channel c,
#
# by having the same weights for both. Channels of one sign have one copy.


@array_record
class Copies:
    """The folded channels of a layer, copies of one trained channel side by side."""

    channels: int  # trained
    origin: Array  # the trained channel of each folded one
    sign: Array  # +1, or -1 for a copy that is negated

    @property
    def single(self) -> bool:
        """Whether no channel has a second copy."""
        return len(self.origin) == self.channels

    @property
    def first(self) -> Array:
        """The place of the first copy of each trained channel."""
        return np.searchsorted(self.origin, np.arange(self.channels))

    def shape(self, trained: Shape) -> Shape:
        """Return the shape of the folded layer."""
        return (len(self.origin), *trained[1:])

    def of(self, values: Array) -> Array:
        """Return the numbers of each copy, given those of trained channels."""
        return values[self.origin]

    def signed(self, values: Array) -> Array:
        """Return the numbers of each copy, negated where the copy is."""
        copied: Array = self.of(values) * per_channel(self.sign, values.shape)
        return copied

    def live(self, gain: Array) -> Array:
        """Return which folded neurons fire as their trained neuron does; those of gain zero are not live."""
        return self.signed(gain) > 0

    def constant(self, gain: Array) -> Array:
        """Return which folded neurons stand for a trained neuron of gain zero: those of the first copy."""
        firsts = np.isin(np.arange(len(self.origin)), self.first)
        constant: Array = (self.of(gain) == 0) & per_channel(firsts, gain.shape)
        return constant

    def entering(self, synapse: Synapse) -> Synapse:
        """Return a synapse onto the trained channels as one onto all copies."""
        weight = synapse.weight
        match synapse:
            case Dense():
                rows = self.signed(weight.reshape(self.channels, -1, weight.shape[1]))
                return replace(synapse, weight=rows.reshape(-1, weight.shape[1]))
            case Conv2d(groups=groups):
                fewer = groups if self._even else 1
                return replace(synapse, weight=self.signed(regroup(weight, groups, fewer)), groups=fewer)
            case _:
                assert_never(synapse)

    def sums(self) -> Conv2d:
        """Return the sum over the copies of each channel, as a kernel of one pixel."""
        sums = Conv2d(weight=np.ones((self.channels, len(self.origin) // self.channels, 1, 1)))
        if self._even:
            return replace(sums, groups=self.channels)
        own = self.origin == np.arange(self.channels)[:, None]
        return replace(sums, weight=own[:, :, None, None].astype(np.float64))

    @property
    def _even(self) -> bool:
        """Whether all channels have equally many copies, so that groups of channels stay groups."""
        return len(self.origin) % self.channels == 0


def steady_gain(norm: BatchNorm) -> Array:
    """Return the gain of a norm; if it depends on the time step, that which is farthest from zero."""
    if not norm.per_step:
        return norm.gain
    if ((norm.gain.min(axis=0) < 0) & (norm.gain.max(axis=0) > 0)).any():
        raise FoldError(
            "a gain of its norm of the membrane changes its sign from time step to time step, which reverses "
            "the comparison in some steps only; train with --mpbn-gain positive."
        )
    farthest: Array = np.take_along_axis(norm.gain, np.abs(norm.gain).argmax(axis=0)[None], axis=0)[0]
    return farthest


def copies(spike: Spike, shape: Shape) -> Copies:
    """Return the folded channels of neurons: two of each channel with gains of both signs."""
    gain = np.ones(shape[0]) if spike.norm is None else steady_gain(spike.norm)
    rows = gain.reshape(shape[0], -1)
    negative, positive = rows.min(axis=1) < 0, rows.max(axis=1) > 0
    origin = np.repeat(np.arange(shape[0]), 1 + (negative & positive))
    second = np.r_[False, origin[1:] == origin[:-1]]
    negated = second | (negative & ~positive)[origin]
    return Copies(channels=shape[0], origin=origin, sign=np.where(negated, -1.0, 1.0))


def as_trained(trained: TrainedNetwork, spikes: Mapping[str, Array]) -> dict[str, Array]:
    """Return the spikes [samples, timesteps, *shape] of a folded network in the shapes of the trained one.

    Spikes of two copies are added, as readers do; a sum of two would be an error of folding.
    """
    summed = dict(spikes)
    for operation in trained.operations:
        if isinstance(operation.kind, Spike) and not (made := copies(operation.kind, operation.shape)).single:
            summed[operation.name] = np.add.reduceat(
                spikes[operation.name].astype(np.int8), made.first, axis=2
            )
    return summed
