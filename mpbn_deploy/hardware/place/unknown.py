"""Chips of which nobody knows how cores are filled: nothing is cut, and nothing is said of cores."""

from __future__ import annotations

from ...ir import IntNetwork
from ..profile import HardwareProfile
from .records import PlacedLayer, Placement, Tiling


def place_unknown(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Every population as it is, with no use of anything; `cores` is None."""
    layers = [PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use={}) for p in network.layers]
    return Placement(kind="unknown", layers=tuple(layers))
