"""Place one layer on each core; cores have memories of different sizes (Speck, DYNAP-CNN).

A core holds a convolution, its neurons and their biases. Memory words are counted as in sinabs
(backend/dynapcnn/dynapcnn_layer.py, memory_summary), for c source channels, f channels and a x b kernels:

    kernel words = c * 2**(ceil(log2(a * b)) + ceil(log2(f)))
    neuron words = f * 2**(ceil(log2(height)) + ceil(log2(width)))
    bias words   = f, or 0 if all biases are zero

A fully connected layer is a convolution whose kernel covers the whole source map: (channels, height, width),
or (features, 1, 1). Groups do not save memory: c counts all source channels. In our networks pooling is part
of the next kernel; a core that pools as it sends stores the kernel without it.

Cores differ, so layers are matched to cores with augmenting paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from ...base import ProfileError, same_records
from ...ir import (
    Connection,
    Dense,
    IntNetwork,
    IntPopulation,
    Shape,
    Synapse,
    at_step,
    behind_pooling,
    neuron_bias,
    pooled_window,
)
from ..profile import HardwareProfile
from .records import PlacedLayer, Placement, Problem, Tiling, Use

MEMORIES = ("kernel_words", "neuron_words", "bias_words")

Cores = Sequence[Use]  # words of each memory, by core
Matching = Mapping[int, int]  # layer -> core, for layers that have one


def place_layers(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Place every population with its synapses on its own core; layers without a core are problems."""
    populations = network.layers
    uses = [_use(network, population, profile) for population in populations]
    cores = _cores(profile, len(populations))
    fitting = [[index for index, core in enumerate(cores) if _fits(use, core)] for use in uses]
    chosen = match_cores(fitting)
    layers = [
        PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use=use, core=chosen.get(index))
        for index, (p, use) in enumerate(zip(populations, uses, strict=True))
    ]
    problems = [*_unsupported_layers(network), *_unplaced(layers, cores, fitting, chosen, profile)]
    return Placement(kind="layers", layers=tuple(layers), problems=tuple(problems))


# ---- memory -----------------------------------------------------------------------------------


def _use(network: IntNetwork, population: IntPopulation, profile: HardwareProfile) -> Use:
    """Count the words of a population and its incoming synapses."""
    channels, height, width = as_map(population.shape)
    entering = _distinct_synapses(network, population.name)
    stored = [stored_synapse(network, connection, profile) for connection in entering]
    return {
        "kernel_words": sum(_kernel_words(synapse, source, channels) for synapse, source in stored),
        "neuron_words": channels * _next_power_of_two(height) * _next_power_of_two(width),
        "bias_words": channels if neuron_bias(population.neuron).any() else 0,
    }


def stored_synapse(
    network: IntNetwork, connection: Connection, profile: HardwareProfile
) -> tuple[Synapse, Shape]:
    """Return a synapse as a core stores it, and the map that it reads: pooled by the core that sends it."""
    synapse, source = connection.synapse, network.shapes[connection.source]
    sides = profile.allowed("layer.pooling")
    if sides is None or connection.source == network.input.name:
        return synapse, source
    if (window := pooled_window(synapse, source)) is None:
        return synapse, source
    side = max((s for s in sides.values if not any(size % s for size in window)), default=1)
    channels, height, width = source
    return behind_pooling(synapse, source, (side, side)), (channels, height // side, width // side)


def _distinct_synapses(network: IntNetwork, target: str) -> list[Connection]:
    """Return one connection per distinct kernel; sources that use the same kernel share it."""
    distinct: list[Connection] = []
    for connection in network.entering(target):
        if not any(same_records(connection.synapse, other.synapse) for other in distinct):
            distinct.append(connection)
    return distinct


def _kernel_words(synapse: Synapse, source: Shape, channels: int) -> int:
    inputs, height, width = as_map(source)
    area = height * width if isinstance(synapse, Dense) else prod(synapse.weight.shape[2:])
    return inputs * _next_power_of_two(area) * _next_power_of_two(channels)


def as_map(shape: Shape) -> Shape:
    """Return (channels, height, width); features are maps of one pixel."""
    return shape if len(shape) == 3 else (*shape, 1, 1)


def _next_power_of_two(size: int) -> int:
    """Return the least power of two >= size."""
    power: int = 2 ** (size - 1).bit_length()
    return power


def _cores(profile: HardwareProfile, layers: int) -> list[Use]:
    """Return the known memory sizes of each core."""
    known = {memory: allowed.values for memory in MEMORIES if (allowed := profile.allowed(f"core.{memory}"))}
    if len({len(words) for words in known.values()}) > 1:
        counts = ", ".join(f"core.{memory} has {len(words)}" for memory, words in known.items())
        raise ProfileError(f"{profile.name}: {counts} entries; each list needs one entry per core.")
    cores = profile.limit("chip.cores")
    count = next((len(words) for words in known.values()), cores.value if cores else layers)
    return [{memory: words[index] for memory, words in known.items()} for index in range(count)]


def _fits(use: Use, core: Use) -> bool:
    return all(use[memory] <= words for memory, words in core.items())


# ---- matching of layers and cores ---------------------------------------------------------------


def match_cores(fitting: Sequence[Sequence[int]]) -> dict[int, int]:
    """Match as many layers as possible to a core each; `fitting` lists the cores that can hold each layer."""
    owner: dict[int, int] = {}

    def assign(layer: int, visited: set[int]) -> bool:
        """Give the layer a free core, or one whose owner can move to another."""
        for core in fitting[layer]:
            if core not in visited:
                visited.add(core)
                if core not in owner or assign(owner[core], visited):
                    owner[core] = layer
                    return True
        return False

    for layer in range(len(fitting)):
        assign(layer, set())
    return {layer: core for core, layer in owner.items()}


def competing_layers(
    layer: int, fitting: Sequence[Sequence[int]], chosen: Matching
) -> tuple[list[int], list[int]]:
    """Return the layers that compete with a layer without a core (itself included), and their cores.

    There is one core fewer than layers, and no other core can hold any of them (Hall's theorem).
    """
    owner = {core: owning for owning, core in chosen.items()}
    layers, cores = [layer], list(fitting[layer])
    for core in cores:  # the list grows during the loop
        if owner[core] not in layers:
            layers.append(owner[core])
            cores += [other for other in fitting[owner[core]] if other not in cores]
    return sorted(layers), sorted(cores)


# ---- problems -----------------------------------------------------------------------------------


def _unsupported_layers(network: IntNetwork) -> Iterator[Problem]:
    """Find layers that no core supports, whatever the size of its memories."""
    for population in network.layers:
        labels = [connection.label for connection in _distinct_synapses(network, population.name)]
        if len(labels) > 1:
            found = f"{len(labels)} different incoming synapses ({', '.join(dict.fromkeys(labels))})"
            yield Problem(
                where=population.name, message=f"{found}; a core has one convolution. Use a single synapse."
            )
        # A chip of this kind has one set of numbers for all time steps, which a design rule says.
        bias = np.broadcast_to(neuron_bias(at_step(population.neuron, 0)), population.shape)
        bias = bias.reshape(population.shape[0], -1)
        if (bias != bias[:, :1]).any():
            found = "biases differ within a channel; a core has one bias per channel"
            advice = (
                "Use norms per channel, not per neuron, and no padding if the layer reads a normalized input"
            )
            yield Problem(where=population.name, message=f"{found}. {advice}.")


def _unplaced(
    layers: Sequence[PlacedLayer],
    cores: Cores,
    fitting: Sequence[Sequence[int]],
    chosen: Matching,
    profile: HardwareProfile,
) -> Iterator[Problem]:
    """Find layers too large for every core, and layers for which no core is left."""
    for index, layer in enumerate(layers):
        if not fitting[index]:
            yield Problem(where=layer.name, message=_too_large(layer.use, cores, profile))
        elif index not in chosen:
            competing, wanted = competing_layers(index, fitting, chosen)
            names = ", ".join(layers[rival].name for rival in competing)
            numbers = ", ".join(map(str, wanted))
            found = f"no core left: {len(competing)} layers ({names}) compete for cores {numbers}"
            yield Problem(
                where=layer.name, message=f"{found} of {profile.name}. Use fewer or smaller layers."
            )


def _too_large(use: Use, cores: Cores, profile: HardwareProfile) -> str:
    """Name the memories that are too small on every core, or state that no core has enough of all."""
    largest = {memory: max(core[memory] for core in cores) for memory in cores[0]}
    sources = {memory: allowed.source for memory in largest if (allowed := profile.allowed(f"core.{memory}"))}
    over = [memory for memory in largest if use[memory] > largest[memory]]
    shown, together = over or list(largest), "" if over else ", but no core has enough of all"
    found = ", ".join(f"{use[memory]} {memory.replace('_', ' ')}" for memory in shown)
    most = ", ".join(f"{largest[memory]} ({sources[memory]})" for memory in shown)
    return (
        f"{found}; cores of {profile.name} have at most {most}{together}. "
        "Use fewer channels, smaller kernels or smaller maps."
    )
