"""The metrics of NeuroBench (Yik et al., Nature Communications 16, 2025) of an integer network.

    footprint             bytes of weights, thresholds and biases, each array in its own number of bits
    connection_sparsity   zeros among the weights
    activation_sparsity   neurons and steps without a spike, over all populations that fire
    effective_acs         synaptic operations per sample of inputs 0 and 1 (or -1), zero weights not counted
    effective_macs        the same of graded inputs
    dense                 the same, had every input and weight been nonzero; padding is not counted
    membrane_updates      per sample, voltages of firing populations at the end of a step that differ from the
                          step before; all of them in the first step

On the same spikes these are NeuroBench's own numbers (tests/fit/test_neurobench.py), with two exceptions: its
footprint counts the floats of the PyTorch module, and its operations include biases, which a chip adds once.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from ..base import Array, Report, record
from ..ir import (
    Connection,
    IntNetwork,
    SpikeCounts,
    connection_fan_out,
    count_synapses,
    counting,
    firing,
    is_graded,
)
from .activity import Activity


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
