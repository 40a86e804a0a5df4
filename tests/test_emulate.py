"""The emulator is the reference, bit by bit."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    LEAKING,
    assert_same_trace,
    inputs_for,
    int_chain,
    int_residual,
    int_windows,
    spiking_network,
)

from mpbn_deploy import emulate as emulate_module
from mpbn_deploy.bounds import bounds
from mpbn_deploy.emulate import emulate
from mpbn_deploy.errors import SimulationError
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.graph import Connection, Conv2d, Population
from mpbn_deploy.int_ir import STATE_LIMIT, Input, IntNetwork, Lif
from mpbn_deploy.simulate import simulate


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.booleans(), delay=st.integers(0, 2))
def test_equals_the_reference_on_graphs_with_skips_and_delays(seed, steps, delay):
    network = int_residual(seed, delay=delay)
    inputs = inputs_for(network, seed=seed, steps=steps)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    groups=st.sampled_from([1, 2]),
    per_neuron=st.booleans(),
    readout=st.sampled_from([{}, LEAKING]),
)
def test_equals_the_reference_on_chains(seed, groups, per_neuron, readout):
    network = int_chain(seed, groups=groups, per_neuron=per_neuron, **readout)
    inputs = inputs_for(network, seed=seed)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.booleans())
def test_equals_the_reference_where_windows_have_kernels_of_their_own(seed, steps):
    network = int_windows(seed)
    inputs = inputs_for(network, seed=seed, steps=steps)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@pytest.mark.parametrize("leaks", [{}, {"leak": 0.75}, {"leak": 0.5, "current_leak": 0.25}])
def test_equals_the_reference_in_float64(leaks):
    network = fold(trace(spiking_network()))
    *front, last = network.populations
    network = replace(network, populations=(*front, replace(last, neuron=replace(last.neuron, **leaks))))
    inputs = inputs_for(network, samples=20)
    expected, got = simulate(network, inputs), emulate(network, inputs)
    for name in expected.spikes:
        np.testing.assert_array_equal(expected.spikes[name], got.spikes[name])
    np.testing.assert_allclose(expected.outputs, got.outputs, rtol=1e-12)


def test_chunks_do_not_matter(monkeypatch):
    network = int_chain()
    inputs = inputs_for(network, samples=7)
    whole = emulate(network, inputs)
    monkeypatch.setattr(emulate_module, "CHUNK", 3)
    seen = []
    parts = emulate(network, inputs, watch=lambda chunks, total: seen.append(total) or chunks)
    assert_same_trace(whole, parts)
    assert seen == [3]


def test_without_record_only_outputs_remain():
    network = int_chain()
    inputs = inputs_for(network)
    silent = emulate(network, inputs, keep_trace=False)
    assert silent.spikes == {} and silent.voltages == {}
    np.testing.assert_array_equal(silent.outputs, emulate(network, inputs).outputs)


def test_is_exact_up_to_the_edge_of_the_state():
    """Sums whose positive and negative terms each fill the state: the most that float32 must hold."""
    network = int_chain(timesteps=1)
    first, *rest = network.connections
    signs = np.where(np.arange(48).reshape(4, 2, 3, 2) % 2, 1, -1)
    weight = signs * (STATE_LIMIT // (6 * 7))  # six of each sign, times inputs of up to seven
    wide = replace(first, synapse=replace(first.synapse, weight=weight, exponent=-6))
    network = replace(network, connections=(wide, *rest), populations=_without_bias(network))
    assert bounds(network)["conv"].magnitude > 0.999 * STATE_LIMIT
    inputs = inputs_for(network, samples=20)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


def _without_bias(network):
    first, conv, *rest = network.populations
    neuron = replace(conv.neuron, bias=np.zeros_like(conv.neuron.bias))
    return (first, replace(conv, neuron=neuron), *rest)


def test_is_exact_without_onednn():
    """Then torch would transform convolutions in ways that round."""
    network = wide_convolution()
    inputs = inputs_for(network, samples=32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of other things that this switch could do
        with torch.backends.mkldnn.flags(enabled=False):
            got = emulate(network, inputs)
    assert_same_trace(simulate(network, inputs), got)


def wide_convolution():
    generator = np.random.default_rng(0)
    shape = (48, 8, 8)
    neuron = Lif(threshold=np.full((48, 1, 1), 900), bias=np.zeros((48, 1, 1), int), decay_voltage=3072)
    synapse = Conv2d(weight=generator.integers(-127, 128, size=(48, 48, 3, 3)), padding=(1, 1))
    return IntNetwork(
        populations=(
            Population(name="input", shape=shape, neuron=Input(minimum=0, maximum=1)),
            Population(name="n", shape=shape, neuron=neuron),
        ),
        connections=(Connection(source="input", target="n", synapse=synapse),),
        timesteps=2,
        scales={"n": np.ones(48)},
    )


def test_takes_float64_where_sums_could_round():
    """A range without zero: the bound of the state says nothing of the size of the terms."""
    network = int_chain(timesteps=1)
    source = replace(network.populations[0], neuron=Input(minimum=2**24, maximum=2**24 + 1))
    first, *rest = network.connections
    weight = np.zeros((4, 2, 3, 2), int)
    weight[:, 0, 0], weight[:, 1, 0] = 1, -1
    unpadded = replace(first, synapse=replace(first.synapse, weight=weight, exponent=0))
    network = replace(network, populations=(source, *network.populations[1:]), connections=(unpadded, *rest))
    assert bounds(network)["conv"].fits
    inputs = inputs_for(network, samples=20)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))
    beyond = replace(source, neuron=Input(minimum=2**53, maximum=2**53))
    with pytest.raises(SimulationError, match="too large to be exact"):
        far = replace(network, populations=(beyond, *network.populations[1:]))
        emulate(far, inputs_for(far))


def test_refuses_networks_that_could_overflow():
    network = int_chain()
    first, *rest = network.connections
    wide = replace(first, synapse=replace(first.synapse, weight=np.full((4, 2, 3, 2), 20_000)))
    with pytest.raises(SimulationError, match="conv"):
        emulate(replace(network, connections=(wide, *rest)), inputs_for(network))


def test_refuses_wrong_inputs():
    with pytest.raises(SimulationError, match="the network takes"):
        emulate(int_chain(), np.zeros((3, 2, 2), int))
    with pytest.raises(SimulationError, match=r"0\.\.7"):
        emulate(int_chain(), np.full((3, 2, 6, 5), 99))
