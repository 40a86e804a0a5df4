"""The two networks of real numbers: as it was trained, and folded.

A `TrainedNetwork` is what the PyTorch module says, operation by operation. A `FoldedNetwork` is
what remains when every normalization is gone: populations of plain neurons, each channel or
neuron with a threshold of its own, and connections that are single linear maps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import NetworkError
from .graph import (
    Connection,
    Input,
    Pair,
    Population,
    Shape,
    broadcast_problems,
    graph_problems,
    is_chain,
    timestep_problems,
)
from .records import Array, freeze_arrays, record

# ---- as trained -------------------------------------------------------------------------------


@record
class InputFormat:
    """What goes in: integers from minimum to maximum, normalized as (x - mean) / deviation per channel.

    `mean` and `deviation` may be given as any sequence, of one number or of one per channel.
    """

    shape: Shape
    minimum: int
    maximum: int
    mean: Array
    deviation: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if problems := _format_problems(self):
            raise NetworkError("InputFormat", problems)
        for name in ("mean", "deviation"):
            values = np.asarray(getattr(self, name), np.float64).ravel()
            object.__setattr__(self, name, np.broadcast_to(values, (self.shape[0],)).copy())
        freeze_arrays(self)


def _format_problems(given: InputFormat) -> list[str]:
    shape = given.shape
    if len(shape) not in (1, 3) or not all(isinstance(size, int) and size > 0 for size in shape):
        return [f"shape {shape}; (features,) or (channels, height, width) is needed"]
    problems = []
    if not all(isinstance(edge, (int, np.integer)) for edge in (given.minimum, given.maximum)):
        problems.append(f"range {given.minimum}..{given.maximum}; whole numbers are needed")
    elif given.minimum > given.maximum:
        problems.append(f"range {given.minimum}..{given.maximum} is empty")
    for name in ("mean", "deviation"):
        problems += _numbers_problems(name, getattr(given, name), shape[0])
    if not problems and np.min(given.deviation) <= 0:
        problems.append(f"deviation {given.deviation}; must be above zero")
    return problems


def _numbers_problems(name: str, given: Any, channels: int) -> list[str]:
    try:
        values = np.asarray(given, np.float64).ravel()
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.size in (1, channels) and np.isfinite(values).all():
        return []
    return [f"{name} {given}; one finite number, or one per channel, is needed"]


@record
class Linear:
    """y = weight x + bias"""

    weight: Array
    bias: Array

    def __post_init__(self) -> None:
        freeze_arrays(self)


@record
class Convolution:
    """y = weight * x + bias, a cross-correlation with zero padding as in torch"""

    weight: Array
    bias: Array
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def __post_init__(self) -> None:
        freeze_arrays(self)


@record
class BatchNorm:
    """y = gain * (x - mean) / sqrt(variance + epsilon) + offset, with the running statistics.

    Parameters have shape (channels,), or the shape of x when they are element-wise.
    """

    gain: Array
    offset: Array
    mean: Array
    variance: Array
    epsilon: float

    def __post_init__(self) -> None:
        freeze_arrays(self)


@record
class Flatten:
    """(channels, height, width) -> (features,)"""


@record
class AveragePool:
    """y = mean over each window of kernel pixels, as torch's AvgPool2d counts them.

    A window that leaves the picture is divided by all its pixels (`count_padding`, though never by
    those beyond the padding) or by those inside; `divisor`, where given, is what every sum is divided by.
    """

    kernel: Pair
    stride: Pair
    padding: Pair
    round_up: bool
    count_padding: bool
    divisor: int | None


@record
class AdaptivePool:
    """y[i] = mean of x[floor(i * size / n) .. ceil((i + 1) * size / n) - 1], n outputs in each direction"""

    size: tuple[int | None, int | None]  # None: as many as there are pixels


@record
class MaxPool:
    """y = the largest of each window; of spikes: whether any neuron in it fires"""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair


@record
class Add:
    """y = the sum of what it reads"""


@record
class Spike:
    """The paper's neuron, Eq. 1, 2 and 7: leak, integrate, normalize a copy, fire, reset to zero.

    membrane <- leak * membrane + x
    spike     = norm(membrane) > threshold
    membrane <- 0 where spike
    """

    leak: float
    threshold: float
    norm: BatchNorm | None


Operation = Linear | Convolution | BatchNorm | Flatten | AveragePool | AdaptivePool | MaxPool | Add | Spike


@record
class Step:
    """One operation of a trained network: its name in the module, what it reads, the shape it gives.

    Only `Add` reads more than one value.
    """

    name: str
    operation: Operation
    sources: tuple[str, ...]
    shape: Shape


@record
class TrainedNetwork:
    """Operations in order of execution, from "input" on; the last one is averaged over time (Eq. 3)."""

    input: InputFormat
    steps: tuple[Step, ...]
    timesteps: int


INPUT_NAME = "input"

# ---- folded -----------------------------------------------------------------------------------


@record
class FloatLif:
    """A leaky integrate-and-fire neuron with a hard reset. In each time step, in this order:

        current <- current_leak * current + sum of synapses
        voltage <- leak * voltage + current + bias
        spike    = voltage > threshold
        voltage <- 0 where spike

    A threshold of plus or minus infinity is a neuron that never, or always, fires. Networks that are
    trained here have a current leak of zero: they forget the current at once.
    """

    threshold: Array
    bias: Array
    leak: float
    current_leak: float = 0.0

    def __post_init__(self) -> None:
        freeze_arrays(self)


@record
class FloatReadout:
    """Integrates and never fires. In each time step, in this order:

        current <- current_leak * current + sum of synapses
        voltage <- leak * voltage + (current + bias) / timesteps

    Networks that are trained here add up without a leak (Eq. 3): a leak of one, and a current that is
    forgotten at once. The output is the voltage after the last step.
    """

    bias: Array
    leak: float = 1.0
    current_leak: float = 0.0

    def __post_init__(self) -> None:
        freeze_arrays(self)


FloatNeuron = Input | FloatLif | FloatReadout
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
