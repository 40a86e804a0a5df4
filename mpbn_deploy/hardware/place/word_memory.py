"""Place a network on cores with a memory of words (Loihi), one population at a time, from last to first.

The axon-map entries of a core depend on the tiles of its target populations, so targets are divided first. In
networks with feedback, all populations are divided again until no tile changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from ...base import record
from ...ir import IntNetwork, Shape
from ..profile import HardwareProfile
from .compiler import compiler_tile
from .layer import Layer, build_layers
from .records import RESOURCES, PlacedLayer, Placement, Tiling, count_tiles
from .search import best_tile, lower_bound
from .tile_use import TileUse

MOST_ROUNDS = 4  # for networks with feedback


@record
class Division:
    """A layer, in the storage chosen for it, its tile, and whether the chip's own tool does the same."""

    layer: Layer
    tile: Shape
    by_tool: bool


Divisions = dict[str, Division]  # by population
_KNOWN_TILES: ContextVar[dict[Hashable, tuple[Shape, bool]] | None] = ContextVar("known_tiles", default=None)
Chooser = Callable[[Layer, dict[str, Shape]], Division]


def place_words(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Place every population on its own cores; a layer that never fits is divided into single neurons."""
    layers = build_layers(network, profile)
    usual = _divide_all(layers, partial(_divided, compiler_tile))
    if tiling == "compiler":
        return _placement(usual, layers)
    best = _divide_all(layers, partial(_best, usual=usual))
    return min(
        _placement(best, layers), _placement(usual, layers), key=lambda placement: placement.cores or 0
    )


@contextmanager
def tiles_remembered() -> Iterator[None]:
    """Divide a layer once, however often it is placed with the same synapses, and targets of the same tiles.

    Advice places a network many times, with and without its first layer or readout.
    """
    token = _KNOWN_TILES.set({})
    try:
        yield
    finally:
        _KNOWN_TILES.reset(token)


def _divided(
    choose: Callable[[TileUse], tuple[Shape, bool]], layer: Layer, tiles: dict[str, Shape]
) -> Division:
    """Return a layer in the tile that `choose` returns, or has returned before (`tiles_remembered`)."""
    uses, known = TileUse(layer=layer, tiles=tiles), _KNOWN_TILES.get()
    if known is None:
        tile, by_tool = choose(uses)
    else:
        key = (choose, layer.key, *(tiles.get(outlet.target) for outlet in layer.outlets))
        if key not in known:
            known[key] = choose(uses)
        tile, by_tool = known[key]
    return Division(layer=layer, tile=tile, by_tool=by_tool)


def _divide_all(layers: Sequence[Layer], choose: Chooser) -> Divisions:
    divisions: Divisions = {}
    for _ in range(MOST_ROUNDS):
        before = _tiles(divisions)
        for layer in reversed(layers):
            divisions[layer.name] = choose(layer, _tiles(divisions))
        if _tiles(divisions) == before or not _has_feedback(layers):
            break
    return divisions


def _tiles(divisions: Divisions) -> dict[str, Shape]:
    return {name: division.tile for name, division in divisions.items()}


def _has_feedback(layers: Sequence[Layer]) -> bool:
    """Return whether some connection leads to an earlier population."""
    order = {layer.name: number for number, layer in enumerate(layers)}
    return any(order[outlet.target] < order[layer.name] for layer in layers for outlet in layer.outlets)


def _best(layer: Layer, tiles: dict[str, Shape], usual: Divisions) -> Division:
    """Return the best of the tiles from the search, in every storage, and of the chip's own tool."""
    own = usual[layer.name]
    targets = [outlet.target for outlet in layer.outlets]
    same = all(target in tiles and tiles[target] == usual[target].tile for target in targets)
    searched = same and not own.by_tool  # then the tool's tile overflows, and `own` is of this very search
    storages = layer.storages()[1:] if searched else layer.storages()
    found = [own, *(_divided(_searched, stored, tiles) for stored in storages)]

    def uses(division: Division) -> tuple[bool, int, int]:
        of_tiles = TileUse(layer=division.layer, tiles=tiles)
        cores = count_tiles(layer.shape, division.tile)
        return not of_tiles.fits(division.tile), cores, of_tiles.total_memory(division.tile)

    best = min(found, key=uses)
    return own if best.layer is layer and best.tile == own.tile else best


def _searched(uses: TileUse) -> tuple[Shape, bool]:
    return best_tile(uses), False


def _placement(divisions: Divisions, layers: Sequence[Layer]) -> Placement:
    tiles = _tiles(divisions)
    return Placement(layers=tuple(_placed(divisions[layer.name], tiles, layer) for layer in layers))


def _placed(division: Division, tiles: dict[str, Shape], layer: Layer) -> PlacedLayer:
    uses = TileUse(layer=division.layer, tiles=tiles)
    use = uses.peak_use(division.tile)
    return PlacedLayer(
        name=layer.name,
        shape=layer.shape,
        tile=division.tile,
        use={name: use[name] for name in use if name in RESOURCES or name in layer.limits},
        lower_bound=min(map(lower_bound, layer.storages())),
        by_tool=division.by_tool,
        storage=division.layer.storage,
        use_of=uses.use_of,
    )
