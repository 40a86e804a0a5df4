"""What a placement is: populations, each cut into tiles of one shape, one tile on each core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import product
from math import prod
from typing import Literal

from ...base import record
from ...ir import Shape

WORD_RESOURCES = ("input_axons", "neuron_groups", "neurons", "synapse_words", "axon_map_entries")
RESOURCES = (*WORD_RESOURCES, "total_words")
ROW_RESOURCES = ("synapse_words", "total_words")
# Without these a profile cannot say how many words a row takes.
ROW_KEYS = (
    "core.word_bits",
    "core.row_header_bits",
    "core.index_bits",
    "core.shared_index_bits",
    "core.zero_weights_stored",
)

Tile = tuple[slice, ...]  # the neurons of one core, as an index into the population's shape
Use = Mapping[str, int]  # how much of each resource one core needs
Tiling = Literal["compiler", "best"]


@record
class PlacedLayer:
    """A population cut into tiles of one shape (the last ones may be smaller), one per core.

    `lower_bound` is a number of cores that no cut of it could do with less than. `by_tool` says whether
    the chip's own tool makes this cut; where its rule leads to a core that overflows, we cut on.
    """

    name: str
    shape: Shape
    tile: Shape
    use: Use  # per resource, on the core that needs most of it
    lower_bound: int = 1
    by_tool: bool = True
    use_of: Callable[[Tile], Use] | None = None  # of each core, where they differ
    core: int | None = None  # which one it got, where the cores of a chip are unlike
    packets: int = 1  # that a spike takes to one of its cores

    @property
    def cores(self) -> int:
        return count_tiles(self.shape, self.tile)

    @property
    def neurons(self) -> int:
        return prod(self.shape)

    def tiles(self) -> Iterator[Tile]:
        return cut(self.shape, self.tile)

    def uses(self) -> Iterator[tuple[Tile, Use]]:
        """Every core with what it needs, in the order of `tiles`."""
        for tile in self.tiles():
            yield tile, self.use_of(tile) if self.use_of else self.use


@record
class Problem:
    """What a placement itself finds impossible: `where`, a population or a connection, and why."""

    where: str
    message: str


@record
class Placement:
    """All populations but the input, in the order of the network.

    `kind` is how cores are filled, as in a profile. `totals` are sums that count for the network as a whole,
    where one core holds all of it.
    """

    layers: tuple[PlacedLayer, ...]
    kind: str = "words"
    totals: Use = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def cores(self) -> int | None:
        """None where nobody knows how cores are filled."""
        if self.kind == "unknown":
            return None
        return 1 if self.kind == "whole" else sum(layer.cores for layer in self.layers)

    @property
    def lower_bound(self) -> int | None:
        """Cores that no cut could do with less than, each layer on cores of its own; None where unknown."""
        cores = self.cores
        return None if cores is None else min(cores, sum(layer.lower_bound for layer in self.layers))


def cut(shape: Shape, tile: Shape) -> Iterator[Tile]:
    """The tiles of a shape, from its first corner on."""
    return product(*(slices(size, extent) for size, extent in zip(shape, tile, strict=True)))


def slices(size: int, extent: int) -> list[slice]:
    """An axis cut into parts of one extent; the last may be smaller."""
    return [slice(start, min(start + extent, size)) for start in range(0, size, extent)]


def count_tiles(shape: Shape, tile: Shape) -> int:
    return prod(-(-size // extent) for size, extent in zip(shape, tile, strict=True))


def extents(part: Tile) -> Shape:
    return tuple(axis.stop - axis.start for axis in part)


def overlap(one: slice, other: slice) -> slice:
    start = max(one.start, other.start)
    return slice(start, max(start, min(one.stop, other.stop)))
