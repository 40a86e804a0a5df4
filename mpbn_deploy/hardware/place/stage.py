"""IntNetwork + profile -> Placement"""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import assert_never

from ...ir import IntNetwork, Lif, Neuron, Readout
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
    for population in network.layers:
        _check_counted(population.neuron)
    return PLACERS[profile.placement](network, profile, tiling)


def _check_counted(neuron: Neuron) -> None:
    """All placers count a neuron as one of a core's, with one state: so it is with these kinds."""
    match neuron:
        case Lif() | Readout():
            pass
        case _:
            assert_never(neuron)
