"""Count the crossbar axons that one input needs so that every neuron gets its exact weight.

On TrueNorth a synapse is on or off, and a neuron has one value per axon type, so an input with many different
weights is repeated on several axons. With r1, r2, ... axons of types 1, 2, ..., whose values for a neuron are
1, (r1+1), (r1+1)(r2+1), ..., switching on m1, m2, ... of them adds

    m1 + m2 (r1+1) + m3 (r1+1)(r2+1) + ...        0 <= m <= r

This is a mixed-radix number, so exactly the integers 0 to (r1+1)(r2+1)... - 1 can be represented. One further
axon, of its own type, with the value -n adds the integers -n to -1, as -n + (0, ..., n-1). Weights low..high
with low < 0 < high therefore take exactly

    1 + least r1 + r2 + ... such that (r1+1)(r2+1)... > max(high, -low - 1)

axons, where the r cover all types but one. With TrueNorth's four types this is 4 axons for 4 bits, 6 for 5, 8
for 6, 10 for 7, 14 for 8, and 2 for ternary weights. Weights of one sign do not need the extra axon and can
use all types, with negative values if necessary. A common factor of a neuron's weights goes into its values.
The neurons of a core share its axons, so the neuron with the largest need determines the count for its layer.
"""

from __future__ import annotations

import numpy as np

from ...base import Array, record
from ...ir import IntNetwork
from ..profile import HardwareProfile
from .bits import signed_bits, trailing_zeros

TERNARY_BITS = 2  # least width that holds both signs
TERNARY_AXONS = 2  # axons per input with ternary weights


@record
class WeightRange:
    """Range of the weights into a population, and levels after division by each channel's common factor."""

    low: int  # smallest and largest weight, divided only by a common power of two
    high: int
    signed_levels: int  # over channels with both signs: max(high, -low - 1) + 1; 1 if there are none
    unsigned_levels: int  # over channels with one sign: largest magnitude + 1; 1 if there are none

    @property
    def signed(self) -> bool:
        """Return whether some neuron has weights of both signs."""
        return self.signed_levels > 1


def weights_into(network: IntNetwork, target: str) -> WeightRange:
    """Summarize all connections into a population; a neuron has the same axon values for all of them."""
    entering = [connection.synapse for connection in network.entering(target)]
    channels = network.shapes[target][0]
    least = min(synapse.exponent for synapse in entering)
    rows = [(s.weight.astype(np.int64) << (s.exponent - least)).reshape(channels, -1) for s in entering]
    shift = min((trailing_zeros(row) for row in rows if row.any()), default=0)
    low = np.min([row.min(axis=1) for row in rows], axis=0) >> shift
    high = np.max([row.max(axis=1) for row in rows], axis=0) >> shift
    factor = np.gcd.reduce([np.gcd.reduce(row, axis=1) for row in rows], axis=0) >> shift
    return _weight_range(low, high, np.maximum(factor, 1))


def _weight_range(low: Array, high: Array, factor: Array) -> WeightRange:
    """Summarize weights, given the minimum, maximum and common factor of each channel."""
    signed = (low < 0) & (high > 0)
    both = np.maximum(high, -low - factor) // factor + 1
    one = np.maximum(high, -low) // factor + 1
    return WeightRange(
        low=int(low.min()),
        high=int(high.max()),
        signed_levels=int(both[signed].max(initial=1)),
        unsigned_levels=int(one[~signed].max(initial=1)),
    )


def axons_per_input(weights: WeightRange, profile: HardwareProfile) -> int:
    """Return the number of axons per input on this chip."""
    types, per_signed = profile.limit("core.axon_types"), profile.limit("core.axons_per_signed_input")
    if types is not None:
        return axons_for_types(weights, types.value)
    has_both = weights.low < 0 < weights.high  # an axon has the same sign for all neurons
    return per_signed.value if per_signed is not None and has_both else 1


def axons_for_types(weights: WeightRange, types: int) -> int:
    """Return the axons per input by the formula above.

    A neuron with weights of one sign can also use the extra axon, which doubles its levels.
    """
    if not weights.signed:
        return fewest_axons(weights.unsigned_levels, types)
    levels = max(weights.signed_levels, -(-weights.unsigned_levels // 2))
    return 1 + fewest_axons(levels, max(types - 1, 1))


def fewest_axons(levels: int, types: int) -> int:
    """Return the least sum of r with product (r+1) >= levels; equal factors give the largest product."""
    total = 0
    while _most_levels(total, types) < levels:
        total += 1
    return total


def _most_levels(total: int, types: int) -> int:
    each, more = divmod(total, types)
    levels: int = (each + 1) ** (types - more) * (each + 2) ** more
    return levels


def bits_that_fit(inputs: int, axons: int, types: int, most: int) -> int | None:
    """Return the largest weight width below `most` with which the inputs fit; None if 2 bits do not fit."""
    fits = (
        bits
        for bits in range(most - 1, TERNARY_BITS - 1, -1)
        if (1 + fewest_axons(2 ** (bits - 1), max(types - 1, 1))) * inputs <= axons
    )
    return next(fits, None)


def value_problem(weights: WeightRange, profile: HardwareProfile) -> str | None:
    """Return why the axon values of a neuron cannot represent these weights; None if they can."""
    types, bits = profile.limit("core.axon_types"), profile.limit("core.axon_weight_bits")
    found = f"weights {weights.low}..{weights.high}"
    if types is not None and types.value == 1 and weights.signed:
        allowed = f"a neuron of {profile.name} has a single axon value ({types.source}), so one sign only"
        return f"{found}; {allowed}. Choose another target."
    needed = signed_bits(weights.low, weights.high)
    if bits is None or needed <= bits.value:
        return None
    allowed = f"axon values of {profile.name} have {bits.value} ({bits.source})"
    return f"{found} need {needed} bits; {allowed}. Quantize to fewer bits."
