"""Look up the capacity that the resource use of a layer is compared with."""

from __future__ import annotations

from ..keys import KEYS, LIST_KEYS
from ..profile import HardwareProfile
from .records import PlacedLayer
from .single_core import CAPACITIES


def capacity(resource: str, layer: PlacedLayer, profile: HardwareProfile) -> int | None:
    """Return the capacity of the layer's core, or of the network; None if it is unknown or unlimited.

    Where cores differ in size, a layer without a core is compared with the largest one.
    """
    key = CAPACITIES.get(resource, f"core.{resource}")
    if key in LIST_KEYS:
        allowed = profile.allowed(key)
        sizes = allowed.values if allowed else ()
        return max(sizes, default=None) if layer.core is None or not sizes else sizes[layer.core]
    limit = profile.limit(key) if key in KEYS else None
    return None if limit is None else limit.value
