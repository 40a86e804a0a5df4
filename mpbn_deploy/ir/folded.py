"""FoldedNetwork: a network of real numbers whose normalizations are folded into weights and thresholds.

It has populations of plain neurons, with one threshold per channel or per neuron, connected by linear maps.
"""

from __future__ import annotations

import numpy as np

from ..base import Array, NetworkError, record
from .graph import Network, Population, broadcast_problems, graph_problems, input_problems, timestep_problems
from .neurons import LARGEST_GROWTH, FloatNeuron, counting, neuron_subtrahend, neuron_threshold, varies

FloatPopulation = Population[FloatNeuron]
LARGEST_REAL = float(np.finfo(np.float32).max)


@record
class FoldedNetwork(Network[FloatNeuron]):
    """A network of real numbers, without normalization."""

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise NetworkError("FoldedNetwork", problems)


def _problems(network: FoldedNetwork) -> list[str]:
    if problems := input_problems(network.populations):
        return problems
    problems = graph_problems(network.populations, network.connections)
    problems += timestep_problems(network.timesteps)
    for connection in network.connections:
        problems += _real_problems(f"{connection.label}: weights", connection.synapse.weight)
    for population in network.layers:
        problems += _neuron_problems(population, network.timesteps)
    return problems


def _neuron_problems(population: FloatPopulation, timesteps: int) -> list[str]:
    name, neuron, shape = population.name, population.neuron, population.shape
    steps, most = (timesteps, LARGEST_GROWTH) if varies(neuron) else (0, 1)
    problems = broadcast_problems(f"{name}: bias", neuron.bias, shape, steps)
    problems += _real_problems(f"{name}: biases", neuron.bias)
    for label, leak in (("leak", neuron.leak), ("current leak", neuron.current_leak)):
        if isinstance(leak, np.ndarray):
            problems += broadcast_problems(f"{name}: {label}", leak, shape, steps)
        if not ((np.asarray(leak) >= 0) & (np.asarray(leak) <= most)).all():
            found = leak if np.ndim(leak) == 0 else f"of {np.min(leak)} to {np.max(leak)}"
            problems.append(f"{name}: {label} {found}; allowed are 0 to {most}")
    if (threshold := neuron_threshold(neuron)) is not None:
        problems += broadcast_problems(f"{name}: threshold", threshold, shape, steps)
        if np.isnan(threshold).any():
            problems.append(f"{name}: thresholds hold NaN")
        elif counting(neuron) is not None and not ((threshold > 0) & (threshold < np.inf)).all():
            problems.append(f"{name}: thresholds of Xylo neurons must be positive and finite")
    if (subtrahend := neuron_subtrahend(neuron)) is not None:
        problems += broadcast_problems(f"{name}: subtrahend", subtrahend, shape, steps)
        problems += _real_problems(f"{name}: subtrahends", subtrahend)
    return problems


def _real_problems(label: str, values: Array) -> list[str]:
    """Check that numbers are finite, and so small that their sums over many neurons and steps are too."""
    if not np.isfinite(values).all():
        return [f"{label} hold NaN or infinity"]
    if (largest := float(np.abs(values).max(initial=0))) > LARGEST_REAL:
        return [f"{label} of up to {largest:.3g}; allowed are those of float32, up to {LARGEST_REAL:.3g}"]
    return []
