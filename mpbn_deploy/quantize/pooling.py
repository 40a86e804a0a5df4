"""Choose, for a chip, where relays pay; the integers that every other neuron receives stay equal.

composed  nowhere: pooling stays part of the synapses after it
relay     for every pooling that the synapses contain
auto      for those that save cores, or make a layer fit its cores, one after the other; then for parts of
          sums, in layers with more inputs than a core takes
"""

from __future__ import annotations

from math import inf
from typing import get_args

from ..base import QUIET_SECONDS, OptionError, did_you_mean, track
from ..formats.options import Pooling
from ..hardware import HardwareProfile
from ..hardware.place import PlacedLayer, capacity, place
from ..ir import (
    Connection,
    IntNetwork,
    can_split,
    find_poolings,
    relay_names,
    split_sum,
    value_range,
    with_relays,
)

Score = tuple[float, float]  # layers that exceed a core, and cores
NEVER: Score = (inf, inf)
GROUPS = (2, 4, 8, 16, 32)  # of channels, in which long sums are tried


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
    """Insert relays where the chip can send their messages, and needs fewer cores with them."""
    best, score = network, _score(network, profile)
    if score is None:
        return network
    poolings = find_poolings(network)
    for pooling in track(poolings, "relays", len(poolings), quiet_seconds=QUIET_SECONDS):
        trial = with_relays(best, [pooling])
        if (found := _score_if_sent(trial, profile)) < score:
            best, score = trial, found
    for connection in _into_full_cores(best, profile):
        for groups in GROUPS:
            trial = split_sum(best, connection, groups) if can_split(best, connection, groups) else best
            if (found := _score_if_sent(trial, profile)) < score:
                best, score = trial, found
                break
    return best


def _into_full_cores(network: IntNetwork, profile: HardwareProfile) -> list[Connection]:
    """Return the connections into layers of which a part exceeds its core, however small."""
    full = [layer.name for layer in place(network, profile).layers if _exceeds(layer, profile)]
    return [connection for connection in network.connections if connection.target in full]


def _score_if_sent(network: IntNetwork, profile: HardwareProfile) -> Score:
    """Return the score, the worst one if the chip cannot send the messages of relays."""
    score = _score(network, profile) if messages_fit(network, profile) else None
    return NEVER if score is None else score


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
