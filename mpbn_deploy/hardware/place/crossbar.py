"""Cores that are crossbars: `core.input_axons` lines that meet `core.neurons` neurons.

There is no weight sharing: each neuron of a core has a synapse of its own to each axon that it reads, so a
convolution is unrolled, and a tile needs axons for each source neuron in its reach. An input takes

    1 axon                          where a synapse holds any weight (Tianjic: Pei et al., Nature 572, 2019)
    `core.axons_per_signed_input`   where an axon has one sign, if the layer has weights of both
                                    (BrainScaleS-2: two rows; hxtorch perceptron/constants.h)
    as many as axons.py says        where a synapse is on or off, and a neuron has one value for each kind of
                                    axon (TrueNorth: Merolla et al., Science 345, 2014)

Inputs that arrive after different delays are different inputs. A neuron whose inputs exceed a core does not
fit at all, since sums leave a core as spikes only.

Where a neuron sends its spikes to `core.targets_per_neuron` axons and no more, it is copied: its tile holds
one neuron for each axon, of every core, that it must reach (TrueNorth: one target in the row of a neuron;
Akopyan et al., IEEE TCAD 34(10), 2015). Copies read the same axons and fire the same spikes, so nothing but
room is lost. That is why layers are placed from the last one back. Values of the input come from outside and
need no copies. A layer that does not fit is placed without any, and asks its sources for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from ...base import Array, record
from ...ir import IntNetwork, IntPopulation, Shape
from ..profile import HardwareProfile
from .axons import (
    TERNARY_AXONS,
    TERNARY_BITS,
    Weights,
    axons_per_input,
    bits_that_fit,
    value_problem,
    weights_into,
)
from .bits import signed_bits
from .linkage import Link, block_sums, links
from .records import PlacedLayer, Placement, Problem, Tiling, count_tiles

MOST_PASSES = 20  # over networks with feedback, where the copies of a layer depend on one placed later

# Of (source, target), how many axons of the target each neuron of the source must reach.
Demands = dict[tuple[str, str], Array]


@record
class _Layer:
    """A population with all that decides how much of a core its neurons need."""

    name: str
    shape: Shape
    links: tuple[Link, ...]
    weights: Weights
    axons_per_input: int
    profile: HardwareProfile

    def axons(self, tile: Shape) -> Array:
        """[parts along each axis]: the axons of each tile of that shape"""
        counts: Array = np.sum([link.counts(tile) for link in self.links], axis=0)
        return self.axons_per_input * counts

    def most(self, key: str) -> float:
        """A limit of a core; without end where it is not known."""
        limit = self.profile.limit(key)
        return float("inf") if limit is None else limit.value


def place_crossbar(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Every population on cores of its own, in as few as axons, neurons and their copies allow.

    A layer of which not even one neuron fits is a problem. It is cut as if axons did not count, and its use
    shows the excess.
    """
    layers = [_layer(network, population, profile) for population in network.layers]
    demands: Demands = {}
    before: list[Shape] = []
    for _ in range(MOST_PASSES):
        placed = _place_all(layers, demands)
        tiles = [layer.tile for layer, _ in placed]
        if tiles == before or not _has_feedback(network):
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


def _has_feedback(network: IntNetwork) -> bool:
    order = {population.name: index for index, population in enumerate(network.populations)}
    return any(order[c.source] >= order[c.target] for c in network.connections)


def _place_all(layers: Sequence[_Layer], demands: Demands) -> list[tuple[PlacedLayer, list[Problem]]]:
    """From the last layer to the first; what each demands of its sources is noted for them."""
    placed = []
    for layer in reversed(layers):
        needs = _needs(layer, demands)
        tile, problems = _choose(layer, needs)
        placed.append((_placed(layer, tile, np.ones_like(needs) if problems else needs), problems))
        if layer.profile.limit("core.targets_per_neuron") is not None and not problems:
            demands.update(_demands(layer, tile))
    return placed[::-1]


def _needs(layer: _Layer, demands: Demands) -> Array:
    """How many neurons each neuron of a layer takes, itself and its copies."""
    axons = sum(demand for (source, _), demand in demands.items() if source == layer.name)
    targets = layer.profile.limit("core.targets_per_neuron")
    needs: Array = np.zeros(layer.shape, np.int64) + (-(-axons // targets.value) if targets else 0)
    return np.maximum(needs, 1)


def _demands(layer: _Layer, tile: Shape) -> Demands:
    """For each source of a layer, how many of the layer's axons each of its neurons must reach."""
    shapes = {link.source: link.source_shape for link in layer.links}
    demands = {source: np.zeros(prod(shape), np.int64) for source, shape in shapes.items()}
    for link in layer.links:
        for neurons in link.sources(tile):
            demands[link.source][neurons] += layer.axons_per_input
    return {(source, layer.name): demand.reshape(shapes[source]) for source, demand in demands.items()}


def _choose(layer: _Layer, needs: Array) -> tuple[Shape, list[Problem]]:
    """The first tile that holds; where none does, the first with few enough neurons, and what is wrong."""
    problems = _problems(layer, needs)
    neurons = layer.most("core.neurons")
    for tile in _candidates(layer.shape):
        if prod(tile) <= neurons if problems else _holds(layer, tile, needs):
            break
    return tile, problems


def _holds(layer: _Layer, tile: Shape, needs: Array) -> bool:
    """Whether no core has too many neurons, copies included, or axons. The cheapest check comes first."""
    neurons = layer.most("core.neurons")
    return bool(
        needs.sum() <= neurons * count_tiles(layer.shape, tile)
        and block_sums(needs, tile).max() <= neurons
        and layer.axons(tile).max() <= layer.most("core.input_axons")
    )


def _candidates(shape: Shape) -> list[Shape]:
    """Tiles that cut each axis into parts of one extent, the least for so many parts.

    Those first of which there are fewest, then those nearest to a square.
    """
    tiles = product(*(sorted({-(-size // parts) for parts in range(1, size + 1)}) for size in shape))
    return sorted(tiles, key=lambda tile: (count_tiles(shape, tile), _longer_side(tile)))


def _longer_side(tile: Shape) -> int:
    return max(tile[1:], default=0)


def _placed(layer: _Layer, tile: Shape, needs: Array) -> PlacedLayer:
    """The use of the fullest cores; `copies` are those of the neurons beside the layer's own."""
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
        packets=layer.axons_per_input if copied else 1,
    )


# ---- what cannot be ---------------------------------------------------------------------------


def _problems(layer: _Layer, needs: Array) -> list[Problem]:
    messages = (
        value_problem(layer.weights, layer.profile),
        _fan_in_problem(layer),
        _copy_problem(layer, needs),
    )
    return [Problem(where=layer.name, message=message) for message in messages if message]


def _fan_in_problem(layer: _Layer) -> str | None:
    """A neuron that reads more than a core has, and what would fit."""
    limit, single = layer.profile.limit("core.input_axons"), tuple(1 for _ in layer.shape)
    found = int(layer.axons(single).max())
    if limit is None or found <= limit.value:
        return None
    inputs, each = found // layer.axons_per_input, layer.axons_per_input
    weights = f"weights {layer.weights.low}..{layer.weights.high}"
    why = f" ({inputs} inputs, {each} axons for each with {weights})" if each > 1 else ""
    return (
        f"does not fit exactly: a neuron needs {found} axons{why}; a core of {layer.profile.name} has "
        f"{limit.value} ({limit.source}), and sums leave it as spikes only. "
        f"{_remedy(layer, inputs, limit.value)}"
    )


def _remedy(layer: _Layer, inputs: int, axons: int) -> str:
    """Fewer bits, where so few are enough; else fewer inputs."""
    kinds = layer.profile.limit("core.axon_types")
    if kinds is None:
        return f"Give its neurons {_fewer_inputs(axons // layer.axons_per_input)}"
    needed = signed_bits(layer.weights.low, layer.weights.high)
    bits = bits_that_fit(inputs, axons, kinds.value, needed)
    if bits is not None:
        return f"Weights of {bits} bits would fit."
    least = (
        f"Even weights of {TERNARY_BITS} bits would need {TERNARY_AXONS * inputs}, unless many become zero"
    )
    return f"{least}; give its neurons {_fewer_inputs(axons // TERNARY_AXONS)}"


def _fewer_inputs(inputs: int) -> str:
    return f"at most {inputs} inputs, by smaller kernels, groups or fewer channels."


def _copy_problem(layer: _Layer, needs: Array) -> str | None:
    """A neuron with more copies than a core has neurons."""
    neurons, targets = layer.profile.limit("core.neurons"), layer.profile.limit("core.targets_per_neuron")
    if neurons is None or targets is None or needs.max() <= neurons.value:
        return None
    return (
        f"a neuron needs {needs.max()} copies to reach all axons that read it, for on {layer.profile.name} "
        f"each reaches {targets.value} ({targets.source}); a core has {neurons.value} neurons "
        f"({neurons.source}). Make the layers that read it narrower, or their weights of fewer bits; neurons "
        "of further cores that pass its spikes on, a time step later each, are not planned here."
    )


def _unsettled(profile: HardwareProfile) -> Problem:
    message = (
        f"no placement found in {MOST_PASSES} attempts: with feedback, the copies of neurons that "
        f"{profile.name} needs depend on where these copies sit. Remove connections that run backwards."
    )
    return Problem(where="network", message=message)
