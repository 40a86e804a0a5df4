"""How many axons of a crossbar one input takes, so that every neuron gets its weight exactly.

Where a synapse is only on or off, and a neuron has one value for each of a few kinds of axon, an input that
needs many weights is repeated on several axons. With r1, r2, ... axons of the kinds 1, 2, ..., whose values
for a neuron are 1, (r1+1), (r1+1)(r2+1), ..., switching on m1, m2, ... of them adds

    m1 + m2 (r1+1) + m3 (r1+1)(r2+1) + ...        0 <= m <= r

which is how a number is written in mixed radix: every whole number from 0 to (r1+1)(r2+1)... - 1, and no
other, comes out. One more axon, of a kind left for it, with the value -n adds every number from -n to -1, as
-n + (n-1, ..., 0). So weights low..high with low < 0 < high take, exactly,

    1 + least r1 + r2 + ... such that (r1+1)(r2+1)... > max(high, -low - 1)

axons, over all kinds but one: 4 for 4 bits, 6 for 5, 8 for 6, 10 for 7, 14 for 8 on TrueNorth's four kinds,
and 2 for -1, 0, 1. Weights of one sign need no such axon; all kinds are theirs, with negative values if need
be. A factor that a neuron's weights have in common goes into its values. All axons of a core are shared by
its neurons, so the neuron that needs most decides for its whole layer; no input takes fewer.
"""

from __future__ import annotations

import numpy as np

from ...base import Array, record
from ...ir import IntNetwork, incoming
from ..profile import HardwareProfile
from .bits import signed_bits, trailing_zeros

TERNARY_BITS = 2  # the fewest bits with both signs
TERNARY_AXONS = 2  # that an input with such weights takes


@record
class Weights:
    """What the weights into a population are, each channel's without the factor they have in common."""

    low: int  # the smallest and the largest, with all factors but a common power of two
    high: int
    signed_levels: int  # of channels with both signs: max(high, -low - 1) + 1; 1 where there are none
    plain_levels: int  # of channels with one sign: the largest magnitude + 1; 1 where there are none

    @property
    def signed(self) -> bool:
        """Whether some neuron has weights of both signs."""
        return self.signed_levels > 1


def weights_into(network: IntNetwork, target: str) -> Weights:
    """All connections into a population together, for its neurons have the same values for all of them."""
    entering = [connection.synapse for connection in incoming(network.connections, target)]
    channels = next(population.shape[0] for population in network.populations if population.name == target)
    least = min(synapse.exponent for synapse in entering)
    rows = [(s.weight.astype(np.int64) << (s.exponent - least)).reshape(channels, -1) for s in entering]
    shift = min((trailing_zeros(row) for row in rows if row.any()), default=0)
    low = np.min([row.min(axis=1) for row in rows], axis=0) >> shift
    high = np.max([row.max(axis=1) for row in rows], axis=0) >> shift
    factor = np.gcd.reduce([np.gcd.reduce(row, axis=1) for row in rows], axis=0) >> shift
    return _weights(low, high, np.maximum(factor, 1))


def _weights(low: Array, high: Array, factor: Array) -> Weights:
    """From the smallest and largest weight of each channel, and their common factor."""
    signed = (low < 0) & (high > 0)
    both = np.maximum(high, -low - factor) // factor + 1
    one = np.maximum(high, -low) // factor + 1
    return Weights(
        low=int(low.min()),
        high=int(high.max()),
        signed_levels=int(both[signed].max(initial=1)),
        plain_levels=int(one[~signed].max(initial=1)),
    )


def axons_per_input(weights: Weights, profile: HardwareProfile) -> int:
    """How many axons an input takes on this chip."""
    kinds, per_signed = profile.limit("core.axon_types"), profile.limit("core.axons_per_signed_input")
    if kinds is not None:
        return axons_of_kinds(weights, kinds.value)
    has_both = weights.low < 0 < weights.high  # an axon has one sign for all of its neurons
    return per_signed.value if per_signed is not None and has_both else 1


def axons_of_kinds(weights: Weights, kinds: int) -> int:
    """The formula above; a neuron of one sign can use the single axon, too, and so has twice the levels."""
    if not weights.signed:
        return fewest_digits(weights.plain_levels, kinds)
    levels = max(weights.signed_levels, -(-weights.plain_levels // 2))
    return 1 + fewest_digits(levels, max(kinds - 1, 1))


def fewest_digits(levels: int, kinds: int) -> int:
    """The least sum of r such that the product of (r+1) reaches `levels`; equal factors give most."""
    total = 0
    while _most_levels(total, kinds) < levels:
        total += 1
    return total


def _most_levels(total: int, kinds: int) -> int:
    each, more = divmod(total, kinds)
    levels: int = (each + 1) ** (kinds - more) * (each + 2) ** more
    return levels


def bits_that_fit(inputs: int, axons: int, kinds: int, most: int) -> int | None:
    """The most bits of weights, below `most`, with which so many inputs fit; None if two are too many."""
    fits = (
        bits
        for bits in range(most - 1, TERNARY_BITS - 1, -1)
        if (1 + fewest_digits(2 ** (bits - 1), max(kinds - 1, 1))) * inputs <= axons
    )
    return next(fits, None)


def value_problem(weights: Weights, profile: HardwareProfile) -> str | None:
    """Why the values that a neuron has for the kinds of axon cannot make up such weights, if so."""
    kinds, bits = profile.limit("core.axon_types"), profile.limit("core.axon_weight_bits")
    found = f"weights {weights.low}..{weights.high}"
    if kinds is not None and kinds.value == 1 and weights.signed:
        allowed = f"a neuron on {profile.name} has one value ({kinds.source}), which has one sign"
        return f"{found}; {allowed}. Choose another target."
    needed = signed_bits(weights.low, weights.high)
    if bits is None or needed <= bits.value:
        return None
    allowed = f"the values of a neuron on {profile.name} have {bits.value} ({bits.source})"
    return f"{found} need {needed} bits; {allowed}. Quantize to fewer bits."
