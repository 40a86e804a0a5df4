"""Which neurons sit on which core: every population cut into tiles, one tile on each core.

How a core is filled, and so how a population is cut, differs from chip to chip; a profile says of which
kind its chip is.

    records     PlacedLayer, Placement                   capacities  how much a core has of a resource

  Cores that are memories of words (Loihi):
    model       a population with all that decides what its neurons need
    cutting     in which order populations are cut       site        the kinds of tiles of a cut
    compiler    how the chips' own tools cut             search      better cuts, and lower bounds
    words       what one core needs; rows of weights as Loihi 2 (kernels) or 1 (windows) counts them
    bits        of a weight and of a row of weights      reach       receptive fields of parts of a cut

  Other kinds:
    crossbar    axons times neurons (axons)              layers      a core for each layer
    whole       one core for all                         unknown     nobody said
    linkage     which neurons a tile reads, along one axis at a time

Receptive fields and counts of synapses are stated in ir (`Axis`, `count_synapses`) and asked here for tiles.
"""

from typing import TYPE_CHECKING

from ...base.doors import door

if TYPE_CHECKING:
    from .axons import Weights as Weights, axons_of_kinds as axons_of_kinds, fewest_digits as fewest_digits
    from .bits import (
        row_words as row_words,
        signed_bits as signed_bits,
        stored_bits as stored_bits,
        trailing_zeros as trailing_zeros,
        weight_bits as weight_bits,
    )
    from .capacities import capacity as capacity
    from .layers import as_map as as_map, match as match, rivals as rivals
    from .linkage import (
        Link as Link,
        block_sums as block_sums,
        links as links,
        union as union,
    )
    from .records import (
        RESOURCES as RESOURCES,
        ROW_KEYS as ROW_KEYS,
        ROW_RESOURCES as ROW_RESOURCES,
        PlacedLayer as PlacedLayer,
        Placement as Placement,
        Tile as Tile,
        Tiling as Tiling,
        cut as cut,
    )
    from .stage import place as place
    from .whole import read_by_output as read_by_output, reading_input as reading_input
else:
    __getattr__, __dir__ = door(__name__, __file__)
