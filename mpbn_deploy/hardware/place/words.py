"""A core that is a memory of words (Loihi 1 and 2): what the neurons of one core need of it.

one word for each input axon, neuron, neuron group, axon-map entry
words of a row of n weights = ceil((n * b + row_header_bits) / word_bits)
dense:        one row per source neuron, b = weight bits + index_bits
convolution:  kernels.py (Loihi 2), windows.py (Loihi 1), b = weight bits + bits of its index
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ...base import Array
from ...ir import Dense
from . import kernels, windows
from .model import Inlet, Layer, Tiles
from .records import WORD_RESOURCES, Tile, Use, extents

MEMORY = (*WORD_RESOURCES, "axon_memory_words")  # what adds up to a core's total


def core_use(layer: Layer, part: Tile, tiles: Tiles) -> dict[str, int]:
    """What one core needs of each resource, as far as the profile can tell."""
    shared = layer.shares_kernels
    use = {
        "input_axons": sum(_axons(layer, inlet, part) for inlet in layer.inlets),
        "neuron_groups": len(kernels.blocks(layer, part)) if shared else 1,
        "neurons": prod(extents(part)),
        "axon_map_entries": kernels.entries(layer, part) if shared else windows.entries(layer, part, tiles),
    }
    if "axon_memory_targets" in layer.limits:
        use["axon_memory_words"] = kernels.axon_memory(layer, part, tiles)
    if layer.knows_rows:
        use["synapse_words"] = sum(_words(layer, inlet, part) for inlet in layer.inlets)
        use["input_words"] = use["input_axons"] + use["synapse_words"]
        use["total_words"] = sum(use.get(resource, 0) for resource in MEMORY)
    return use


def worst_ratio(layer: Layer, use: Use) -> int:
    """The largest of ceil(use / limit), over the resources whose limit is known; 1 where all is kept."""
    pairs = [(use[resource], layer.limits[resource]) for resource in layer.limits.keys() & use.keys()]
    return max([1, *(-(-need // limit) if limit else need + 1 for need, limit in pairs)])


def depends_on_weights(layer: Layer) -> bool:
    """Whether dense rows may be shorter or fewer on one core than on another."""
    full = layer.shares_kernels and layer.stores_zeros
    return not full and any(isinstance(inlet.synapse, Dense) for inlet in layer.inlets)


def _axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Axons that enter a core by one synapse."""
    if inlet.drives and layer.shares_kernels:
        return 1
    if not isinstance(inlet.synapse, Dense):
        axons = kernels.axons if layer.shares_kernels else windows.axons
        return axons(layer, inlet, part)
    if layer.shares_kernels:
        return inlet.synapse.weight.shape[1]  # the compiler counts one also where no weight enters the core
    return int(np.count_nonzero(_dense_rows(layer, inlet.synapse, part)))


def _words(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Words that hold the weights from one synapse into a core."""
    if inlet.drives and layer.shares_kernels:
        return 0
    if isinstance(inlet.synapse, Dense):
        return _dense_words(layer, inlet, inlet.synapse, part)
    words = kernels.words if layer.shares_kernels else windows.words
    return words(layer, inlet, part)


def _dense_words(layer: Layer, inlet: Inlet, synapse: Dense, part: Tile) -> int:
    rows = Counter(_dense_rows(layer, synapse, part).tolist())
    if not layer.shares_kernels and layer.stores_zeros and extents(part) != layer.shape:
        # nengo-loihi (split_blocks.py): the parts of a cut layer store equal rows once.
        unlike = {row.tobytes() for row in _onto(layer, synapse, part).T}
        rows = Counter({length: len(unlike) for length in rows})
    bits = inlet.bits + layer.limits["index_bits"]
    return sum(count * layer.row_words(length, bits) for length, count in rows.items())


def _dense_rows(layer: Layer, synapse: Dense, part: Tile) -> Array:
    """Per source neuron, how many weights its row on a core stores; 0 where there is no row."""
    if layer.stores_zeros:
        return np.full(synapse.weight.shape[1], prod(extents(part)))
    rows: Array = np.count_nonzero(_onto(layer, synapse, part), axis=0)
    return rows


def _onto(layer: Layer, synapse: Dense, part: Tile) -> Array:
    """The weights onto the neurons of a part, [neuron, source neuron]."""
    weight = synapse.weight.reshape(*layer.shape, -1)[part]
    return weight.reshape(-1, weight.shape[-1])
