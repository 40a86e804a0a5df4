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

from collections.abc import Iterable, Mapping

import numpy as np
from typing_extensions import assert_never

from ..base import Array, SimulationError, record
from ..hardware import HardwareProfile
from ..hardware.place import core_neurons
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
    Synapse,
    Xylo,
    apply_synapse,
    count_synapses,
    counted,
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
