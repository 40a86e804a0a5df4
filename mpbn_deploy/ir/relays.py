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
from math import gcd

import numpy as np

from ..base import Array, NetworkError, record
from .composition import compose, pool_synapse
from .graph import Connection, Network, Population
from .integer import IntNetwork, IntPopulation
from .neurons import STATE_LIMIT, Input, Neuron, Relay, neuron_kind, value_range
from .synapses import NO_BORDER, Conv2d, Dense, Pair, Shape, Synapse

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
