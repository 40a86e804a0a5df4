"""IntNetwork + profile -> Placement"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import IntNetwork
from ..profile import HardwareProfile
from .crossbar import place_crossbar
from .cutting import place_words
from .layers import place_layers
from .records import Placement, Tiling
from .unknown import place_unknown
from .whole import place_whole

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
