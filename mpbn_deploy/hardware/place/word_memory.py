"""Place a network on cores with a memory of words (Loihi), one population at a time, from last to first.

The axon-map entries of a core depend on the tiles of its target populations, so targets are divided first. In
networks with feedback, all populations are divided again until no tile changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import isqrt, prod
from typing import Any, TypeVar

from ...base import record
from ...ir import IntNetwork, Shape
from ..profile import HardwareProfile
from .core_memory import core_use, worst_ratio
from .layer import Layer, build_layers
from .search import TileUse, best_tile, lower_bound
from .tiles import RESOURCES, PlacedLayer, Placement, Tiling, Use, clip_tile, count_tiles

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


# Choose tiles as the chips' own tools do.
#
# Loihi 2 (Intel's compiler), features: start with the neuron limit of a core and divide by r = max over
# resources of ceil(need / limit), rounding down, until r = 1. So 784 -> 128 is divided into 50, 50, 28 (4095,
# 1365, 455, 151, 50), and 2560 -> 100 into parts of 9 where a core has 12000 words for synapses (4095, 682,
# 113, 18, 9). These are the iterations that the compiler logs in the lava-dl notebooks.
#
# Feature maps: the width of a tile is a power of two. A tile keeps all rows if it can be at least four
# columns wide. Otherwise it is as wide as the largest square of pixels that a core can hold, and rows are
# halved until it fits. If kernels overflow, channels are halved and the tile is widened instead.
#
# This reproduces the tiles of every table in those notebooks (MNIST, Oxford, PilotNet, YOLO-KP, sCIFAR).
# Rules for maps between the printed cases are a guess: the tables show tiles with all rows only at four
# columns and more, and no divided channel count that is not a power of two. Two printed values differ from
# ours:
#
#     PilotNet        NeuronGr 1 for 24, 36, 48 channels; we count 2, as the later compiler does for 48
#     sCIFAR          neurons whose state takes two words; ours take one
#
# Loihi 1 (nengo-loihi, builder/split_blocks.py): parts = max over resources of ceil(need / limit) of the
# undivided population, each with ceil(neurons / parts) consecutive neurons. Our tiles are boxes, so a part
# that is not a box shrinks to whole rows of a map or whole pixels of a row. If a part overflows, nengo-loihi
# stops with an error and asks for a block shape; we use the best tile that `search` finds.


FEWEST_COLUMNS = 4  # of a tile with all rows; the tables show no narrower one
KERNEL_RESOURCES = ("synapse_words", "input_words", "neuron_groups")  # shrink with fewer channels


def compiler_tile(uses: TileUse) -> tuple[Shape, bool]:
    """Return a tile, and whether the chip's own tool chooses the same."""
    if uses.layer.shares_kernels:
        return (_divide_features(uses) if len(uses.layer.shape) == 1 else _map_tile(uses)), True
    tile = _equal_ranges(uses.layer)
    return (tile, True) if uses.fits(tile) else (best_tile(uses), False)


def _divide_features(uses: TileUse) -> Shape:
    layer = uses.layer
    size = max(layer.most_neurons(layer.size), 1)
    while size > 1 and (ratio := worst_ratio(layer, uses.peak_use((min(size, layer.size),)))) > 1:
        size = max(size // ratio, 1)
    return (min(size, layer.size),)


def _map_tile(uses: TileUse) -> Shape:
    """Shrink a tile until it satisfies all limits; a single neuron if none does."""
    tile = _tile_by_neurons(uses.layer)
    while prod(tile) > 1:
        use = uses.peak_use(clip_tile(tile, uses.layer.shape))
        if worst_ratio(uses.layer, use) <= 1:
            break
        tile = _shrink(uses.layer, tile, use)
    return clip_tile(tile, uses.layer.shape)


def _tile_by_neurons(layer: Layer) -> Shape:
    """Return the largest tile within the neuron limit; columns beyond the edge of the map count, too."""
    channels, height, width = layer.shape
    widest = 2 ** (width - 1).bit_length()
    most = layer.most_neurons(channels * height * widest) // channels
    wide = min(_power_of_two(most // height), widest)
    if wide >= min(FEWEST_COLUMNS, widest):
        return channels, height, wide
    wide = min(_power_of_two(isqrt(most)), widest)
    for high in _halvings(height):
        if 1 <= high * wide <= most:
            return channels, high, wide
    odd = list(_halvings(height))[-1]
    return channels, max(min(odd, most), 1), max(_power_of_two(most // odd), 1)


def _shrink(layer: Layer, tile: Shape, use: Use) -> Shape:
    """Halve channels and widen the tile if kernels overflow; otherwise halve columns, rows, then channels."""
    channels, height, width = tile
    needs = {name: use[name] for name in KERNEL_RESOURCES if name in use}
    ratio = worst_ratio(layer, needs)
    if ratio > 1 and channels > 1:
        fewer = -(-channels // _power_of_two(2 * ratio - 1))
        return _widen(layer, fewer, height, width)
    if width > 1:
        return channels, height, width // 2
    return (channels, -(-height // 2), 1) if height > 1 else (-(-channels // 2), 1, 1)


def _widen(layer: Layer, channels: int, height: int, width: int) -> Shape:
    """Double the width, then the height, as long as the neuron limit allows."""
    _, rows, columns = layer.shape
    most = layer.most_neurons(layer.size)
    while 2 * width <= 2 ** (columns - 1).bit_length() and channels * height * 2 * width <= most:
        width *= 2
    while 2 * height <= rows and channels * 2 * height * width <= most:
        height *= 2
    return channels, height, width


def _power_of_two(number: int) -> int:
    """Return the largest power of two <= number; 0 if number < 1."""
    return 2 ** (number.bit_length() - 1) if number > 0 else 0


def _halvings(size: int) -> Iterator[int]:
    """Yield size, size / 2, size / 4, ... while they are integers."""
    yield size
    while size % 2 == 0:
        size //= 2
        yield size


def _equal_ranges(layer: Layer) -> Shape:
    whole = core_use(layer, tuple(slice(0, size) for size in layer.shape), {})
    size = -(-layer.size // worst_ratio(layer, whole))
    if len(layer.shape) == 1:
        return (size,)
    channels, height, width = layer.shape
    if size >= channels * width:
        return channels, min(size // (channels * width), height), width
    return (channels, 1, size // channels) if size >= channels else (size, 1, 1)
