"""Describe a population with everything that determines the core memory of its neurons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np
from typing_extensions import assert_never

from ...base import Array, record
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
    ProjectiveFields,
    Readout,
    Relay,
    Shape,
    Sigma,
    SigmaDelta,
    SoftLif,
    Synapse,
    Xylo,
    axes,
    groups_of,
    projective_fields,
    window,
)
from ..profile import HardwareProfile
from .tiles import ROW_KEYS, Storage, Tile, extents, overlap, slices, stored_bits, words_of_row

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


# Relate tiles through a convolution: which parts of the target the parts of the source reach.


def source_fields(inlet: Inlet, axis: int, part: slice) -> ProjectiveFields:
    """Return the projective fields of the source rows (axis 1) or columns (axis 2) that a part reads."""
    return _fields(inlet.axes[axis - 1].within(part))


_fields = lru_cache(maxsize=4096)(projective_fields)


def has_active_outputs(synapse: Conv2d, target: Shape, part: Tile) -> bool:
    """Return whether a part has neurons outside the silent border of a convolution."""
    rows, columns = window(synapse, target)
    return 0 not in extents((overlap(part[1], rows), overlap(part[2], columns)))


def reach_counts(outlet: Outlet, extent: int, axis: int, part: slice) -> Array:
    """Count, for each part of the target axis, the source rows of `part` that reach it."""
    sums = _reached(outlet.axes[axis - 1], extent)
    counts: Array = sums[:, part.stop] - sums[:, part.start]
    return counts


@lru_cache(maxsize=512)
def _reached(along: Axis, extent: int) -> Array:
    """Count the first n source rows that reach each part, [part of the target, n]."""
    parts = slices(along.target, extent)
    sums = np.zeros((len(parts), along.source + 1), int)
    for part, row in zip(parts, sums, strict=True):
        row[_fields(along.within(part)).source + 1] = 1
    return sums.cumsum(axis=1)


def channel_reach_counts(layer: Layer, outlet: Outlet, extent: int, channels: slice) -> tuple[int, int]:
    """Count the parts of the target channels that `channels` reach, and the pairs of part and group."""
    assert isinstance(outlet.synapse, Conv2d)
    groups = outlet.synapse.groups
    sending = groups_of(channels, layer.shape[0] // groups)
    return _group_reach_counts(sending, outlet.shape[0], outlet.shape[0] // groups, extent)


@lru_cache(maxsize=4096)
def _group_reach_counts(sending: range, channels: int, per_group: int, extent: int) -> tuple[int, int]:
    """Count as `channel_reach_counts` does, given the groups of the source channels."""
    reading = [groups_of(part, per_group) for part in slices(channels, extent)]
    reached = [len(range(max(sending.start, own.start), min(sending.stop, own.stop))) for own in reading]
    return sum(map(bool, reached)), sum(reached)
