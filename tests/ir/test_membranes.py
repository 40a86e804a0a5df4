"""The update of neurons as it is defined, and the kernels that compute it faster."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from mpbn_deploy.execute.lava import Neurons
from mpbn_deploy.ir import (
    FloatLif,
    FloatReadout,
    Lif,
    Population,
    Readout,
    Sigma,
    SoftLif,
    fires,
    membrane,
    neuron_kind,
    neuron_subtrahend,
    neuron_threshold,
    soft_reset,
)
from mpbn_deploy.quantize.joint_rounding import Places, growth, voltages
from mpbn_deploy.quantize.twin import ScanRule, scan_integers

STEPS, SIZE = 6, 5


def run(rule, arriving):
    """Voltages before the reset, and spikes, of what arrives, [timesteps, neurons]."""
    state = np.zeros_like(arriving[0]), np.zeros_like(arriving[0])
    charged, spikes = [], []
    for now in arriving:
        state = rule.integrate(state, now)
        charged.append(state[1])
        state, fired = rule.fire(state)
        spikes.append(fired)
    return np.stack(charged), np.stack(spikes)


def integers(seed, low, high, *shape):
    return np.random.default_rng(seed).integers(low, high, shape)


def lif(seed, decay_current=4096, decay_voltage=4096):
    threshold, bias = integers(seed, -20, 90, SIZE), integers(seed + 1, -9, 10, SIZE)
    return Lif(threshold=threshold, bias=bias, decay_current=decay_current, decay_voltage=decay_voltage)


def soft_lif(seed, decay_current=4096, decay_voltage=4096):
    """The neurons of `lif` with a soft reset; half of them subtract their threshold."""
    hard = lif(seed, decay_current, decay_voltage)
    own, other = integers(seed + 3, 0, 2, SIZE) == 1, integers(seed + 4, -50, 90, SIZE)
    return SoftLif(
        threshold=hard.threshold,
        subtrahend=np.where(own, hard.threshold, other),
        bias=hard.bias,
        decay_current=decay_current,
        decay_voltage=decay_voltage,
    )


one_decay = st.integers(0, 4096)
decays = one_decay | st.builds(lambda seed: integers(seed, 0, 4097, SIZE), st.integers(0, 1000))
resets = st.sampled_from([lif, soft_lif])
seeds = st.integers(0, 1000)


@given(seed=seeds, current=decays, voltage=decays, reset=resets)
def test_an_integer_neuron_is_what_its_docstring_says(seed, current, voltage, reset):
    """In Python's integers, which have no width."""
    neuron, arriving = reset(seed, current, voltage), integers(seed + 2, -3000, 6000, STEPS, SIZE)
    charged, spikes = run(membrane(neuron, STEPS), arriving)
    subtrahend = neuron_subtrahend(neuron)
    currents, voltages = (np.broadcast_to(decay, SIZE).tolist() for decay in (current, voltage))
    for index in range(SIZE):
        u = v = 0
        for step in range(STEPS):
            u = int(u * (4096 - currents[index]) / 4096) + int(arriving[step, index])
            v = int(v * (4096 - voltages[index]) / 4096) + u + int(neuron.bias[index]) * 2**6
            fired = v > int(neuron.threshold[index]) * 2**6
            assert (charged[step, index], spikes[step, index]) == (v, fired)
            if fired:
                v = 0 if subtrahend is None else v - int(subtrahend[index]) * 2**6


leaks = st.floats(0, 1) | st.builds(lambda seed: np.random.default_rng(seed).random(SIZE), seeds)


@given(seed=seeds, leak=leaks, current_leak=leaks, soft=st.booleans())
def test_a_real_neuron_is_what_its_docstring_says(seed, leak, current_leak, soft):
    generator = np.random.default_rng(seed)
    arriving, bias = generator.normal(size=(STEPS, SIZE)), generator.normal(size=SIZE)
    fire = FloatLif(threshold=np.full(SIZE, 0.7), bias=bias, leak=leak, current_leak=current_leak)
    fire = soft_reset(fire, np.full(SIZE, 0.6)) if soft else fire
    read = FloatReadout(bias=bias, leak=leak, current_leak=current_leak)
    charged, spikes = run(membrane(fire, STEPS), arriving)
    read_out, never = run(membrane(read, STEPS), arriving)
    assert not never.any()
    current, voltage, summed = np.zeros((3, SIZE))
    for step in range(STEPS):
        current = current_leak * current + arriving[step]
        voltage = leak * voltage + current + bias
        summed = leak * summed + (current + bias) / STEPS
        np.testing.assert_array_equal(charged[step], voltage)
        np.testing.assert_array_equal(spikes[step], voltage > 0.7)
        np.testing.assert_array_equal(read_out[step], summed)
        voltage = np.where(voltage > 0.7, voltage - 0.6 if soft else 0.0, voltage)


@given(seed=seeds, factor=st.sampled_from([0.25, 2.0, 64.0]), soft=st.booleans())
def test_scaled_membranes_fire_alike(seed, factor, soft):
    """Powers of two, which round nothing."""
    neuron = FloatLif(threshold=np.full(SIZE, 0.7), bias=np.full(SIZE, 0.1), leak=0.5, current_leak=0.25)
    neuron = soft_reset(neuron, np.full(SIZE, 0.6)) if soft else neuron
    arriving, rule = np.random.default_rng(seed).normal(size=(STEPS, SIZE)), membrane(neuron, STEPS)
    charged, spikes = run(rule, arriving)
    scaled, same = run(rule.scaled(factor), factor * arriving)
    np.testing.assert_array_equal(scaled, factor * charged)
    np.testing.assert_array_equal(same, spikes)


@given(seed=seeds, current=decays, voltage=decays, reset=resets)
def test_neurons_of_our_lava_layers_are_membranes(seed, current, voltage, reset):
    rule, arriving = (
        membrane(reset(seed, current, voltage), STEPS),
        integers(seed + 2, -3000, 6000, STEPS, SIZE),
    )
    neurons = Neurons(rule, (SIZE,))
    found = np.stack([neurons.step(now.astype(np.float64)).copy() for now in arriving])
    np.testing.assert_array_equal(found, run(rule, arriving)[1])


@given(seed=seeds, leak=leaks, current_leak=leaks)
def test_neurons_of_our_lava_layers_are_membranes_of_real_numbers_too(seed, leak, current_leak):
    arriving = np.random.default_rng(seed).normal(size=(STEPS, SIZE))
    neuron = FloatReadout(bias=np.full(SIZE, 0.3), leak=leak, current_leak=current_leak)
    neurons = Neurons(membrane(neuron, STEPS), (SIZE,))
    for now, expected in zip(arriving, run(membrane(neuron, STEPS), arriving)[0], strict=True):
        assert not neurons.step(now).any()
        np.testing.assert_array_equal(neurons.voltage, expected)


@given(seed=seeds, decay=one_decay, reset=resets)
def test_the_scan_of_the_training_twin_is_a_membrane(seed, decay, reset):
    neuron, arriving = reset(seed, decay_voltage=decay), integers(seed + 2, -3000, 6000, STEPS, SIZE)
    bias, threshold, subtrahend = (
        None if values is None else torch.tensor(64.0 * values)
        for values in (neuron.bias, neuron.threshold, neuron_subtrahend(neuron))
    )
    rule = ScanRule(timesteps=STEPS, decay=decay, subtrahend=subtrahend)
    spikes, charged = scan_integers(torch.tensor(1.0 * arriving), bias, threshold, rule)
    expected = run(membrane(neuron, STEPS), arriving)
    np.testing.assert_array_equal(charged.numpy(), expected[0])
    np.testing.assert_array_equal(spikes.numpy().astype(bool), expected[1])


@given(seed=seeds, leak=leaks, current_leak=leaks, soft=st.booleans())
def test_voltages_of_calibration_are_those_of_a_membrane(seed, leak, current_leak, soft):
    arriving = np.random.default_rng(seed).normal(size=(STEPS, SIZE))
    neuron = FloatLif(
        threshold=np.full(SIZE, 0.7), bias=np.full(SIZE, 0.1), leak=leak, current_leak=current_leak
    )
    neuron = soft_reset(neuron, np.full(SIZE, 0.6)) if soft else neuron
    charged, spikes = run(membrane(neuron, STEPS), arriving)
    population = Population(name="p", shape=(SIZE,), neuron=neuron)
    place, timed = Places(sample=np.array([0]), row=None, column=None), torch.tensor(arriving)[None, None]
    found = voltages(timed, torch.tensor(spikes)[None], population, place)
    np.testing.assert_array_equal(found[0, 0].numpy(), charged)


@given(seed=seeds, leak=st.sampled_from([0.0, 0.25, 1.0]), soft=st.booleans())
def test_growth_is_what_a_bias_adds_to_the_voltages(seed, leak, soft):
    """The spikes are given, so a bias changes none of them."""
    generator = np.random.default_rng(seed)
    spikes, arriving = torch.tensor(generator.random((1, STEPS, SIZE)) < 0.4), torch.zeros(1, 1, STEPS, SIZE)
    place, found = Places(sample=np.array([0]), row=None, column=None), []
    for bias in (0.0, 1.0):
        neuron = FloatLif(threshold=np.full(SIZE, 0.7), bias=np.full(SIZE, bias), leak=leak)
        neuron = soft_reset(neuron, np.full(SIZE, 0.5)) if soft else neuron
        population = Population(name="p", shape=(SIZE,), neuron=neuron)
        found.append(voltages(arriving.double(), spikes, population, place)[0])
    assert torch.equal(found[1] - found[0], growth(spikes, neuron, torch.tensor(leak)))


@pytest.mark.parametrize(
    ("integer", "real"),
    [
        (lif(0), FloatLif(threshold=np.ones(1), bias=np.zeros(1), leak=0.5)),
        (
            soft_lif(0),
            soft_reset(FloatLif(threshold=np.ones(1), bias=np.zeros(1), leak=0.5), np.ones(1)),
        ),
        (Readout(bias=np.zeros(1, int)), FloatReadout(bias=np.zeros(1))),
    ],
)
def test_rounding_keeps_what_others_ask_of_a_neuron(integer, real):
    assert neuron_kind(integer) == neuron_kind(real) and fires(integer) == fires(real)
    assert all((neuron_threshold(neuron) is not None) == fires(neuron) for neuron in (integer, real))
    assert (neuron_subtrahend(integer) is None) == (neuron_subtrahend(real) is None)


def test_a_neuron_with_a_modulator_has_no_membrane():
    with pytest.raises(TypeError, match="a Sigma neuron has an update of its own, and no membrane"):
        membrane(Sigma(), 1)
