"""Describe a placement: populations divided into tiles of one shape, one tile per core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import product
from math import prod
from typing import Literal

import numpy as np

from ...base import Array, record
from ...ir import Shape

WORD_RESOURCES = ("input_axons", "neuron_groups", "neurons", "synapse_words", "axon_map_entries")
RESOURCES = (*WORD_RESOURCES, "total_words")
ROW_RESOURCES = ("synapse_words", "total_words")
# Required to compute the words of a row.
ROW_KEYS = (
    "core.word_bits",
    "core.row_header_bits",
    "core.index_bits",
    "core.shared_index_bits",
    "core.zero_weights_stored",
)

Tile = tuple[slice, ...]  # the neurons of one core, as an index into an array of the population's shape
Use = Mapping[str, int]  # resource -> amount on one core
Tiling = Literal["auto", "compiler", "best"]  # auto: best where it takes fewer cores than the compiler's
Storage = Literal["usual", "sparse"]  # of rows of weights: as the chip's own tool does it, or without zeros


@record
class PlacedLayer:
    """A population divided into tiles of one shape, one per core; the last tiles may be smaller.

    `lower_bound` bounds the cores of any tiling and storage from below. `by_tool` says whether the chip's own
    tool chooses this tile; where its rule leaves a core that overflows, we continue with a smaller tile.
    """

    name: str
    shape: Shape
    tile: Shape
    use: Use  # peak over all cores, per resource
    lower_bound: int = 1
    by_tool: bool = True
    storage: Storage = "usual"
    use_of: Callable[[Tile], Use] | None = None  # use of each core; None if all are alike
    core: int | None = None  # number of its core, where the cores of a chip differ
    packets_per_spike: int = 1  # packets that carry one spike to one core of this layer

    @property
    def cores(self) -> int:
        return count_tiles(self.shape, self.tile)

    @property
    def neurons(self) -> int:
        return prod(self.shape)

    def tiles(self) -> Iterator[Tile]:
        return tiles_of(self.shape, self.tile)

    def most_distinct(self, values: Array) -> int:
        """Return the largest number of distinct values on one core; `values` broadcast over the shape."""
        values = values.reshape(*(1 for _ in self.shape[values.ndim :]), *values.shape)
        tiles = tiles_of(values.shape, clip_tile(self.tile, values.shape))
        return max(len(np.unique(values[tile])) for tile in tiles)

    def uses(self) -> Iterator[tuple[Tile, Use]]:
        """Yield every tile with its resource use, in the order of `tiles`."""
        for tile in self.tiles():
            yield tile, self.use_of(tile) if self.use_of else self.use


@record
class Problem:
    """Why a population or connection (`where`) cannot be placed."""

    where: str
    message: str


SINGLE_CORE = ("whole", "program", "fabric")  # placements on one core


@record
class Placement:
    """All populations but the input, in network order.

    `kind` is the `placement` of the profile. `totals` are sums over the network, if one core holds all of it.
    `tiling` is the one in use, which is never "auto".
    """

    layers: tuple[PlacedLayer, ...]
    kind: str = "words"
    totals: Use = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    tiling: Tiling = "compiler"

    @property
    def on_one_core(self) -> bool:
        """Whether all populations share one core."""
        return self.kind in SINGLE_CORE

    @property
    def cores(self) -> int | None:
        """Return the number of cores; None if core allocation is undocumented."""
        if self.kind == "unknown":
            return None
        return 1 if self.on_one_core else sum(layer.cores for layer in self.layers)

    @property
    def lower_bound(self) -> int | None:
        """Return a lower bound on the cores if layers share none; None if core allocation is undocumented."""
        cores = self.cores
        return None if cores is None else min(cores, sum(layer.lower_bound for layer in self.layers))


def tiles_of(shape: Shape, tile: Shape) -> Iterator[Tile]:
    """Divide a shape into tiles, in row-major order."""
    return product(*(slices(size, extent) for size, extent in zip(shape, tile, strict=True)))


def slices(size: int, extent: int) -> list[slice]:
    """Divide an axis into parts of one extent; the last may be smaller."""
    return [slice(start, min(start + extent, size)) for start in range(0, size, extent)]


def count_tiles(shape: Shape, tile: Shape) -> int:
    return prod(-(-size // extent) for size, extent in zip(shape, tile, strict=True))


def clip_tile(tile: Shape, shape: Shape) -> Shape:
    return tuple(min(pair) for pair in zip(tile, shape, strict=True))


def extents(part: Tile) -> Shape:
    return tuple(axis.stop - axis.start for axis in part)


def overlap(one: slice, other: slice) -> slice:
    start = max(one.start, other.start)
    return slice(start, max(start, min(one.stop, other.stop)))
