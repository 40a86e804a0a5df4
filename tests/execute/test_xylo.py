"""Xylo's neuron: reference and emulator against big integers, and against the maker's simulator."""

from dataclasses import replace

import numpy as np
import pytest
from networks import assert_same_trace, int_xylo

from mpbn_deploy.base import FormatError, MissingPackageError, NetworkError
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.formats.xylo import specification
from mpbn_deploy.ir import Dense

LOW, HIGH = -(2**15), 2**15 - 1
SEEDS = range(8)


def limited(number):
    return min(max(number, LOW), HIGH)


def lost(number, shift):
    """What a decay takes away; Python's shift rounds down, as C++'s does."""
    return (number >> shift) or (number > 0)


class Neuron:
    """One neuron in Python's unbounded integers, written from SynSense's C++ and not from our equations."""

    def __init__(self, rule, index):
        self.threshold, self.bias, self.shift_current, self.shift_voltage = (
            int(np.broadcast_to(values, rule.threshold.shape).ravel()[index])
            for values in (rule.threshold, rule.bias, rule.shift_current, rule.shift_voltage)
        )
        self.most = rule.max_spikes
        self.current = self.voltage = 0

    def receive(self, weight):
        self.current = limited(self.current + weight)

    def evolve(self):
        self.current -= lost(self.current, self.shift_current)
        change = -lost(self.voltage, self.shift_voltage)
        change = LOW if change == HIGH + 1 else change  # an int16_t
        change = limited(limited(change + self.current) + self.bias)
        self.voltage = limited(self.voltage + change)
        spikes = 0
        while self.voltage >= self.threshold and spikes < self.most:
            self.voltage -= self.threshold
            spikes += 1
        return spikes


def oracle(network, sample):
    """Run one sample spike by spike; return spikes and voltages of each population, [timesteps, neurons]."""
    neurons = {p.name: [Neuron(p.neuron, i) for i in range(p.size)] for p in network.layers}
    before = {p.name: [0] * p.size for p in network.layers}
    spikes = {p.name: [] for p in network.layers}
    voltages = {p.name: [] for p in network.layers}
    for step in sample:
        sent = {network.input.name: step.ravel().tolist(), **before}
        for connection in network.connections:  # sources in order, as the chip delivers them
            weight = connection.synapse.weight << connection.synapse.exponent
            for source, count in enumerate(sent[connection.source]):
                for _ in range(count):
                    for target, neuron in enumerate(neurons[connection.target]):
                        neuron.receive(int(weight[target, source]))
        before = {name: [neuron.evolve() for neuron in group] for name, group in neurons.items()}
        for name, group in neurons.items():
            spikes[name].append(before[name])
            voltages[name].append([neuron.voltage for neuron in group])
    return spikes, voltages


def drawn(network, samples=2, seed=0):
    shape = (samples, network.timesteps, *network.input.shape)
    return np.random.default_rng(seed).integers(0, 16, shape)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_reference_and_emulator_equal_big_integers(seed, hard):
    network = int_xylo(seed, hard=hard)
    inputs = drawn(network, seed=seed)
    trace = simulate(network, inputs)
    for index, sample in enumerate(inputs):
        spikes, voltages = oracle(network, sample)
        for name in spikes:
            assert np.array_equal(trace.spikes[name][index], spikes[name])
            assert np.array_equal(trace.voltages[name][index], voltages[name])
    assert_same_trace(trace, emulate(network, inputs))
    assert max(counts.max() for counts in trace.spikes.values()) > 1
    assert bool(trace.overflows) or not hard


def test_a_voltage_at_the_lower_limit_does_not_decay_by_a_shift_of_zero():
    network = int_xylo(0)
    layers = [
        p.with_neuron(replace(p.neuron, bias=np.full(p.shape, LOW), shift_current=0, shift_voltage=0))
        for p in network.layers
    ]
    network = replace(network, populations=(network.input, *layers))
    trace = simulate(network, drawn(network))
    _, voltages = oracle(network, drawn(network)[0])
    assert (trace.voltages["hidden1"][:, -1] == LOW).all()
    assert np.array_equal(trace.voltages["hidden1"][0], voltages["hidden1"])


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_equals_the_simulator_of_the_maker(seed, hard):
    pytest.importorskip("xylosim", reason="pip install xylosim")
    network = int_xylo(seed, hard=hard)
    inputs = drawn(network, samples=3, seed=seed)
    chip = EXECUTORS["xylosim"].run(network, inputs, ExecutionOptions())
    assert_same_trace(simulate(network, inputs), chip)


def test_without_xylosim_says_how_to_install_it(monkeypatch):
    from importlib import metadata

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    network = int_xylo(0)
    with pytest.raises(MissingPackageError, match="pip install xylosim"):
        EXECUTORS["xylosim"].run(network, drawn(network), ExecutionOptions())


def changed(network, name, **numbers):
    layers = [p.with_neuron(replace(p.neuron, **numbers)) if p.name == name else p for p in network.layers]
    return replace(network, populations=(network.input, *layers))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"threshold": np.zeros(6, int)}, "threshold 0; allowed are 1..32767"),
        ({"bias": np.full(6, 40000)}, "bias 40000; allowed are -32768..32767"),
        ({"shift_current": 16}, "shift_current 16; allowed are 0..15"),
        ({"shift_voltage": -1}, "shift_voltage -1; allowed are 0..15"),
        ({"max_spikes": 0}, "at most 0 spikes"),
    ],
)
def test_numbers_that_no_chip_holds(numbers, message):
    with pytest.raises(NetworkError, match=message):
        changed(int_xylo(0), "hidden1", **numbers)


def test_weights_beyond_16_bits():
    network = int_xylo(0)
    first, *rest = network.connections
    wide = replace(first, synapse=Dense(weight=first.synapse.weight, exponent=12))
    with pytest.raises(NetworkError, match="beyond 16 bits"):
        replace(network, connections=(wide, *rest))


def test_form_that_no_chip_takes():
    network = int_xylo(0)
    at_once = tuple(replace(c, delay=0) if c.target == "output" else c for c in network.connections)
    with pytest.raises(FormatError, match=r"hidden2->output: a delay of 0; on Xylo it takes 1"):
        specification(replace(network, connections=at_once))
    assert "delay of 0" in EXECUTORS["xylosim"].obstacle(replace(network, connections=at_once))
    with pytest.raises(FormatError, match="Xylo fires up to 31"):
        specification(changed(network, "hidden1", max_spikes=3))


def test_specification_holds_every_weight():
    network = int_xylo(1)
    given = specification(network)
    weights = sum(np.abs(c.synapse.weight).sum() for c in network.connections)
    assert sum(np.abs(given[f"weights_{part}"]).sum() for part in ("in", "rec", "out")) == weights
    thresholds = np.concatenate([p.neuron.threshold for p in network.layers[:-1]])
    assert np.array_equal(given["threshold"], thresholds)
