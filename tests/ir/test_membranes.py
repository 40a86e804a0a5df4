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
    Readout,
    fires,
    membrane,
    neuron_kind,
    neuron_threshold,
)
from mpbn_deploy.quantize.joint_rounding import voltages
from mpbn_deploy.quantize.twin import scan_integers

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


decays = st.integers(0, 4096)
seeds = st.integers(0, 1000)


@given(seed=seeds, current=decays, voltage=decays)
def test_an_integer_neuron_is_what_its_docstring_says(seed, current, voltage):
    neuron, arriving = lif(seed, current, voltage), integers(seed + 2, -3000, 6000, STEPS, SIZE)
    charged, spikes = run(membrane(neuron, STEPS), arriving)
    for index in range(SIZE):
        u = v = 0
        for step in range(STEPS):
            u = int(u * (4096 - current) / 4096) + int(arriving[step, index])
            v = int(v * (4096 - voltage) / 4096) + u + int(neuron.bias[index]) * 2**6
            fired = v > int(neuron.threshold[index]) * 2**6
            assert (charged[step, index], spikes[step, index]) == (v, fired)
            v = 0 if fired else v


@given(seed=seeds, leak=st.floats(0, 1), current_leak=st.floats(0, 1))
def test_a_real_neuron_is_what_its_docstring_says(seed, leak, current_leak):
    generator = np.random.default_rng(seed)
    arriving, bias = generator.normal(size=(STEPS, SIZE)), generator.normal(size=SIZE)
    fire = FloatLif(threshold=np.full(SIZE, 0.7), bias=bias, leak=leak, current_leak=current_leak)
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
        voltage = np.where(voltage > 0.7, 0.0, voltage)


@given(seed=seeds, factor=st.sampled_from([0.25, 2.0, 64.0]))
def test_scaled_membranes_fire_alike(seed, factor):
    """Powers of two, which round nothing."""
    neuron = FloatLif(threshold=np.full(SIZE, 0.7), bias=np.full(SIZE, 0.1), leak=0.5, current_leak=0.25)
    arriving, rule = np.random.default_rng(seed).normal(size=(STEPS, SIZE)), membrane(neuron, STEPS)
    charged, spikes = run(rule, arriving)
    scaled, same = run(rule.scaled(factor), factor * arriving)
    np.testing.assert_array_equal(scaled, factor * charged)
    np.testing.assert_array_equal(same, spikes)


@given(seed=seeds, current=decays, voltage=decays)
def test_neurons_of_our_lava_layers_are_membranes(seed, current, voltage):
    rule, arriving = (
        membrane(lif(seed, current, voltage), STEPS),
        integers(seed + 2, -3000, 6000, STEPS, SIZE),
    )
    neurons = Neurons(rule, (SIZE,))
    found = np.stack([neurons.step(now.astype(np.float64)).copy() for now in arriving])
    np.testing.assert_array_equal(found, run(rule, arriving)[1])


@given(seed=seeds, leak=st.floats(0, 1), current_leak=st.floats(0, 1))
def test_neurons_of_our_lava_layers_are_membranes_of_real_numbers_too(seed, leak, current_leak):
    arriving = np.random.default_rng(seed).normal(size=(STEPS, SIZE))
    neuron = FloatReadout(bias=np.full(SIZE, 0.3), leak=leak, current_leak=current_leak)
    neurons = Neurons(membrane(neuron, STEPS), (SIZE,))
    for now, expected in zip(arriving, run(membrane(neuron, STEPS), arriving)[0], strict=True):
        assert not neurons.step(now).any()
        np.testing.assert_array_equal(neurons.voltage, expected)


@given(seed=seeds, decay=decays)
def test_the_scan_of_the_training_twin_is_a_membrane(seed, decay):
    neuron, arriving = lif(seed, decay_voltage=decay), integers(seed + 2, -3000, 6000, STEPS, SIZE)
    bias, threshold = (torch.tensor(64.0 * values) for values in (neuron.bias, neuron.threshold))
    spikes, charged = scan_integers(torch.tensor(1.0 * arriving), bias, threshold, STEPS, decay)
    expected = run(membrane(neuron, STEPS), arriving)
    np.testing.assert_array_equal(charged.numpy(), expected[0])
    np.testing.assert_array_equal(spikes.numpy().astype(bool), expected[1])


@given(seed=seeds, leak=st.floats(0, 1), current_leak=st.floats(0, 1))
def test_voltages_of_calibration_are_those_of_a_membrane(seed, leak, current_leak):
    arriving = np.random.default_rng(seed).normal(size=(STEPS, SIZE))
    neuron = FloatLif(
        threshold=np.full(SIZE, 0.7), bias=np.full(SIZE, 0.1), leak=leak, current_leak=current_leak
    )
    charged, spikes = run(membrane(neuron, STEPS), arriving)
    bias = torch.tensor(neuron.bias)[None]
    found = voltages(torch.tensor(arriving)[None, None], bias, torch.tensor(spikes)[None], leak, current_leak)
    np.testing.assert_array_equal(found[0, 0].numpy(), charged)


@pytest.mark.parametrize(
    ("integer", "real"),
    [
        (lif(0), FloatLif(threshold=np.ones(1), bias=np.zeros(1), leak=0.5)),
        (Readout(bias=np.zeros(1, int)), FloatReadout(bias=np.zeros(1))),
    ],
)
def test_rounding_keeps_what_others_ask_of_a_neuron(integer, real):
    assert neuron_kind(integer) == neuron_kind(real) and fires(integer) == fires(real)
    assert all((neuron_threshold(neuron) is not None) == fires(neuron) for neuron in (integer, real))
