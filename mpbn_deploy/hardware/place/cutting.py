"""All populations of a network cut for cores that are memories of words, from the last to the first.

How many entries for spikes a core needs depends on how the targets of its spikes are cut; so those come
first. Where spikes run in a circle, all are cut again until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...ir import IntNetwork, Shape
from ..profile import HardwareProfile
from .compiler import compiler_tile
from .model import Layer, layers_of
from .records import RESOURCES, PlacedLayer, Placement, Tiling, count_tiles
from .search import best_tile, lower_bound
from .site import Site

ROUNDS = 4  # after which populations in a circle stay as they are

Cuts = dict[str, tuple[Shape, bool]]  # of each population: its tile, and whether the chip's own tool made it
Cutter = Callable[[Site], tuple[Shape, bool]]


def place_words(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Every population on cores of its own; in single neurons, which show the excess, where nothing fits."""
    layers = layers_of(network, profile)
    usual = _cut(layers, compiler_tile)
    if tiling == "compiler":
        return _placement(layers, usual)
    best = _cut(layers, partial(_best, usual=usual))
    return min(_placement(layers, best), _placement(layers, usual), key=_cores)


def _cores(placement: Placement) -> int:
    return sum(layer.cores for layer in placement.layers)


def _cut(layers: Sequence[Layer], cutter: Cutter) -> Cuts:
    cuts: Cuts = {}
    for _ in range(ROUNDS):
        before = _tiles(cuts)
        for layer in reversed(layers):
            cuts[layer.name] = cutter(Site(layer=layer, tiles=_tiles(cuts)))
        if _tiles(cuts) == before or not _circular(layers):
            break
    return cuts


def _tiles(cuts: Cuts) -> dict[str, Shape]:
    return {name: tile for name, (tile, _) in cuts.items()}


def _circular(layers: Sequence[Layer]) -> bool:
    """Whether some spikes go to a population that is listed before theirs."""
    order = {layer.name: number for number, layer in enumerate(layers)}
    return any(order[outlet.target] < order[layer.name] for layer in layers for outlet in layer.outlets)


def _best(site: Site, usual: Cuts) -> tuple[Shape, bool]:
    """The better of what the search finds and what the chip's own tool does."""
    own, by_tool = usual[site.layer.name]
    tile = min(
        (own, best_tile(site)),
        key=lambda tile: (not site.holds(tile), count_tiles(site.layer.shape, tile), site.all_words(tile)),
    )
    return tile, by_tool and tile == own


def _placement(layers: Sequence[Layer], cuts: Cuts) -> Placement:
    tiles = _tiles(cuts)
    sites = [Site(layer=layer, tiles=tiles) for layer in layers]
    return Placement(layers=tuple(_placed(site, *cuts[site.layer.name]) for site in sites))


def _placed(site: Site, tile: Shape, by_tool: bool) -> PlacedLayer:
    use = site.most_use(tile)
    return PlacedLayer(
        name=site.layer.name,
        shape=site.layer.shape,
        tile=tile,
        use={name: use[name] for name in use if name in RESOURCES or name in site.layer.limits},
        lower_bound=lower_bound(site.layer),
        by_tool=by_tool,
        use_of=site.use_of,
    )
