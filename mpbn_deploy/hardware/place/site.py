"""A population where it stands: with the tiles of the populations that its spikes go to.

Cores that need the same are counted together. What a core needs follows, axis by axis, from what arrives
there and what leaves; so of each axis only parts of different kinds are looked at, however large the map.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from itertools import product
from math import prod

import numpy as np

from ...base import record
from ...ir import Conv2d, Dense, Shape
from .model import Inlet, Layer, Tiles
from .reach import channel_hits, hits, served, source_fields
from .records import Tile, Use, slices
from .words import MEMORY, core_use, depends_on_weights, worst_ratio

Kinds = list[tuple[slice, int]]  # one part of each kind, and how many there are of it


@record
class Site:
    layer: Layer
    tiles: Tiles
    seen: dict[tuple[int, int, Shape], Kinds] = field(default_factory=dict)  # what was looked at before

    def most_use(self, tile: Shape) -> Use:
        """Per resource, the most that any core of a tiling needs."""
        uses = [use for use, _ in self._uses(tile)]
        return {resource: max(use[resource] for use in uses) for resource in uses[0]}

    def all_words(self, tile: Shape) -> int:
        """The words of all cores of a tiling; where rows are not known, of all else."""
        return sum(many * sum(use.get(name, 0) for name in MEMORY) for use, many in self._uses(tile))

    def holds(self, tile: Shape) -> bool:
        """Whether every core of a tiling keeps all limits."""
        most = self.layer.limits.get("neurons", prod(tile))
        return prod(tile) <= most and all(worst_ratio(self.layer, use) <= 1 for use, _ in self._uses(tile))

    def use_of(self, part: Tile) -> Use:
        """What one core needs."""
        return core_use(self.layer, part, self.tiles)

    def _uses(self, tile: Shape) -> Iterator[tuple[Use, int]]:
        """What cores of each kind need, and how many there are."""
        tiles = {**self.tiles, self.layer.name: tile}  # it may send spikes to itself
        for kinds in product(*(self._kinds(axis, tile, tiles) for axis in range(len(tile)))):
            part = tuple(part for part, _ in kinds)
            yield core_use(self.layer, part, tiles), prod(many for _, many in kinds)

    def _kinds(self, axis: int, tile: Shape, tiles: Tiles) -> Kinds:
        key = (axis, tile[axis], tile if self.layer.loops else ())
        if key not in self.seen:
            parts = slices(self.layer.shape[axis], tile[axis])
            kinds = [_kind(self.layer, axis, part, tiles) for part in parts]
            counts = Counter(kinds)
            first = dict(reversed(list(zip(kinds, parts, strict=True))))
            self.seen[key] = [(first[kind], many) for kind, many in counts.items()]
        return self.seen[key]


def _kind(layer: Layer, axis: int, part: slice, tiles: Tiles) -> tuple[object, ...]:
    """All of a part of one axis that decides what its cores need."""
    length = part.stop - part.start
    if depends_on_weights(layer):
        return (part.start, length)
    arriving = [_arriving(layer, inlet, axis, part) for inlet in layer.inlets]
    return (length, *arriving, *_leaving(layer, axis, part, tiles))


def _arriving(layer: Layer, inlet: Inlet, axis: int, part: slice) -> object:
    synapse = inlet.synapse
    if isinstance(synapse, Dense):
        return None
    if axis == 0:
        return part.start % (layer.shape[0] // synapse.groups) if synapse.groups > 1 else None
    if layer.shares_kernels:
        whole = [slice(0, size) for size in layer.shape]
        whole[axis] = part
        return served(synapse, layer.shape, tuple(whole))
    fields = source_fields(inlet, axis, part)
    return tuple(found.tobytes() for found in (fields.first - part.start, fields.count, fields.tap))


def _leaving(layer: Layer, axis: int, part: slice, tiles: Tiles) -> Iterator[object]:
    for outlet in layer.outlets:
        tile = tiles.get(outlet.target)
        if not isinstance(outlet.synapse, Conv2d) or tile is None:
            yield None
        elif axis == 0:
            yield channel_hits(layer, outlet, tile[0], part)
        else:
            counts = hits(outlet, tile[axis], axis, part)
            yield int(np.count_nonzero(counts)), int(counts.sum())
