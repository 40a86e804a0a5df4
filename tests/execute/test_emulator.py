"""The emulator equals the reference, bit by bit."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from networks import (
    LEAKING,
    assert_same_trace,
    charged,
    inputs_for,
    int_chain,
    int_graded,
    int_loop,
    int_products,
    int_residual,
    int_windows,
    softened,
    spiking_network,
    widened,
)
from properties import examples

from mpbn_deploy.base import SimulationError, same_records
from mpbn_deploy.execute import (
    EXECUTORS,
    ExecutionOptions,
    emulator as emulate_module,
    layers as layers_module,
    products as module,
)
from mpbn_deploy.execute.emulator import Emulator, emulate, peaks
from mpbn_deploy.execute.products import spike_product
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    STATE_LIMIT,
    Connection,
    Conv2d,
    Dense,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
    SoftLif,
    apply_synapse,
    bounds,
)


@examples(40)
@given(seed=st.integers(0, 2**32), steps=st.booleans(), delay=st.integers(0, 5))
def test_equals_the_reference_on_graphs_with_skips_and_delays(seed, steps, delay):
    """Of three time steps, so that some delays end after the last one."""
    network = int_residual(seed, delay=delay)
    inputs = inputs_for(network, seed=seed, steps=steps)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@examples(40)
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


@examples(30)
@given(seed=st.integers(0, 2**32), steps=st.booleans())
def test_equals_the_reference_where_windows_have_kernels_of_their_own(seed, steps):
    network = int_windows(seed)
    inputs = inputs_for(network, seed=seed, steps=steps)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@pytest.mark.parametrize("target", ["loihi2", "loihi1", "ice40-up5k", "unbounded"])
@pytest.mark.parametrize("seed", [0, 1])
def test_products_of_spikes_stay_products_in_integers(seed, target):
    network = int_products(seed, target)
    inputs = inputs_for(network, 9, seed=seed, steps=True)
    trace_ = simulate(network, inputs)
    assert_same_trace(trace_, emulate(network, inputs))
    for factors in (("k.lif", "v.lif"), ("q.lif", "context")):
        one, other = (f"block1.attention.{name}" for name in factors)
        (name,) = {
            p.name for p in network.layers if {c.source for c in network.entering(p.name)} == {one, other}
        }
        product = trace_.spikes[one] & trace_.spikes[other]
        assert product.any()
        np.testing.assert_array_equal(trace_.spikes[name], product)


@pytest.mark.parametrize(("levels", "signed"), [(3, False), (1, True), (2, True)])
def test_integer_and_ternary_spikes_are_equal(levels, signed):
    network = int_graded(levels, levels=levels, signed=signed)
    inputs = inputs_for(network, 9, steps=True)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


BUILDERS = st.sampled_from([int_chain, int_residual, int_windows, int_loop])


@examples(60)
@given(seed=st.integers(0, 2**32), build=BUILDERS, steps=st.booleans())
def test_equals_the_reference_where_some_populations_have_soft_resets(seed, build, steps):
    network = softened(build(seed), seed)
    inputs = inputs_for(network, seed=seed, steps=steps)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@examples(60)
@given(seed=st.integers(0, 2**32), build=BUILDERS, steps=st.booleans(), soft=st.booleans())
def test_equals_the_reference_where_some_populations_have_currents(seed, build, steps, soft):
    network = charged(softened(build(seed), seed) if soft else build(seed), seed)
    inputs = inputs_for(network, seed=seed, steps=steps)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@examples(40)
@given(
    seed=st.integers(0, 2**32),
    build=BUILDERS,
    kept=st.sampled_from([128, 1024, 2048, 4096, 3072]),
    exponent=st.integers(0, 7),
    soft=st.booleans(),
)
def test_decays_begin_to_truncate_where_the_reference_does(seed, build, kept, exponent, soft):
    """Halving needs no truncation as long as all states are multiples of enough powers of two."""
    network = build(seed, timesteps=10)
    populations = [network.input, *(_leaking(p, DECAY_ONE - kept, exponent) for p in network.layers)]
    network = replace(network, populations=tuple(populations))
    network = softened(network, seed) if soft else network
    inputs = inputs_for(network, seed=seed)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


def _leaking(population, decay, exponent):
    fields = {"decay_voltage": decay, "bias_exponent": exponent}
    fields |= {"decay_current": decay} if isinstance(population.neuron, Readout) else {}
    return population.with_neuron(replace(population.neuron, **fields))


@examples(40)
@given(seed=st.integers(0, 2**32), build=BUILDERS, soft=st.booleans())
def test_states_of_currents_stay_within_their_bounds(seed, build, soft):
    network = charged(softened(build(seed, timesteps=8), seed) if soft else build(seed, timesteps=8), seed)
    inputs = inputs_for(network, samples=8, seed=seed, steps=True)
    largest = peaks(network, inputs)
    for name, bound in bounds(network).items():
        assert largest[name].max() <= bound.magnitude


@examples(40)
@given(seed=st.integers(0, 2**32), build=BUILDERS)
def test_voltages_of_soft_resets_stay_within_their_bounds(seed, build):
    """After the reset in the trace, before it in the peaks."""
    network = softened(build(seed, timesteps=8), seed)
    inputs = inputs_for(network, samples=8, seed=seed, steps=True)
    trace_, largest = simulate(network, inputs), peaks(network, inputs)
    for name, bound in bounds(network).items():
        low, high = bound.voltage
        assert low <= trace_.voltages[name].min() and trace_.voltages[name].max() <= high
        assert largest[name].max() <= bound.magnitude


def climbing(timesteps, *, weight=100, subtrahend=50):
    """One neuron without a leak that gains more per step than a spike subtracts."""
    neuron = SoftLif(
        threshold=np.array([50]), subtrahend=np.array([subtrahend]), bias=np.array([0]), decay_voltage=0
    )
    return IntNetwork(
        populations=(
            Population(name="input", shape=(1,), neuron=Input(minimum=0, maximum=1)),
            Population(name="n", shape=(1,), neuron=neuron),
        ),
        connections=(Connection(source="input", target="n", synapse=Dense(weight=np.array([[weight]]))),),
        timesteps=timesteps,
        scales={},
    )


def test_the_bound_of_a_neuron_that_climbs_grows_with_the_time_steps():
    """50 * 64 per step: it fires in every step, and the last voltage before the reset is the bound."""
    for timesteps in (1, 10, 1000):
        network = climbing(timesteps)
        reached = peaks(network, np.ones((1, 1), int))["n"].item()
        assert bounds(network)["n"].voltage[1] == reached == (50 * timesteps + 50) * 64
        assert simulate(network, np.ones((1, 1), int)).spikes["n"].all()


@pytest.mark.parametrize(
    "network", [climbing(4000), climbing(200, weight=60, subtrahend=-1000)], ids=["input", "subtraction"]
)
def test_a_neuron_that_climbs_out_of_its_state_is_noticed(network):
    """A negative subtrahend adds: then the voltage after the reset is the largest."""
    assert not bounds(network)["n"].fits
    for execute in (simulate, emulate):
        with pytest.raises(SimulationError, match=r"n: a .* overflows the 24-bit state"):
            execute(network, np.ones((1, 1), int))


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
    monkeypatch.setattr(emulate_module, "MOST_SPIKES", 0)
    seen = []
    parts = emulate(network, inputs, progress=lambda chunks: seen.append(len(chunks)) or chunks)
    assert_same_trace(whole, parts)
    assert seen == [3]


@pytest.mark.parametrize("build", [int_residual, int_loop])
def test_parts_of_a_chunk_do_not_matter(build, monkeypatch):
    network = build()
    inputs = inputs_for(network, samples=5)
    whole = emulate(network, inputs)
    monkeypatch.setattr(emulate_module, "MOST_STATES", 2 * max(p.size for p in network.layers))
    assert_same_trace(whole, emulate(network, inputs))
    np.testing.assert_array_equal(whole.outputs, emulate(network, inputs, keep_trace=False).outputs)


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
    """Without oneDNN, torch would use NNPACK, whose transforms round."""
    network = wide_convolution()
    inputs = inputs_for(network, samples=32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about other effects of this switch
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
    """With an input range far from zero, the bound on the state does not bound the terms."""
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


def test_networks_that_could_overflow_are_watched():
    """They run, as in the reference, until a state overflows 24 bits; then both raise."""
    network = int_chain()
    first, *rest = network.connections
    wide = replace(first, synapse=replace(first.synapse, weight=np.full((4, 2, 3, 2), 20_000)))
    network = replace(network, connections=(wide, *rest))
    assert not bounds(network)["conv"].fits
    dark, bright = np.zeros((2, *network.input.shape), int), np.full((2, *network.input.shape), 7)
    assert_same_trace(simulate(network, dark), emulate(network, dark))
    for execute in (simulate, emulate):
        with pytest.raises(SimulationError, match=r"conv: a .* of magnitude .* overflows the 24-bit state"):
            execute(network, bright)


@examples(30)
@given(
    st.sampled_from([int_chain, int_residual, int_loop]),
    st.integers(0, 10**6),
    st.sampled_from([1, 100, 3000]),
    st.booleans(),
    st.booleans(),
)
def test_networks_of_others_overflow_as_in_the_reference(kind, seed, factor, soft, current):
    network = kind(seed)
    network = softened(network, seed) if soft else network
    network = widened(charged(network, seed) if current else network, factor)
    inputs = inputs_for(network, samples=3, seed=seed, steps=True)
    expected, got = simulate(network, inputs), emulate(network, inputs)
    assert_same_trace(expected, got)
    assert same_records(expected.overflows, got.overflows)
    assert bool(expected.overflows) or factor < 3000
    run = EXECUTORS["reference"].run(network, inputs, ExecutionOptions(keep_trace=False))
    assert same_records(expected.overflows, run.overflows)


def test_peaks_are_the_largest_states_before_reset():
    network = int_chain()
    inputs = inputs_for(network, samples=5)
    found = peaks(network, inputs)
    trace_ = simulate(network, inputs)
    for name, voltages in trace_.voltages.items():
        after = np.abs(voltages).max(axis=(0, 1)).reshape(len(found[name]), -1).max(axis=1)
        assert (found[name] >= after).all()
    output = np.abs(trace_.voltages["output"]).max(axis=(0, 1))
    assert (found["output"] >= output).all()


def test_rejects_wrong_inputs():
    with pytest.raises(SimulationError, match="the network takes"):
        emulate(int_chain(), np.zeros((3, 2, 2), int))
    with pytest.raises(SimulationError, match=r"0\.\.7"):
        emulate(int_chain(), np.full((3, 2, 6, 5), 99))


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"groups": 2}, {"dilation": 2, "padding": 2}])
def test_spikes_are_convolved_in_integers_as_in_floats(options):
    """Skipped where torch has no integer convolutions, and the emulator falls back to floats."""
    generator = np.random.default_rng(0)
    given = {"stride": 1, "padding": 1, "dilation": 1, "groups": 1} | options
    pairs = {name: (given[name],) * 2 for name in ("stride", "padding", "dilation")}
    weight = generator.integers(-127, 128, size=(6, 4 // given["groups"], 3, 3))
    synapse = Conv2d(weight=weight, groups=given["groups"], exponent=1, **pairs)
    convolve = spike_product(synapse, (4, 9, 8))
    if convolve is None:
        pytest.skip("this machine or this torch has no integer convolutions")
    spikes = generator.random((5, 4, 9, 8)) < 0.4
    expected = apply_synapse(synapse, spikes) * 2**STATE_EXPONENT
    np.testing.assert_array_equal(convolve(torch.tensor(spikes)).numpy(), expected)


def test_integer_networks_are_multiplied_in_integers_where_that_is_possible(monkeypatch):
    used = []
    monkeypatch.setattr(layers_module, "spike_product", lambda *given: used.append(spike_product(*given)))
    Emulator(int_chain())
    if None in used:
        pytest.skip("this machine or this torch has no integer products")
    assert len(used) == 2  # the input is graded


@pytest.mark.parametrize("size", [2, 3])
def test_a_composed_pool_is_taken_out_again(size):
    generator = np.random.default_rng(0)
    kernel = generator.integers(-127, 128, size=(6, 4, 3, 3))
    weight = kernel.repeat(size, axis=2).repeat(size, axis=3)
    synapse = Conv2d(weight=weight, stride=(size, size), padding=(size, size), exponent=-1)
    found = module._without_pool(synapse, (12, 18))
    np.testing.assert_array_equal(found.weight, kernel)
    assert (found.stride, found.padding) == ((1, 1), (1, 1))
    other = weight.copy()
    other[0, 0, 0, 0] += 1
    assert module._without_pool(replace(synapse, weight=other), (12, 18)) is None
    assert module._without_pool(synapse, (13, 18)) is None
    convolve = spike_product(synapse, (4, 12, 18))
    if convolve is None:
        pytest.skip("this machine or this torch has no integer convolutions")
    spikes = generator.random((5, 4, 12, 18)) < 0.4
    expected = apply_synapse(synapse, spikes) * 2**STATE_EXPONENT
    np.testing.assert_array_equal(convolve(torch.tensor(spikes)).numpy(), expected)


def test_networks_run_alike_without_integer_convolutions(monkeypatch):
    network = int_residual()
    inputs = inputs_for(network, samples=4)
    fast = emulate(network, inputs)
    monkeypatch.setattr(layers_module, "spike_product", lambda *arguments: None)
    assert_same_trace(fast, emulate(network, inputs))


def test_weights_beyond_eight_bits_are_convolved_in_floats():
    synapse = Conv2d(weight=np.full((2, 2, 3, 3), 200))
    assert spike_product(synapse, (2, 8, 8)) is None


def test_an_emulator_runs_again_and_again():
    network = int_chain()
    emulator = Emulator(network)
    for seed in range(3):
        inputs = inputs_for(network, samples=2 + seed, seed=seed)
        assert_same_trace(simulate(network, inputs), emulator.run(inputs))
