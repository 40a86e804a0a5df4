"""Choose, for a chip, which poolings become relays; the integers that every other neuron receives stay equal.

composed  none: pooling stays part of the synapses after it
relay     all that the synapses contain
auto      those that save cores, or make a layer fit its cores, one after the other
"""

from __future__ import annotations

from typing import get_args

from ..base import OptionError, did_you_mean
from ..formats.options import Pooling
from ..hardware import HardwareProfile
from ..hardware.place import PlacedLayer, capacity, place
from ..ir import IntNetwork, find_poolings, relay_names, value_range, with_relays

Score = tuple[int, int]  # layers that exceed a core, and cores


def check_pooling(pooling: str) -> None:
    """Raise OptionError if this form of pooling is unknown."""
    if pooling not in get_args(Pooling):
        raise OptionError(f"pooling {pooling!r}. {did_you_mean(pooling, get_args(Pooling))}")


def express_pooling(network: IntNetwork, profile: HardwareProfile, pooling: str) -> IntNetwork:
    """Return the network with pooling in the form that was asked for."""
    if pooling == "composed":
        return network
    return with_relays(network) if pooling == "relay" else fewest_cores(network, profile)


def fewest_cores(network: IntNetwork, profile: HardwareProfile) -> IntNetwork:
    """Make each pooling relays if the chip can send their messages, and needs fewer cores with them."""
    best, score = network, _score(network, profile)
    for pooling in find_poolings(network) if score is not None else ():
        trial = with_relays(best, [pooling])
        found = _score(trial, profile) if messages_fit(trial, profile) else None
        if found is not None and score is not None and found < score:
            best, score = trial, found
    return best


def messages_fit(network: IntNetwork, profile: HardwareProfile) -> bool:
    """Whether the chip's spikes can carry all messages of relays; unknown widths count as too narrow."""
    bits = profile.limit("formats.message_bits")
    half = 0 if bits is None else 2 ** (bits.value - 1)  # wider messages than a bit are signed
    ranges = [value_range(network.layer(name).neuron) for name in relay_names(network)]
    return all(-half <= low and high < half for low, high in ranges)


def _score(network: IntNetwork, profile: HardwareProfile) -> Score | None:
    """Return how badly a network is placed; None if the chip does not say how cores are filled."""
    placement = place(network, profile)
    if placement.cores is None:
        return None
    beyond = [layer for layer in placement.layers if _exceeds(layer, profile)]
    return len(beyond) + len(placement.problems), placement.cores


def _exceeds(layer: PlacedLayer, profile: HardwareProfile) -> bool:
    """Whether a core of the layer needs more of a resource than it has."""
    limits = {resource: capacity(resource, layer, profile) for resource in layer.use}
    return any(most is not None and layer.use[resource] > most for resource, most in limits.items())
