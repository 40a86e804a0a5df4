"""Constants on currents that outlast a time step, expressed as spikes.

A bias acts on the voltage, and in every step by the same amount. A constant c that enters a leaking current
builds up instead: in step t it adds c * (1 + leak + ... + leak**(t - 1)) to the voltage. Neurons that fire in
every step, with c as the weight of their synapses, add exactly that.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..base import Array
from .graph import Connection, Population
from .neurons import FloatLif, Input
from .synapses import Conv2d, Dense, Shape, Synapse, compact

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
