"""Neurons and norms of other systems, built from ours by hand: their equations in float64, spike by spike."""

import numpy as np

from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.ir import (
    Add,
    BatchNorm,
    Conv2d,
    Convolution,
    Delay,
    InputFormat,
    Spike,
    TracedOperation,
    TrainedNetwork,
)

SHAPE, TIMESTEPS = (3, 5, 4), 6
CHANNELS = 6
THRESHOLD = 0.8


class Builder:
    """Adds operations, each behind the one before unless sources are given."""

    def __init__(self):
        self.shapes, self.operations = {"input": SHAPE}, []

    def add(self, name, kind, *sources, channels=CHANNELS):
        self.shapes[name] = (channels, *SHAPE[1:])
        sources = sources or (self.operations[-1].name if self.operations else "input",)
        self.operations.append(
            TracedOperation(name=name, kind=kind, sources=sources, shape=self.shapes[name])
        )
        return name

    def run(self, inputs):
        given = InputFormat(shape=SHAPE, minimum=0, maximum=3, mean=[0], deviation=[1])
        trained = TrainedNetwork(input=given, operations=tuple(self.operations), timesteps=TIMESTEPS)
        return simulate(fold(trained), inputs)


def convolution(weight):
    return Convolution(synapse=Conv2d(weight=weight[:, :, None, None]), bias=np.zeros(len(weight)))


def norm(gain, offset=0.0):
    gain, offset = np.broadcast_arrays(np.asarray(gain, float), offset)
    zeros = np.zeros(len(gain))
    return BatchNorm(gain=gain, offset=offset, mean=zeros, variance=zeros + 1, epsilon=0.0)


def random_numbers(seed):
    generator = np.random.default_rng(seed)
    inputs = generator.integers(0, 4, (7, TIMESTEPS, *SHAPE))
    weight = generator.normal(0.1, 0.4, (CHANNELS, 3))
    return generator, inputs, weight, np.einsum("oc,stcyx->tsoyx", weight, inputs)


def lively(spikes):
    rates = spikes.mean(axis=(0, 1))
    return np.mean((rates > 0) & (rates < 1)) > 0.5


def test_glif_with_hard_gates_is_two_populations():
    """Yao et al. (2022): leak exponential or linear, reset to zero or by subtraction, by channel.

        u <- (1 - alpha (1 - tau)) u (1 - gamma s) - (1 - gamma) V s - (1 - alpha) linear + current

    A linear leak is a bias, and one leak per channel a parameter of ours. Channels that reset to zero are one
    population, the others another.
    """
    generator, inputs, weight, currents = random_numbers(0)
    alpha, gamma = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 0, 1])
    tau, linear, lost = generator.uniform((0.2, 0.05, 0.3), (0.9, 0.2, 0.9), (CHANNELS, 3)).T
    leak = 1 - alpha * (1 - tau)
    expected, membrane, spike = [], np.zeros_like(currents[0]), np.zeros_like(currents[0])
    over = (slice(None), None, None)
    for current in currents:
        membrane = leak[over] * membrane * (1 - gamma[over] * spike) - ((1 - gamma) * lost)[over] * spike
        membrane = membrane - ((1 - alpha) * linear)[over] + current
        spike = (membrane > THRESHOLD).astype(float)
        expected.append(spike)
    net = Builder()
    for name, gate in (("zero", 1), ("subtract", 0)):
        chosen = np.flatnonzero(gamma == gate)
        count = len(chosen)
        net.add(f"{name}_currents", convolution(weight[chosen]), "input", channels=count)
        net.add(f"{name}_leak", norm(np.ones(count), -((1 - alpha) * linear)[chosen]), channels=count)
        # What is subtracted in the step after, behind the leak, is subtracted at once before it.
        subtrahend = None if gate else (lost / leak)[chosen]
        neuron = Spike(leak=leak[chosen], threshold=THRESHOLD, norm=None, subtrahend=subtrahend)
        net.add(name, neuron, channels=count)
        net.add(f"{name}_back", convolution(np.eye(CHANNELS)[:, chosen]))
    net.add("layer", Add(), "zero_back", "subtract_back")
    got = net.run(inputs).spikes
    expected = np.stack(expected, 1)
    assert lively(expected)
    for name, gate in (("zero", 1), ("subtract", 0)):
        np.testing.assert_array_equal(got[name], expected[:, :, gamma == gate] > 0)


def test_neunorm_is_a_synapse_for_each_delay():
    """Wu et al. (2019): an auxiliary neuron in each place, linear, whose value next layers subtract.

        x_t = k x_(t-1) + v / F * sum over channels of o_t;  the next layer gets W (o_t - U x_t)

    x is a weighted sum of earlier spikes: a synapse with a delay for each of the few time steps.
    """
    generator, inputs, weight, currents = random_numbers(1)
    kept, share = 0.6, 0.5 / CHANNELS
    scale, after = generator.uniform(0.2, 1.5, CHANNELS), generator.normal(0, 0.6, (CHANNELS, CHANNELS))
    membranes, auxiliary, expected = np.zeros((2, *currents[0].shape)), 0.0, []
    over = (slice(None), None, None)
    for current in currents:
        membranes[0] = 0.5 * membranes[0] + current
        first = (membranes[0] > THRESHOLD).astype(float)
        auxiliary = kept * auxiliary + share * first.sum(axis=1, keepdims=True)
        normalized = first - scale[over] * auxiliary
        membranes[1] = 0.5 * membranes[1] + np.einsum("oc,scyx->soyx", after, normalized)
        second = (membranes[1] > THRESHOLD).astype(float)
        membranes *= 1 - np.stack([first, second])
        expected.append((first, second))
    neuron, net = Spike(leak=0.5, threshold=THRESHOLD, norm=None), Builder()
    net.add("currents", convolution(weight))
    delayed = total = net.add("first", neuron)
    every = np.ones((CHANNELS, CHANNELS))
    for delay in range(TIMESTEPS):
        if delay:
            delayed = net.add(f"delayed{delay}", Delay(), delayed)
        net.add(f"x{delay}", convolution(-share * kept**delay * scale[:, None] * every), delayed)
        total = net.add(f"normalized{delay}", Add(), total, f"x{delay}")
    net.add("after", convolution(after))
    net.add("second", neuron)
    got = net.run(inputs).spikes
    for place, name in enumerate(("first", "second")):
        spikes = np.stack([each[place] for each in expected], 1)
        assert lively(spikes)
        np.testing.assert_array_equal(got[name], spikes > 0)
