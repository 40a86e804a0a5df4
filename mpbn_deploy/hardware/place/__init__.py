"""Place a network on the cores of a chip.

`place(network, profile)` divides every population into tiles, one tile per core, and returns a Placement: the
tile, the core count, a lower bound and the peak resource use of each layer, and the problems found. The
`placement` entry of a profile selects how the chip fills its cores.

    stage        place: selects the placer of a profile; "layers", one layer per core (Speck); "whole", one
                 core for the whole network (Xylo); "fabric", our core in an FPGA; "unknown", not documented
    tiles        PlacedLayer, Placement, Problem; division of a shape into tiles, the source neurons that a
                 tile reads; bits per weight, words per row of weights
    layer        a population with everything that determines its memory; receptive fields of tiles
    word_memory  "words", cores with one memory of words (Loihi): tiles as the chips' own tools choose them
    search       tiles with fewer cores, lower bounds; resource use of all cores of a tiling
    core_memory  resource use of one core, on Loihi 1 and 2
    crossbar     "crossbar", axons x neurons (TrueNorth)

Receptive fields and synapse counts of single neurons come from ir (`Axis`, `count_synapses`).
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .crossbar import (
        WeightRange as WeightRange,
        axons_for_types as axons_for_types,
        fewest_axons as fewest_axons,
    )
    from .layer import core_neurons as core_neurons
    from .stage import (
        as_map as as_map,
        capacity as capacity,
        competing_layers as competing_layers,
        match_cores as match_cores,
        place as place,
        read_by_output as read_by_output,
        reading_input as reading_input,
        stored_synapse as stored_synapse,
    )
    from .tiles import (
        RESOURCES as RESOURCES,
        ROW_KEYS as ROW_KEYS,
        ROW_RESOURCES as ROW_RESOURCES,
        Link as Link,
        PlacedLayer as PlacedLayer,
        Placement as Placement,
        Tile as Tile,
        Tiling as Tiling,
        block_sums as block_sums,
        links as links,
        merge_indices as merge_indices,
        row_words as row_words,
        signed_bits as signed_bits,
        stored_bits as stored_bits,
        tiles_of as tiles_of,
        trailing_zeros as trailing_zeros,
        weight_bits as weight_bits,
    )
    from .word_memory import tiles_remembered as tiles_remembered
else:
    __getattr__, __dir__ = door(__name__, __file__)
