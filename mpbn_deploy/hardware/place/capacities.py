"""How much there is of what a layer uses, where cores are unlike or one core holds the whole network."""

from __future__ import annotations

from ..keys import KEYS, LIST_KEYS
from ..profile import HardwareProfile
from .records import PlacedLayer
from .whole import CAPACITIES


def capacity(resource: str, layer: PlacedLayer, profile: HardwareProfile) -> int | None:
    """Of a core like the layer's own, or of the network; None where it is not known or has no limit.

    A layer that got none of several unlike cores is compared with the one that has most.
    """
    key = CAPACITIES.get(resource, f"core.{resource}")
    if key in LIST_KEYS:
        allowed = profile.allowed(key)
        sizes = allowed.values if allowed else ()
        return max(sizes, default=None) if layer.core is None or not sizes else sizes[layer.core]
    limit = profile.limit(key) if key in KEYS else None
    return None if limit is None else limit.value
