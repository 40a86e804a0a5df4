"""Describe a population with everything that determines the core memory of its neurons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from typing_extensions import assert_never

from ...base import record
from ...ir import (
    NO_BORDER,
    Axis,
    Connection,
    Conv2d,
    Delta,
    Dense,
    IntNetwork,
    Lif,
    Neuron,
    Readout,
    Relay,
    Shape,
    Sigma,
    SigmaDelta,
    SoftLif,
    Synapse,
    Xylo,
    axes,
)
from ..profile import HardwareProfile
from .bits import stored_bits, words_of_row
from .records import ROW_KEYS, Storage

CORE = "core."

Tiles = Mapping[str, Shape]  # tile by population, for populations that are already divided
_ByPopulation = Mapping[str, Sequence[Connection]]


@record
class Inlet:
    """A synapse into a population, the shape of its source, and the bits per stored weight.

    A synapse that `drives` its neurons stores no weights: each input value of the network becomes the bias of
    one neuron, as in the input layer of a netx file.
    """

    synapse: Synapse
    source: Shape
    axes: tuple[Axis, ...]  # of a convolution
    bits: int
    drives: bool


@record
class Outlet:
    """A synapse from a population to another one or to itself."""

    synapse: Synapse
    axes: tuple[Axis, ...]  # of a convolution
    target: str
    shape: Shape  # of the target


@record
class Layer:
    """A population with its synapses and the limits of a core."""

    name: str
    shape: Shape
    inlets: tuple[Inlet, ...]
    outlets: tuple[Outlet, ...]
    core_neurons: int  # that one neuron takes
    limits: Mapping[str, int]  # of a core; keys without the prefix "core."
    index_widths: tuple[int, ...]  # supported widths of the index stored with a convolution weight
    storage: Storage = "usual"

    @property
    def key(self) -> Hashable:
        """Everything that determines the use of its cores, but the tiles of its targets."""
        inlets = tuple((inlet.synapse, inlet.source, inlet.bits, inlet.drives) for inlet in self.inlets)
        outlets = tuple((outlet.synapse, outlet.target, outlet.shape) for outlet in self.outlets)
        limits = (*sorted(self.limits.items()), *self.index_widths)
        return self.name, self.shape, inlets, outlets, self.core_neurons, limits, self.storage

    @property
    def size(self) -> int:
        return prod(self.shape)

    def most_neurons(self, otherwise: int) -> int:
        """Return how many neurons of the layer a core holds; `otherwise` if there is no limit."""
        return self.limits.get("neurons", self.core_neurons * otherwise) // self.core_neurons

    @property
    def shares_kernels(self) -> bool:
        """Return whether a core stores each kernel once (Loihi 2), or weights per source pixel (Loihi 1)."""
        return "shared_axons" in self.limits

    @property
    def knows_rows(self) -> bool:
        """Return whether the words of a row of weights can be computed."""
        return all(key.removeprefix(CORE) in self.limits for key in ROW_KEYS)

    @property
    def stores_zeros(self) -> bool:
        return self.limits.get("zero_weights_stored", 1) == 1

    @property
    def is_recurrent(self) -> bool:
        """Return whether the population sends spikes to itself."""
        return any(outlet.target == self.name for outlet in self.outlets)

    @property
    def convolutions(self) -> list[Conv2d]:
        """Return the incoming convolutions that store weights."""
        return [i.synapse for i in self.inlets if isinstance(i.synapse, Conv2d) and not i.drives]

    def storages(self) -> list[Layer]:
        """Return the layer in every storage of its rows: its own, and sparse if only matrices enter."""
        matrices = [i.synapse.weight for i in self.inlets if isinstance(i.synapse, Dense) and not i.drives]
        bits = self.limits.get("sparse_index_bits")
        if bits is None or not self.stores_zeros or not matrices or len(matrices) < len(self.inlets):
            return [self]
        if all(np.all(weight) for weight in matrices):
            return [self]
        sparse = {**self.limits, "index_bits": bits, "zero_weights_stored": 0}
        return [self, replace(self, limits=sparse, storage="sparse")]

    def row_words(self, weights: int, bits: int) -> int:
        """Return the words of one row of weights."""
        limits = self.limits
        entries = limits.get("row_entries")
        return words_of_row(weights, bits, limits["row_header_bits"], limits["word_bits"], entries)


def build_layers(network: IntNetwork, profile: HardwareProfile) -> list[Layer]:
    """Describe all populations but the input, which takes no core: its values arrive as messages."""
    shapes = network.shapes
    entering, leaving = _by_end(list(_merge_rows(network.connections)))
    limits = {k.removeprefix(CORE): v.value for k, v in profile.limits.items() if k.startswith(CORE)}
    widths = profile.allowed("core.stored_index_bits")
    return [
        Layer(
            name=population.name,
            shape=population.shape,
            inlets=tuple(
                Inlet(
                    synapse=c.synapse,
                    source=shapes[c.source],
                    axes=_axes(c, shapes),
                    bits=stored_bits(c.synapse.weight, profile),
                    drives=c.source == network.input.name and _one_to_one(c.synapse),
                )
                for c in entering[population.name]
            ),
            outlets=tuple(
                Outlet(synapse=c.synapse, axes=_axes(c, shapes), target=c.target, shape=shapes[c.target])
                for c in leaving[population.name]
            ),
            core_neurons=core_neurons(population.neuron, profile),
            limits=limits,
            index_widths=widths.values if widths else (),
        )
        for population in network.layers
    ]


def _by_end(connections: Sequence[Connection]) -> tuple[_ByPopulation, _ByPopulation]:
    """Return the connections by target, and by source."""
    entering, leaving = defaultdict(list), defaultdict(list)
    for connection in connections:
        entering[connection.target].append(connection)
        leaving[connection.source].append(connection)
    return entering, leaving


def core_neurons(neuron: Neuron, profile: HardwareProfile) -> int:
    """Return how many neurons of a core one neuron takes: more than one for soft resets on some chips."""
    match neuron:
        case Lif() | Readout() | Relay() | Delta() | SigmaDelta() | Sigma() | Xylo():
            return 1
        case SoftLif():
            limit = profile.limit("formats.soft_reset")
            return 1 if limit is None else max(1, limit.value)
        case _:
            assert_never(neuron)


def _axes(connection: Connection, shapes: Mapping[str, Shape]) -> tuple[Axis, ...]:
    synapse = connection.synapse
    if isinstance(synapse, Dense):
        return ()
    return axes(synapse, shapes[connection.source], shapes[connection.target])


def _merge_rows(connections: Sequence[Connection]) -> Iterator[Connection]:
    """Merge dense connections that differ only in delay and share no synapse; a core stores common rows."""
    rows: dict[tuple[str, str, int], list[Connection]] = {}
    for connection in connections:
        synapse = connection.synapse
        if not isinstance(synapse, Dense):
            yield connection
            continue
        parts = rows.setdefault((connection.source, connection.target, synapse.exponent), [])
        if parts and not np.logical_and(before := parts[-1].synapse.weight, synapse.weight).any():
            parts[-1] = replace(connection, synapse=replace(synapse, weight=before + synapse.weight))
        else:
            parts.append(connection)
    for parts in rows.values():
        yield from parts


def _one_to_one(synapse: Synapse) -> bool:
    """Return whether every target neuron receives exactly its own source value."""
    weight = synapse.weight
    if isinstance(synapse, Dense):
        return weight.shape[0] == weight.shape[1] and np.array_equal(weight, np.eye(len(weight)))
    steps = (synapse.stride, synapse.padding, synapse.silent)
    plain = steps == ((1, 1), (0, 0), NO_BORDER) and weight.shape == (synapse.groups, 1, 1, 1)
    return plain and bool((weight == 1).all())
