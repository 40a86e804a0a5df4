"""Place a network on the cores of a chip.

`place(network, profile)` divides every population into tiles, one tile per core, and returns a Placement: the
tile, the core count, a lower bound and the peak resource use of each layer, and the problems found. The
`placement` entry of a profile selects how the chip fills its cores.

    stage             place: selects the placer of a profile; "unknown", core allocation not documented
    records           PlacedLayer, Placement, Problem; division of a shape into tiles
    capacities        the capacity of a core or network for a resource

  "words", cores with one memory of words (Loihi):
    word_memory       the placer
    layer             a population with everything that determines its memory
    compiler          tiles as the chips' own tools choose them
    search            tiles with fewer cores, and lower bounds
    tile_use          resource use of all cores of a tiling
    core_memory       resource use of one core; convolutions in loihi1_kernels and loihi2_kernels
    bits              bits per weight, words per row of weights
    receptive_fields  receptive fields of tiles

  Other placers:
    crossbar          "crossbar", axons x neurons (TrueNorth); axons counts axons per input
    layer_per_core    "layers", one layer per core (Speck)
    single_core       "whole", one core for the whole network (Xylo); "fabric", our core in an FPGA, in stage
    linkage           the source neurons that a tile reads; shared with fit

Receptive fields and synapse counts of single neurons come from ir (`Axis`, `count_synapses`).
"""

from typing import TYPE_CHECKING

from ...base import door

if TYPE_CHECKING:
    from .axons import (
        WeightRange as WeightRange,
        axons_for_types as axons_for_types,
        fewest_axons as fewest_axons,
    )
    from .bits import (
        row_words as row_words,
        signed_bits as signed_bits,
        stored_bits as stored_bits,
        trailing_zeros as trailing_zeros,
        weight_bits as weight_bits,
    )
    from .capacities import capacity as capacity
    from .layer import core_neurons as core_neurons
    from .layer_per_core import (
        as_map as as_map,
        competing_layers as competing_layers,
        match_cores as match_cores,
        stored_synapse as stored_synapse,
    )
    from .linkage import (
        Link as Link,
        block_sums as block_sums,
        links as links,
        merge_indices as merge_indices,
    )
    from .records import (
        RESOURCES as RESOURCES,
        ROW_KEYS as ROW_KEYS,
        ROW_RESOURCES as ROW_RESOURCES,
        PlacedLayer as PlacedLayer,
        Placement as Placement,
        Tile as Tile,
        Tiling as Tiling,
        tiles_of as tiles_of,
    )
    from .single_core import read_by_output as read_by_output, reading_input as reading_input
    from .stage import place as place
    from .word_memory import tiles_remembered as tiles_remembered
else:
    __getattr__, __dir__ = door(__name__, __file__)
