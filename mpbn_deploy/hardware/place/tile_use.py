"""Evaluate candidate tiles of a population, given the tiles of the populations that it sends spikes to.

Cores with equal resource use are counted together. The use of a core follows, axis by axis, from the spikes
that arrive and leave, so only one part of each kind is evaluated along each axis, whatever the size of the
map.
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
from .core_memory import MEMORY, core_use, depends_on_weights, worst_ratio
from .layer import Inlet, Layer, Tiles
from .receptive_fields import channel_reach_counts, has_active_outputs, reach_counts, source_fields
from .records import Tile, Use, slices

Kinds = list[tuple[slice, int]]  # one part of each kind, and the number of such parts


@record
class TileUse:
    """The resource use of a layer for any tile."""

    layer: Layer
    tiles: Tiles
    cache: dict[tuple[int, int, Shape], Kinds] = field(default_factory=dict)

    def peak_use(self, tile: Shape) -> Use:
        """Return the maximum over all cores, per resource."""
        uses = [use for use, _ in self._uses(tile)]
        return {resource: max(use[resource] for use in uses) for resource in uses[0]}

    def total_memory(self, tile: Shape) -> int:
        """Return the words of all cores together, without synapses if the size of rows is unknown."""
        return sum(many * sum(use.get(name, 0) for name in MEMORY) for use, many in self._uses(tile))

    def fits(self, tile: Shape) -> bool:
        """Return whether every core satisfies all limits."""
        most = self.layer.most_neurons(prod(tile))
        return prod(tile) <= most and all(worst_ratio(self.layer, use) <= 1 for use, _ in self._uses(tile))

    def use_of(self, part: Tile) -> Use:
        """Return the use of one core."""
        return core_use(self.layer, part, self.tiles)

    def _uses(self, tile: Shape) -> Iterator[tuple[Use, int]]:
        """Yield the use of each kind of core, and the number of such cores."""
        tiles = {**self.tiles, self.layer.name: tile}  # the layer may send spikes to itself
        for kinds in product(*(self._kinds(axis, tile, tiles) for axis in range(len(tile)))):
            part = tuple(part for part, _ in kinds)
            yield core_use(self.layer, part, tiles), prod(many for _, many in kinds)

    def _kinds(self, axis: int, tile: Shape, tiles: Tiles) -> Kinds:
        key = (axis, tile[axis], tile if self.layer.is_recurrent else ())
        if key not in self.cache:
            parts = slices(self.layer.shape[axis], tile[axis])
            kinds = [_kind(self.layer, axis, part, tiles) for part in parts]
            counts = Counter(kinds)
            first = dict(reversed(list(zip(kinds, parts, strict=True))))
            self.cache[key] = [(first[kind], many) for kind, many in counts.items()]
        return self.cache[key]


def _kind(layer: Layer, axis: int, part: slice, tiles: Tiles) -> tuple[object, ...]:
    """Return everything about a part of one axis that determines the use of its cores."""
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
        return has_active_outputs(synapse, layer.shape, tuple(whole))
    fields = source_fields(inlet, axis, part)
    return tuple(found.tobytes() for found in (fields.first - part.start, fields.count, fields.tap))


def _leaving(layer: Layer, axis: int, part: slice, tiles: Tiles) -> Iterator[object]:
    for outlet in layer.outlets:
        tile = tiles.get(outlet.target)
        if not isinstance(outlet.synapse, Conv2d) or tile is None:
            yield None
        elif axis == 0:
            yield channel_reach_counts(layer, outlet, tile[0], part)
        else:
            counts = reach_counts(outlet, tile[axis], axis, part)
            yield int(np.count_nonzero(counts)), int(counts.sum())
