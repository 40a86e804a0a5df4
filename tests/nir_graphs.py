"""Folded networks with graphs of every kind, with random weights that are multiples of 1/8.

Voltages can equal their threshold exactly, where readers that compare with >= must not fire.
"""

from dataclasses import replace

import numpy as np

from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Dense,
    FloatLif,
    FloatReadout,
    FoldedNetwork,
    Input,
    Population,
    identity_synapse,
    pool_synapse,
)
from mpbn_deploy.ir.composition import compose

LEAK = 0.5


class Builder:
    def __init__(
        self, seed, shape, timesteps=4, maximum=1, leak=LEAK, biased=True, on_grid=True, lowest=4, **options
    ):
        self.generator = np.random.default_rng(seed)
        self.biased, self.on_grid, self.lowest = biased, on_grid, lowest
        self.options = {"leak": leak, **options}
        self.timesteps = timesteps
        self.populations = [Population(name="input", shape=shape, neuron=Input(minimum=0, maximum=maximum))]
        self.connections = []

    def eighths(self, low, high, *shape):
        values = self.generator.integers(low, high, size=shape) / 8
        return values if self.on_grid else values + self.generator.uniform(0, 1 / 8, size=shape)

    def conv(self, outputs, inputs, size=3, **options):
        return Conv2d(weight=self.eighths(-8, 13, outputs, inputs, size, size), **options)

    def dense(self, outputs, inputs):
        return Dense(weight=self.eighths(-8, 13, outputs, inputs))

    def lif(self, name, shape, *, per_neuron=False, lowest=None, own_bias=False, **options):
        channels = (shape[0], *(1 for _ in shape[1:]))
        neuron = FloatLif(
            threshold=self.eighths(
                self.lowest if lowest is None else lowest, 30, *(shape if per_neuron else channels)
            ),
            bias=self.eighths(-4, 5, *(shape if own_bias else channels)) * self.biased,
            **{**self.options, **options},
        )
        self.populations.append(Population(name=name, shape=shape, neuron=neuron))

    def readout(self, size=3, **leaks):
        neuron = FloatReadout(bias=self.eighths(-4, 5, size), **leaks)
        self.populations.append(Population(name="output", shape=(size,), neuron=neuron))

    def connect(self, source, target, synapse, delay=0):
        self.connections.append(Connection(source=source, target=target, synapse=synapse, delay=delay))

    def network(self):
        return FoldedNetwork(
            populations=tuple(self.populations),
            connections=tuple(self.connections),
            timesteps=self.timesteps,
        )


def dense_chain(seed=0, **options):
    b = Builder(seed, (5,), **options)
    b.lif("a", (6,))
    b.connect("input", "a", b.dense(6, 5))
    b.lif("b", (4,))
    b.connect("a", "b", b.dense(4, 6))
    return b.network()


def conv_chain(seed=0, **options):
    b = Builder(seed, (2, 6, 5), maximum=5, **options)
    b.lif("a", (4, 3, 5))
    b.connect("input", "a", b.conv(4, 2, stride=(2, 1), padding=(1, 1)))
    b.lif("b", (3, 3, 5))
    b.connect("a", "b", b.conv(3, 4, padding=(1, 1)))
    b.readout()
    b.connect("b", "output", b.dense(3, 45))
    return b.network()


def grouped(seed=0, **options):
    b = Builder(seed, (4, 6, 6), **options)
    b.lif("a", (4, 4, 4))
    b.connect("input", "a", b.conv(4, 2, groups=2))
    b.lif("b", (4, 2, 2))
    b.connect("a", "b", pool_synapse(4, (2, 2), (2, 2), weight=0.25))
    return b.network()


def pooled(seed=0, **options):
    """Pooling before a convolution and before a matrix, composed."""
    b = Builder(seed, (2, 8, 8), **options)
    pool = pool_synapse(2, (2, 2), (2, 2), weight=0.25)
    b.lif("a", (2, 4, 4))
    b.connect("input", "a", *compose(pool, b.conv(2, 2, padding=(1, 1)), (2, 8, 8)))
    b.readout()
    b.connect("a", "output", *compose(pool, b.dense(3, 8), (2, 4, 4)))
    return b.network()


def identity_skip(seed=0, **options):
    b = Builder(seed, (2, 5, 4), **options)
    b.lif("a", (3, 5, 4))
    b.connect("input", "a", b.conv(3, 2, padding=(1, 1)))
    b.lif("b", (3, 5, 4))
    b.connect("a", "b", b.conv(3, 3, padding=(1, 1)))
    b.lif("c", (3, 5, 4))
    b.connect("a", "c", identity_synapse((3, 5, 4)))
    b.connect("b", "c", b.conv(3, 3, padding=(1, 1)))
    b.readout()
    b.connect("c", "output", b.dense(3, 60))
    return b.network()


def conv_skip(seed=0, **options):
    b = Builder(seed, (2, 6, 6), **options)
    b.lif("a", (2, 6, 6))
    b.connect("input", "a", b.conv(2, 2, padding=(1, 1)))
    b.lif("b", (4, 3, 3))
    b.connect("a", "b", b.conv(4, 2, stride=(2, 2), padding=(1, 1)))
    b.lif("c", (4, 3, 3))
    b.connect("b", "c", b.conv(4, 4, padding=(1, 1)))
    b.connect("a", "c", b.conv(4, 2, 1, stride=(2, 2)))
    return b.network()


def dense_skip(seed=0, **options):
    b = Builder(seed, (4,), **options)
    b.lif("a", (5,))
    b.connect("input", "a", b.dense(5, 4))
    b.lif("b", (5,))
    b.connect("a", "b", b.dense(5, 5))
    b.connect("input", "b", b.dense(5, 4))
    b.readout()
    b.connect("b", "output", b.dense(3, 5))
    b.connect("a", "output", b.dense(3, 5))
    return b.network()


def recurrent(seed=0, **options):
    b = Builder(seed, (4,), **options)
    b.lif("a", (5,))
    b.connect("input", "a", b.dense(5, 4))
    b.connect("a", "a", b.dense(5, 5), delay=1)
    b.lif("b", (3,))
    b.connect("a", "b", b.dense(3, 5))
    return b.network()


def long_loop(seed=0, **options):
    """A loop of two populations, a loop inside it, and delays of several steps."""
    b = Builder(seed, (4,), **options)
    b.lif("a", (5,))
    b.connect("input", "a", b.dense(5, 4))
    b.lif("b", (5,))
    b.connect("a", "b", b.dense(5, 5))
    b.connect("b", "a", b.dense(5, 5), delay=1)
    b.connect("b", "b", b.dense(5, 5), delay=1)
    b.connect("input", "b", b.dense(5, 4), delay=2)
    b.readout()
    b.connect("b", "output", b.dense(3, 5))
    return b.network()


def recurrent_picture(seed=0, **options):
    """Kernels in groups, not square, around a loop."""
    b = Builder(seed, (2, 4, 5), **options)
    b.lif("a", (4, 4, 5))
    b.connect("input", "a", b.conv(4, 2, padding=(1, 1)))
    wide = Conv2d(weight=b.eighths(-8, 13, 4, 2, 1, 3), padding=(0, 1), groups=2)
    b.connect("a", "a", wide, delay=1)
    b.lif("b", (2,))
    b.connect("a", "b", b.dense(2, 80))
    return b.network()


def own_biases(seed=0, **options):
    """Biases that differ within a channel, as normalized inputs and zero padding make them."""
    b = Builder(seed, (2, 4, 5), maximum=3, **options)
    b.lif("a", (3, 4, 5), own_bias=True)
    b.connect("input", "a", b.conv(3, 2, padding=(1, 1)))
    b.lif("b", (4,))
    b.connect("a", "b", b.dense(4, 60))
    return b.network()


def own_thresholds(seed=0, **options):
    b = Builder(seed, (2, 4, 5), **options)
    b.lif("a", (3, 4, 5), per_neuron=True, own_bias=True, lowest=-5)
    b.connect("input", "a", b.conv(3, 2, padding=(1, 1)))
    b.lif("b", (4,), lowest=-5)
    b.connect("a", "b", b.dense(4, 60))
    return b.network()


def matrix_onto_picture(seed=0, **options):
    b = Builder(seed, (6,), **options)
    b.lif("a", (2, 3, 3))
    b.connect("input", "a", b.dense(18, 6))
    b.readout()
    b.connect("a", "output", b.dense(3, 18))
    return b.network()


def windows(seed=0, **options):
    """Two convolutions in a row, whose borders make windows with different kernels, and a skip connection."""
    b = Builder(seed, (2, 8, 6), maximum=3, **options)
    b.lif("a", (2, 8, 6), own_bias=True)
    b.connect("input", "a", b.conv(2, 2, padding=(1, 1)))
    pool = pool_synapse(2, (3, 3), (2, 2), (1, 1), weight=0.125)
    b.lif("b", (3, 4, 3))
    for part in compose(pool, b.conv(3, 2, padding=(1, 1)), (2, 8, 6)):
        b.connect("a", "b", part)
    b.connect("input", "b", b.conv(3, 2, 1, stride=(2, 2)))
    b.readout()
    b.connect("b", "output", b.dense(3, 36))
    return b.network()


def half_a_picture(seed=0, **options):
    """One window; neurons outside of it have no input but their bias."""
    b = Builder(seed, (2, 4, 5), **options)
    b.lif("a", (3, 4, 5))
    b.connect("input", "a", b.conv(3, 2, padding=(1, 1), silent=((0, 2), (1, 0))))
    b.lif("b", (4,))
    b.connect("a", "b", b.dense(4, 60))
    return b.network()


def leaking_readout(seed=0, **options):
    b = Builder(seed, (4,), **options)
    b.lif("a", (5,))
    b.connect("input", "a", b.dense(5, 4))
    b.readout(leak=0.75)
    b.connect("a", "output", b.dense(3, 5))
    b.connect("input", "output", b.dense(3, 4))
    return b.network()


def readout_of_currents(seed=0, **options):
    """A readout whose current leaks too, with a bias that does not accumulate."""
    network = leaking_readout(seed, **options)
    *front, last = network.populations
    last = replace(last, neuron=replace(last.neuron, current_leak=0.25))
    return replace(network, populations=(*front, last))


PORTABLE = (
    dense_chain,
    conv_chain,
    grouped,
    pooled,
    identity_skip,
    conv_skip,
    dense_skip,
    recurrent,
    recurrent_picture,
    own_biases,
)
ALL = (
    *PORTABLE,
    long_loop,
    own_thresholds,
    matrix_onto_picture,
    windows,
    half_a_picture,
    leaking_readout,
    readout_of_currents,
)
