"""Place a network on crossbar cores: `core.input_axons` lines x `core.neurons` neurons.

Weights are not shared: each neuron has its own synapse to every axon that it reads. A convolution is
unrolled, and a tile needs axons for every source neuron in its receptive field. An input takes

    1 axon                          if a synapse holds any weight (Tianjic: Pei et al., Nature 572, 2019)
    `core.axons_per_signed_input`   if an axon has one sign and the layer has weights of both
                                    (BrainScaleS-2: two rows; hxtorch perceptron/constants.h)
    the axons counted below         if a synapse is on or off and a neuron has one value per axon type
                                    (TrueNorth: Merolla et al., Science 345, 2014)

Inputs that arrive with different delays are different inputs. A neuron with more inputs than a core has axons
does not fit at all, because partial sums can leave a core only as spikes.

If a neuron can send its spikes to only `core.targets_per_neuron` axons, it is copied: its tile holds one
neuron per axon, over all cores, that reads it (TrueNorth: one target per neuron; Akopyan et al., IEEE TCAD
34(10), 2015). Copies read the same axons and fire the same spikes, so the result is exact. Copies depend on
the placement of the target layers, so layers are placed from last to first. Input values arrive from outside
and need no copies. A layer that does not fit is placed without copies, and requires none of its sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ...base import Array, record
from ...ir import IntNetwork, IntPopulation, Shape
from ..profile import HardwareProfile
from .tiles import (
    Link,
    PlacedLayer,
    Placement,
    Problem,
    Tiling,
    block_sums,
    count_tiles,
    links,
    signed_bits,
    trailing_zeros,
)

MAX_PASSES = 20  # over networks with feedback: the copies of a layer depend on layers placed after it

# (source, target) -> for each source neuron, the number of target axons that it must reach
Demands = dict[tuple[str, str], Array]


@record
class _Layer:
    """A population with everything that determines its use of axons and neurons."""

    name: str
    shape: Shape
    links: tuple[Link, ...]
    weights: WeightRange
    axons_per_input: int
    profile: HardwareProfile

    def axons(self, tile: Shape) -> Array:
        """Return the axons of each tile, [parts along each axis]."""
        counts: Array = np.sum([link.counts(tile) for link in self.links], axis=0)
        return self.axons_per_input * counts

    def most(self, key: str) -> float:
        """Return a limit of a core; infinity if it is unknown."""
        limit = self.profile.limit(key)
        return float("inf") if limit is None else limit.value


def place_crossbar(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Place every population on its own cores, on as few as the limits of axons and neurons allow.

    A layer of which not even one neuron fits is a problem. It is divided as if axons were unlimited, and its
    use shows the excess.
    """
    layers = [_layer(network, population, profile) for population in network.layers]
    demands: Demands = {}
    before: list[Shape] = []
    for _ in range(MAX_PASSES):
        placed = _place_all(layers, demands)
        tiles = [layer.tile for layer, _ in placed]
        if tiles == before or not network.feedback:
            problems = [problem for _, found in placed for problem in found]
            break
        before = tiles
    else:
        problems = [_unsettled(profile)]
    return Placement(kind="crossbar", layers=tuple(layer for layer, _ in placed), problems=tuple(problems))


def _layer(network: IntNetwork, population: IntPopulation, profile: HardwareProfile) -> _Layer:
    weights = weights_into(network, population.name)
    return _Layer(
        name=population.name,
        shape=population.shape,
        links=tuple(links(network, population.name, by_delay=True)),
        weights=weights,
        axons_per_input=axons_per_input(weights, profile),
        profile=profile,
    )


def _place_all(layers: Sequence[_Layer], demands: Demands) -> list[tuple[PlacedLayer, list[Problem]]]:
    """Place layers from last to first, and record in `demands` the axons that their sources must reach."""
    placed = []
    for layer in reversed(layers):
        needs = _needs(layer, demands)
        tile, problems = _choose(layer, needs)
        placed.append((_placed(layer, tile, np.ones_like(needs) if problems else needs), problems))
        if layer.profile.limit("core.targets_per_neuron") is not None and not problems:
            demands.update(_demands(layer, tile))
    return placed[::-1]


def _needs(layer: _Layer, demands: Demands) -> Array:
    """Return how many core neurons each neuron takes: itself and its copies."""
    axons = sum(demand for (source, _), demand in demands.items() if source == layer.name)
    targets = layer.profile.limit("core.targets_per_neuron")
    needs: Array = np.zeros(layer.shape, np.int64) + (-(-axons // targets.value) if targets else 0)
    return np.maximum(needs, 1)


def _demands(layer: _Layer, tile: Shape) -> Demands:
    """Return, for each source of a layer, how many axons of the layer each source neuron must reach."""
    shapes = {link.source: link.source_shape for link in layer.links}
    demands = {source: np.zeros(prod(shape), np.int64) for source, shape in shapes.items()}
    for link in layer.links:
        for neurons in link.sources(tile):
            demands[link.source][neurons] += layer.axons_per_input
    return {(source, layer.name): demand.reshape(shapes[source]) for source, demand in demands.items()}


def _choose(layer: _Layer, needs: Array) -> tuple[Shape, list[Problem]]:
    """Return the first tile that fits; if none does, the first within the neuron limit, and the problems."""
    problems = _problems(layer, needs)
    neurons = layer.most("core.neurons")
    for tile in _candidates(layer.shape):
        if prod(tile) <= neurons if problems else _holds(layer, tile, needs):
            break
    return tile, problems


def _holds(layer: _Layer, tile: Shape, needs: Array) -> bool:
    """Check neurons, copies included, and axons of every core; the cheapest test comes first."""
    neurons = layer.most("core.neurons")
    return bool(
        needs.sum() <= neurons * count_tiles(layer.shape, tile)
        and block_sums(needs, tile).max() <= neurons
        and layer.axons(tile).max() <= layer.most("core.input_axons")
    )


def _candidates(shape: Shape) -> list[Shape]:
    """Return all tiles that divide each axis into parts of nearly equal size.

    They are sorted by number of cores, then by the longer side, so that squares come first.
    """
    tiles = product(*(sorted({-(-size // parts) for parts in range(1, size + 1)}) for size in shape))
    return sorted(tiles, key=lambda tile: (count_tiles(shape, tile), _longer_side(tile)))


def _longer_side(tile: Shape) -> int:
    return max(tile[1:], default=0)


def _placed(layer: _Layer, tile: Shape, needs: Array) -> PlacedLayer:
    """Return the layer with its peak use; `copies` counts the neurons added to the layer's own."""
    copied = layer.profile.limit("core.targets_per_neuron") is not None
    neurons = layer.profile.limit("core.neurons")
    use = {"input_axons": int(layer.axons(tile).max()), "neurons": int(block_sums(needs, tile).max())}
    if copied:
        use["copies"] = int(block_sums(needs - 1, tile).max())
    return PlacedLayer(
        name=layer.name,
        shape=layer.shape,
        tile=tile,
        use=use,
        lower_bound=-(-prod(layer.shape) // neurons.value) if neurons else 1,
        by_tool=False,
        packets_per_spike=layer.axons_per_input if copied else 1,
    )


# ---- problems -----------------------------------------------------------------------------------


def _problems(layer: _Layer, needs: Array) -> list[Problem]:
    messages = (
        value_problem(layer.weights, layer.profile),
        _fan_in_problem(layer),
        _copy_problem(layer, needs),
    )
    return [Problem(where=layer.name, message=message) for message in messages if message]


def _fan_in_problem(layer: _Layer) -> str | None:
    """Describe a neuron with more inputs than a core has axons, and what would fit."""
    limit, single = layer.profile.limit("core.input_axons"), tuple(1 for _ in layer.shape)
    found = int(layer.axons(single).max())
    if limit is None or found <= limit.value:
        return None
    inputs, each = found // layer.axons_per_input, layer.axons_per_input
    weights = f"weights {layer.weights.low}..{layer.weights.high}"
    why = f" ({inputs} inputs, {each} axons each for {weights})" if each > 1 else ""
    return (
        f"does not fit exactly: a neuron needs {found} axons{why}; a core of {layer.profile.name} has "
        f"{limit.value} ({limit.source}), and partial sums cannot leave a core. "
        f"{_remedy(layer, inputs, limit.value)}"
    )


def _remedy(layer: _Layer, inputs: int, axons: int) -> str:
    """Advise fewer weight bits if that suffices; otherwise fewer inputs."""
    types = layer.profile.limit("core.axon_types")
    if types is None:
        return f"Use {_fewer_inputs(axons // layer.axons_per_input)}"
    needed = signed_bits(layer.weights.low, layer.weights.high)
    bits = bits_that_fit(inputs, axons, types.value, needed)
    if bits is not None:
        return f"Weights of {bits} bits would fit."
    ternary = f"Even {TERNARY_BITS}-bit weights would need {TERNARY_AXONS * inputs}, unless many are zero"
    return f"{ternary}; use {_fewer_inputs(axons // TERNARY_AXONS)}"


def _fewer_inputs(inputs: int) -> str:
    return f"at most {inputs} inputs per neuron: smaller kernels, groups or fewer channels."


def _copy_problem(layer: _Layer, needs: Array) -> str | None:
    """Describe a neuron that needs more copies than a core has neurons."""
    neurons, targets = layer.profile.limit("core.neurons"), layer.profile.limit("core.targets_per_neuron")
    if neurons is None or targets is None or needs.max() <= neurons.value:
        return None
    return (
        f"a neuron needs {needs.max()} copies to reach all axons that read it; a neuron of "
        f"{layer.profile.name} reaches {targets.value} ({targets.source}), and a core has {neurons.value} "
        f"neurons ({neurons.source}). Make the layers that read it narrower, or use fewer weight bits there; "
        "splitters on other cores, which would add a time step, are not supported."
    )


def _unsettled(profile: HardwareProfile) -> Problem:
    message = (
        f"no placement found in {MAX_PASSES} attempts: with feedback, the number of neuron copies on "
        f"{profile.name} depends on their own placement. Remove feedback connections."
    )
    return Problem(where="network", message=message)


# Count the crossbar axons that one input needs so that every neuron gets its exact weight.
#
# On TrueNorth a synapse is on or off, and a neuron has one value per axon type, so an input with many
# different weights is repeated on several axons. With r1, r2, ... axons of types 1, 2, ..., whose values for
# a neuron are 1, (r1+1), (r1+1)(r2+1), ..., switching on m1, m2, ... of them adds
#
#     m1 + m2 (r1+1) + m3 (r1+1)(r2+1) + ...        0 <= m <= r
#
# This is a mixed-radix number, so exactly the integers 0 to (r1+1)(r2+1)... - 1 can be represented. One
# further axon, of its own type, with the value -n adds the integers -n to -1, as -n + (0, ..., n-1). Weights
# low..high with low < 0 < high therefore take exactly
#
#     1 + least r1 + r2 + ... such that (r1+1)(r2+1)... > max(high, -low - 1)
#
# axons, where the r cover all types but one. With TrueNorth's four types this is 4 axons for 4 bits, 6 for 5,
# 8 for 6, 10 for 7, 14 for 8, and 2 for ternary weights. Weights of one sign do not need the extra axon and
# can use all types, with negative values if necessary. A common factor of a neuron's weights goes into its
# values. The neurons of a core share its axons, so the neuron with the largest need determines the count for
# its layer.


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
