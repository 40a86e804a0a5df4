"""Describe a network on a chip whose core allocation is undocumented: nothing is divided or counted."""

from __future__ import annotations

from ...ir import IntNetwork
from ..profile import HardwareProfile
from .records import PlacedLayer, Placement, Tiling


def place_unknown(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Return every population undivided and without resource use; `cores` is None."""
    layers = [PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use={}) for p in network.layers]
    return Placement(kind="unknown", layers=tuple(layers))
