"""Count the resources that one core with a memory of words needs (Loihi 1 and 2).

one word per input axon, neuron, neuron group and axon-map entry
words of a row of n weights = ceil((n * b + row_header_bits) / word_bits)
dense:        one row per source neuron, b = weight bits + index_bits
convolution:  loihi1_kernels.py, loihi2_kernels.py; b = weight bits + bits of the index
"""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from ...base import Array
from ...ir import Dense
from . import loihi1_kernels as loihi1, loihi2_kernels as loihi2
from .layer import Inlet, Layer, Tiles
from .records import WORD_RESOURCES, Tile, Use, extents

INHIBITION_BITS = 8  # of the weight that subtracts, times a power of two
MEMORY = (*WORD_RESOURCES, "axon_memory_words")  # resources that add up to total_words


def core_use(layer: Layer, part: Tile, tiles: Tiles) -> dict[str, int]:
    """Return the use of each resource on one core, as far as the profile defines them."""
    shared = layer.shares_kernels
    neurons = prod(extents(part))
    # Where a soft reset takes a second neuron of the core, it inhibits the first by an axon and a synapse.
    inhibited = neurons * (layer.core_neurons - 1)
    use = {
        "input_axons": sum(_axons(layer, inlet, part) for inlet in layer.inlets) + inhibited,
        "neuron_groups": len(loihi2.blocks(layer, part)) if shared else 1,
        "neurons": layer.core_neurons * neurons,
        "axon_map_entries": (
            loihi2.axon_map_entries(layer, part) if shared else loihi1.axon_map_entries(layer, part, tiles)
        )
        + inhibited,
    }
    if "axon_memory_targets" in layer.limits:
        use["axon_memory_words"] = loihi2.axon_memory_words(layer, part, tiles)
    if layer.knows_rows:
        use["synapse_words"] = sum(_words(layer, inlet, part) for inlet in layer.inlets)
        if inhibited:
            use["synapse_words"] += inhibited * layer.row_words(1, INHIBITION_BITS)
        use["input_words"] = use["input_axons"] + use["synapse_words"]
        use["total_words"] = sum(use.get(resource, 0) for resource in MEMORY)
    return use


def worst_ratio(layer: Layer, use: Use) -> int:
    """Return max ceil(use / limit) over the resources with a known limit; 1 if every limit holds."""
    pairs = [(use[resource], layer.limits[resource]) for resource in layer.limits.keys() & use.keys()]
    return max([1, *(-(-need // limit) if limit else need + 1 for need, limit in pairs)])


def depends_on_weights(layer: Layer) -> bool:
    """Return whether the length or number of dense rows may differ between cores."""
    full = layer.shares_kernels and layer.stores_zeros
    return not full and any(isinstance(inlet.synapse, Dense) for inlet in layer.inlets)


def _axons(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the input axons of a core for one synapse."""
    if inlet.drives and layer.shares_kernels:
        return 1
    if not isinstance(inlet.synapse, Dense):
        input_axons = loihi2.input_axons if layer.shares_kernels else loihi1.input_axons
        return input_axons(layer, inlet, part)
    if layer.shares_kernels:
        return int(
            inlet.synapse.weight.shape[1]
        )  # the compiler also counts axons without any weight on the core
    return int(np.count_nonzero(_dense_rows(layer, inlet.synapse, part)))


def _words(layer: Layer, inlet: Inlet, part: Tile) -> int:
    """Count the words for the weights of one synapse on a core."""
    if inlet.drives and layer.shares_kernels:
        return 0
    if isinstance(inlet.synapse, Dense):
        return _dense_words(layer, inlet, inlet.synapse, part)
    synapse_words = loihi2.synapse_words if layer.shares_kernels else loihi1.synapse_words
    return synapse_words(layer, inlet, part)


def _dense_words(layer: Layer, inlet: Inlet, synapse: Dense, part: Tile) -> int:
    rows = Counter(_dense_rows(layer, synapse, part).tolist())
    if not layer.shares_kernels and layer.stores_zeros and extents(part) != layer.shape:
        # nengo-loihi (split_blocks.py): parts of a divided layer store equal rows once.
        distinct = {row.tobytes() for row in _part_weights(layer, synapse, part).T}
        rows = Counter({length: len(distinct) for length in rows})
    bits = inlet.bits + layer.limits["index_bits"]
    return sum(count * layer.row_words(length, bits) for length, count in rows.items())


def _dense_rows(layer: Layer, synapse: Dense, part: Tile) -> Array:
    """Return the number of stored weights per source neuron; 0 if it has no row on the core."""
    if layer.stores_zeros:
        return np.full(synapse.weight.shape[1], prod(extents(part)))
    rows: Array = np.count_nonzero(_part_weights(layer, synapse, part), axis=0)
    return rows


def _part_weights(layer: Layer, synapse: Dense, part: Tile) -> Array:
    """Return the weights into the neurons of a part, [neuron, source neuron]."""
    weight = synapse.weight.reshape(*layer.shape, -1)[part]
    return weight.reshape(-1, weight.shape[-1])
