"""Simulators against Python's unbounded integers, on networks whose sums are large and cancel."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from properties import examples

from mpbn_deploy.base import NetworkError, QuantizeError
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.ir import Connection, Conv2d, Dense, Input, IntNetwork, Lif, Population, Readout, bounds
from mpbn_deploy.quantize.twin import _check_sums


def truncated(state, decay):
    """trunc(state * (4096 - decay) / 4096), toward zero"""
    kept = abs(state) * (4096 - decay) // 4096
    return kept if state >= 0 else -kept


def oracle(network, inputs):
    """Spikes and voltages [samples, timesteps, *shape], neuron by neuron, in unbounded integers.

    Independent of the package's arithmetic: dense synapses only, every number a Python int.
    """
    names = [population.name for population in network.layers]
    spikes = {name: [] for name in names}
    voltages = {name: [] for name in names}
    for sample in inputs.tolist():
        sent = {network.input.name: [sample] * network.timesteps, **{name: [] for name in names}}
        state = {p.name: [(0, 0)] * p.size for p in network.layers}
        seen = {name: [] for name in names}
        for step in range(network.timesteps):
            for population in network.layers:
                charged = [
                    charge(network, population, index, sent, step, state[population.name][index])
                    for index in range(population.size)
                ]
                sent[population.name].append([int(fired) for *_, fired in charged])
                state[population.name] = [(current, voltage) for current, voltage, _ in charged]
                seen[population.name].append([voltage for _, voltage, _ in charged])
        for name in names:
            spikes[name].append(sent[name])
            voltages[name].append(seen[name])
    return spikes, voltages


def charge(network, population, index, sent, step, state):
    """Current, voltage after the reset, and spike of one neuron."""
    neuron, arriving = population.neuron, 0
    for connection in network.entering(population.name):
        if step < connection.delay:
            continue
        row = connection.synapse.weight[index].tolist()
        values = sent[connection.source][step - connection.delay]
        total = sum(weight * value for weight, value in zip(row, values, strict=True))
        arriving += total << (6 + connection.synapse.exponent)
    current = truncated(state[0], neuron.decay_current) + arriving
    bias = int(neuron.bias[index]) << neuron.bias_exponent
    voltage = truncated(state[1], neuron.decay_voltage) + current + bias
    fired = isinstance(neuron, Lif) and voltage > int(neuron.threshold[index]) << 6
    return current, 0 if fired else voltage, fired


def two_connections(weight, rest, lowest, highest, exponents=(0, 0)):
    """A population with two connections from the input that cancel but for `rest`, and a readout."""
    first, second = exponents
    opposite = rest - weight * 2 ** (first - second)
    count = len(weight)
    neuron = Lif(threshold=np.full(count, 300), bias=np.zeros(count, int), decay_voltage=3072)
    return IntNetwork(
        populations=(
            Population(name="input", shape=(weight.shape[1],), neuron=Input(minimum=lowest, maximum=highest)),
            Population(name="n", shape=(count,), neuron=neuron),
            Population(name="out", shape=(2,), neuron=Readout(bias=np.array([3, -3]))),
        ),
        connections=(
            Connection(source="input", target="n", synapse=Dense(weight=weight, exponent=first)),
            Connection(source="input", target="n", synapse=Dense(weight=opposite, exponent=second)),
            Connection(source="n", target="out", synapse=Dense(weight=np.ones((2, count), int))),
        ),
        timesteps=2,
        scales={},
    )


def assert_exact(network, inputs):
    spikes, voltages = oracle(network, inputs)
    for run in (simulate, emulate):
        trace = run(network, inputs)
        for name in spikes:
            np.testing.assert_array_equal(trace.spikes[name], spikes[name])
            np.testing.assert_array_equal(trace.voltages[name], voltages[name])


def test_currents_that_cancel_are_exact_although_the_bound_of_the_state_is_small():
    """2**26 - (2**26 - 255) in float32 would be 256 instead of 255."""
    network = two_connections(np.array([[2**18]]), np.array([[1]]), 255, 255)
    network = replace(network, timesteps=1)
    assert bounds(network)["n"].fits
    assert oracle(network, np.array([[255]]))[1]["n"] == [[[255 * 64]]]
    assert_exact(network, np.array([[255]]))


def test_quantized_training_rejects_what_float32_would_round():
    _check_sums(two_connections(np.array([[2]]), np.array([[1]]), 0, 1))
    with pytest.raises(QuantizeError, match=r"n: its currents could sum to 2\*\*24 or more"):
        _check_sums(two_connections(np.array([[2**18]]), np.array([[1]]), 255, 255))


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    bits=st.integers(1, 30),
    far=st.integers(0, 20),
    below=st.booleans(),
    exponents=st.sampled_from([(0, 0), (3, 0), (0, -6), (-2, -2), (23, 0)]),
)
def test_cancelling_connections_equal_unbounded_integers(seed, bits, far, below, exponents):
    """Whatever the weights and the distance of the input range from zero: exact, or rejected."""
    generator = np.random.default_rng(seed)
    weight = generator.integers(-(2**bits), 2**bits + 1, size=(3, 4))
    rest = generator.integers(-9, 10, size=(3, 4)) * (abs(far - 12) < 8)
    lowest = (-1 if below else 1) * 2**far
    try:
        network = two_connections(weight, rest, lowest, lowest + 1, exponents)
    except NetworkError as error:
        assert "too large to be exact" in str(error) or "weights exceed 32 bits" in str(error)
        return
    if bounds(network)["n"].fits:
        inputs = generator.integers(lowest, lowest + 2, size=(5, 4))
        assert_exact(network, inputs)


def test_sums_of_spikes_beyond_float32_are_not_convolved_into_float32():
    """127 * 133_000 spikes pass 2**24, and every weight fits eight bits."""
    channels = 133_001
    weight = np.full((1, channels, 1, 1), 127)
    neuron = Lif(threshold=np.full((channels, 1, 1), -1), bias=np.zeros((channels, 1, 1), int))
    network = IntNetwork(
        populations=(
            Population(name="input", shape=(1, 1, 1), neuron=Input(minimum=0, maximum=1)),
            Population(name="ones", shape=(channels, 1, 1), neuron=neuron),
            Population(name="out", shape=(1, 1, 1), neuron=Readout(bias=np.zeros((1, 1, 1), int))),
        ),
        connections=(
            Connection(
                source="input", target="ones", synapse=Conv2d(weight=np.ones((channels, 1, 1, 1), int))
            ),
            Connection(source="ones", target="out", synapse=Conv2d(weight=weight, exponent=-6)),
            Connection(source="ones", target="out", synapse=Conv2d(weight=1 - weight, exponent=-6)),
        ),
        timesteps=1,
        scales={},
    )
    assert emulate(network, np.zeros((1, 1, 1, 1), int)).outputs.item() == channels


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_every_integer_type_at_its_ends_is_exact_or_rejected(kind):
    ends = np.iinfo(kind)
    weight = np.array([[ends.max, ends.min], [0, ends.max]], kind)
    neuron = Readout(bias=np.zeros(2, int))
    populations = (
        Population(name="input", shape=(2,), neuron=Input(minimum=0, maximum=1)),
        Population(name="n", shape=(2,), neuron=neuron),
    )
    edge = Connection(source="input", target="n", synapse=Dense(weight=weight, exponent=-6))
    inputs = np.array([[1, 0], [0, 1], [1, 1]])
    try:
        network = IntNetwork(populations=populations, connections=(edge,), timesteps=1, scales={})
    except NetworkError as error:
        assert ends.max > 2**31 and "weights exceed 32 bits" in str(error)
        return
    if bounds(network)["n"].fits:
        assert_exact(network, inputs)
