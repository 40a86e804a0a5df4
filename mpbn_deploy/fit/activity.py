"""Count spikes and synaptic operations of a network.

A synaptic operation is one event at one synapse. A connection performs

    operations = sum over source neurons of events * outgoing synapses

which is the output of the connection with all weights set to one. Operations are counted in this way, so
borders, strides, dilations, groups and silent windows need no formulas of their own. An event counts when it
is sent, even if its delay reaches beyond the end of the sample, since a chip processes it then.

Zero weights are not synapses, as in the counters of Loihi 2 (docs/energy.md). For chips that process stored
zeros, `zero_weights=True` counts all weights of a row with at least one nonzero weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
from typing_extensions import assert_never

from ..base import Array, Report, SimulationError, array_record, record
from ..hardware import HardwareProfile
from ..hardware.place import Link, PlacedLayer, Placement, Tile, core_neurons, links, merge_indices
from ..ir import (
    Connection,
    Conv2d,
    Delta,
    Dense,
    IntNetwork,
    Lif,
    Neuron,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SoftLif,
    SpikeCounts,
    Synapse,
    Xylo,
    apply_synapse,
    connection_fan_out,
    count_synapses,
    counted,
    counting,
    firing,
    is_graded,
    unit_weights,
)

PopulationPart = tuple[str, tuple[slice, ...]]  # a population, and an index of some of its neurons


@record
class Activity:
    """Mean activity of a network on some samples.

    `spikes` has the events per neuron and sample for each population, in its shape. Events of the input and
    of relays are their nonzero values; an image that is presented in all time steps is sent in each of them.
    `random` marks the activity on random inputs, which says little about that on real ones, and `assumed` one
    that was not measured.
    """

    samples: int
    timesteps: int
    spikes: Mapping[str, Array]
    random: bool = False
    assumed: bool = False  # not measured

    def counts(self, name: str) -> Array:
        """Return the total events over all samples, as integers."""
        whole: Array = np.rint(self.spikes[name] * self.samples)
        return whole


@record
class CoreLoad:
    """Synaptic operations and spikes of one core per sample, and its neuron updates per time step."""

    operations: float
    neurons: int
    spikes: float


def updates(neuron: Neuron, profile: HardwareProfile | None) -> int:
    """Return the neuron updates per time step that one neuron takes on a chip, whatever arrives.

    Without a profile, it is one.
    """
    match neuron:
        case Lif() | Readout() | Relay() | Delta() | SigmaDelta() | Sigma() | Xylo():
            return 1
        case SoftLif():
            return 1 if profile is None else core_neurons(neuron, profile)
        case _:
            assert_never(neuron)


def check_activity(activity: Activity, network: IntNetwork) -> None:
    """Raise an error that lists everything in which the activity does not match the network."""
    if problems := _problems(activity, network):
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise SimulationError(f"the activity does not match this network; measure it again:\n{lines}")


def _problems(activity: Activity, network: IntNetwork) -> list[str]:
    problems = []
    if activity.samples < 1:
        problems.append(f"{activity.samples} samples; at least one is needed")
    if activity.timesteps != network.timesteps:
        problems.append(f"{activity.timesteps} time steps; the network has {network.timesteps}")
    shapes = network.shapes
    problems += [f"{name}: no such population" for name in activity.spikes if name not in shapes]
    problems += [f"{name}: activity missing" for name in shapes if name not in activity.spikes]
    for name, values in activity.spikes.items():
        if name in shapes and values.shape != shapes[name]:
            problems.append(f"{name}: shape {values.shape}; the network has {shapes[name]}")
        elif not (values.min() >= 0 and values.max() <= activity.timesteps):
            problems.append(
                f"{name}: {values.min()} to {values.max()} events per neuron; "
                f"{activity.timesteps} time steps allow 0..{activity.timesteps}"
            )
    return problems


# ---- synaptic operations ----------------------------------------------------------------------


def operations(network: IntNetwork, activity: Activity, *, zero_weights: bool = False) -> dict[str, float]:
    """Return synaptic operations per sample by connection label; equal labels are added."""
    found = operations_per_neuron(network, activity, zero_weights=zero_weights)
    return {label: _mean(values, activity) for label, values in found.items()}


def operations_per_neuron(
    network: IntNetwork, activity: Activity, *, zero_weights: bool = False
) -> dict[str, Array]:
    """Return, by connection label, the operations at each target neuron over all samples."""
    check_activity(activity, network)
    shapes = network.shapes
    found = {}
    for label, connections in _group_by_label(network.connections).items():
        source, target = connections[0].source, connections[0].target
        events = activity.counts(source)[None]
        synapses = _unit_synapses([connection.synapse for connection in connections], zero_weights)
        results = [apply_synapse(synapse, events).reshape(shapes[target]) for synapse in synapses]
        found[label] = np.sum(results, axis=0)
    return found


def core_loads(
    network: IntNetwork,
    activity: Activity,
    cores: Iterable[Iterable[PopulationPart]],
    *,
    zero_weights: bool = False,
    profile: HardwareProfile | None = None,
) -> list[CoreLoad]:
    """Return the load of each core, given the parts of populations that it holds."""
    found = operations_per_neuron(network, activity, zero_weights=zero_weights)
    sent = {population.name: activity.counts(population.name) for population in network.populations}
    updating = {population.name: updates(population.neuron, profile) for population in network.layers}
    entering: dict[str, Array] = {name: np.zeros_like(counts) for name, counts in sent.items()}
    for connection in {c.label: c for c in network.connections}.values():
        entering[connection.target] += found[connection.label]

    def load(parts: tuple[PopulationPart, ...]) -> CoreLoad:
        return CoreLoad(
            operations=sum(_mean(entering[name][where], activity) for name, where in parts),
            neurons=sum(updating[name] * sent[name][where].size for name, where in parts),
            spikes=sum(_mean(sent[name][where], activity) for name, where in parts),
        )

    return [load(tuple(parts)) for parts in cores]


def multiplications(network: IntNetwork) -> int:
    """Count the multiply-accumulates of one pass through an ordinary network with the same connections.

    By convention, weights of a fully connected layer count once, and kernels once per output position,
    including borders and zeros. Layers that differ only in delay are one layer.
    """
    shapes = network.shapes
    total = 0
    for connections in _group_by_label(network.connections).values():
        source, target = shapes[connections[0].source], shapes[connections[0].target]
        synapses = [connection.synapse for connection in connections]
        dense: list[Synapse] = [synapse for synapse in synapses if isinstance(synapse, Dense)]
        layers = dense[:1] + [synapse for synapse in synapses if isinstance(synapse, Conv2d)]
        total += sum(count_synapses(layer, source, target, products=True) for layer in layers)
    return total


def _group_by_label(connections: Iterable[Connection]) -> dict[str, list[Connection]]:
    found: dict[str, list[Connection]] = {}
    for connection in connections:
        found.setdefault(connection.label, []).append(connection)
    return found


def _unit_synapses(synapses: list[Synapse], zero_weights: bool) -> list[Synapse]:
    """Return the synapses between two populations with all weights set to one.

    Fully connected synapses share rows, even with different delays, so their zeros count once.
    """
    found = [unit_weights(synapse, zeros=zero_weights) for synapse in synapses if isinstance(synapse, Conv2d)]
    if dense := [synapse.weight != 0 for synapse in synapses if isinstance(synapse, Dense)]:
        found.append(
            Dense(weight=counted(np.asarray(np.sum(dense, axis=0, dtype=np.int16)), zeros=zero_weights))
        )
    return found


def _mean(counts: Array, activity: Activity) -> float:
    return float(counts.sum() / activity.samples)


# Count the spikes per sample between cores, from a placement and the activity of the network.
#
# A spike is sent once to every core that has a synapse from its neuron, so from each source a core receives
#
#     sum of events over the source neurons in the receptive field of its tile
#
# The receptive field comes from hardware/place/tiles.py, without unrolling convolutions. On crossbars whose
# neurons have one target each, a spike takes as many packets to a core as an input has axons there. Counts
# are means over samples, so they need not be integers.


@array_record
class Traffic:
    """Spikes per sample from core `source` to core `target`, for each pair with synapses between them.

    Cores are numbered in layer order. Pairs are sorted, and a core may be its own target. Events of the input
    come from outside and are counted in `from_input`, by core.
    """

    cores: int
    source: Array
    target: Array
    spikes: Array
    from_input: Array

    @property
    def total(self) -> float:
        """Return all spikes sent by cores, including those to the same core, without the input."""
        return float(self.spikes.sum())


def traffic(network: IntNetwork, placement: Placement, activity: Activity) -> Traffic | None:
    """Return the spikes between all cores; None if core allocation is undocumented."""
    if placement.cores is None:
        return None
    events = {name: np.asarray(values, np.float64).reshape(-1) for name, values in activity.spikes.items()}
    core_of = _cores_of_neurons(placement)
    messages: list[tuple[Array, Array, Array]] = []  # source cores, target core, spikes
    from_input = np.zeros(placement.cores)
    for layer, parts in _numbered(placement):
        for entering in _links_by_source(network, layer.name, by_delay=placement.kind == "crossbar"):
            name = entering[0].source
            read = zip(*(link.sources(layer.tile) for link in entering), strict=True)
            for (core, _), neurons in zip(parts, map(merge_indices, read), strict=True):
                spikes = layer.packets_per_spike * events[name][neurons]
                if name == network.input.name:
                    from_input[core] += spikes.sum()
                else:
                    messages.append(_sum_by_core(core_of[name][neurons], core, spikes))
    return _merge(placement.cores, messages, from_input)


def chip_messages(
    network: IntNetwork, placement: Placement, activity: Activity, chip: Array, chips: int
) -> Array:
    """Return the messages per sample from chip to chip, [chips, chips]: a spike once per receiving chip.

    The diagonal has the spikes that stay on their chip. Events of the input come from outside.
    """
    core_of, messages = _cores_of_neurons(placement), np.zeros((chips, chips))
    reached: dict[tuple[str, int], Array] = {}  # for each source and chip, whether it reads each neuron
    packets: dict[str, int] = {}
    for layer, parts in _numbered(placement):
        for entering in _links_by_source(network, layer.name, by_delay=placement.kind == "crossbar"):
            name = entering[0].source
            if name == network.input.name:
                continue
            packets[name] = max(packets.get(name, 1), layer.packets_per_spike)
            read = zip(*(link.sources(layer.tile) for link in entering), strict=True)
            for (core, _), neurons in zip(parts, map(merge_indices, read), strict=True):
                key = name, int(chip[core])
                if key not in reached:
                    reached[key] = np.zeros(len(core_of[name]), np.bool_)
                reached[key][neurons] = True
    for (name, target), read_there in reached.items():
        some = np.flatnonzero(read_there)
        events = packets[name] * np.asarray(activity.spikes[name], np.float64).reshape(-1)[some]
        messages[:, target] += np.bincount(chip[core_of[name][some]], weights=events, minlength=chips)
    return messages


def parts_of_cores(placement: Placement) -> list[list[tuple[str, Tile]]]:
    """Return the parts of populations on each core, in core order."""
    cores: list[list[tuple[str, Tile]]] = [[] for _ in range(placement.cores or 0)]
    if cores:
        for layer, parts in _numbered(placement):
            for core, tile in parts:
                cores[core].append((layer.name, tile))
    return cores


def _numbered(placement: Placement) -> Iterator[tuple[PlacedLayer, list[tuple[int, Tile]]]]:
    """Yield each layer with its core numbers and tiles; a single core for all layers has number 0."""
    first = 0
    for layer in placement.layers:
        parts = list(enumerate(layer.tiles(), start=first))
        yield layer, parts
        first += 0 if placement.on_one_core else len(parts)


def _cores_of_neurons(placement: Placement) -> dict[str, Array]:
    """Return the core number of every neuron, by population."""
    found = {}
    for layer, parts in _numbered(placement):
        cores = np.empty(layer.shape, np.int64)
        for core, tile in parts:
            cores[tile] = core
        found[layer.name] = cores.reshape(-1)
    return found


def _links_by_source(network: IntNetwork, target: str, *, by_delay: bool) -> list[list[Link]]:
    """Group the links into a population by source, or by source and delay if `by_delay`."""
    groups: dict[tuple[str, int], list[Link]] = {}
    for link in links(network, target, by_delay=by_delay):
        groups.setdefault((link.source, link.delay), []).append(link)
    return list(groups.values())


def _sum_by_core(cores: Array, target: int, spikes: Array) -> tuple[Array, Array, Array]:
    """Sum the spikes of neurons by their core; return source cores, target core and sums."""
    first = cores.min() if len(cores) else 0
    there = np.flatnonzero(np.bincount(cores - first))
    sums = np.bincount(cores - first, weights=spikes)[there]
    return first + there, np.full(len(there), target), sums


def _merge(cores: int, messages: Sequence[tuple[Array, Array, Array]], from_input: Array) -> Traffic:
    """Add up the messages between the same two cores."""
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    source, target, spikes = (np.concatenate(column) for column in zip(nothing, *messages, strict=True))
    pairs, place = np.unique(source * cores + target, return_inverse=True)
    return Traffic(
        cores=cores,
        source=pairs // cores,
        target=pairs % cores,
        spikes=np.bincount(place, weights=spikes, minlength=len(pairs)),
        from_input=from_input,
    )


# The metrics of NeuroBench (Yik et al., Nature Communications 16, 2025) of an integer network.
#
#     footprint             bytes of weights, thresholds and biases, each array in its own number of bits
#     connection_sparsity   zeros among the weights
#     activation_sparsity   neurons and steps without a spike, over all populations that fire
#     effective_acs         synaptic operations per sample of inputs 0 and 1 (or -1), zero weights not counted
#     effective_macs        the same of graded inputs
#     dense                 the same, had every input and weight been nonzero; padding is not counted
#     membrane_updates      per sample, voltages of firing populations at the end of a step that differ from
#     the
#                           step before; all of them in the first step
#
# On the same spikes these are NeuroBench's own numbers (tests/fit/test_neurobench.py), with two exceptions:
# its footprint counts the floats of the PyTorch module, and its operations include biases, which a chip adds
# once.


@record
class NeuroBenchMetrics(Report):
    """Counts are means per sample."""

    samples: int
    timesteps: int
    random_inputs: bool
    parameters: int  # integers of the network
    footprint: int  # bytes of weights, thresholds and biases, each array in its own number of bits
    connection_sparsity: float  # zeros among the weights
    activation_sparsity: float | None  # neurons and steps without a spike; None if nothing fires
    effective_acs: float  # synaptic operations of inputs 0 and 1
    effective_macs: float  # synaptic operations of graded inputs
    dense: float  # synaptic operations, had every input and weight been nonzero
    membrane_updates: float  # voltages that changed in a step


def neurobench_metrics(network: IntNetwork, activity: Activity, counted: SpikeCounts) -> NeuroBenchMetrics:
    """Return the metrics of a network; `activity` and `counted` are of the same samples."""
    weights = [connection.synapse.weight for connection in network.connections]
    arrays = [*weights, *_neuron_arrays(network)]
    graded, binary = _operations(network, activity)
    names = [population.name for population in firing(network)]
    sizes = counted.samples * activity.timesteps * sum(counted.per_neuron[name].size for name in names)
    spikes = sum(int(counted.per_neuron[name].sum()) for name in names)
    return NeuroBenchMetrics(
        samples=activity.samples,
        timesteps=activity.timesteps,
        random_inputs=activity.random,
        parameters=sum(array.size for array in arrays),
        footprint=-(-sum(array.size * used_bits(array) for array in arrays) // 8),
        connection_sparsity=1
        - _share([int(np.count_nonzero(w)) for w in weights], [w.size for w in weights]),
        activation_sparsity=(sizes - spikes) / sizes if sizes else None,
        effective_acs=binary / activity.samples,
        effective_macs=graded / activity.samples,
        dense=float(activity.timesteps * sum(_dense(network, c) for c in network.connections)),
        membrane_updates=sum(counted.updates[name] for name in names) / activity.samples,
    )


def used_bits(integers: Array) -> int:
    """Return the bits, sign included, of the widest integer of an array."""
    ends = (int(integers.min()), int(integers.max())) if integers.size else (0,)
    return 1 + max((end if end >= 0 else ~end).bit_length() for end in ends)


def _share(parts: list[int], wholes: list[int]) -> float:
    return sum(parts) / max(sum(wholes), 1)


def _neuron_arrays(network: IntNetwork) -> list[Array]:
    """Return the parameters of all neurons: thresholds, biases and what a spike subtracts."""
    neurons = [population.neuron for population in network.populations]
    found = [getattr(neuron, field.name) for neuron in neurons for field in fields(neuron)]
    return [value for value in found if isinstance(value, np.ndarray)]


def _operations(network: IntNetwork, activity: Activity) -> tuple[float, float]:
    """Return the operations of graded and of binary events, over all samples."""
    first = network.input
    graded = {p.name for p in network.layers if is_graded(p.neuron) and counting(p.neuron) is None}
    if first.neuron.minimum < -1 or first.neuron.maximum > 1:
        graded.add(first.name)
    sums = {True: 0.0, False: 0.0}
    for connection in network.connections:
        done = (activity.counts(connection.source) * connection_fan_out(network, connection)).sum()
        sums[connection.source in graded] += float(done)
    return sums[True], sums[False]


def _dense(network: IntNetwork, connection: Connection) -> int:
    """Return the synapses of a connection, had no weight been zero."""
    full = replace(connection.synapse, weight=np.ones_like(connection.synapse.weight))
    return count_synapses(full, network.shapes[connection.source], network.shapes[connection.target])
