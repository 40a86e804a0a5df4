"""Place a network: IntNetwork + HardwareProfile -> Placement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from typing_extensions import assert_never

from ...ir import Delta, IntNetwork, Lif, Neuron, Readout, Relay, Sigma, SigmaDelta, SoftLif, Xylo
from ..profile import HardwareProfile
from .crossbar import place_crossbar
from .layer_per_core import place_layers
from .records import PlacedLayer, Placement, Tiling
from .single_core import place_whole
from .word_memory import place_words

Placer = Callable[[IntNetwork, HardwareProfile, Tiling], Placement]


def place_unknown(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Return every population undivided and without resource use, for undocumented core allocations."""
    layers = [PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use={}) for p in network.layers]
    return Placement(kind="unknown", layers=tuple(layers))


def place_program(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Return every population undivided, on the one processor that runs the network as a program."""
    return replace(place_unknown(network, profile, tiling), kind="program")


def place_fabric(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Return every population undivided: one core of ours holds the whole network, layer after layer."""
    return replace(place_unknown(network, profile, tiling), kind="fabric")


# The placer for each `placement` of a profile.
PLACERS: dict[str, Placer] = {
    "words": place_words,
    "crossbar": place_crossbar,
    "layers": place_layers,
    "whole": place_whole,
    "program": place_program,
    "fabric": place_fabric,
    "unknown": place_unknown,
}


def place(network: IntNetwork, profile: HardwareProfile, *, tiling: Tiling = "compiler") -> Placement:
    """Divide every population into tiles, one per core, as the `placement` of the profile requires.

    The input takes no core: its values arrive from outside as messages. For `placement = "words"`, tiling
    "compiler" divides populations as the chip's own tool does, "best" searches for fewer cores, and "auto"
    takes the compiler's unless the best has fewer; a layer that does not fit even one neuron at a time is
    divided into single neurons, and its use shows the excess.
    The other placers report in `problems` what does not fit.
    """
    for population in network.layers:
        _check_neuron(population.neuron)
    return PLACERS[profile.placement](network, profile, tiling)


def _check_neuron(neuron: Neuron) -> None:
    """Accept the kinds of neurons whose number on a core placers know (`core_neurons`)."""
    match neuron:
        case Lif() | SoftLif() | Readout() | Relay() | Delta() | SigmaDelta() | Sigma() | Xylo():
            pass
        case _:
            assert_never(neuron)
