"""Cores that hold one layer each, with memories of their own size (Speck, DYNAP-CNN).

A core has a convolution, its neurons and their biases. In words, as sinabs counts them
(backend/dynapcnn/dynapcnn_layer.py, memory_summary), with c source channels, f channels and kernels of a x b:

    kernel words = c * 2**(ceil(log2(a * b)) + ceil(log2(f)))
    neuron words = f * 2**(ceil(log2(height)) + ceil(log2(width)))
    bias words   = f, or 0 where all biases are zero

A fully connected layer is a convolution whose kernel covers the whole map that it reads: (channels, height,
width), or (features, 1, 1). Groups are not stored: c counts all source channels. These are the words of the
network as it is here, where pooling is part of the kernels that read its result; a chip that pools behind its
neurons may do with smaller kernels than that.

Cores are unlike, so which layer gets which is a matching: layers move to other cores that hold them as long
as that gives a core to one that has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from ...base import ProfileError, same_records
from ...ir import Connection, Dense, IntNetwork, IntPopulation, Shape, Synapse, incoming, neuron_bias
from ..profile import HardwareProfile
from .records import PlacedLayer, Placement, Problem, Tiling, Use

MEMORIES = ("kernel_words", "neuron_words", "bias_words")

Cores = Sequence[Use]  # of each core, how many words its memories have
Matching = Mapping[int, int]  # the core of each layer that got one


def place_layers(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Every population with its synapses on a core of its own; problems say which get none, and why."""
    populations = network.layers
    uses = [_use(network, population) for population in populations]
    cores = _cores(profile, len(populations))
    holding = [[index for index, core in enumerate(cores) if _fits(use, core)] for use in uses]
    chosen = match(holding)
    layers = [
        PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use=use, core=chosen.get(index))
        for index, (p, use) in enumerate(zip(populations, uses, strict=True))
    ]
    problems = [*_impossible(network), *_homeless(layers, cores, holding, chosen, profile)]
    return Placement(kind="layers", layers=tuple(layers), problems=tuple(problems))


# ---- memory -----------------------------------------------------------------------------------


def _use(network: IntNetwork, population: IntPopulation) -> Use:
    """The words of a population and of the synapses that enter it."""
    shapes = {p.name: p.shape for p in network.populations}
    channels, height, width = as_map(population.shape)
    entering = _unlike_synapses(network, population.name)
    return {
        "kernel_words": sum(_kernel_words(c.synapse, shapes[c.source], channels) for c in entering),
        "neuron_words": channels * _power(height) * _power(width),
        "bias_words": channels if neuron_bias(population.neuron).any() else 0,
    }


def _unlike_synapses(network: IntNetwork, target: str) -> list[Connection]:
    """One connection for each kernel: sources that are read through the same one share it."""
    unlike: list[Connection] = []
    for connection in incoming(network.connections, target):
        if not any(same_records(connection.synapse, other.synapse) for other in unlike):
            unlike.append(connection)
    return unlike


def _kernel_words(synapse: Synapse, source: Shape, channels: int) -> int:
    inputs, height, width = as_map(source)
    area = height * width if isinstance(synapse, Dense) else prod(synapse.weight.shape[2:])
    return inputs * _power(area) * _power(channels)


def as_map(shape: Shape) -> Shape:
    """(channels, height, width); to these chips features are maps of one pixel."""
    return shape if len(shape) == 3 else (*shape, 1, 1)


def _power(size: int) -> int:
    """The least power of two that is not below a size."""
    power: int = 2 ** (size - 1).bit_length()
    return power


def _cores(profile: HardwareProfile, layers: int) -> list[Use]:
    """The memories of each core, as far as they are known."""
    known = {memory: allowed.values for memory in MEMORIES if (allowed := profile.allowed(f"core.{memory}"))}
    if len({len(words) for words in known.values()}) > 1:
        counts = ", ".join(f"core.{memory} has {len(words)}" for memory, words in known.items())
        raise ProfileError(f"{profile.name}: {counts}; each needs one number for each core.")
    cores = profile.limit("chip.cores")
    count = next((len(words) for words in known.values()), cores.value if cores else layers)
    return [{memory: words[index] for memory, words in known.items()} for index in range(count)]


def _fits(use: Use, core: Use) -> bool:
    return all(use[memory] <= words for memory, words in core.items())


# ---- which layer gets which core --------------------------------------------------------------


def match(holding: Sequence[Sequence[int]]) -> dict[int, int]:
    """A core of its own for as many layers as can have one, given the cores that hold each."""
    owner: dict[int, int] = {}

    def settle(layer: int, asked: set[int]) -> bool:
        """A free core for a layer, or one whose owner can move to another."""
        for core in holding[layer]:
            if core not in asked:
                asked.add(core)
                if core not in owner or settle(owner[core], asked):
                    owner[core] = layer
                    return True
        return False

    for layer in range(len(holding)):
        settle(layer, set())
    return {layer: core for core, layer in owner.items()}


def rivals(layer: int, holding: Sequence[Sequence[int]], chosen: Matching) -> tuple[list[int], list[int]]:
    """Of a layer without a core, the layers that compete with it (itself among them), and their cores.

    There is one core less than there are layers, and no other core holds any of them (Hall's theorem).
    """
    owner = {core: owning for owning, core in chosen.items()}
    layers, cores = [layer], list(holding[layer])
    for core in cores:  # grows on the way
        if owner[core] not in layers:
            layers.append(owner[core])
            cores += [other for other in holding[owner[core]] if other not in cores]
    return sorted(layers), sorted(cores)


# ---- what cannot be ---------------------------------------------------------------------------


def _impossible(network: IntNetwork) -> Iterator[Problem]:
    """What no memory of a core can hold, however large."""
    for population in network.layers:
        labels = [connection.label for connection in _unlike_synapses(network, population.name)]
        if len(labels) > 1:
            found = f"{len(labels)} different synapses enter ({', '.join(dict.fromkeys(labels))})"
            yield _problem(population.name, f"{found}; a core has one convolution. Let one synapse enter it.")
        bias = np.broadcast_to(neuron_bias(population.neuron), population.shape).reshape(
            population.shape[0], -1
        )
        if (bias != bias[:, :1]).any():
            found = "biases differ within a channel; a core has one for each channel"
            advice = "Use channel-wise MPBN, and no padding where the layer reads a normalized input"
            yield _problem(population.name, f"{found}. {advice}.")


def _homeless(
    layers: Sequence[PlacedLayer],
    cores: Cores,
    holding: Sequence[Sequence[int]],
    chosen: Matching,
    profile: HardwareProfile,
) -> Iterator[Problem]:
    """Layers that no core holds, and those that others leave no core."""
    for index, layer in enumerate(layers):
        if not holding[index]:
            yield _problem(layer.name, _too_large(layer.use, cores, profile))
        elif index not in chosen:
            competing, wanted = rivals(index, holding, chosen)
            names = ", ".join(layers[rival].name for rival in competing)
            numbers = ", ".join(map(str, wanted))
            found = (
                f"no core is left: {len(competing)} layers ({names}) fit cores {numbers} of {profile.name}"
            )
            yield _problem(layer.name, f"{found} and no others. Use fewer or smaller layers.")


def _too_large(use: Use, cores: Cores, profile: HardwareProfile) -> str:
    """Which memories are too small on every core; or that no core has enough of all."""
    largest = {memory: max(core[memory] for core in cores) for memory in cores[0]}
    sources = {memory: allowed.source for memory in largest if (allowed := profile.allowed(f"core.{memory}"))}
    over = [memory for memory in largest if use[memory] > largest[memory]]
    shown, together = over or list(largest), "" if over else ", but none has enough of all"
    found = ", ".join(f"{use[memory]} {memory.replace('_', ' ')}" for memory in shown)
    most = ", ".join(f"{largest[memory]} ({sources[memory]})" for memory in shown)
    return (
        f"{found}; cores of {profile.name} have at most {most}{together}. "
        "Use fewer channels, smaller kernels or smaller maps."
    )


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, message=message)
