"""Place a network on cores with a memory of words (Loihi), one population at a time, from last to first.

The axon-map entries of a core depend on the tiles of its target populations, so targets are divided first. In
networks with feedback, all populations are divided again until no tile changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from ...base import record
from ...ir import IntNetwork, Shape
from ..profile import HardwareProfile
from .compiler import compiler_tile
from .layer import Layer, build_layers
from .records import RESOURCES, PlacedLayer, Placement, Tiling, count_tiles
from .search import best_tile, lower_bound
from .tile_use import TileUse

MAX_ROUNDS = 4  # for networks with feedback


@record
class Division:
    """A layer, in the storage chosen for it, its tile, and whether the chip's own tool does the same."""

    layer: Layer
    tile: Shape
    by_tool: bool


Result = TypeVar("Result")
Divisions = dict[str, Division]  # by population
_KNOWN: ContextVar[dict[Hashable, Any] | None] = ContextVar("known", default=None)
Chooser = Callable[[Layer, dict[str, Shape]], Division]


def place_words(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Place every population on its own cores; a layer that never fits is divided into single neurons."""
    layers = build_layers(network, profile)
    usual = _divide_all(layers, partial(_divided, compiler_tile))
    if tiling == "compiler":
        return _placement(usual, layers)
    best = _placement(_divide_all(layers, partial(_best, usual=usual)), layers, "best")
    compiler = _placement(usual, layers, "best" if tiling == "best" else "compiler")
    first, second = (best, compiler) if tiling == "best" else (compiler, best)
    return min(first, second, key=lambda placement: placement.cores or 0)  # the first wins ties


@contextmanager
def tiles_remembered() -> Iterator[None]:
    """Divide a layer once, however often it is placed with the same synapses, and targets of the same tiles.

    Searches and advice place a network many times, with and without relays, its first layer or readout.
    """
    token = _KNOWN.set({} if (known := _KNOWN.get()) is None else known)
    try:
        yield
    finally:
        _KNOWN.reset(token)


def _once(compute: Callable[[], Result], layer: Layer, tiles: dict[str, Shape], *more: Hashable) -> Result:
    """Return what `compute` returns for a layer and tiles of its targets, or has returned before."""
    if (known := _KNOWN.get()) is None:
        return compute()
    key = (layer.key, *(tiles.get(outlet.target) for outlet in layer.outlets), *more)
    if key not in known:
        known[key] = compute()
    found: Result = known[key]
    return found


def _divided(
    choose: Callable[[TileUse], tuple[Shape, bool]], layer: Layer, tiles: dict[str, Shape]
) -> Division:
    """Return a layer in the tile that `choose` returns."""
    tile, by_tool = _once(lambda: choose(_tile_use(layer, tiles)), layer, tiles, choose)
    return Division(layer=layer, tile=tile, by_tool=by_tool)


def _tile_use(layer: Layer, tiles: dict[str, Shape]) -> TileUse:
    """Return the resource use of a layer, given the tiles of its targets that are divided already."""
    targets = [outlet.target for outlet in layer.outlets if outlet.target in tiles]
    return TileUse(layer=layer, tiles={target: tiles[target] for target in targets})


def _divide_all(layers: Sequence[Layer], choose: Chooser) -> Divisions:
    divisions: Divisions = {}
    for _ in range(MAX_ROUNDS):
        before = _tiles(divisions)
        tiles = dict(before)
        for layer in reversed(layers):
            divisions[layer.name] = choose(layer, tiles)
            tiles[layer.name] = divisions[layer.name].tile
        if tiles == before or not _has_feedback(layers):
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
    best = _once(lambda: _better(layer, tiles, usual), layer, tiles, _better, own.tile, own.by_tool)
    return own if best.layer.storage == layer.storage and best.tile == own.tile else best


def _better(layer: Layer, tiles: dict[str, Shape], usual: Divisions) -> Division:
    own, targets = usual[layer.name], [outlet.target for outlet in layer.outlets]
    same = all(target in tiles and tiles[target] == usual[target].tile for target in targets)
    searched = same and not own.by_tool  # then the tool's tile overflows, and `own` is of this very search
    storages = layer.storages()[1:] if searched else layer.storages()
    found = [own, *(_divided(_searched, stored, tiles) for stored in storages)]

    def uses(division: Division) -> tuple[bool, int, int]:
        of_tiles = _tile_use(division.layer, tiles)
        cores = count_tiles(layer.shape, division.tile)
        return not of_tiles.fits(division.tile), cores, of_tiles.total_memory(division.tile)

    return min(found, key=uses)


def _searched(uses: TileUse) -> tuple[Shape, bool]:
    return best_tile(uses), False


def _placement(divisions: Divisions, layers: Sequence[Layer], tiling: Tiling = "compiler") -> Placement:
    tiles = _tiles(divisions)
    placed = tuple(_placed(divisions[layer.name], tiles, layer) for layer in layers)
    return Placement(layers=placed, tiling=tiling)


def _placed(division: Division, tiles: dict[str, Shape], layer: Layer) -> PlacedLayer:
    chosen = division.tile, division.by_tool
    return _once(lambda: _with_use(division, tiles, layer), division.layer, tiles, _with_use, *chosen)


def _with_use(division: Division, tiles: dict[str, Shape], layer: Layer) -> PlacedLayer:
    uses = _tile_use(division.layer, tiles)
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
