"""IntNetwork: the integer network that executors, file formats and the fit check share.

The arithmetic is that of Loihi's leaky integrate-and-fire neuron as Lava's fixed-point model defines it.
States (current, voltage) are signed 24-bit integers in units of 2**-6 of a weight. A network whose states
might overflow is still valid: `bounds` proves whether they can. If they do, the reference stops, or computes
as Lava does if somebody else chose the integers (`ir.overflow`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from typing_extensions import assert_never

from ..base import Array, NetworkError, Summarized, Summary, record
from .exact_floats import EXACT_FLOAT64, ends, largest_sum, magnitude
from .graph import Network, Population, broadcast_problems, graph_problems, input_problems, timestep_problems
from .neurons import (
    DECAY_ONE,
    LARGEST_EXPONENT,
    LARGEST_GROWTH,
    LARGEST_SHIFT,
    STATE_EXPONENT,
    STATE_LIMIT,
    THRESHOLD_LIMIT,
    XYLO_HIGH,
    XYLO_LOW,
    Delta,
    IntegratingNeuron,
    Lif,
    Neuron,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SoftLif,
    Xylo,
    counting,
    integrating,
    neuron_kind,
    neuron_subtrahend,
    neuron_threshold,
    sends,
    varies,
)
from .sums import synapse_interval
from .synapses import Shape

IntPopulation = Population[Neuron]
LARGEST_WEIGHT = 2**31


@record
class IntNetwork(Network[Neuron], Summarized):
    """A network of integers.

    `scales` maps integers back to real numbers, with one factor per channel of a population:
    real voltage = voltage / (2**6 * scale). Executors do not need it. States of a `foreign` network, whose
    integers somebody else chose, may overflow, and continue as in Lava.
    """

    scales: Mapping[str, Array]
    foreign: bool = False

    def __post_init__(self) -> None:
        if problems := _problems(self):
            raise NetworkError("IntNetwork", problems)

    @property
    def summary(self) -> Summary:
        """The network in a few lines: its size, and each layer with its neurons and weights."""
        neurons = sum(population.size for population in self.layers)
        weights = sum(connection.synapse.weight.size for connection in self.connections)
        kinds = class_names(self)
        size = f"{neurons:,} neurons, {weights:,} weights, {self.timesteps} time steps"
        layers = {p.name: f"{kinds[p.name]} {list(p.shape)}, from {_sources(self, p)}" for p in self.layers}
        return Summary(color=None, verdict=f"network of integers: {size}", rows=tuple(layers.items()))


def _sources(network: IntNetwork, population: IntPopulation) -> str:
    return ", ".join(f"{c.source} ({type(c.synapse).__name__})" for c in network.entering(population.name))


def class_names(network: IntNetwork) -> Mapping[str, str]:
    """Return the class of each population and connection, by name and label: LIF, readout, Conv2d."""
    names: Mapping[str, str] = network.indexed("class names", lambda: _class_names(network))
    return names


def _class_names(network: IntNetwork) -> dict[str, str]:
    kinds = {p.name: neuron_kind(p.neuron).replace("lif", "LIF") for p in network.layers}
    return kinds | {c.label: type(c.synapse).__name__ for c in network.connections}


def _problems(network: IntNetwork) -> list[str]:
    if problems := input_problems(network.populations):
        return problems
    problems = [
        f"{p.name}: a readout, but not the last population"
        for p in network.layers[:-1]
        if not sends(p.neuron)
    ]
    problems += timestep_problems(network.timesteps)
    problems += graph_problems(network.populations, network.connections)
    for connection in network.connections:
        weight = connection.synapse.weight
        problems += _integer_problems(f"{connection.label}: weight", weight)
        least, most = ends(weight)
        if not -LARGEST_WEIGHT <= least <= most < LARGEST_WEIGHT:
            problems.append(f"{connection.label}: weights exceed 32 bits, which files and simulators hold")
        if not -STATE_EXPONENT <= (exponent := connection.synapse.exponent) <= LARGEST_EXPONENT:
            problems.append(
                f"{connection.label}: weight exponent {exponent}; allowed are -6..{LARGEST_EXPONENT}: "
                "smaller ones make states fractional, larger ones overflow them"
            )
    source = network.input_range
    if source.minimum > source.maximum:
        problems.append(f"{network.input.name}: range {source.minimum}..{source.maximum} is empty")
    if max(abs(source.minimum), abs(source.maximum)) >= EXACT_FLOAT64:
        problems.append(f"{network.input.name}: values of 2**53 and beyond are too large to be exact")
    for population in network.layers:
        if (neuron := integrating(population.neuron)) is not None:
            problems += _neuron_problems(population, neuron, network.timesteps if varies(neuron) else 0)
        problems += _scale_problems(population, network.scales.get(population.name))
    for check in (_message_problems, _sum_problems):
        problems = problems or [problem for p in network.layers for problem in check(network, p)]
    return problems


def _neuron_problems(population: IntPopulation, neuron: IntegratingNeuron, steps: int) -> list[str]:
    """Check the numbers of a neuron; of so many `steps`, if they depend on the time step."""
    name, shape = population.name, population.shape
    problems = _parameter_problems(f"{name}: bias", neuron.bias, shape, steps)
    lowest = (1 - LARGEST_GROWTH) * DECAY_ONE if steps else 0
    if not 0 <= neuron.bias_exponent <= LARGEST_EXPONENT:
        problems.append(f"{name}: bias exponent {neuron.bias_exponent}; allowed are 0..{LARGEST_EXPONENT}")
    elif magnitude(neuron.bias) << neuron.bias_exponent > STATE_LIMIT:
        problems.append(f"{name}: biases exceed the largest voltage, {STATE_LIMIT}")
    for label, decay in (("current", neuron.decay_current), ("voltage", neuron.decay_voltage)):
        if isinstance(decay, np.ndarray):
            problems += _parameter_problems(f"{name}: decay_{label}", decay, shape, steps)
        if not lowest <= (least := int(np.min(decay))) <= (most := int(np.max(decay))) <= DECAY_ONE:
            found = least if least < lowest else most
            problems.append(f"{name}: decay_{label} {found}; allowed are {lowest}..{DECAY_ONE}")
    for label, values in (("threshold", neuron_threshold(neuron)), ("subtrahend", neuron_subtrahend(neuron))):
        if values is None:
            continue
        problems += _parameter_problems(f"{name}: {label}", values, shape, steps)
        if magnitude(values) > THRESHOLD_LIMIT:
            problems.append(f"{name}: {label}s exceed {THRESHOLD_LIMIT}, which no voltage reaches")
    return problems


def _scale_problems(population: IntPopulation, scales: Array | None) -> list[str]:
    """Check that integers can be mapped back to real numbers; a network need not know its scales."""
    channels = population.shape[:1]
    if scales is None or (scales.shape == channels and np.all((scales > 0) & (scales < np.inf))):
        return []
    return [f"{population.name}: scales must be {channels[0]} numbers above zero, one per channel"]


def _message_problems(network: IntNetwork, population: IntPopulation) -> list[str]:
    """Check that graded messages are whole numbers, and that the range of a relay contains all of them."""
    name, fractions = population.name, any(c.synapse.exponent < 0 for c in network.entering(population.name))
    match neuron := population.neuron:
        case Delta() | SigmaDelta() | Sigma() if fractions:
            return [f"{name}: a sum of messages is a whole number; weight exponents must not be negative"]
        case Delta():
            return _modulator_problems(population, neuron, threshold=neuron.threshold)
        case SigmaDelta():
            return _modulator_problems(population, neuron, threshold=neuron.threshold, bias=neuron.bias)
        case Relay(minimum=minimum, maximum=maximum):
            if fractions:
                return [f"{name}: a relay sends whole numbers; weight exponents into it must not be negative"]
            if not -STATE_LIMIT <= minimum <= 0 <= maximum <= STATE_LIMIT:
                return [f"{name}: messages of {minimum}..{maximum}; allowed are ranges of 24 bits with zero"]
            if name == network.output.name:
                return [f"{name}: a relay as the last population; the output is a readout, or fires"]
            lowest, highest = synapse_interval(network, name)
            low, high = int(lowest.min()), int(highest.max())
            if min(low, 0) < minimum or max(high, 0) > maximum:
                return [f"{name}: messages of {low}..{high}, but the relay declares {minimum}..{maximum}"]
            return []
        case Xylo():
            return _xylo_problems(network, population, neuron)
        case Lif() | SoftLif() | Readout() | Sigma():
            return []
        case _:
            assert_never(neuron)


def _xylo_problems(network: IntNetwork, population: IntPopulation, neuron: Xylo) -> list[str]:
    """Check that 16 bits hold the numbers of a Xylo neuron, and that all others are such neurons too."""
    name, shape = population.name, population.shape
    limits = {
        "threshold": (neuron.threshold, 1, XYLO_HIGH),  # at zero it would fire for ever
        "bias": (neuron.bias, XYLO_LOW, XYLO_HIGH),
        "shift_current": (neuron.shift_current, 0, LARGEST_SHIFT),
        "shift_voltage": (neuron.shift_voltage, 0, LARGEST_SHIFT),
    }
    problems = []
    for label, (values, low, high) in limits.items():
        if isinstance(values, np.ndarray):
            problems += _parameter_problems(f"{name}: {label}", values, shape)
        if not low <= (least := int(np.min(values))) <= (most := int(np.max(values))) <= high:
            problems.append(f"{name}: {label} {least if least < low else most}; allowed are {low}..{high}")
    if neuron.max_spikes < 1:
        problems.append(f"{name}: at most {neuron.max_spikes} spikes per step; at least 1 is needed")
    if strangers := [p.name for p in network.layers if counting(p.neuron) is None]:
        problems.append(f"{name}: a Xylo neuron in a network with others ({', '.join(strangers)})")
    if network.input_range.minimum < 0:
        problems.append(f"{name}: negative inputs; Xylo takes numbers of spikes")
    sources = [connection.source for connection in network.entering(name)]
    if len(set(sources)) < len(sources):
        problems.append(f"{name}: several connections from one population; Xylo has one weight per pair")
    for connection in network.entering(name):
        weight, exponent = connection.synapse.weight, connection.synapse.exponent
        reached = (int(weight.min(initial=0)), int(weight.max(initial=0)))
        if exponent < 0 or not XYLO_LOW <= reached[0] << exponent <= reached[1] << exponent <= XYLO_HIGH:
            problems.append(f"{connection.label}: weights times 2**{exponent} beyond 16 bits")
    return problems


def _modulator_problems(
    population: IntPopulation, neuron: Delta | SigmaDelta, **parameters: Array
) -> list[str]:
    """Check the numbers of a sigma-delta neuron: all are shifted into units of the state, which hold them."""
    name, exponents = population.name, (neuron.message_exponent, neuron.state_exponent)
    if min(exponents) < 0 or sum(exponents) > LARGEST_EXPONENT:
        return [
            f"{name}: exponents {exponents} of messages and state; allowed are sums of 0..{LARGEST_EXPONENT}"
        ]
    problems = []
    for label, values in parameters.items():
        problems += _parameter_problems(f"{name}: {label}", values, population.shape)
        if magnitude(values) << sum(exponents) > STATE_LIMIT:
            problems.append(
                f"{name}: {label} beyond {STATE_LIMIT >> sum(exponents)}, the largest that the state holds"
            )
    if neuron.threshold.min() < 0:
        problems.append(f"{name}: negative thresholds; a change of any size reaches a threshold of zero")
    return problems


def _sum_problems(network: IntNetwork, population: IntPopulation) -> list[str]:
    """Check that float64 holds every sum of currents exactly, whatever the order, in units of the state."""
    name, largest = population.name, 0.0
    for connection in network.entering(name):
        unit = 2.0 ** (STATE_EXPONENT + connection.synapse.exponent)
        largest += unit * largest_sum(connection, network.population(connection.source))
    if largest < EXACT_FLOAT64:
        return []
    return [
        f"{name}: sums of up to {largest:.3g} units of the state are too large to be exact (2**53); "
        "use smaller weights or a narrower input range"
    ]


def _integer_problems(label: str, values: Array) -> list[str]:
    if np.issubdtype(values.dtype, np.integer):
        return []
    return [f"{label} is {values.dtype}; an integer type is needed"]


def _parameter_problems(label: str, values: Array, shape: Shape, steps: int = 0) -> list[str]:
    return _integer_problems(label, values) + broadcast_problems(label, values, shape, steps)
