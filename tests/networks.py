"""Builders of tiny networks with random weights from a seed, and helpers for tests."""

import json
import os
import signal
import subprocess
import time
from collections import OrderedDict
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from mpbn_deploy.execute import lava
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import Limit, load_profile
from mpbn_deploy.ir import (
    Connection,
    Conv2d,
    Delta,
    Dense,
    Input,
    InputFormat,
    IntNetwork,
    Lif,
    Population,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SoftLif,
    Xylo,
    compact,
    firing,
    in_steps,
    value_range,
)
from mpbn_deploy.ir.composition import compose
from mpbn_deploy.nn import LIF, GradedLIF, ModelCard, RecurrentLIF, SpikingNetwork
from mpbn_deploy.nn.zoo import ARCHITECTURES
from mpbn_deploy.quantize import quantize

needs_lava = pytest.mark.lava  # skipped in conftest.py where Lava is not installed


def replace_lava(monkeypatch, run):
    """Call run(network, inputs) wherever Lava would be started."""
    monkeypatch.setattr(lava, "opened", lambda network, *_, **__: nullcontext(partial(run, network)))


def input_format(shape=(2, 5, 7), maximum=9):
    generator = np.random.default_rng(len(shape))
    return InputFormat(
        shape=shape,
        minimum=0,
        maximum=maximum,
        mean=generator.uniform(1, 3, shape[0]),
        deviation=generator.uniform(1, 3, shape[0]),
    )


def conv_body(
    shape=(2, 5, 7),
    *,
    mpbn="channel",
    stride=2,
    padding=1,
    groups=1,
    leak=0.25,
    resets=("zero", "zero"),
    currents=(0.0, 0.0),
    recurrent=(False, False),
):
    """Convolution, batch norm, LIF, dense, batch norm, LIF, readout; on non-square pictures."""
    channels, height, width = shape
    out = (4, (height + 2 * padding - 3) // stride + 1, (width + 2 * padding - 3) // stride + 1)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 4, 3, stride=stride, padding=padding, groups=groups),
            norm1=nn.BatchNorm2d(4),
            lif1=_neurons(out, 3 if recurrent[0] else None, mpbn, leak, resets[0], currents[0]),
            flatten=nn.Flatten(),
            dense2=nn.Linear(int(np.prod(out)), 6),
            norm2=nn.BatchNorm1d(6),
            lif2=_neurons(6, 0 if recurrent[1] else None, mpbn, leak, resets[1], currents[1]),
            readout=nn.Linear(6, 3),
        )
    )


def _neurons(shape, kernel, mpbn, leak, reset, current_leak):
    """Return a LIF; with a kernel (0: a matrix), a recurrent one with weights that matter."""
    options = {"mpbn": mpbn, "leak": leak, "reset": reset, "current_leak": current_leak}
    if kernel is None:
        return LIF(shape, **options)
    layer = RecurrentLIF(shape, kernel=kernel or None, **options)
    nn.init.normal_(layer.recurrent.weight, 0, 0.4)
    return layer


def body_with_relu():
    """Return conv_body with a ReLU, which is not supported."""
    body = conv_body()
    body.add_module("relu", nn.ReLU())
    return body


def no_parameters(input_shape, classes, mpbn):
    return nn.Flatten()


def five_outputs(input_shape, classes, mpbn):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))


def wrong_size(input_shape, classes, mpbn):
    return nn.Sequential(nn.Flatten(), nn.Linear(63, 10))


def with_relu(input_shape, classes, mpbn):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def with_dropout(input_shape, classes, mpbn):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), LIF(16), nn.Dropout(0.2), nn.Linear(16, 10))


def both_kinds(input_shape, classes, mpbn):
    """Return a network with channel-wise and element-wise MPBN, on pictures and on features."""
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), LIF((4, 8, 8), mpbn="channel")),
        *(nn.Conv2d(4, 8, 3, stride=2), nn.BatchNorm2d(8), LIF((8, 3, 3), mpbn="element")),
        *(nn.Flatten(), nn.Linear(72, 24), nn.BatchNorm1d(24), LIF(24, mpbn="channel")),
        *(nn.Linear(24, 24), nn.BatchNorm1d(24), LIF(24, mpbn="element")),
        nn.Linear(24, classes),
    )


def failing():
    """A factory that raises."""
    return 1 / 0


def no_module():
    """A factory that returns something other than a module."""
    return {}


def spiking_network(seed=0, *, shape=(2, 5, 7), timesteps=3, gains="mixed", **options):
    """Return a float64 network with random gains of either sign and calibrated running statistics.

    Most of its neurons fire in some but not all time steps.
    """
    torch.manual_seed(seed)
    body = conv_body(shape, **options)
    return enlivened(body, shape=shape, timesteps=timesteps, gains=gains)


def enlivened(body, *, shape, timesteps=3, gains="mixed", samples=32, maximum=9, passes=5):
    """Return a float64 network around a body, with random gains and calibrated running statistics."""
    given = input_format(shape, maximum)
    network = SpikingNetwork(body, timesteps=timesteps, input_format=given).double()
    norms = [module for module in network.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    for norm in norms:
        norm.momentum = 0.5
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0.2, 0.2)
        if gains == "mixed":
            norm.weight.data[torch.rand(norm.num_features) < 0.5] *= -1
    with torch.no_grad():
        for _ in range(passes):
            network.train()(torch.randint(0, maximum + 1, (samples, *shape)).double())
    return network.eval()


def with_zero_gains(network, share):
    """Return `spiking_network` with a share of lif1's gains zero, so that they fire always or never."""
    norm = network.body.lif1.mpbn.bn
    zero = torch.rand(norm.num_features) < share
    norm.weight.data[zero] = 0.0
    norm.bias.data[zero] += torch.randint(0, 2, (int(zero.sum()),)).double()
    given = network.input_format
    with torch.no_grad():  # other spikes arrive at lif2
        for _ in range(5):
            network.train()(torch.randint(0, given.maximum + 1, (32, *given.shape)).double())
    return network.eval()


SOFT = ("subtract", "subtract")
RESETS = [("zero", "zero"), SOFT, ("subtract", "zero"), ("zero", "subtract")]  # of `conv_body`
LOOPS = [(False, False), (True, True), (True, False), (False, True)]
CURRENTS = [(0.0, 0.0), (0.4, 0.9), (0.5, 0.0), (0.0, 0.75)]


class Residual(nn.Module):
    """A first layer and a residual block, built in one of several common ways."""

    def __init__(self, shape, *, pool, shortcut, stride, mpbn, groups=1, channels=4):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(shape[0], channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.lif1 = LIF((channels, *shape[1:]), mpbn=mpbn)
        self.pool = pool
        inner = self.pool(torch.zeros(1, channels, *shape[1:])).shape[1:]
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        outer = tuple(self.conv2(torch.zeros(1, *inner)).shape[1:])
        self.lif2 = LIF(outer, mpbn=mpbn)
        self.conv3, self.norm3 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.shortcut = SHORTCUTS[shortcut](channels, stride)
        self.lif3 = LIF(outer, mpbn=mpbn)
        self.average, self.readout = nn.AdaptiveAvgPool2d(2), nn.Linear(4 * channels, 3)

    def forward(self, x):
        x = self.pool(self.lif1(self.norm1(self.conv1(x))))
        hidden = self.lif2(self.norm2(self.conv2(x)))
        x = self.lif3(self.norm3(self.conv3(hidden)) + self.shortcut(x))
        return self.readout(torch.flatten(self.average(x), 1))


SHORTCUTS = {
    "strided convolution": lambda channels, stride: nn.Sequential(
        nn.Conv2d(channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
    ),
    "average, then convolution": lambda channels, stride: nn.Sequential(
        nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False),
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
    ),
    "average": lambda channels, stride: nn.AvgPool2d(stride, ceil_mode=True, count_include_pad=False),
    "two convolutions": lambda channels, stride: nn.Sequential(
        nn.Conv2d(channels, 2, 3, stride, padding=1), nn.Conv2d(2, channels, 1)
    ),
}


def residual_body():
    """Return a small residual network, whose factory a checkpoint can name."""
    shape = (2, 6, 6)
    return Residual(shape, pool=nn.AvgPool2d(2), shortcut="strided convolution", stride=1, mpbn="channel")


def lively(trace_, name):
    """Return the share of neurons that fire in some but not all time steps."""
    rates = trace_.spikes[name].mean(axis=(0, 1))
    return np.mean((rates > 0) & (rates < 1))


def with_card(network):
    """Return a network that can be saved: a factory in this file rebuilds its body."""
    network.card = ModelCard(architecture="networks:conv_body", arguments={}, class_names=("a", "b", "c"))
    return network.float()


def inputs_for(network, samples=3, seed=0, steps=False):
    """Return random inputs in the range of a network; with `steps`, different ones in each time step."""
    neuron, shape = network.input.neuron, network.input.shape
    size = (samples, network.timesteps, *shape) if steps else (samples, *shape)
    return np.random.default_rng(seed).integers(neuron.minimum, neuron.maximum + 1, size=size)


def _lif(generator, shape, *, per_neuron, low=-40, high=160, **options):
    size = shape if per_neuron else (shape[0], *(1 for _ in shape[1:]))
    return Lif(
        threshold=generator.integers(low, high, size=size),
        bias=generator.integers(-30, 30, size=size),
        decay_voltage=int(generator.integers(0, 4096)),
        **options,
    )


def _weights(generator, *shape, largest=40):
    return generator.integers(-largest, largest + 1, size=shape)


def _scales(populations):
    return {p.name: np.ones(p.shape[0]) for p in populations[1:]}


LEAKING = {"decay_voltage": 1000, "decay_current": 3000}  # of a readout


def int_chain(seed=0, *, timesteps=4, per_neuron=True, groups=1, **readout):
    """input (2, 6, 5) -> convolution (4, 3, 3) -> dense (5,) -> readout (3,)"""
    generator = np.random.default_rng(seed)
    convolution = Conv2d(
        weight=_weights(generator, 4, 2 // groups, 3, 2),
        stride=(2, 1),
        padding=(1, 0),
        dilation=(1, 2),
        groups=groups,
    )
    populations = (
        Population(name="input", shape=(2, 6, 5), neuron=Input(minimum=0, maximum=7)),
        Population(name="conv", shape=(4, 3, 3), neuron=_lif(generator, (4, 3, 3), per_neuron=per_neuron)),
        Population(name="dense", shape=(5,), neuron=_lif(generator, (5,), per_neuron=True)),
        Population(
            name="output", shape=(3,), neuron=Readout(bias=generator.integers(-9, 9, size=3), **readout)
        ),
    )
    return IntNetwork(
        populations=populations,
        connections=(
            Connection(source="input", target="conv", synapse=convolution),
            Connection(source="conv", target="dense", synapse=Dense(weight=_weights(generator, 5, 36))),
            Connection(source="dense", target="output", synapse=Dense(weight=_weights(generator, 3, 5))),
        ),
        timesteps=timesteps,
        scales=_scales(populations),
    )


def int_residual(seed=0, *, timesteps=3, delay=0):
    """A convolution with skip connections of spikes and pixels, with exponents; the last population fires."""
    generator = np.random.default_rng(seed)
    shape = (3, 4, 5)
    populations = (
        Population(name="input", shape=(2, 4, 5), neuron=Input(minimum=-3, maximum=3)),
        Population(name="first", shape=shape, neuron=_lif(generator, shape, per_neuron=False)),
        Population(name="second", shape=shape, neuron=_lif(generator, shape, per_neuron=True)),
        Population(
            name="last", shape=shape, neuron=_lif(generator, shape, per_neuron=True, decay_current=2000)
        ),
    )

    def conv(channels, exponent=0, size=3):
        weight = _weights(generator, 3, channels, size, size)
        return Conv2d(weight=weight, padding=(size // 2, size // 2), exponent=exponent)

    return IntNetwork(
        populations=populations,
        connections=(
            Connection(source="input", target="first", synapse=conv(2)),
            Connection(source="first", target="second", synapse=conv(3)),
            Connection(source="second", target="last", synapse=conv(3, exponent=1)),
            Connection(source="first", target="last", synapse=conv(3, exponent=-1, size=1), delay=delay),
            Connection(
                source="input", target="last", synapse=Dense(weight=_weights(generator, 60, 40, largest=3))
            ),
        ),
        timesteps=timesteps,
        scales=_scales(populations),
    )


def int_products(seed=0, target="loihi2"):
    """Return a small spiking transformer in integers, whose attention multiplies spikes."""
    torch.manual_seed(seed)
    body = ARCHITECTURES["digits-transformer"]((2, 6, 5), 3, width=8)
    return quantize(fold(trace(enlivened(body, shape=(2, 6, 5)))), load_profile(target)).network


def graded_body(mpbn="channel", **options):
    """Three layers of neurons that send whole numbers, on pictures and on features."""
    neuron = {"mpbn": mpbn, "threshold": 0.6, **options}
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), GradedLIF((4, 5, 6), **neuron)),
        *(nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.BatchNorm2d(4), GradedLIF((4, 2, 2), **neuron)),
        *(nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6), GradedLIF(6, **neuron), nn.Linear(6, 3)),
    )


def int_graded(seed=0, levels=3, signed=False):
    """Return neurons that send whole numbers in integers, each level a neuron."""
    torch.manual_seed(seed)
    body = graded_body(levels=levels, signed=signed, leak=0.5)
    return quantize(fold(trace(enlivened(body, shape=(2, 5, 6)))), load_profile("loihi2")).network


def int_windows(seed=0, *, timesteps=3):
    """Two convolutions in a row, whose borders make six windows with a kernel each."""
    generator = np.random.default_rng(seed)
    first = Conv2d(weight=_weights(generator, 2, 3, 3, 2, largest=3), stride=(2, 1), padding=(1, 0))
    second = Conv2d(weight=_weights(generator, 2, 2, 3, 3, largest=3), padding=(1, 1))
    shapes = {"input": (2, 8, 6), "first": (3, 8, 6), "last": (2, 4, 5)}
    parts = [replace(p, weight=p.weight.astype(int)) for p in compose(first, second, shapes["first"])]
    parts[1] = replace(parts[1], exponent=1)
    skip = Conv2d(weight=_weights(generator, 2, 3, 1, 2, largest=9), stride=(2, 1), exponent=-1)
    populations = (
        Population(name="input", shape=shapes["input"], neuron=Input(minimum=0, maximum=5)),
        *(
            Population(name=name, shape=shapes[name], neuron=_lif(generator, shapes[name], per_neuron=True))
            for name in ("first", "last")
        ),
    )
    return IntNetwork(
        populations=populations,
        connections=(
            Connection(
                source="input",
                target="first",
                synapse=Conv2d(weight=_weights(generator, 3, 2, 3, 3), padding=(1, 1)),
            ),
            *(Connection(source="first", target="last", synapse=part) for part in parts),
            Connection(source="first", target="last", synapse=skip, delay=1),
        ),
        timesteps=timesteps,
        scales=_scales(populations),
    )


def int_pooled(seed=0, *, timesteps=3, delay=0, window=(2, 2), size=(4, 4)):
    """A residual block after a pooling, and an average before the readout, composed into their synapses.

    Kernels are repeated block by block, which is what composing a pooling with them gives.
    """
    generator = np.random.default_rng(seed)
    (high, wide), (rows, columns) = window, size
    large, small = (3, rows * high, columns * wide), (4, rows, columns)

    def blocks(weight, window=window):
        return weight.repeat(window[0], axis=-2).repeat(window[1], axis=-1)

    populations = (
        Population(name="input", shape=(2, *large[1:]), neuron=Input(minimum=0, maximum=7)),
        Population(name="first", shape=large, neuron=_lif(generator, large, per_neuron=False)),
        Population(name="second", shape=small, neuron=_lif(generator, small, per_neuron=True)),
        Population(name="third", shape=small, neuron=_lif(generator, small, per_neuron=False)),
        Population(name="output", shape=(3,), neuron=Readout(bias=generator.integers(-9, 9, size=3))),
    )
    pooled = Conv2d(weight=blocks(_weights(generator, 4, 3, 3, 3, largest=9)), stride=window, padding=window)
    skip = Conv2d(weight=blocks(_weights(generator, 4, 3, 1, 1, largest=9)), stride=window, exponent=1)
    average = blocks(_weights(generator, 3, 4, 1, 1), size).reshape(3, -1)
    return IntNetwork(
        populations=populations,
        connections=(
            Connection(
                source="input",
                target="first",
                synapse=Conv2d(weight=_weights(generator, 3, 2, 3, 3), padding=(1, 1)),
            ),
            Connection(source="first", target="second", synapse=pooled),
            Connection(
                source="second",
                target="third",
                synapse=Conv2d(weight=_weights(generator, 4, 4, 3, 3), padding=(1, 1)),
            ),
            Connection(source="first", target="third", synapse=skip, delay=delay),
            Connection(source="third", target="output", synapse=Dense(weight=average)),
        ),
        timesteps=timesteps,
        scales=_scales(populations),
    )


def int_sigma_delta(seed=0, *, timesteps=4, delay=1, mixed=False, plain=True):
    """Changes of a picture through a convolution and two dense layers, as lava-dl writes such networks.

    With `mixed`, relays and LIF neurons read the convolution too. Without `plain`, each neuron has its own
    threshold, and exponents are not lava-dl's.
    """
    generator = np.random.default_rng(seed)
    exponents = {} if plain else {"message_exponent": 3, "state_exponent": 5}

    def thresholds(*shape):
        sizes = (shape[0], *(1 for _ in shape[1:])) if plain else shape
        return np.full(sizes, generator.integers(0, 4)) if plain else generator.integers(0, 9, sizes)

    def sigma_delta(*shape):
        bias = generator.integers(-20, 20, (shape[0], *(1 for _ in shape[1:])))
        return SigmaDelta(threshold=thresholds(*shape), bias=bias, **exponents)

    picture, maps = (2, 5, 6), (3, 3, 4)
    populations = [
        Population(name="input", shape=picture, neuron=Input(minimum=-60, maximum=60)),
        Population(name="changes", shape=picture, neuron=Delta(threshold=thresholds(*picture), **exponents)),
        Population(name="maps", shape=maps, neuron=sigma_delta(*maps)),
        Population(name="features", shape=(7,), neuron=sigma_delta(7)),
        Population(name="sums", shape=(3,), neuron=Sigma()),
    ]
    own = Conv2d(weight=np.ones((2, 1, 1, 1), int), groups=2)
    connections = [
        Connection(source="input", target="changes", synapse=own),
        Connection(
            source="changes",
            target="maps",
            synapse=Conv2d(weight=_weights(generator, 3, 2, 3, 3)),
            delay=delay,
        ),
        Connection(
            source="maps", target="features", synapse=Dense(weight=_weights(generator, 7, 36)), delay=delay
        ),
        Connection(
            source="features", target="sums", synapse=Dense(weight=_weights(generator, 3, 7)), delay=delay
        ),
    ]
    if mixed:
        low, high = (4 * edge for edge in value_range(populations[2].neuron))
        populations[3:3] = [
            Population(name="relays", shape=(3, 1, 2), neuron=Relay(minimum=low, maximum=high)),
            _features(generator, "spikes", 5),
        ]
        pool = Conv2d(weight=np.ones((3, 1, 2, 2), int), groups=3, stride=(2, 2))
        spikes = Dense(weight=_weights(generator, 5, 6), exponent=-6)
        connections[2:2] = [
            Connection(source="maps", target="relays", synapse=pool),
            Connection(source="relays", target="spikes", synapse=spikes),
            Connection(
                source="spikes",
                target="features",
                synapse=Dense(weight=_weights(generator, 7, 5), exponent=4),
            ),
        ]
    return IntNetwork(
        populations=tuple(populations), connections=tuple(connections), timesteps=timesteps, scales={}
    )


def _features(generator, name, size, **options):
    """Return LIF neurons with random thresholds and biases."""
    neuron = Lif(
        threshold=generator.integers(0, 60, size=size),
        bias=generator.integers(-9, 9, size=size),
        decay_voltage=1000,
        **options,
    )
    return Population(name=name, shape=(size,), neuron=neuron)


def int_loop(seed=0, *, timesteps=5, delays=(0,), loop=True):
    """spikes (6,) -> (5,), to itself one step later -> (4,) through synapses of the given delays"""
    generator = np.random.default_rng(seed)
    weight = generator.integers(-40, 41, size=(4, 5))
    member = np.arange(20).reshape(4, 5) % len(delays)
    populations = (
        Population(name="input", shape=(6,), neuron=Input(minimum=0, maximum=1)),
        _features(generator, "first", 5, decay_current=700),
        _features(generator, "last", 4),
    )
    first = Dense(weight=generator.integers(-40, 41, size=(5, 6)))
    again = Dense(weight=generator.integers(-40, 41, size=(5, 5)))
    return IntNetwork(
        populations=populations,
        connections=(
            Connection(source="input", target="first", synapse=first),
            *([Connection(source="first", target="first", synapse=again, delay=1)] if loop else []),
            *(
                Connection(
                    source="first",
                    target="last",
                    synapse=Dense(weight=np.where(member == index, weight, 0)),
                    delay=delay,
                )
                for index, delay in enumerate(delays)
            ),
        ),
        timesteps=timesteps,
        scales={},
    )


def softened(network, seed=0, *, share=0.7):
    """Return the network with a soft reset in some populations, in the first one always.

    A population subtracts its thresholds, or numbers of its own, which may be negative.
    """
    generator = np.random.default_rng(seed)
    populations = list(network.populations)
    for index, population in enumerate(firing(network)):
        hard = population.neuron
        if index and generator.random() > share:
            continue
        own = generator.integers(-60, 160, size=hard.threshold.shape)
        soft = SoftLif(
            threshold=hard.threshold,
            subtrahend=hard.threshold if generator.random() < 0.5 else own,
            bias=hard.bias,
            bias_exponent=hard.bias_exponent,
            decay_current=hard.decay_current,
            decay_voltage=hard.decay_voltage,
        )
        populations[network.order[population.name]] = population.with_neuron(soft)
    return replace(network, populations=tuple(populations))


def charged(network, seed=0):
    """Return the network with currents that outlast a time step in some populations, in the first one always.

    A population has one decay of the current and one of the voltage, or one per channel or neuron.
    """
    generator = np.random.default_rng(seed)
    populations = [network.input]
    for population in network.layers:
        if len(populations) == 1 or generator.random() < 0.6:
            channels = (population.shape[0], *(1 for _ in population.shape[1:]))
            size = [(), channels, population.shape][generator.integers(3)]
            current, voltage = map(_one_or_each, generator.integers(1, 4096, size=(2, *size)))
            neuron = replace(population.neuron, decay_current=current, decay_voltage=voltage)
            population = population.with_neuron(neuron)
        populations.append(population)
    return replace(network, populations=tuple(populations))


def stepped(network, seed=0):
    """Return the network with numbers per time step in some populations, in the first one always.

    Some have decays per channel, of which some let a voltage grow.
    """
    generator = np.random.default_rng(seed)
    populations = [network.input]
    for population in network.layers:
        if len(populations) == 1 or generator.random() < 0.7:
            neurons = [_moved(generator, population.neuron) for _ in range(network.timesteps)]
            if generator.random() < 0.7:
                channels = (population.shape[0], *(1 for _ in population.shape[1:]))
                decays = generator.integers(-2000, 4096, size=(len(neurons), *channels))
                neurons = [replace(n, decay_voltage=d) for n, d in zip(neurons, decays, strict=True)]
            population = population.with_neuron(in_steps(neurons))
        populations.append(population)
    return replace(network, populations=tuple(populations))


def _moved(generator, neuron):
    moved = {
        name: getattr(neuron, name) + generator.integers(-20, 40, size=getattr(neuron, name).shape)
        for name in ("threshold", "bias", "subtrahend")
        if hasattr(neuron, name)
    }
    return replace(neuron, **moved)


def _one_or_each(decays):
    """Return decays as files have them: one number, if all are equal."""
    return int(decays.flat[0]) if np.unique(decays).size == 1 else compact(decays)


def widened(network, factor):
    """Return the network as from elsewhere, with weights so large that states leave 24 bits."""
    connections = (
        replace(c, synapse=replace(c.synapse, weight=c.synapse.weight * factor)) for c in network.connections
    )
    return replace(network, connections=tuple(connections), foreign=True)


def is_chain(network):
    """Whether each population connects only to the next one, without delay."""
    hops = [(c.source, c.target, c.delay) for c in network.connections]
    return hops == [(a.name, b.name, 0) for a, b in pairwise(network.populations)]


def assert_same_trace(expected, got, *, voltages=True):
    """Assert that two traces have equal spikes, voltages and outputs."""
    assert expected.spikes.keys() == got.spikes.keys()
    for name in expected.spikes:
        np.testing.assert_array_equal(expected.spikes[name], got.spikes[name], err_msg=name)
        if voltages:
            np.testing.assert_array_equal(expected.voltages[name], got.voltages[name], err_msg=name)
    np.testing.assert_array_equal(expected.outputs, got.outputs)


def heed_interrupts():
    """For preexec_fn: a process that a background shell started ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_lava(process, *, in_workers=False, seconds=60):
    """Wait until a command, or one of its workers, has started Lava's processes, and a moment longer."""
    import psutil

    for _ in range(20 * seconds):
        parent = psutil.Process(process)
        if any(_has_forks(each) for each in (parent.children() if in_workers else [parent])):
            time.sleep(0.5)
            return
        time.sleep(0.05)
    pytest.fail(f"no process of Lava's within {seconds} s")


def _has_forks(process):
    """Whether there are children that are forks, as Lava's processes are; others run another command."""
    import psutil

    try:
        return any(child.cmdline() == process.cmdline() for child in process.children())
    except psutil.NoSuchProcess:  # one ended meanwhile
        return False


def end_of(run, seconds=60):
    """Return the remaining output of a terminated command; if it does not end, kill it and fail the test."""
    try:
        return run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        pytest.fail(f"still running {seconds} s after it was terminated")


def group_is_gone(group, seconds=30):
    """Whether all processes of a group end soon; dead ones remain listed until the system reaps them."""
    for _ in range(10 * seconds):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def with_limit(profile, key, value):
    """The profile with another limit."""
    limit = Limit(value=value, source="test", basis="derived")
    return replace(profile, limits={**profile.limits, key: limit})


def assert_trains_on_integers(folder):
    """Train the integers of the folder's model.pt, export them, and find in them what was trained."""
    from mpbn_deploy.__main__ import console_script

    model, again, out = (str(folder / name) for name in ("model.pt", "integers.pt", "trained"))
    options = ["--init", model, "--quantize", "loihi2", "--weight-bits", "4", "--epochs", "1"]
    assert console_script(["train", *options, "--out", again]) == 0
    assert console_script(["export", again, "--target", "loihi2", "--out", out, "--samples", "2"]) == 0
    comparisons = json.loads((folder / "trained" / "verify.json").read_text())["comparisons"]
    assert "PyTorch, as trained" in [c["execution"] for c in comparisons]
    assert all(c["spikes_mismatched"] == 0 for c in comparisons)


def int_xylo(seed=0, *, timesteps=6, hard=False):
    """Two hidden populations of Xylo neurons with a loop and a way back; `hard` ones reach their limits."""
    random = np.random.default_rng(seed)
    sizes = {"input": 5, "hidden1": 6, "hidden2": 4, "output": 3}
    shifts = random.integers(0, 9 if hard else 2, 3)

    def neuron(name):
        size = sizes[name]
        threshold = 2.0 ** random.uniform(0, 15, size) if hard else random.integers(40, 400, size)
        return Xylo(
            threshold=np.clip(threshold, 1, 32767).astype(int),
            bias=random.integers(-9000, 9000, size) if hard else random.integers(-20, 40, size),
            shift_current=random.integers(0 if hard else 1, 16 if hard else 4, size),
            shift_voltage=random.integers(0, 16 if hard else 6, size),
            max_spikes=1 if name == "output" else 31,
        )

    def connection(source, target):
        largest = 127 if hard else 40
        part = 0 if source == "input" else 2 if target == "output" else 1
        weight = random.integers(-largest // 2, largest + 1, (sizes[target], sizes[source]))
        synapse = Dense(weight=weight, exponent=int(shifts[part]))
        return Connection(source=source, target=target, synapse=synapse, delay=0 if part == 0 else 1)

    pairs = [("input", "hidden1"), ("hidden1", "hidden1"), ("hidden2", "hidden1")]
    pairs += [("input", "hidden2"), ("hidden1", "hidden2"), ("hidden1", "output"), ("hidden2", "output")]
    return IntNetwork(
        populations=(
            Population(name="input", shape=(5,), neuron=Input(minimum=0, maximum=15)),
            *(Population(name=n, shape=(sizes[n],), neuron=neuron(n)) for n in list(sizes)[1:]),
        ),
        connections=tuple(connection(*pair) for pair in pairs),
        timesteps=timesteps,
        scales={name: np.ones(size) for name, size in list(sizes.items())[1:]},
    )
