"""Rewrite integer networks with relays, and without: every other neuron receives the same integers.

Pooling is linear, so it can be part of the synapses after it (large kernels, no extra neurons) or a
population of relays, which sum over windows of each channel and pass the sums on (small kernels, and one more
hop). A synapse contains a pooling if its kernel consists of
blocks of equal weights and moves by whole blocks; the relay's weights are ones, and the factor of an average
stays in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, prod

import numpy as np
from typing_extensions import assert_never

from ..base import Array, NetworkError, record
from .composition import compose, pool_synapse
from .graph import Connection, Network, Population
from .networks import FoldedNetwork, IntNetwork, IntPopulation
from .neurons import (
    DECAY_ONE,
    STATE_EXPONENT,
    STATE_LIMIT,
    FloatLif,
    FloatNeuron,
    FloatReadout,
    FloatSoftLif,
    Input,
    IntegratingNeuron,
    Lif,
    Neuron,
    Readout,
    Relay,
    SoftLif,
    integrating,
    map_steps,
    modulating,
    neuron_kind,
    value_range,
)
from .synapses import (
    NO_BORDER,
    Conv2d,
    Dense,
    Pair,
    Shape,
    Synapse,
    compact,
    output_shape,
    scale_channels,
    scaled,
)

# ---- without relays ---------------------------------------------------------------------------


def without_relays(network: IntNetwork) -> IntNetwork:
    """Return the network with every relay composed into the synapses after it; itself if it has none."""
    for name in relay_names(network):
        network = _compose_away(network, name)
    return network


def relay_names(network: Network[Neuron]) -> list[str]:
    return [p.name for p in network.layers if neuron_kind(p.neuron) == "relay"]


def _compose_away(network: IntNetwork, relay: str) -> IntNetwork:
    shapes, entering = network.shapes, network.entering(relay)
    if any(connection.source == relay for connection in entering):
        raise NetworkError("IntNetwork", [f"{relay}: a relay that receives its own messages"])
    connections: list[Connection] = []
    for connection in network.connections:
        if connection.source == relay:
            for before in entering:
                connections += _chained(before, connection, shapes[before.source], shapes[relay])
        elif connection.target != relay:
            connections.append(connection)
    return replace(
        network,
        populations=tuple(p for p in network.populations if p.name != relay),
        connections=tuple(connections),
        scales={name: scales for name, scales in network.scales.items() if name != relay},
    )


def _chained(first: Connection, second: Connection, source: Shape, between: Shape) -> Iterator[Connection]:
    """Yield connections that do at once what two do one after the other."""
    plain = [replace(connection.synapse, exponent=0) for connection in (first, second)]
    exponent = first.synapse.exponent + second.synapse.exponent
    for synapse in compose(plain[0], plain[1], source, between=between):
        whole = replace(synapse, weight=np.rint(synapse.weight).astype(np.int64), exponent=exponent)
        yield replace(second, source=first.source, synapse=whole, delay=first.delay + second.delay)


# ---- with relays ------------------------------------------------------------------------------


@record
class Pooling:
    """Sums of a population over windows, which some of the connections that leave it contain."""

    source: str
    window: Pair
    connections: tuple[Connection, ...]


def find_poolings(network: IntNetwork) -> list[Pooling]:
    """Return the poolings that synapses contain, in the order of their sources."""
    found: dict[tuple[str, Pair], list[Connection]] = {}
    for connection in network.connections:
        source = network.population(connection.source)
        window = pooled_window(connection.synapse, source.shape)
        if window is not None and is_message(*_sums(source, window)):
            found.setdefault((connection.source, window), []).append(connection)
    order = network.order
    return [
        Pooling(source=source, window=window, connections=tuple(connections))
        for (source, window), connections in sorted(found.items(), key=lambda item: order[item[0][0]])
    ]


def with_relays(network: IntNetwork, poolings: Iterable[Pooling] | None = None) -> IntNetwork:
    """Return the network with relays for some of its poolings; for all of them by default."""
    for pooling in find_poolings(network) if poolings is None else poolings:
        network = _insert(network, pooling)
    return network


def _insert(network: IntNetwork, pooling: Pooling) -> IntNetwork:
    source, (height, width) = network.population(pooling.source), pooling.window
    channels, rows, columns = source.shape
    least, most = _sums(source, pooling.window)
    relay: IntPopulation = Population(
        name=unused_name(f"{source.name}_pool", network),
        shape=(channels, rows // height, columns // width),
        neuron=Relay(minimum=least, maximum=most),
    )
    summing = pool_synapse(channels, pooling.window, pooling.window)
    ones = replace(summing, weight=summing.weight.astype(np.int32))
    pooled = {
        c: replace(c, source=relay.name, synapse=behind_pooling(c.synapse, source.shape, pooling.window))
        for c in pooling.connections
    }
    first = Connection(source=source.name, target=relay.name, synapse=ones)
    return with_population(network, relay, after=source.name, connections=(first,), replaced=pooled)


def with_population(
    network: IntNetwork,
    population: IntPopulation,
    *,
    after: str,
    connections: Sequence[Connection],
    replaced: dict[Connection, Connection],
) -> IntNetwork:
    """Return the network with one more population, the connections into it, and some that now differ."""
    order = network.order
    place = order[after] + 1
    kept = [replaced.get(connection, connection) for connection in network.connections]
    at = sum(order[connection.target] < place for connection in network.connections)
    return replace(
        network,
        populations=(*network.populations[:place], population, *network.populations[place:]),
        connections=(*kept[:at], *connections, *kept[at:]),
    )


def _sums(source: Population[Input | Neuron], window: Pair) -> tuple[int, int]:
    """Return the smallest and the largest sum of values of a population over a window, or zero."""
    (low, high), pixels = value_range(source.neuron), window[0] * window[1]
    return min(0, pixels * low), max(0, pixels * high)


def is_message(minimum: int, maximum: int) -> bool:
    """Whether a relay can send all numbers of a range."""
    return -STATE_LIMIT <= minimum <= 0 <= maximum <= STATE_LIMIT


def behind_pooling(synapse: Synapse, source: Shape, window: Pair) -> Synapse:
    """Return the synapse that does with sums over windows what one that contains the pooling does."""
    height, width = window
    if isinstance(synapse, Dense):
        weight = _pictures(synapse, source)[:, :, ::height, ::width].reshape(len(synapse.weight), -1)
        return replace(synapse, weight=weight.copy())
    (down, right), (top, left) = synapse.stride, synapse.padding
    return replace(
        synapse,
        weight=synapse.weight[:, :, ::height, ::width].copy(),
        stride=(down // height, right // width),
        padding=(top // height, left // width),
    )


def unused_name(name: str, network: IntNetwork) -> str:
    """Return the name, with underscores after it if a population has it already."""
    while name in network.shapes:
        name += "_"
    return name


def pooled_window(synapse: Synapse, source: Shape) -> Pair | None:
    """Return the largest windows over which a synapse only reads sums; None if it reads single pixels."""
    if len(source) != 3 or not synapse.weight.any():
        return None
    if isinstance(synapse, Dense):
        blocks, pictures = list(source[1:]), _pictures(synapse, source)
    else:
        if synapse.silent != NO_BORDER or synapse.dilation != (1, 1):
            return None
        geometry = zip(synapse.weight.shape[2:], synapse.stride, synapse.padding, source[1:], strict=True)
        blocks, pictures = [gcd(*sizes) for sizes in geometry], synapse.weight
    height, width = (_largest_block(pictures, blocks[axis], 2 + axis) for axis in (0, 1))
    if (height, width) == (1, 1) or _only_pools(synapse, (height, width)):
        return None
    return height, width


def _pictures(synapse: Dense, source: Shape) -> Array:
    return synapse.weight.reshape(-1, *source)


def _largest_block(weight: Array, most: int, axis: int) -> int:
    """Return the largest divisor of `most` such that blocks of so many weights along an axis are equal."""
    for size in range(most, 1, -1):
        if most % size == 0:
            firsts = weight.take(range(0, weight.shape[axis], size), axis)
            if np.array_equal(np.repeat(firsts, size, axis), weight):
                return size
    return 1


def _only_pools(synapse: Synapse, window: Pair) -> bool:
    """Whether nothing is left after the pooling but one factor per channel, as in a max pool of spikes."""
    return isinstance(synapse, Conv2d) and synapse.weight.shape[1:] == (1, *window)


# Split sums that are too long for a core: relays add parts of them, and pass the parts on.
#
#     sum over all channels of w * x  =  sum over groups of (sum over the channels of a group of w * x)
#
# The parts of a convolution, or of a matrix that reads a picture, are a convolution in groups, whose neurons
# read a fraction of the source each. Every other neuron receives the same integers.


def can_split(network: IntNetwork, connection: Connection, groups: int) -> bool:
    """Whether one kernel reads so many groups of channels, and the sums over a group fit a message."""
    synapse, source = connection.synapse, network.population(connection.source)
    shape, whole = source.shape, isinstance(synapse, Dense) or synapse.groups == 1
    if not whole or len(shape) != 3 or not 1 < groups <= shape[0] or shape[0] % groups:
        return False
    return is_message(*_sums_of_parts(_in_groups(synapse, shape, groups).weight, *value_range(source.neuron)))


def split_sum(network: IntNetwork, connection: Connection, groups: int) -> IntNetwork:
    """Return the network with relays that sum over one group of source channels each."""
    source = network.population(connection.source)
    parts = _in_groups(connection.synapse, source.shape, groups)
    shape = output_shape(parts, source.shape)
    least, most = _sums_of_parts(parts.weight, *value_range(source.neuron))
    relay: IntPopulation = Population(
        name=unused_name(f"{connection.target}_parts", network),
        shape=shape,
        neuron=Relay(minimum=least, maximum=most),
    )
    rest = _sum_of_groups(connection.synapse, groups)
    first = Connection(source=source.name, target=relay.name, synapse=parts)
    second = replace(connection, source=relay.name, synapse=rest)
    before = network.populations[network.order[connection.target] - 1].name
    return with_population(network, relay, after=before, connections=(first,), replaced={connection: second})


def _in_groups(synapse: Synapse, source: Shape, groups: int) -> Conv2d:
    """[groups * outputs, channels / groups, ...]: the same kernel, one group of its inputs after the other"""
    kernel = synapse.weight.reshape(-1, *source) if isinstance(synapse, Dense) else synapse.weight
    weight = np.concatenate(np.split(kernel, groups, axis=1))
    if isinstance(synapse, Dense):
        return Conv2d(weight=weight, groups=groups)
    return replace(synapse, weight=weight, groups=groups, exponent=0)


def _sum_of_groups(synapse: Synapse, groups: int) -> Synapse:
    ones = np.tile(np.eye(len(synapse.weight), dtype=np.int32), groups)
    if isinstance(synapse, Dense):
        return Dense(weight=ones, exponent=synapse.exponent)
    return Conv2d(weight=ones[:, :, None, None], exponent=synapse.exponent)


def _sums_of_parts(weight: Array, low: int, high: int) -> tuple[int, int]:
    """Return the smallest and the largest sum of a kernel over values from low to high, or zero."""
    rows = weight.reshape(len(weight), -1).astype(np.int64)
    plus, minus = np.maximum(rows, 0).sum(axis=1), np.minimum(rows, 0).sum(axis=1)
    low, high = min(low, 0), max(high, 0)  # padding and delays send zeros
    least, most = (plus * low + minus * high).min(), (plus * high + minus * low).max()
    return int(least), int(most)


# IntNetwork -> FoldedNetwork: the real numbers that the integers of a network represent,
#
#     weight * 2**exponent,  threshold,  subtrahend,  bias * 2**(bias_exponent - 6),  leak = 1 - decay / 4096
#
# divided by the scale of their channel, as before quantization, or in units of one weight.


def real_network(network: IntNetwork, *, in_weights: bool = False) -> FoldedNetwork:
    """Return the real network that the integers represent; it differs only in not truncating its leak.

    Quantizing it with the same scales gives the integers back. With `in_weights`, all numbers stay in
    units of one weight, and scales are not needed. Relays are composed into the synapses after them.
    """
    network = without_relays(network)
    if own := [p.name for p in network.layers if modulating(p.neuron) is not None]:
        reason = "sigma-delta neurons, of which there is no version in real numbers; keep the netx file"
        raise NetworkError("FoldedNetwork", [f"{name}: {reason}" for name in own])
    units = {
        p.name: np.ones(p.shape[0]) if in_weights else 1 / network.scales[p.name] for p in network.layers
    }
    layers = [
        p.with_neuron(map_steps(neuron, partial(_real_neuron, unit=units[p.name])))
        for p in network.layers
        if (neuron := integrating(p.neuron)) is not None
    ]
    return FoldedNetwork(
        populations=(network.input, *layers),
        connections=tuple(_real_connection(c, units[c.target]) for c in network.connections),
        timesteps=network.timesteps,
    )


def _real_connection(connection: Connection, unit: Array) -> Connection:
    real = scaled(connection.synapse, unit)
    return replace(connection, synapse=replace(real, weight=real.weight * 2.0**real.exponent, exponent=0))


def _real_neuron(neuron: IntegratingNeuron, unit: Array) -> FloatNeuron:
    bias = scale_channels(neuron.bias * 2.0 ** (neuron.bias_exponent - STATE_EXPONENT), unit)
    leak, current_leak = 1 - neuron.decay_voltage / DECAY_ONE, 1 - neuron.decay_current / DECAY_ONE
    match neuron:
        case Lif():
            threshold = scale_channels(neuron.threshold, unit)
            return FloatLif(threshold=threshold, bias=bias, leak=leak, current_leak=current_leak)
        case SoftLif():
            threshold, subtrahend = (
                scale_channels(values, unit) for values in (neuron.threshold, neuron.subtrahend)
            )
            return FloatSoftLif(
                threshold=threshold, subtrahend=subtrahend, bias=bias, leak=leak, current_leak=current_leak
            )
        case Readout():
            return FloatReadout(bias=bias, leak=leak, current_leak=current_leak)
        case _:
            assert_never(neuron)


# Constants on currents that outlast a time step, expressed as spikes.
#
# A bias acts on the voltage, and in every step by the same amount. A constant c that enters a leaking current
# builds up instead: in step t it adds c * (1 + leak + ... + leak**(t - 1)) to the voltage. Neurons that fire
# in every step, with c as the weight of their synapses, add exactly that.


THRESHOLD, BIAS = 1.0, 2.0  # of a neuron that fires in every step
LEAK = 0.5  # arbitrary, but spikingjelly needs one above zero

Source = tuple[Population[FloatLif], tuple[Connection, Connection]]


def always_fires(shape: Shape) -> FloatLif:
    """Return neurons that fire in every step."""
    return FloatLif(threshold=np.full(shape, THRESHOLD), bias=np.full(shape, BIAS), leak=LEAK)


def constant_source(name: str, target: str, constant: Array, driver: Population[Input]) -> Source:
    """Return a population that sends `constant` to a target in every step, with its two connections.

    The first connection, from `driver`, has weights of zero: every population has one. If each channel of a
    picture has one constant, a kernel of one pixel reads a picture of ones; else a single neuron serves all.
    """
    population, synapse = _spikes(name, constant)
    silent = _silent_synapse(driver.shape, population.shape)
    return population, (
        Connection(source=driver.name, target=name, synapse=silent),
        Connection(source=name, target=target, synapse=synapse),
    )


def _spikes(name: str, constant: Array) -> tuple[Population[FloatLif], Synapse]:
    """Return neurons that always fire, and the synapse that makes their spikes the constant."""
    channels = compact(constant)
    if channels.ndim == 3 and channels.size == len(channels):
        shape, synapse = (1, *constant.shape[1:]), Conv2d(weight=channels[:, None])
        return Population(name=name, shape=shape, neuron=always_fires((1, 1, 1))), synapse
    one = Population(name=name, shape=(1,), neuron=always_fires((1,)))
    return one, Dense(weight=constant.reshape(-1, 1))


def _silent_synapse(source: Shape, target: Shape) -> Synapse:
    """Return weights of zero between two shapes; between pictures a kernel, because a matrix may be large."""
    if len(source) != 3 or len(target) != 3:
        return Dense(weight=np.zeros((prod(target), prod(source))))
    padding = [max(0, -(-(wide - narrow) // 2)) for narrow, wide in zip(source[1:], target[1:], strict=True)]
    kernel = [
        narrow + 2 * border - wide + 1
        for narrow, wide, border in zip(source[1:], target[1:], padding, strict=True)
    ]
    return Conv2d(weight=np.zeros((target[0], source[0], *kernel)), padding=(padding[0], padding[1]))
