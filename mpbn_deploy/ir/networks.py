"""FoldedNetwork: a network of real numbers whose normalizations are folded into weights and thresholds.

It has populations of plain neurons, with one threshold per channel or per neuron, connected by linear maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np
from typing_extensions import assert_never

from ..base import Array, NetworkError, Summarized, Summary, record
from .graph import (
    EXACT_FLOAT64,
    Connection,
    Network,
    Population,
    broadcast_problems,
    ends,
    graph_problems,
    input_problems,
    largest_sum,
    magnitude,
    sum_of_weights,
    synapse_interval,
    timestep_problems,
)
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
    FloatNeuron,
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
from .synapses import Conv2d, Dense, Shape, Synapse, axes

FloatPopulation = Population[FloatNeuron]
LARGEST_REAL = float(np.finfo(np.float32).max)


@record
class FoldedNetwork(Network[FloatNeuron]):
    """A network of real numbers, without normalization."""

    def __post_init__(self) -> None:
        if problems := _folded_problems(self):
            raise NetworkError("FoldedNetwork", problems)


def _folded_problems(network: FoldedNetwork) -> list[str]:
    if problems := input_problems(network.populations):
        return problems
    problems = graph_problems(network.populations, network.connections)
    problems += timestep_problems(network.timesteps)
    for connection in network.connections:
        problems += _real_problems(f"{connection.label}: weights", connection.synapse.weight)
    for population in network.layers:
        problems += _real_neuron_problems(population, network.timesteps)
    return problems


def _real_neuron_problems(population: FloatPopulation, timesteps: int) -> list[str]:
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


# IntNetwork: the integer network that executors, file formats and the fit check share.
#
# The arithmetic is that of Loihi's leaky integrate-and-fire neuron as Lava's fixed-point model defines it.
# States (current, voltage) are signed 24-bit integers in units of 2**-6 of a weight. A network whose states
# might overflow is still valid: `bounds` proves whether they can. If they do, the reference stops, or
# computes as Lava does if somebody else chose the integers (`ir.overflow`).


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


# Count synapses: per connection, into each neuron (fan-in) and out of each neuron (fan-out).
#
# A weight of zero is not a synapse. With `zeros`, zeros count if a chip stores them along with others: all
# weights of a row (those of one source neuron, or of one input of a kernel, onto the targets of its group) in
# which at least one weight is not zero. A kernel weight counts once per position at which it is used, so
# borders, strides, dilations, groups and silent borders are accounted for; `weight.size` counts it once.


# ---- of a network -----------------------------------------------------------------------------


def fan_in(network: IntNetwork, population: IntPopulation) -> Array:
    """Return the fan-in of each neuron of a population, over all connections."""
    entering = network.entering(population.name)
    return sum((connection_fan_in(network, c) for c in entering), np.zeros(population.shape, int))


def fan_out(network: IntNetwork, population: IntPopulation) -> Array:
    """Return the fan-out of each neuron of a population, over all connections."""
    leaving = [c for c in network.connections if c.source == population.name]
    return sum((connection_fan_out(network, c) for c in leaving), np.zeros(population.shape, int))


def connection_fan_in(network: IntNetwork, connection: Connection) -> Array:
    """Return the fan-in of each target neuron from one connection."""
    return synapses_into(connection.synapse, *_shapes(network, connection))


def connection_fan_out(network: IntNetwork, connection: Connection) -> Array:
    """Return the fan-out of each source neuron into one connection."""
    return synapses_out_of(connection.synapse, *_shapes(network, connection))


def connection_synapses(network: IntNetwork, connection: Connection) -> int:
    """Return the number of synapses of one connection."""
    return count_synapses(connection.synapse, *_shapes(network, connection))


def _shapes(network: IntNetwork, connection: Connection) -> tuple[Shape, Shape]:
    return network.shapes[connection.source], network.shapes[connection.target]


# ---- of a synapse -----------------------------------------------------------------------------


def unit_weights(synapse: Synapse, *, zeros: bool = False) -> Synapse:
    """Replace every weight by one where there is a synapse, and by zero elsewhere."""
    groups = synapse.groups if isinstance(synapse, Conv2d) else 1
    return replace(synapse, weight=counted(synapse.weight != 0, groups, zeros=zeros), exponent=0)


def counted(there: Array, groups: int = 1, *, zeros: bool = False) -> Array:
    """Return numbers of synapses [target, ...]; with `zeros`, at least one per target of a non-empty row."""
    if zeros:
        rows = there.reshape(groups, -1, *there.shape[1:])
        there = np.maximum(rows, rows.any(axis=1, keepdims=True)).reshape(there.shape)
    return there.astype(np.int16)


def count_synapses(synapse: Synapse, source: Shape, target: Shape, *, products: bool = False) -> int:
    """Count the synapses of a connection; with `products`, count zeros and reads of the padding too."""
    match synapse:
        case Dense(weight=weight):
            return weight.size if products else int(np.count_nonzero(weight))
        case Conv2d(weight=weight):
            directions = axes(synapse, source, target)
            if products:
                return weight.size * prod(axis.end - axis.first for axis in directions)
            rows, columns = (axis.uses() for axis in directions)
            return int((np.count_nonzero(weight, axis=(0, 1)) * np.outer(rows, columns)).sum())
        case _:
            assert_never(synapse)


def synapses_into(synapse: Synapse, source: Shape, target: Shape) -> Array:
    """Return the fan-in of each target neuron."""
    counts: Array = sum_of_weights(unit_weights(synapse), source).astype(int).reshape(target)
    return counts


def synapses_out_of(synapse: Synapse, source: Shape, target: Shape) -> Array:
    """Return the fan-out of each source neuron."""
    match synapse:
        case Dense(weight=weight):
            leaving: Array = np.count_nonzero(weight, axis=0)
            return leaving.reshape(source)
        case Conv2d(weight=weight, groups=groups):
            kernels = (weight != 0).reshape(groups, -1, *weight.shape[1:])
            used = kernels.sum(axis=1).reshape(source[0], *weight.shape[2:])  # per source channel and tap
            counts: Array = np.zeros(source, int)
            rows, columns = axes(synapse, source, target)
            for down, right in np.ndindex(*weight.shape[2:]):
                (_, row), (_, column) = rows.through(down), columns.through(right)
                counts[:, row, column] += used[:, down, right, None, None]
            return counts
        case _:
            assert_never(synapse)
