"""The two networks of real numbers: as it was trained, and folded.

A `TrainedNetwork` is what the PyTorch module says, operation by operation. A `FoldedNetwork` is
what remains when every normalization is gone: populations of plain neurons, each channel or
neuron with a threshold of its own, and connections that are single linear maps.
"""

from __future__ import annotations

import numpy as np

from ..base import NetworkError, record
from .graph import Connection, Population, broadcast_problems, graph_problems, is_chain, timestep_problems
from .neurons import FloatLif, FloatNeuron, Input

FloatPopulation = Population[FloatNeuron]


@record
class FoldedNetwork:
    """Populations in the order in which spikes reach them, the input first and the output last."""

    populations: tuple[FloatPopulation, ...]
    connections: tuple[Connection, ...]
    timesteps: int

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise NetworkError("FoldedNetwork", problems)

    @property
    def input(self) -> FloatPopulation:
        return self.populations[0]

    @property
    def input_range(self) -> Input:
        neuron = self.input.neuron
        assert isinstance(neuron, Input)  # the network checked itself when it was made
        return neuron

    @property
    def output(self) -> FloatPopulation:
        return self.populations[-1]

    @property
    def is_chain(self) -> bool:
        return is_chain(self.populations, self.connections)


def _problems(network: FoldedNetwork) -> list[str]:
    populations = network.populations
    if len(populations) < 2 or not isinstance(populations[0].neuron, Input):
        return ["the first population must be the input, and at least one must follow it"]
    problems = graph_problems(populations, network.connections)
    problems += timestep_problems(network.timesteps)
    for connection in network.connections:
        if not np.isfinite(connection.synapse.weight).all():
            problems.append(f"{connection.label}: weights hold NaN or infinity")
    for population in populations[1:]:
        problems += _neuron_problems(population)
    return problems


def _neuron_problems(population: FloatPopulation) -> list[str]:
    name, neuron, shape = population.name, population.neuron, population.shape
    if isinstance(neuron, Input):
        return [f"{name}: a second input"]
    problems = broadcast_problems(f"{name}: bias", neuron.bias, shape)
    if not np.isfinite(neuron.bias).all():
        problems.append(f"{name}: biases hold NaN or infinity")
    if isinstance(neuron, FloatLif):
        problems += broadcast_problems(f"{name}: threshold", neuron.threshold, shape)
        if np.isnan(neuron.threshold).any():
            problems.append(f"{name}: thresholds hold NaN")
    for label, leak in (("leak", neuron.leak), ("current leak", neuron.current_leak)):
        if not 0 <= leak <= 1:
            problems.append(f"{name}: {label} {leak}; allowed are 0 to 1")
    return problems
