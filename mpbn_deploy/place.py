"""Which neurons sit on which core: every population cut into tiles, one tile on each core.

The core is a memory of words (a model recovered from the tables that Intel's Loihi 2 compiler
prints in the notebooks of lava-dl; all its numbers are in the profile):

    one word for each input axon, neuron, population, and axon-map entry
    words of a row of n weights = ceil((n * b + row_header_bits) / word_bits)
    dense:        one row per source neuron,                      b = weight bits + index_bits
    convolution:  one row per (source channel, kernel position),  b = weight bits + shared_index_bits

A position whose weights are all zero has no row, and a convolution has none on a core whose neurons
all lie in its silent border.

A tile is the largest that keeps all known limits: of features, as many as fit; of feature maps,
all channels unless their kernels overflow a core (then half of them, and so on), the full height,
and a power of two in width; below a width of one, half the height, and so on.

This gives the core counts that the compiler printed for the MNIST perceptron and for all
convolutions of PilotNet and YOLO-KP, though for YOLO-KP the compiler chose squarer tiles of the
same size. What it does not give, of those tables:

    PilotNet 2560 -> 100    12 cores, of an older compiler with less memory that cut ever finer by
                            rounded-up ratios; we say 5
    PilotNet convolutions   rows of 4 and 5 words in the second and third, where the formula says
                            3 and 4; two axon-map entries per pixel in those with a stride of two
    AxonMem                 a column of at most a few percent, not modelled, hence not in the total
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
from typing_extensions import assert_never

from .graph import Connection, Conv2d, Dense, Shape, incoming, window
from .hardware import HardwareProfile
from .int_ir import IntNetwork, IntPopulation
from .records import Array, record

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


@record
class PlacedLayer:
    """A population cut into tiles of one shape (the last ones may be smaller), one per core."""

    name: str
    shape: Shape
    tile: Shape
    use: Use  # per resource, on the core that needs most of it

    @property
    def cores(self) -> int:
        return prod(-(-size // extent) for size, extent in zip(self.shape, self.tile, strict=True))

    @property
    def neurons(self) -> int:
        return prod(self.shape)

    def tiles(self) -> Iterator[Tile]:
        return cut(self.shape, self.tile)


@record
class Placement:
    """All populations but the input, in the order of the network."""

    layers: tuple[PlacedLayer, ...]

    @property
    def cores(self) -> int:
        return sum(layer.cores for layer in self.layers)


@record
class _Inlet:
    """A synapse into a population, the shape it reads from, and the bits of each stored weight."""

    synapse: Dense | Conv2d
    source: Shape
    bits: int


@record
class _Layer:
    """A population with all that decides how much of a core its neurons need."""

    population: IntPopulation
    inlets: tuple[_Inlet, ...]
    entry_per_pixel: bool
    profile: HardwareProfile


def place(network: IntNetwork, profile: HardwareProfile) -> Placement:
    """Every population on cores of its own.

    The input takes none: its values arrive from outside the neurocores, as messages. A layer that
    does not fit even one neuron at a time is cut to single neurons, and its use shows the excess.
    """
    layers = [_layer(network, population, profile) for population in network.populations[1:]]
    return Placement(layers=tuple(map(_place_layer, layers)))


def weight_bits(weight: Array) -> int:
    """The bits, sign included, that hold every weight once common factors of two are left out.

    Factors of two go to the exponent that a connection's weights share, as in lava-dl's
    `optimize_weight_bits`. That also drops the sign bit where all signs agree; we keep it.
    """
    mantissa = weight >> trailing_zeros(weight)
    return signed_bits(int(mantissa.min()), int(mantissa.max()))


def trailing_zeros(weight: Array) -> int:
    """The largest k such that 2**k divides every weight; 0 if all are zero."""
    together = int(np.bitwise_or.reduce(weight, axis=None))
    return (together & -together).bit_length() - 1 if together else 0


def signed_bits(low: int, high: int) -> int:
    """The least b with -2**(b-1) <= low and high < 2**(b-1)."""
    return max(high, -low - 1, 0).bit_length() + 1


def cut(shape: Shape, tile: Shape) -> Iterator[Tile]:
    """The tiles of a shape, from its first corner on."""
    return product(*_slices(shape, tile))


def _slices(shape: Shape, tile: Shape) -> list[list[slice]]:
    return [
        [slice(start, min(start + extent, size)) for start in range(0, size, extent)]
        for size, extent in zip(shape, tile, strict=True)
    ]


def row_words(weights: int, bits: int, profile: HardwareProfile) -> int:
    """The words of one row; a row longer than `core.row_entries` goes on after another header."""
    entries = profile.limit("core.row_entries")
    longest = entries.value if entries else weights
    header, word = profile.value("core.row_header_bits"), profile.value("core.word_bits")
    lengths = [min(longest, weights - start) for start in range(0, weights, max(longest, 1))]
    return sum(-(-(length * bits + header) // word) for length in lengths)


def _layer(network: IntNetwork, population: IntPopulation, profile: HardwareProfile) -> _Layer:
    shapes = {p.name: p.shape for p in network.populations}
    inlets = [
        _Inlet(synapse=synapse, source=shapes[source], bits=weight_bits(synapse.weight))
        for source, synapse in _rows_together(incoming(network.connections, population.name))
    ]
    return _Layer(
        population=population,
        inlets=tuple(inlets),
        entry_per_pixel=_feeds_convolutions_only(network.connections, population.name),
        profile=profile,
    )


def _rows_together(connections: Sequence[Connection]) -> Iterator[tuple[str, Dense | Conv2d]]:
    """Dense connections that differ in their delay, and share no synapse, lie in the same rows of a core."""
    rows: dict[tuple[str, int], list[Array]] = {}
    for connection in connections:
        synapse = connection.synapse
        if not isinstance(synapse, Dense):
            yield connection.source, synapse
            continue
        parts = rows.setdefault((connection.source, synapse.exponent), [])
        if parts and not np.logical_and(parts[-1], synapse.weight).any():
            parts[-1] = parts[-1] + synapse.weight
        else:
            parts.append(synapse.weight)
    for (source, exponent), parts in rows.items():
        yield from ((source, Dense(weight=weight, exponent=exponent)) for weight in parts)


def _feeds_convolutions_only(connections: Sequence[Connection], source: str) -> bool:
    """Then one axon-map entry serves all channels of a pixel; otherwise each neuron needs its own."""
    targets = [connection.synapse for connection in connections if connection.source == source]
    return bool(targets) and all(isinstance(synapse, Conv2d) for synapse in targets)


def _place_layer(layer: _Layer) -> PlacedLayer:
    shape = layer.population.shape
    tile = _feature_tile(layer) if len(shape) == 1 else _map_tile(layer)
    shown = tuple(min(pair) for pair in zip(tile, shape, strict=True))  # powers of two may exceed a map
    return PlacedLayer(name=layer.population.name, shape=shape, tile=shown, use=_use(layer, tile))


def _feature_tile(layer: _Layer) -> Shape:
    """As many neurons as keep the limits; first with the room that the compiler leaves free."""
    fill = layer.profile.limit("core.dense_fill_percent")
    sizes = range(1, layer.population.size + 1)
    for percent in (fill.value if fill else 100, 100):
        # More neurons hardly ever need less; and the size found was itself seen to hold.
        size = bisect_right(sizes, 0, key=lambda size: not _holds(layer, (size,), percent))
        if size:
            return (size,)
    return (1,)


def _map_tile(layer: _Layer) -> Shape:
    """The first tile, from large to small, that keeps the limits; a single neuron if none does."""
    tiles = _map_tiles(layer.population.shape)
    return next((tile for tile in tiles if _holds(layer, tile)), (1, 1, 1))


def _map_tiles(shape: Shape) -> Iterator[Shape]:
    channels, height, width = shape
    for some in _halves(channels):
        widest = 2 ** (width - 1).bit_length()
        yield from ((some, height, wide) for wide in _halves(widest))
        yield from ((some, high, 1) for high in _halves(height))


def _halves(size: int) -> Iterator[int]:
    """size, size / 2 rounded up, ..., 1"""
    while size > 1:
        yield size
        size = -(-size // 2)
    yield 1


def _holds(layer: _Layer, tile: Shape, fill_percent: int = 100) -> bool:
    """Whether a core can take the tile.

    A tile counts whole, even where it reaches beyond the map: the compiler cut PilotNet's last
    convolution, 20 pixels wide, at 16, since 32 would have been one neuron too many.
    """
    use = {**_use(layer, tile), "neurons": prod(tile)}
    for resource, used in use.items():
        limit = layer.profile.limit(f"core.{resource}")
        percent = fill_percent if resource == "synapse_words" else 100
        if limit is not None and 100 * used > percent * limit.value:
            return False
    return True


def _use(layer: _Layer, tile: Shape) -> Use:
    """Per resource, the most that any core needs."""
    uses = [_core_use(layer, part) for part in _unlike_tiles(layer, tile)]
    return {resource: max(use[resource] for use in uses) for resource in uses[0]}


def _unlike_tiles(layer: _Layer, tile: Shape) -> Iterator[Tile]:
    """All tiles where dense weights differ from one to the next; else one of each set of channels.

    Of convolutions with a silent border, one for each share of their windows that a tile can have.
    """
    shape, synapses = layer.population.shape, [inlet.synapse for inlet in layer.inlets]
    windows = [window(synapse, shape) for synapse in synapses if isinstance(synapse, Conv2d)]
    if len(windows) < len(synapses):
        return cut(shape, tile)
    channels, rows, columns = _slices(shape, tile)
    unlike = [_unlike([ends[axis] for ends in windows], parts) for axis, parts in enumerate((rows, columns))]
    return product(channels, *unlike)


def _unlike(windows: Sequence[slice], parts: Sequence[slice]) -> list[slice]:
    """Of parts of an axis, the first one for each share of the windows."""
    whole = slice(0, parts[-1].stop)
    if all(inside == whole for inside in windows):
        return [parts[0]]
    shares = {tuple(_length(_overlap(part, inside)) for inside in windows): part for part in reversed(parts)}
    return list(shares.values())


def _core_use(layer: _Layer, part: Tile) -> Use:
    """What one core needs; the synapses, and with them the total, only if the profile can tell."""
    profile, extents = layer.profile, _extents(part)
    use = {
        "input_axons": sum(_axons(inlet, layer, part) for inlet in layer.inlets),
        "neuron_groups": 1,
        "neurons": prod(extents),
        "axon_map_entries": prod(extents[1:]) if layer.entry_per_pixel else prod(extents),
    }
    if all(profile.limit(key) is not None for key in ROW_KEYS):
        use["synapse_words"] = sum(_words(inlet, layer, part) for inlet in layer.inlets)
        use["total_words"] = sum(use[resource] for resource in WORD_RESOURCES)
    return use


def _axons(inlet: _Inlet, layer: _Layer, part: Tile) -> int:
    """Axons that enter a core: from each source neuron with a weight into it, or for a convolution."""
    synapse = inlet.synapse
    match synapse:
        case Dense():
            return int(np.count_nonzero(_fan_outs(synapse, layer, part)))
        case Conv2d():
            part = _served(synapse, layer, part)
            if 0 in _extents(part):
                return 0
            shared = layer.profile.limit("core.shared_axons")
            return shared.value if shared else _pixels_in_reach(synapse, inlet.source, part)
        case _:
            assert_never(synapse)


def _words(inlet: _Inlet, layer: _Layer, part: Tile) -> int:
    """Words that hold the weights from one synapse into a core."""
    synapse, profile = inlet.synapse, layer.profile
    match synapse:
        case Dense():
            bits = inlet.bits + profile.value("core.index_bits")
            rows = Counter(_row_lengths(synapse, layer, part).tolist())
        case Conv2d():
            bits = inlet.bits + profile.value("core.shared_index_bits")
            served = 0 not in _extents(_served(synapse, layer, part))
            rows = _kernel_rows(synapse, part[0]) if served else Counter()
        case _:
            assert_never(synapse)
    return sum(count * row_words(length, bits, profile) for length, count in rows.items())


def _fan_outs(synapse: Dense, layer: _Layer, part: Tile) -> Array:
    """Per source neuron, how many of its weights into a core are not zero."""
    weight = synapse.weight.reshape(*layer.population.shape, -1)[part]
    fan_outs: Array = np.count_nonzero(weight.reshape(-1, weight.shape[-1]), axis=0)
    return fan_outs


def _row_lengths(synapse: Dense, layer: _Layer, part: Tile) -> Array:
    """Per source neuron, how many weights its row stores; 0 where there is no row."""
    fan_outs = _fan_outs(synapse, layer, part)
    if layer.profile.value("core.zero_weights_stored"):
        return np.where(fan_outs > 0, prod(_extents(part)), 0)
    return fan_outs


def _kernel_rows(synapse: Conv2d, channels: slice) -> Counter[int]:
    """How many rows there are of each length: a source channel reaches the channels of its group."""
    per_group = synapse.weight.shape[0] // synapse.groups
    members = Counter(channel // per_group for channel in range(channels.start, channels.stop))
    rows_of_a_group = synapse.weight.shape[1] * int(np.count_nonzero(synapse.weight.any(axis=(0, 1))))
    return Counter({length: count * rows_of_a_group for length, count in Counter(members.values()).items()})


def _served(synapse: Conv2d, layer: _Layer, part: Tile) -> Tile:
    """The neurons of a tile that do not lie in the silent border of a convolution."""
    rows, columns = window(synapse, layer.population.shape)
    return part[0], _overlap(part[1], rows), _overlap(part[2], columns)


def _overlap(one: slice, other: slice) -> slice:
    start = max(one.start, other.start)
    return slice(start, max(start, min(one.stop, other.stop)))


def _length(part: slice) -> int:
    length: int = part.stop - part.start
    return length


def _pixels_in_reach(synapse: Conv2d, source: Shape, part: Tile) -> int:
    """Source pixels that a tile's kernels cover; at a padded border a few more than there are."""
    sizes = zip(
        source[1:],
        _extents(part)[1:],
        synapse.stride,
        synapse.dilation,
        synapse.weight.shape[2:],
        strict=True,
    )
    return prod(
        min(size, step * (extent - 1) + spread * (kernel - 1) + 1)
        for size, extent, step, spread, kernel in sizes
    )


def _extents(part: Tile) -> list[int]:
    return [_length(axis) for axis in part]
