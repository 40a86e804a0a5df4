"""A population with all that decides how much of a core its neurons need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from ...base import Array, record
from ...ir import NO_BORDER, Axis, Connection, Conv2d, Dense, IntNetwork, Shape, Synapse, axes
from ..profile import HardwareProfile
from .bits import stored_bits, words_of_row
from .records import ROW_KEYS

CORE = "core."

Tiles = Mapping[str, Shape]  # of the populations that are already cut, by their names


@record
class Inlet:
    """A synapse into a population, the shape it reads from, and the bits of each stored weight.

    One that `drives` its neurons stores no weights: it brings each value of the network's input to one
    neuron, whose bias it is. (The input layer of a netx file is of that kind.)
    """

    synapse: Synapse
    source: Shape
    axes: tuple[Axis, ...]  # of a convolution
    bits: int
    drives: bool


@record
class Outlet:
    """A synapse from a population to another one, or back to itself."""

    synapse: Synapse
    axes: tuple[Axis, ...]  # of a convolution
    target: str
    shape: Shape  # of the target


@record
class Layer:
    name: str
    shape: Shape
    inlets: tuple[Inlet, ...]
    outlets: tuple[Outlet, ...]
    limits: Mapping[str, int]  # of a core, by the names that follow "core."
    index_widths: tuple[int, ...]  # of the index beside a weight of a convolution

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def shares_kernels(self) -> bool:
        """Whether a core stores kernels as they are (Loihi 2), or what each pixel needs of them (Loihi 1)."""
        return "shared_axons" in self.limits

    @property
    def knows_rows(self) -> bool:
        """Whether it is known how many words a row of weights takes."""
        return all(key.removeprefix(CORE) in self.limits for key in ROW_KEYS)

    @property
    def stores_zeros(self) -> bool:
        return self.limits.get("zero_weights_stored", 1) == 1

    @property
    def loops(self) -> bool:
        """Whether it sends spikes to itself."""
        return any(outlet.target == self.name for outlet in self.outlets)

    @property
    def convolutions(self) -> list[Conv2d]:
        """Those that enter and have weights."""
        return [i.synapse for i in self.inlets if isinstance(i.synapse, Conv2d) and not i.drives]

    def row_words(self, weights: int, bits: int) -> int:
        """The words of one row of weights."""
        limits = self.limits
        entries = limits.get("row_entries")
        return words_of_row(weights, bits, limits["row_header_bits"], limits["word_bits"], entries)


def layers_of(network: IntNetwork, profile: HardwareProfile) -> list[Layer]:
    """All populations but the input, which is outside of the cores and sends messages."""
    shapes = {population.name: population.shape for population in network.populations}
    joined = list(_rows_together(network.connections))
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
                for c in joined
                if c.target == population.name
            ),
            outlets=tuple(
                Outlet(synapse=c.synapse, axes=_axes(c, shapes), target=c.target, shape=shapes[c.target])
                for c in joined
                if c.source == population.name
            ),
            limits=limits,
            index_widths=widths.values if widths else (),
        )
        for population in network.layers
    ]


def _axes(connection: Connection, shapes: Mapping[str, Shape]) -> tuple[Axis, ...]:
    synapse = connection.synapse
    if isinstance(synapse, Dense):
        return ()
    return axes(synapse, shapes[connection.source], shapes[connection.target])


def _rows_together(connections: Sequence[Connection]) -> Iterator[Connection]:
    """Dense connections that differ in their delay, and share no synapse, lie in the same rows of a core."""
    rows: dict[tuple[str, str, int], list[Array]] = {}
    for connection in connections:
        synapse = connection.synapse
        if not isinstance(synapse, Dense):
            yield connection
            continue
        parts = rows.setdefault((connection.source, connection.target, synapse.exponent), [])
        if parts and not np.logical_and(parts[-1], synapse.weight).any():
            parts[-1] = parts[-1] + synapse.weight
        else:
            parts.append(synapse.weight)
    for (source, target, exponent), parts in rows.items():
        for weight in parts:
            yield Connection(source=source, target=target, synapse=Dense(weight=weight, exponent=exponent))


def _one_to_one(synapse: Synapse) -> bool:
    """Whether target = source, each neuron its own value."""
    weight = synapse.weight
    if isinstance(synapse, Dense):
        return weight.shape[0] == weight.shape[1] and np.array_equal(weight, np.eye(len(weight)))
    steps = (synapse.stride, synapse.padding, synapse.silent)
    plain = steps == ((1, 1), (0, 0), NO_BORDER) and weight.shape == (synapse.groups, 1, 1, 1)
    return plain and bool((weight == 1).all())
