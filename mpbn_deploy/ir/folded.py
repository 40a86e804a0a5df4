"""FoldedNetwork: a network of real numbers whose normalizations are folded into weights and thresholds.

It has populations of plain neurons, with one threshold per channel or per neuron, connected by linear maps.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import assert_never

from ..base import NetworkError, record
from .graph import Network, Population, broadcast_problems, graph_problems, input_problems, timestep_problems
from .neurons import FloatLif, FloatNeuron, FloatReadout
from .synapses import Shape

FloatPopulation = Population[FloatNeuron]


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
        if not np.isfinite(connection.synapse.weight).all():
            problems.append(f"{connection.label}: weights hold NaN or infinity")
    for population in network.layers:
        problems += _neuron_problems(population)
    return problems


def _neuron_problems(population: FloatPopulation) -> list[str]:
    name, neuron, shape = population.name, population.neuron, population.shape
    match neuron:
        case FloatLif():
            return _membrane_problems(name, neuron, shape) + _threshold_problems(name, neuron, shape)
        case FloatReadout():
            return _membrane_problems(name, neuron, shape)
        case _:
            assert_never(neuron)


def _membrane_problems(name: str, neuron: FloatLif | FloatReadout, shape: Shape) -> list[str]:
    problems = broadcast_problems(f"{name}: bias", neuron.bias, shape)
    if not np.isfinite(neuron.bias).all():
        problems.append(f"{name}: biases hold NaN or infinity")
    for label, leak in (("leak", neuron.leak), ("current leak", neuron.current_leak)):
        if not 0 <= leak <= 1:
            problems.append(f"{name}: {label} {leak}; allowed are 0 to 1")
    return problems


def _threshold_problems(name: str, neuron: FloatLif, shape: Shape) -> list[str]:
    problems = broadcast_problems(f"{name}: threshold", neuron.threshold, shape)
    if np.isnan(neuron.threshold).any():
        problems.append(f"{name}: thresholds hold NaN")
    return problems
