"""Place a network: IntNetwork + HardwareProfile -> Placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from typing_extensions import assert_never

from ...base import Array, ProfileError, same_records
from ...ir import (
    Connection,
    Delta,
    Dense,
    IntNetwork,
    IntPopulation,
    Lif,
    Neuron,
    Readout,
    Relay,
    Shape,
    Sigma,
    SigmaDelta,
    SoftLif,
    Synapse,
    Xylo,
    at_step,
    behind_pooling,
    connection_fan_in,
    connection_fan_out,
    connection_synapses,
    neuron_bias,
    pooled_window,
)
from ..keys import KEYS, LIST_KEYS
from ..profile import HardwareProfile
from .crossbar import place_crossbar
from .tiles import PlacedLayer, Placement, Problem, Tiling, Use
from .word_memory import place_words

# Look up the capacity that the resource use of a layer is compared with.


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


# Place one layer on each core; cores have memories of different sizes (Speck, DYNAP-CNN).
#
# A core holds a convolution, its neurons and their biases. Memory words are counted as in sinabs
# (backend/dynapcnn/dynapcnn_layer.py, memory_summary), for c source channels, f channels and a x b kernels:
#
#     kernel words = c * 2**(ceil(log2(a * b)) + ceil(log2(f)))
#     neuron words = f * 2**(ceil(log2(height)) + ceil(log2(width)))
#     bias words   = f, or 0 if all biases are zero
#
# A fully connected layer is a convolution whose kernel covers the whole source map: (channels, height,
# width), or (features, 1, 1). Groups do not save memory: c counts all source channels. In our networks
# pooling is part of the next kernel; a core that pools as it sends stores the kernel without it.
#
# Cores differ, so layers are matched to cores with augmenting paths.


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


# Place the whole network on a single core (Xylo).
#
# All populations between input and output share one pool of hidden neurons and one square weight matrix, in
# which consecutive layers are off-diagonal blocks. The limits apply to sums over the network, which are
# `totals`:
#
#     inputs     neurons of the input
#     hidden     neurons of all populations but input and output
#     outputs    neurons of the last population
#     synapses   nonzero weights between hidden neurons; kernels count once per position
#
# On some of these chips inputs reach only the first hidden neurons, and the output reads only the last ones
# (rockpool, devices/xylo/syns65302/xylo_samna.py, keeps the first and the last 128). Hidden neurons can be
# listed in any order. Of n hidden neurons, let i read the input, o be read by the output, and b do both. The
# condition is
#
#     i <= input reach,   o <= output reach,   and, if b > 0,   n + b <= input reach + output reach
#
# The design rules check the first two parts, this module the third: the b neurons lie in both ranges, with x
# neurons before and y after them, x + b <= input reach, y + b <= output reach and x + b + y = n; such x and y
# exist exactly if the condition holds.


# The profile key that limits each sum.
CAPACITIES = {
    "inputs": "network.inputs_maximum",
    "hidden": "network.hidden_maximum",
    "outputs": "network.outputs_maximum",
    "synapses": "network.synapses_maximum",
}


def place_whole(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Place all populations on one core; the use of a layer is its share of the totals."""
    layers = [
        PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use=_whole_use(network, p.name))
        for p in network.layers
    ]
    totals = {name: sum(layer.use.get(name, 0) for layer in layers) for name in CAPACITIES}
    return Placement(
        kind="whole",
        layers=tuple(layers),
        totals={**totals, "inputs": network.input.size},
        problems=(*_unsupported_connections(network, profile), *_reach_conflict(network, profile)),
    )


def _whole_use(network: IntNetwork, name: str) -> Use:
    """Count the neurons of a population, and the synapses into it from hidden neurons."""
    neurons = network.layer(name).size
    if name == network.output.name:
        return {"outputs": neurons}
    entering = network.entering(name)
    weights = sum(connection_synapses(network, c) for c in entering if c.source != network.input.name)
    return {"hidden": neurons, "synapses": weights}


# ---- problems -----------------------------------------------------------------------------------


def _unsupported_connections(network: IntNetwork, profile: HardwareProfile) -> Iterator[Problem]:
    """Find connections from input to output, and connections that leave the output."""
    first, last = network.input.name, network.output.name
    for connection in network.connections:
        if connection.source == last or (connection.source, connection.target) == (first, last):
            message = (
                f"not supported: {profile.name} connects inputs to hidden neurons, hidden neurons to each "
                "other, and hidden neurons to outputs. Insert a layer between."
            )
            yield Problem(where=connection.label, message=message)


def _reach_conflict(network: IntNetwork, profile: HardwareProfile) -> Iterator[Problem]:
    """Check that neurons that read the input and are read by the output can be in both ranges."""
    first, last = profile.limit("network.input_reach"), profile.limit("network.output_reach")
    if first is None or last is None:
        return
    reading, read = reading_input(network), read_by_output(network)
    both = {name: int(np.count_nonzero(reading[name] & read[name])) for name in reading}
    count, hidden = sum(both.values()), sum(neurons.size for neurons in reading.values())
    if count and hidden + count > first.value + last.value:
        names = ", ".join(name for name, found in both.items() if found)
        found = f"{count} of {hidden} hidden neurons ({names}) read the input and are read by the output"
        allowed = (
            f"on {profile.name} they must be among the first {first.value} ({first.source}) and the last "
            f"{last.value} ({last.source}), which allows {first.value + last.value - count} hidden neurons"
        )
        advice = "Let different neurons read the input and feed the output."
        yield Problem(where=network.output.name, message=f"{found}; {allowed}. {advice}")


def reading_input(network: IntNetwork) -> dict[str, Array]:
    """Return, for each hidden population, which neurons have a synapse from the input."""
    entering = [c for c in network.connections if c.source == network.input.name]
    return _hidden_marks(network, ((c.target, connection_fan_in(network, c) > 0) for c in entering))


def read_by_output(network: IntNetwork) -> dict[str, Array]:
    """Return, for each hidden population, which neurons have a synapse to the output."""
    leaving = [c for c in network.connections if c.target == network.output.name]
    return _hidden_marks(network, ((c.source, connection_fan_out(network, c) > 0) for c in leaving))


def _hidden_marks(network: IntNetwork, marks: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Combine masks of neurons, given by population, over the hidden populations."""
    hidden = {population.name: np.zeros(population.shape, bool) for population in network.populations[1:-1]}
    for name, marked in marks:
        if name in hidden:
            hidden[name] |= marked
    return hidden


Placer = Callable[[IntNetwork, HardwareProfile, Tiling], Placement]


def place_unknown(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Return every population undivided and without resource use, for undocumented core allocations."""
    layers = [PlacedLayer(name=p.name, shape=p.shape, tile=p.shape, use={}) for p in network.layers]
    return Placement(kind="unknown", layers=tuple(layers))


def place_program(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Return every population undivided, on the one processor that runs the network as a program."""
    return replace(place_unknown(network, profile, tiling), kind="program")


def place_fabric(network: IntNetwork, profile: HardwareProfile, tiling: Tiling) -> Placement:
    """Return every population undivided: one core of ours holds the whole network, layer after layer."""
    return replace(place_unknown(network, profile, tiling), kind="fabric")


# The placer for each `placement` of a profile.
PLACERS: dict[str, Placer] = {
    "words": place_words,
    "crossbar": place_crossbar,
    "layers": place_layers,
    "whole": place_whole,
    "program": place_program,
    "fabric": place_fabric,
    "unknown": place_unknown,
}


def place(network: IntNetwork, profile: HardwareProfile, *, tiling: Tiling = "compiler") -> Placement:
    """Divide every population into tiles, one per core, as the `placement` of the profile requires.

    The input takes no core: its values arrive from outside as messages. For `placement = "words"`, tiling
    "compiler" divides populations as the chip's own tool does, "best" searches for fewer cores, and "auto"
    takes the compiler's unless the best has fewer; a layer that does not fit even one neuron at a time is
    divided into single neurons, and its use shows the excess.
    The other placers report in `problems` what does not fit.
    """
    for population in network.layers:
        _check_neuron(population.neuron)
    return PLACERS[profile.placement](network, profile, tiling)


def _check_neuron(neuron: Neuron) -> None:
    """Accept the kinds of neurons whose number on a core placers know (`core_neurons`)."""
    match neuron:
        case Lif() | SoftLif() | Readout() | Relay() | Delta() | SigmaDelta() | Sigma() | Xylo():
            pass
        case _:
            assert_never(neuron)
