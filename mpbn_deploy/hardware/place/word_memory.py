"""Place a network on cores with a memory of words (Loihi), one population at a time, from last to first.

The axon-map entries of a core depend on the tiles of its target populations, so targets are divided first. In
networks with feedback, all populations are divided again until no tile changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...ir import IntNetwork, Shape
from ..profile import HardwareProfile
from .compiler import compiler_tile
from .layer import Layer, build_layers
from .records import RESOURCES, PlacedLayer, Placement, Tiling, count_tiles
from .search import best_tile, lower_bound
from .tile_cost import TileCost

MOST_ROUNDS = 4  # for networks with feedback

# population -> its tile, and whether the chip's own tool chooses the same
Tilings = dict[str, tuple[Shape, bool]]
Chooser = Callable[[TileCost], tuple[Shape, bool]]


def place_words(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Place every population on its own cores; a layer that never fits is divided into single neurons."""
    layers = build_layers(network, profile)
    usual = _divide_all(layers, compiler_tile)
    if tiling == "compiler":
        return _placement(layers, usual)
    best = _divide_all(layers, partial(_best, usual=usual))
    return min(_placement(layers, best), _placement(layers, usual), key=_core_count)


def _core_count(placement: Placement) -> int:
    return sum(layer.cores for layer in placement.layers)


def _divide_all(layers: Sequence[Layer], choose: Chooser) -> Tilings:
    tilings: Tilings = {}
    for _ in range(MOST_ROUNDS):
        before = _tiles(tilings)
        for layer in reversed(layers):
            tilings[layer.name] = choose(TileCost(layer=layer, tiles=_tiles(tilings)))
        if _tiles(tilings) == before or not _has_feedback(layers):
            break
    return tilings


def _tiles(tilings: Tilings) -> dict[str, Shape]:
    return {name: tile for name, (tile, _) in tilings.items()}


def _has_feedback(layers: Sequence[Layer]) -> bool:
    """Return whether some connection leads to an earlier population."""
    order = {layer.name: number for number, layer in enumerate(layers)}
    return any(order[outlet.target] < order[layer.name] for layer in layers for outlet in layer.outlets)


def _best(cost: TileCost, usual: Tilings) -> tuple[Shape, bool]:
    """Return the better of the tile from the search and the tile of the chip's own tool."""
    own, by_tool = usual[cost.layer.name]
    tile = min(
        (own, best_tile(cost)),
        key=lambda tile: (not cost.fits(tile), count_tiles(cost.layer.shape, tile), cost.total_memory(tile)),
    )
    return tile, by_tool and tile == own


def _placement(layers: Sequence[Layer], tilings: Tilings) -> Placement:
    tiles = _tiles(tilings)
    costs = [TileCost(layer=layer, tiles=tiles) for layer in layers]
    return Placement(layers=tuple(_placed(cost, *tilings[cost.layer.name]) for cost in costs))


def _placed(cost: TileCost, tile: Shape, by_tool: bool) -> PlacedLayer:
    use = cost.peak_use(tile)
    return PlacedLayer(
        name=cost.layer.name,
        shape=cost.layer.shape,
        tile=tile,
        use={name: use[name] for name in use if name in RESOURCES or name in cost.layer.limits},
        lower_bound=lower_bound(cost.layer),
        by_tool=by_tool,
        use_of=cost.use_of,
    )
