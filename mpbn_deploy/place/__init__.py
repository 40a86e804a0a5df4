"""Which neurons sit on which core: every population cut into tiles, one tile on each core.

How a core is filled, and so how a population is cut, differs from chip to chip; a profile says of which
kind its chip is.

    records     PlacedLayer, Placement                   capacity    how much a core has of a resource

  Cores that are memories of words (Loihi):
    model       a population with all that decides what its neurons need
    cutting     in which order populations are cut       site        the kinds of tiles of a cut
    compiler    how the chips' own tools cut             search      better cuts, and lower bounds
    words       what one core needs; rows (bits, reach) as Loihi 2 (kernels) or 1 (windows) counts them

  Other kinds:
    crossbar    axons times neurons (axons)              layers      a core for each layer
    whole       one core for all                         unknown     nobody said
    links       which neurons a tile reads, along one axis at a time

    traffic     the spikes between cores                 chips       which cores sit on which chip
"""

from __future__ import annotations

from collections.abc import Callable

from ..hardware import HardwareProfile
from ..int_ir import IntNetwork
from .bits import row_words, signed_bits, stored_bits, trailing_zeros, weight_bits
from .capacity import capacity
from .crossbar import place_crossbar
from .cutting import place_words
from .layers import place_layers
from .records import (
    RESOURCES,
    ROW_KEYS,
    ROW_RESOURCES,
    WORD_RESOURCES,
    PlacedLayer,
    Placement,
    Problem,
    Tile,
    Tiling,
    Use,
    cut,
)
from .unknown import place_unknown
from .whole import place_whole

__all__ = [
    "RESOURCES",
    "ROW_KEYS",
    "ROW_RESOURCES",
    "WORD_RESOURCES",
    "PlacedLayer",
    "Placement",
    "Problem",
    "Tile",
    "Tiling",
    "Use",
    "capacity",
    "cut",
    "place",
    "row_words",
    "signed_bits",
    "stored_bits",
    "trailing_zeros",
    "weight_bits",
]

Placer = Callable[[IntNetwork, HardwareProfile, Tiling], Placement]

# By the `placement` of a profile.
PLACERS: dict[str, Placer] = {
    "words": place_words,
    "crossbar": place_crossbar,
    "layers": place_layers,
    "whole": place_whole,
    "unknown": place_unknown,
}


def place(network: IntNetwork, profile: HardwareProfile, *, tiling: Tiling = "compiler") -> Placement:
    """Every population on cores of its own, or all on one, as the chip has it.

    The input takes none: its values arrive from outside the neurocores, as messages. With tiling "compiler"
    populations are cut as the chip's own tool cuts them, with "best" into as few cores as a search finds: a
    choice for memories of words. There, a layer that does not fit even one neuron at a time is cut to single
    neurons, and its use shows the excess; the other kinds say in `problems` what does not fit.
    """
    return PLACERS[profile.placement](network, profile, tiling)
