"""How busy a network is: the events of every neuron, and the synaptic operations that they cause.

A synaptic operation is one event that meets one synapse. So a connection makes

    operations = sum over neurons of events * synapses that it has there

of them: what the connection would give if each of its weights were one. That is how they are counted, so
borders, strides, dilations, groups and silent windows need no formula of their own. An event counts when
it is sent, also where a delay carries it beyond the end of its sample, since a chip works on it then.

A weight of zero is no synapse: the counters of Loihi 2 leave it out, too (docs/energy.md). For chips that
work on stored zeros, `zero_weights=True` counts all weights of a row in which at least one is not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from typing_extensions import assert_never

from ..base import Array, SimulationError, record
from ..ir import (
    Connection,
    Conv2d,
    Dense,
    IntNetwork,
    Lif,
    Neuron,
    Readout,
    Synapse,
    apply_synapse,
    count_synapses,
    counted,
    unit_weights,
)

Part = tuple[str, tuple[slice, ...]]  # a population, and which of its neurons


@record
class Activity:
    """What a network did on some samples, on average.

    `spikes` holds for each population, in its shape, how many events each neuron sends per sample; of the
    input, how many values that are not zero. A picture that is held for all time steps is sent in each.
    """

    samples: int
    timesteps: int
    spikes: Mapping[str, Array]

    def counts(self, name: str) -> Array:
        """The events of all samples together, whole numbers."""
        whole: Array = np.rint(self.spikes[name] * self.samples)
        return whole


@record
class CoreLoad:
    """What one core does per sample: synaptic operations and spikes; and the neurons it updates in a step."""

    operations: float
    neurons: int
    spikes: float


def updates(neuron: Neuron) -> int:
    """Return how many neuron updates of a chip one neuron costs in each time step, whatever arrives."""
    match neuron:
        case Lif() | Readout():
            return 1
        case _:
            assert_never(neuron)


def check(activity: Activity, network: IntNetwork) -> None:
    """Refuse what cannot be the activity of this network; lists all that is wrong."""
    if problems := _problems(activity, network):
        lines = "\n".join(f"  - {problem}" for problem in problems)
        raise SimulationError(
            f"the activity is not that of this network; measure it on the network itself:\n{lines}"
        )


def _problems(activity: Activity, network: IntNetwork) -> list[str]:
    problems = []
    if activity.samples < 1:
        problems.append(f"{activity.samples} samples; at least one is needed")
    if activity.timesteps != network.timesteps:
        problems.append(f"{activity.timesteps} time steps; the network has {network.timesteps}")
    shapes = {population.name: population.shape for population in network.populations}
    problems += [f"{name}: no such population" for name in activity.spikes if name not in shapes]
    problems += [f"{name}: no activity of it" for name in shapes if name not in activity.spikes]
    for name, values in activity.spikes.items():
        if name in shapes and values.shape != shapes[name]:
            problems.append(f"{name}: shape {values.shape}; the network has {shapes[name]}")
        elif not (values.min() >= 0 and values.max() <= activity.timesteps):
            problems.append(
                f"{name}: {values.min()} to {values.max()} events per neuron; "
                f"in {activity.timesteps} time steps there are 0..{activity.timesteps}"
            )
    return problems


# ---- synaptic operations ----------------------------------------------------------------------


def operations(network: IntNetwork, activity: Activity, *, zero_weights: bool = False) -> dict[str, float]:
    """Synaptic operations per sample of each connection; those of one label are taken together."""
    found = arrivals(network, activity, zero_weights=zero_weights)
    return {label: _mean(values, activity) for label, values in found.items()}


def arrivals(network: IntNetwork, activity: Activity, *, zero_weights: bool = False) -> dict[str, Array]:
    """Of each connection, the synaptic operations at each neuron of its target, on all samples together."""
    check(activity, network)
    shapes = {population.name: population.shape for population in network.populations}
    found = {}
    for label, connections in _by_label(network.connections).items():
        source, target = connections[0].source, connections[0].target
        events = activity.counts(source)[None]
        synapses = _ones([connection.synapse for connection in connections], zero_weights)
        results = [apply_synapse(synapse, events).reshape(shapes[target]) for synapse in synapses]
        found[label] = np.sum(results, axis=0)
    return found


def core_loads(
    network: IntNetwork,
    activity: Activity,
    cores: Iterable[Iterable[Part]],
    *,
    zero_weights: bool = False,
) -> list[CoreLoad]:
    """What each core does, given the parts of populations that sit on it."""
    found = arrivals(network, activity, zero_weights=zero_weights)
    sent = {population.name: activity.counts(population.name) for population in network.populations}
    updating = {population.name: updates(population.neuron) for population in network.layers}
    entering: dict[str, Array] = {name: np.zeros_like(counts) for name, counts in sent.items()}
    for connection in {c.label: c for c in network.connections}.values():
        entering[connection.target] += found[connection.label]

    def load(parts: tuple[Part, ...]) -> CoreLoad:
        return CoreLoad(
            operations=sum(_mean(entering[name][where], activity) for name, where in parts),
            neurons=sum(updating[name] * sent[name][where].size for name, where in parts),
            spikes=sum(_mean(sent[name][where], activity) for name, where in parts),
        )

    return [load(tuple(parts)) for parts in cores]


def multiplications(network: IntNetwork) -> int:
    """Multiply-accumulates of one pass through the same connections without time, as of an ordinary network.

    Counted as people do: weights of a fully connected layer once, kernels once at each position that they
    are applied at, borders and zeros included. Layers that differ in their delay alone are one layer.
    """
    shapes = {population.name: population.shape for population in network.populations}
    total = 0
    for connections in _by_label(network.connections).values():
        source, target = shapes[connections[0].source], shapes[connections[0].target]
        synapses = [connection.synapse for connection in connections]
        dense: list[Synapse] = [synapse for synapse in synapses if isinstance(synapse, Dense)]
        layers = dense[:1] + [synapse for synapse in synapses if isinstance(synapse, Conv2d)]
        total += sum(count_synapses(layer, source, target, products=True) for layer in layers)
    return total


def _by_label(connections: Iterable[Connection]) -> dict[str, list[Connection]]:
    found: dict[str, list[Connection]] = {}
    for connection in connections:
        found.setdefault(connection.label, []).append(connection)
    return found


def _ones(synapses: list[Synapse], zero_weights: bool) -> list[Synapse]:
    """The same synapses between two populations, each with a weight of one.

    Fully connected ones lie in the same rows, whatever their delays, so their zeros count once.
    """
    found = [unit_weights(synapse, zeros=zero_weights) for synapse in synapses if isinstance(synapse, Conv2d)]
    if dense := [synapse.weight != 0 for synapse in synapses if isinstance(synapse, Dense)]:
        found.append(Dense(weight=counted(np.sum(dense, axis=0, dtype=np.int16), zeros=zero_weights)))
    return found


def _mean(counts: Array, activity: Activity) -> float:
    return float(counts.sum() / activity.samples)
