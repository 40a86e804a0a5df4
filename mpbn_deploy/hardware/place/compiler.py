"""How the chips' own tools cut a population.

Loihi 2 (Intel's compiler), features: begin with as many neurons as a core may have, and divide by
r = max over resources of ceil(need / limit), rounding down, until r = 1. So 784 -> 128 is cut in 50, 50, 28
(4095, 1365, 455, 151, 50), and 2560 -> 100 in parts of 9 where a core has 12000 words for synapses (4095,
682, 113, 18, 9): the iterations that the compiler logs in the notebooks of lava-dl.

Feature maps: a tile is a power of two wide. It keeps all rows if it can be four columns wide or more; else
it is as wide as the largest square of pixels that a core could have, and rows are halved until it fits.
Where then the kernels overflow, channels are halved and the tile is made wider instead.

This gives the tiles of every table in those notebooks (MNIST, Oxford, PilotNet, YOLO-KP, sCIFAR). Rules for
maps in between are our guess: the tables show tiles with all rows only at four columns and more, and what
happens to channels that are no power of two is not to be seen. Of what they print, not the same:

    PilotNet        NeuronGr 1 for 24, 36, 48 channels, where we count 2, as the later compiler for 48
    sCIFAR          neurons with a state of two words; ours have one

Loihi 1 (nengo-loihi, builder/split_blocks.py): parts = max over resources of ceil(need / limit) of the
uncut population, each of ceil(neurons / parts) neurons that follow each other. A part that is no box we make
smaller: whole rows of a map, or whole pixels of a row. If a part overflows, nengo-loihi stops and asks for
the shape of a part; we take the best that `search` finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod

from ...ir import Shape
from .model import Layer
from .records import Use
from .search import best_tile
from .site import Site
from .words import core_use, worst_ratio

NARROWEST = 4  # columns of a tile with all rows; the tables show none with less
KERNEL_RESOURCES = ("synapse_words", "input_words", "neuron_groups")  # needed less with fewer channels


def compiler_tile(site: Site) -> tuple[Shape, bool]:
    """The tile of the chip's own tool, and whether it is just that."""
    if site.layer.shares_kernels:
        return (_divided(site) if len(site.layer.shape) == 1 else _map_tile(site)), True
    tile = _equal_parts(site.layer)
    return (tile, True) if site.holds(tile) else (best_tile(site), False)


def _divided(site: Site) -> Shape:
    layer = site.layer
    size = max(layer.limits.get("neurons", layer.size), 1)
    while size > 1 and (ratio := worst_ratio(layer, site.most_use((min(size, layer.size),)))) > 1:
        size = max(size // ratio, 1)
    return (min(size, layer.size),)


def _map_tile(site: Site) -> Shape:
    """The first of ever smaller tiles that keeps the limits; a single neuron if none does."""
    tile = _tile_by_neurons(site.layer)
    while prod(tile) > 1:
        use = site.most_use(_within(tile, site.layer.shape))
        if worst_ratio(site.layer, use) <= 1:
            break
        tile = _smaller(site.layer, tile, use)
    return _within(tile, site.layer.shape)


def _tile_by_neurons(layer: Layer) -> Shape:
    """As many neurons as a core may have; a tile that reaches beyond the map counts whole."""
    channels, height, width = layer.shape
    widest = 2 ** (width - 1).bit_length()
    most = layer.limits.get("neurons", channels * height * widest) // channels
    wide = min(_power_of_two(most // height), widest)
    if wide >= min(NARROWEST, widest):
        return channels, height, wide
    wide = min(_power_of_two(isqrt(most)), widest)
    for high in _evenly(height):
        if 1 <= high * wide <= most:
            return channels, high, wide
    odd = list(_evenly(height))[-1]
    return channels, max(min(odd, most), 1), max(_power_of_two(most // odd), 1)


def _smaller(layer: Layer, tile: Shape, use: Use) -> Shape:
    """Fewer channels and more columns where kernels overflow; else fewer columns, rows, channels."""
    channels, height, width = tile
    needs = {name: use[name] for name in KERNEL_RESOURCES if name in use}
    ratio = worst_ratio(layer, needs)
    if ratio > 1 and channels > 1:
        fewer = -(-channels // _power_of_two(2 * ratio - 1))
        return _refilled(layer, fewer, height, width)
    if width > 1:
        return channels, height, width // 2
    return (channels, -(-height // 2), 1) if height > 1 else (-(-channels // 2), 1, 1)


def _refilled(layer: Layer, channels: int, height: int, width: int) -> Shape:
    """The tile made wider, then higher, as long as a core may have so many neurons."""
    _, rows, columns = layer.shape
    most = layer.limits.get("neurons", prod(layer.shape))
    while 2 * width <= 2 ** (columns - 1).bit_length() and channels * height * 2 * width <= most:
        width *= 2
    while 2 * height <= rows and channels * 2 * height * width <= most:
        height *= 2
    return channels, height, width


def _power_of_two(number: int) -> int:
    """The largest that is not larger; 0 below one."""
    return 2 ** (number.bit_length() - 1) if number > 0 else 0


def _evenly(size: int) -> Iterator[int]:
    """size, size / 2, ... while it is whole"""
    yield size
    while size % 2 == 0:
        size //= 2
        yield size


def _within(tile: Shape, shape: Shape) -> Shape:
    return tuple(min(pair) for pair in zip(tile, shape, strict=True))


def _equal_parts(layer: Layer) -> Shape:
    whole = core_use(layer, tuple(slice(0, size) for size in layer.shape), {})
    size = -(-layer.size // worst_ratio(layer, whole))
    if len(layer.shape) == 1:
        return (size,)
    channels, height, width = layer.shape
    if size >= channels * width:
        return channels, min(size // (channels * width), height), width
    return (channels, 1, size // channels) if size >= channels else (size, 1, 1)
