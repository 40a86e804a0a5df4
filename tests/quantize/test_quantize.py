"""Integers: in format, without overflow, and as close as rounding allows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from networks import (
    CURRENTS,
    LOOPS,
    RESETS,
    SOFT,
    Residual,
    assert_same_trace,
    enlivened,
    inputs_for,
    int_windows,
    spiking_network,
)
from properties import examples
from torch import nn

from mpbn_deploy.base import NetworkError, OptionError, QuantizeError
from mpbn_deploy.execute.emulator import emulate, peaks
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import coarsen_inputs, fold, offset_inputs
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import weight_bits
from mpbn_deploy.ir import (
    STATE_EXPONENT,
    STATE_LIMIT,
    Connection,
    Dense,
    FloatLif,
    FoldedNetwork,
    Input,
    Population,
    apply_synapse,
    bounds,
    neuron_subtrahend,
    neuron_threshold,
    soft_reset,
)
from mpbn_deploy.ir.intervals import synapse_interval
from mpbn_deploy.quantize import NumberFormats, quantize
from mpbn_deploy.quantize.scales import choose_grid, grid_exponent

LOIHI2 = load_profile("loihi2")


def folded_network(seed=0, **options):
    return fold(trace(spiking_network(seed, **options)))


def layer(weight, threshold, bias=None, maximum=1, timesteps=2, leak=0.25, current_leak=0.0):
    """One dense layer of float neurons."""
    weight, threshold = np.atleast_2d(weight).astype(float), np.atleast_1d(threshold).astype(float)
    bias = np.zeros(len(weight)) if bias is None else np.atleast_1d(bias).astype(float)
    neuron = FloatLif(threshold=threshold, bias=bias, leak=leak, current_leak=current_leak)
    return FoldedNetwork(
        populations=(
            Population(name="input", shape=(weight.shape[1],), neuron=Input(minimum=0, maximum=maximum)),
            Population(name="layer", shape=(len(weight),), neuron=neuron),
        ),
        connections=(Connection(source="input", target="layer", synapse=Dense(weight=weight)),),
        timesteps=timesteps,
    )


@examples(30)
@given(seed=st.integers(0, 2**31), bits=st.integers(2, 8), resets=st.sampled_from(RESETS))
def test_everything_is_in_format_and_no_state_can_overflow(seed, bits, resets):
    network = quantize(folded_network(seed, resets=resets), LOIHI2, weight_bits=bits).network
    assert all(bound.magnitude <= STATE_LIMIT for bound in bounds(network).values())
    for connection in network.connections:
        assert weight_bits(connection.synapse.weight) <= bits
        assert np.abs(connection.synapse.weight).max() <= 127
    for population in network.populations[1:]:
        assert np.abs(population.neuron.bias).max() <= 4095
        for values in (neuron_threshold(population.neuron), neuron_subtrahend(population.neuron)):
            assert values is None or np.abs(values).max() <= 131071


def test_integers_are_the_rounded_reals_and_thresholds_round_down():
    folded = folded_network()
    network = quantize(folded, LOIHI2).network
    for real, integer in zip(folded.connections, network.connections, strict=True):
        weight = real.synapse.weight
        scaled = weight * network.scales[real.target].reshape(-1, *(1,) * (weight.ndim - 1))
        assert np.abs(scaled - integer.synapse.weight).max() <= 0.5
    neuron, floored = folded.populations[1].neuron, network.populations[1].neuron
    scaled = neuron.threshold * network.scales["lif1"].reshape(-1, 1, 1)
    np.testing.assert_array_equal(floored.threshold, np.floor(scaled))
    assert floored.decay_voltage == 3072


def test_exact_integers_stay_exact():
    """Weights that are integers already decide every spike of the first step as the floats do."""
    generator = np.random.default_rng(0)
    weight = generator.integers(-127, 128, size=(6, 8)).astype(float)
    weight[:, 0] = 127
    folded = layer(weight, generator.uniform(-200, 400, 6), maximum=3, timesteps=1)
    inputs = generator.integers(0, 4, size=(200, 8))
    real, integer = simulate(folded, inputs), simulate(quantize(folded, LOIHI2).network, inputs)
    np.testing.assert_array_equal(real.spikes["layer"], integer.spikes["layer"])


def test_readout_channels_share_one_scale():
    network = quantize(folded_network(), LOIHI2).network
    assert len(set(network.scales["output"])) == 1
    assert len(set(network.scales["lif2"])) > 1


def test_large_inputs_lower_the_scale_instead_of_overflowing():
    folded = layer(np.ones((1, 27)), 5.0, maximum=255)
    quantized = quantize(folded, LOIHI2)
    network = quantized.network
    assert network.connections[0].synapse.weight.max() < 127
    described = quantized.errors[0].to_json()
    assert described["channels_limited_by"]["state"] == 1
    assert 0.75 * STATE_LIMIT < bounds(network)["layer"].magnitude <= STATE_LIMIT


def test_large_biases_lower_the_scale_instead_of_being_clipped():
    folded = layer([[1.0, -0.5]], 100.2, bias=100.0)
    quantized = quantize(folded, LOIHI2)
    network = quantized.network
    assert network.populations[1].neuron.bias.item() == 4095
    assert quantized.errors[0].to_json()["channels_limited_by"]["bias"] == 1


@pytest.mark.parametrize(
    ("threshold", "fires"), [(1e6, False), (-1e6, True), (np.inf, False), (-np.inf, True)]
)
def test_channels_with_thresholds_out_of_reach_need_no_weights(threshold, fires):
    folded = layer([[1.0, -1.0]], threshold)
    quantized = quantize(folded, LOIHI2)
    network = quantized.network
    assert not network.connections[0].synapse.weight.any()
    assert quantized.errors[0].to_json()["thresholds_beyond_reach"] == 1
    spikes = simulate(network, np.array([[0, 1], [1, 0], [1, 1], [0, 0]])).spikes["layer"]
    assert spikes.all() if fires else not spikes.any()


def test_an_all_zero_channel_is_held():
    network = quantize(layer([[0.0, 0.0], [1.0, 1.0]], [0.0, 1.0]), LOIHI2).network
    assert network.connections[0].synapse.weight[0].tolist() == [0, 0]
    assert np.isfinite(network.scales["layer"]).all()


def test_many_large_inputs_are_held():
    """A perceptron on 8-bit pictures: rounding adds up, so the scale settles below what reals would allow."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(8, 784)), np.full(8, 5.0), maximum=255, timesteps=4)
    network = quantize(folded, LOIHI2).network
    assert 0.9 * STATE_LIMIT < bounds(network)["layer"].magnitude <= STATE_LIMIT
    assert np.abs(network.connections[0].synapse.weight).max() > 1


@pytest.mark.parametrize("leak", [0.9999, 0.33, 0.0])
def test_leaks_that_the_register_rounds_up_do_not_overflow(leak):
    folded = layer([[1.0, -1.0, 0.5]], 1e6, maximum=20, timesteps=500, leak=leak)
    assert bounds(quantize(folded, LOIHI2).network)["layer"].fits


def test_what_no_scale_can_hold_is_refused():
    """A readout counts for so long that even a bias of one per step would overflow."""
    from mpbn_deploy.ir import FloatReadout

    folded = layer([[1.0]], 1.0, maximum=10**6, timesteps=300)
    readout = replace(folded.populations[1], neuron=FloatReadout(bias=np.zeros(1)))
    endless = replace(folded, populations=(folded.populations[0], readout))
    quantized = quantize(endless, LOIHI2)  # the weight is rounded away, and that is counted
    silent = quantized.network
    assert silent.connections[0].synapse.weight.item() == 0
    assert quantized.errors[0].to_json()["weight_error_rms"] > 0


def test_no_scale_is_ever_zero():
    """A format that holds nothing but zero, and numbers beyond those of float32."""
    profile = load_profile("loihi2")
    bits = replace(profile.limit("formats.bias_mantissa_bits"), value=1)
    narrow = replace(profile, limits={**profile.limits, "formats.bias_mantissa_bits": bits})
    folded = fold(trace(spiking_network()))
    with pytest.raises(QuantizeError, match="lif1: no scale above zero fits its largest bias into"):
        quantize(folded, narrow)
    first = folded.connections[0]
    with pytest.raises(NetworkError, match=r"weights of up to 1e\+300; allowed are those of float32"):
        huge = replace(first.synapse, weight=np.full_like(first.synapse.weight, 1e300))
        replace(folded, connections=(replace(first, synapse=huge), *folded.connections[1:]))
    largest = replace(first.synapse, weight=np.full_like(first.synapse.weight, 3e38))
    whole = replace(folded, connections=(replace(first, synapse=largest), *folded.connections[1:]))
    scales = quantize(whole, profile).network.scales
    assert all((values > 0).all() and np.isfinite(values).all() for values in scales.values())


def test_a_neuron_that_never_fires_in_float_never_fires_in_integers():
    """Rounding can add up: a thousand weights of 0.6 become 1."""
    weight = np.array([[127.0, *[0.6] * 1000]])
    folded = layer(weight, np.inf, timesteps=1)
    network = quantize(folded, LOIHI2).network
    assert not simulate(network, np.ones((1, 1001), int)).spikes["layer"].any()
    coarse = quantize(layer([[1.0, 0.6, 0.6, 0.6, 0.6]], 10.0), LOIHI2, weight_bits=2).network
    assert not simulate(coarse, np.ones((1, 5), int)).spikes["layer"].any()


@pytest.mark.parametrize("sign", [1, -1])
def test_constant_neurons_stay_constant_over_many_steps(sign):
    """A voltage that is never reset piles up: no threshold may stand in the way of its bound."""
    weight = sign * np.array([[1.0, 0.6, 0.6, 0.6, 0.6]])
    reach = 3.4 * sum(0.9**step for step in range(10))
    folded = layer(weight, sign * 1.0001 * reach, timesteps=10, leak=0.9)
    network = quantize(folded, LOIHI2, weight_bits=2).network
    spikes = simulate(network, np.ones((1, 5), int)).spikes["layer"]
    assert spikes.all() if sign < 0 else not spikes.any()
    assert bounds(network)["layer"].fits


@examples(30)
@given(threshold=st.floats(-1e4, 1e4), scale=st.floats(0.01, 100))
def test_thresholds_stay_in_format(threshold, scale):
    network = quantize(layer([[scale, -scale]], threshold), LOIHI2).network
    assert abs(network.populations[1].neuron.threshold.item()) <= 131071


def test_a_dense_layer_onto_a_picture():
    weight = np.random.default_rng(0).normal(size=(12, 5))
    neuron = FloatLif(threshold=np.ones((3, 1, 1)), bias=np.zeros((3, 1, 1)), leak=0.25)
    folded = FoldedNetwork(
        populations=(
            Population(name="input", shape=(5,), neuron=Input(minimum=0, maximum=1)),
            Population(name="picture", shape=(3, 2, 2), neuron=neuron),
        ),
        connections=(Connection(source="input", target="picture", synapse=Dense(weight=weight)),),
        timesteps=2,
    )
    network = quantize(folded, LOIHI2).network
    rows = network.connections[0].synapse.weight.reshape(3, -1)
    assert (np.abs(rows).max(axis=1) == 127).all()


def test_calibration_removes_the_mean_error_of_coarse_weights():
    folded = folded_network(gains="positive")
    inputs = inputs_for(folded, samples=200)
    wanted = emulate(folded, inputs).spikes

    def mean_rate_error(network):
        spikes = emulate(network, inputs).spikes
        return np.mean(
            [abs(spikes[n].mean((0, 1)) - wanted[n].mean((0, 1))).mean() for n in ("lif1", "lif2")]
        )

    plain = quantize(folded, LOIHI2, weight_bits=2).network
    corrected = quantize(folded, LOIHI2, inputs, weight_bits=2).network
    assert mean_rate_error(corrected) < mean_rate_error(plain)


def test_the_same_twice():
    first, second = (quantize(folded_network(), LOIHI2).network for _ in range(2))
    assert all(np.array_equal(a.synapse.weight, b.synapse.weight)
               for a, b in zip(first.connections, second.connections, strict=True))  # fmt: skip


@pytest.mark.parametrize("bits", [1, 9])
def test_refuses_bits_that_the_target_does_not_hold(bits):
    with pytest.raises(OptionError, match=rf"weight bits {bits}; loihi2 supports .* 2\.\.8"):
        quantize(folded_network(), LOIHI2, weight_bits=bits)


def test_a_leak_of_zero_is_the_largest_decay_that_the_register_holds():
    quantized = quantize(layer([[1.0]], 0.5, leak=0.0), LOIHI2)
    network = quantized.network
    assert network.populations[1].neuron.decay_voltage == 4095
    described = quantized.errors[0].to_json()
    assert described["leak_error"] == pytest.approx(1 / 4096)


def test_bounds_hold_for_every_input_and_are_reached():
    """The bound of a neuron that sees the worst input in its first step is that voltage."""
    network = quantize(layer([[1.0, -1.0]], 2.5, maximum=3, timesteps=1), LOIHI2).network
    deaf = replace(network.populations[1].neuron, threshold=np.array([100_000]))
    network = replace(
        network, populations=(network.populations[0], replace(network.populations[1], neuron=deaf))
    )
    trace_ = simulate(network, np.array([[3, 0], [0, 3]]))
    worst = 127 * 3 << STATE_EXPONENT
    assert trace_.voltages["layer"].ravel().tolist() == [worst, -worst]
    assert bounds(network)["layer"].voltage == (-worst, worst)


def test_bounds_count_each_window_for_its_own_neurons():
    """With ones for positive weights and zeros for others, the current of a neuron is its bound."""
    network = int_windows(timesteps=1)
    low, high = synapse_interval(network, "last")
    shape = next(p.shape for p in network.populations if p.name == "first")
    pixels = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    terms = sum(apply_synapse(c.synapse, pixels) for c in network.entering("last"))
    late = apply_synapse(network.connections[-1].synapse, pixels)
    now = terms - late  # what a delay holds back comes from another step
    np.testing.assert_array_equal(high, (np.maximum(now, 0) + np.maximum(late, 0)).sum(axis=0))
    np.testing.assert_array_equal(low, (np.minimum(now, 0) + np.minimum(late, 0)).sum(axis=0))


@examples(20)
@given(
    seed=st.integers(0, 2**31),
    resets=st.sampled_from(RESETS),
    leak=st.sampled_from([0.25, 1.0]),
    currents=st.sampled_from(CURRENTS),
    recurrent=st.sampled_from(LOOPS),
)
def test_no_voltage_is_ever_outside_its_bound(seed, resets, leak, currents, recurrent):
    options = {"resets": resets, "leak": leak, "currents": currents, "recurrent": recurrent}
    network = quantize(folded_network(seed, timesteps=5, **options), LOIHI2).network
    assert all(bound.fits for bound in bounds(network).values())
    result = simulate(network, inputs_for(network, samples=10, seed=seed, steps=True))
    for name, bound in bounds(network).items():
        low, high = bound.voltage
        assert low <= result.voltages[name].min() and result.voltages[name].max() <= high


def test_corrections_that_could_overflow_are_not_made():
    """A channel that fills the state already keeps its bias."""
    folded = layer(np.ones((1, 27)), 5.0, maximum=255)
    network = quantize(folded, LOIHI2, np.full((4, 27), 255)).network
    assert bounds(network)["layer"].fits


def test_scales_that_never_settle_are_refused(monkeypatch):
    from mpbn_deploy.quantize import rounding as module

    monkeypatch.setattr(module, "lowered", lambda scales, excess: scales)
    with pytest.raises(QuantizeError, match="layer: even with weights rounded to zero"):
        quantize(layer(np.full((1, 784), 0.6), 5.0, maximum=255), LOIHI2)


def test_bounds_know_that_delayed_input_starts_with_nothing():
    folded = layer([[1.0, -1.0]], 5.0, maximum=9)
    network = quantize(folded, LOIHI2).network
    source = replace(network.populations[0], neuron=Input(minimum=5, maximum=9))
    delayed = replace(
        network,
        populations=(source, network.populations[1]),
        connections=(replace(network.connections[0], delay=1),),
    )
    low, high = bounds(delayed)["layer"].current
    assert low == -127 * 9 * 64 and high == 127 * 9 * 64


def test_bounds_count_what_a_loop_adds():
    """A neuron that drives itself: the bound is reached when it fires in every step but the first."""
    folded = layer([[1.0]], 0.5, timesteps=4, leak=1.0)
    loop = Connection(source="layer", target="layer", synapse=Dense(weight=np.array([[3.0]])), delay=1)
    folded = replace(folded, connections=(*folded.connections, loop))
    network = quantize(folded, LOIHI2).network
    weights = [int(c.synapse.weight.item()) << c.synapse.exponent for c in network.connections]
    largest = peaks(network, np.ones((1, 4, 1)))["layer"]
    assert largest.item() == 64 * sum(weights)
    assert bounds(network)["layer"].current[1] == 64 * sum(weights)
    with_room = quantize(folded, LOIHI2, np.ones((1, 4, 1)), overflow="measured")
    assert simulate(with_room.network, np.ones((1, 4, 1))).spikes["layer"].all()


@pytest.mark.parametrize("thresholds", ["own", "shared"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_leaks_of_their_own_are_rounded_one_by_one(thresholds, calibrated):
    """Decays that are whole, in neurons and in channels; the largest rounding error is in the report."""
    generator = np.random.default_rng(0)
    leaks = np.array([0.0, 0.25, 0.5, 0.75])
    folded = layer(
        generator.normal(size=(4, 9)), np.full(4, 1.0), timesteps=6, leak=leaks, current_leak=leaks
    )
    inputs = inputs_for(folded, samples=40, steps=True)
    quantized = quantize(folded, LOIHI2, inputs if calibrated else None, thresholds=thresholds)
    neuron = quantized.network.layers[0].neuron
    assert neuron.decay_voltage.tolist() == [4095, 3072, 2048, 1024]
    assert neuron.decay_current.tolist() == [4096, 3072, 2048, 1024]
    assert quantized.errors[0].leak_error == 1 / 4096
    expected, got = simulate(folded, inputs).spikes["layer"], simulate(quantized.network, inputs)
    assert np.mean(expected != got.spikes["layer"]) < 0.03
    assert_same_trace(got, emulate(quantized.network, inputs))


@examples(25)
@given(st.integers(0, 10**6), st.sampled_from((0.0, 0.25, 0.5, 0.9, 1.0)))
def test_currents_that_leak_fit_and_fire_as_in_float(seed, current_leak):
    """Weights that need no rounding, thresholds between voltages, a leak that the register holds."""
    generator = np.random.default_rng(seed)
    weight = generator.integers(-127, 128, size=(6, 4))
    weight[:, 0] = 127  # so that every scale is one, or lower where states would overflow
    threshold = generator.integers(50, 900, size=6) + 0.4
    folded = layer(weight, threshold, timesteps=5, leak=0.5, current_leak=current_leak)
    network = quantize(folded, LOIHI2, weight_bits=8).network
    neuron = network.output.neuron
    assert abs(neuron.decay_current - (1 - current_leak) * 4096) <= 1
    assert all(bound.fits for bound in bounds(network).values())
    inputs = generator.integers(0, 2, size=(8, 5, 4))
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))
    assert_same_trace(simulate(folded, inputs), emulate(folded, inputs))
    agreement = np.mean(simulate(folded, inputs).spikes["layer"] == simulate(network, inputs).spikes["layer"])
    assert agreement > 0.95


# ---- soft resets --------------------------------------------------------------------------------


def soft_layer(weight, threshold, subtrahend, **options):
    """One dense layer of float neurons with a soft reset."""
    folded = layer(weight, threshold, **options)
    hard = folded.layers[0]
    soft = hard.with_neuron(soft_reset(hard.neuron, np.atleast_1d(subtrahend).astype(float)))
    return replace(folded, populations=(folded.input, soft))


@examples(25)
@given(seed=st.integers(0, 10**6), leak=st.sampled_from((0.0, 0.5, 1.0)))
def test_soft_resets_that_need_no_rounding_fire_as_in_float(seed, leak):
    """Whole weights and subtrahends; the largest weight makes every scale one."""
    generator = np.random.default_rng(seed)
    weight = generator.integers(-127, 128, size=(6, 4))
    weight[:, :2] = 127, -127  # one scale for all, and no neuron that always fires
    threshold, subtrahend = generator.integers(-50, 120, size=6), generator.integers(-90, 200, size=6)
    if leak == 0:  # no voltage may equal a threshold: the register ends at 4095, which keeps 1/4096 of it
        sums = weight @ np.indices((2,) * 4).reshape(4, -1)
        while (tied := (sums == threshold[:, None]).any(axis=1)).any():
            threshold += tied
    folded = soft_layer(weight, threshold + 0.4, subtrahend, timesteps=5, leak=leak)
    network = quantize(folded, LOIHI2).network
    np.testing.assert_array_equal(network.scales["layer"], 1)
    np.testing.assert_array_equal(network.layers[0].neuron.subtrahend, subtrahend)
    assert all(bound.fits for bound in bounds(network).values())
    inputs = generator.integers(0, 2, size=(8, 5, 4))
    real, integer = (simulate(each, inputs).spikes["layer"] for each in (folded, network))
    if leak != 0.5:  # a half is truncated
        np.testing.assert_array_equal(real, integer)
    assert np.mean(real == integer) > 0.95


def test_neurons_that_subtract_their_threshold_still_do_as_integers():
    """Some chips can subtract nothing else; other subtrahends are rounded to the nearest."""
    folded = soft_layer(np.array([[1.0], [1.0], [1.0]]), [0.77, 0.77, 0.77], [0.77, 0.7701, -0.77])
    neuron = quantize(folded, LOIHI2).network.layers[0].neuron
    assert (127 * 0.77 - 97) > 0.5  # so that rounding down and rounding to the nearest differ
    assert neuron.threshold.tolist() == [97, 97, 97]
    assert neuron.subtrahend.tolist() == [97, 98, -98]


def test_more_time_steps_lower_the_scale_of_a_neuron_that_climbs():
    """Without a leak, it gains more in each step than a spike subtracts."""
    scales = []
    for timesteps in (4, 400):
        folded = soft_layer(np.full((1, 9), 20.0), 50.0, 50.0, maximum=9, timesteps=timesteps, leak=1.0)
        quantized = quantize(folded, LOIHI2)
        scales.append(quantized.network.scales["layer"].item())
        bound = bounds(quantized.network)["layer"]
        reached = peaks(quantized.network, np.full((1, 9), 9))["layer"].item()
        assert bound.fits and bound.voltage[1] >= reached > 0.9 * bound.voltage[1]
    assert scales[1] < 0.1 * scales[0]
    assert quantized.errors[0].to_json()["channels_limited_by"]["state"] == 1


def test_a_subtrahend_beyond_the_format_lowers_the_scale():
    quantized = quantize(soft_layer([[1.0]], 0.5, 5000.0, timesteps=1), LOIHI2)
    assert quantized.network.layers[0].neuron.subtrahend.item() <= 131071
    limited = quantized.errors[0].to_json()["channels_limited_by"]
    assert limited["subtrahend"] + limited["state"] == 1


@pytest.mark.parametrize("leak", [0.25, 1.0])
@pytest.mark.parametrize("threshold", [-np.inf, np.inf, 1e9])
def test_soft_neurons_that_are_constant_stay_constant(threshold, leak):
    folded = soft_layer([[3.0, -2.0]], threshold, 5.0, timesteps=60, leak=leak)
    network = quantize(folded, LOIHI2).network
    assert bounds(network)["layer"].fits
    spikes = simulate(network, np.array([[1, 0], [0, 1], [0, 0]])).spikes["layer"]
    assert spikes.all() if threshold < 0 else not spikes.any()


def test_a_soft_neuron_that_fires_once_from_zero_is_not_constant():
    """A bias above the threshold fires in every step after a reset to zero, but not after a subtraction."""
    folded = soft_layer([[0.25]], 1.0, 8.0, bias=2.0, timesteps=4, leak=1.0)
    network = quantize(folded, LOIHI2).network
    inputs = np.array([[0], [1]])
    real, integer = (simulate(each, inputs).spikes["layer"] for each in (folded, network))
    assert 0 < real.mean() < 1
    np.testing.assert_array_equal(real, integer)


@pytest.mark.parametrize("target", ["loihi2", "loihi1"])
def test_calibration_of_soft_resets(target):
    """Loihi 1 has positive thresholds, few per core: biases take over the rest."""
    profile = load_profile(target)
    folded = folded_network(2, resets=SOFT, timesteps=4)
    inputs = inputs_for(folded, samples=48)
    wanted = simulate(folded, inputs).spikes
    flips = []
    for network in (
        quantize(folded, profile, weight_bits=4).network,
        quantize(folded, profile, inputs, weight_bits=4).network,
    ):
        found = simulate(network, inputs)
        assert_same_trace(found, emulate(network, inputs))
        assert all(bound.fits for bound in bounds(network).values())
        flips.append(sum(int((found.spikes[name] != wanted[name]).sum()) for name in ("lif1", "lif2")))
    assert flips[1] < flips[0]


def test_calibration_counts_what_a_current_keeps():
    """An error of the mean input adds up in a current that leaks slowly; the bias takes it away again."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(8, 30)), np.full(8, 9.0), timesteps=8, leak=0.9, current_leak=0.8)
    inputs = generator.integers(0, 2, size=(64, 30))
    plain = quantize(folded, LOIHI2, weight_bits=3).network
    corrected = quantize(folded, LOIHI2, inputs, weight_bits=3).network
    wanted = emulate(folded, inputs).spikes["layer"].mean(axis=(0, 1))
    errors = [
        np.abs(emulate(n, inputs).spikes["layer"].mean(axis=(0, 1)) - wanted).mean()
        for n in (plain, corrected)
    ]
    assert errors[1] < errors[0]


def test_calibration_of_a_matrix_onto_a_picture():
    """Windows with different weights become a dense synapse onto (channels, height, width)."""
    torch.manual_seed(0)
    pool = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
    body = Residual((2, 7, 8), pool=pool, shortcut="average", stride=1, mpbn="channel")
    folded = fold(trace(enlivened(body, shape=(2, 7, 8))))
    inputs = inputs_for(folded, samples=8)
    network = quantize(folded, load_profile("loihi2"), inputs).network
    assert any(isinstance(c.synapse, Dense) and c.target == "lif3" for c in network.connections)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


def test_states_that_are_only_measured_allow_larger_scales_and_are_named():
    """Pixels that are never all bright together: intervals expect them, calibration does not see them."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(8, 784)), np.full(8, 500.0), maximum=255, timesteps=4)
    inputs = generator.integers(0, 256, size=(64, 784)) * (generator.random((64, 784)) < 0.004)
    results = quantize(folded, LOIHI2, inputs), quantize(folded, LOIHI2, inputs, overflow="measured")
    proved, measured = (result.network for result in results)
    believed, told = (result.errors[0].to_json() for result in results)
    assert (measured.scales["layer"] > 1.5 * proved.scales["layer"]).all()
    assert bounds(proved)["layer"].fits and not bounds(measured)["layer"].fits
    assert_same_trace(simulate(measured, inputs), emulate(measured, inputs))
    assert told["channels_limited_by"]["weight"] > 0
    assert believed["channels_limited_by"]["state"] == 8
    assert not told["overflow_proved_absent"] and any("is not proved" in note for note in told["notes"])
    assert believed["overflow_proved_absent"]
    errors = [
        np.mean(simulate(folded, inputs).spikes["layer"] != simulate(network, inputs).spikes["layer"])
        for network in (proved, measured)
    ]
    assert errors[1] <= errors[0]


def test_weights_that_the_proof_leaves_no_bits_for_are_reported_with_a_remedy():
    """As in snnTorch's tutorial 5: a slow leak, many steps, bytes."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(8, 784)), np.full(8, 255.0), maximum=255, timesteps=25, leak=0.95)
    folded = replace(
        folded,
        populations=tuple(
            p.with_neuron(soft_reset(p.neuron, p.neuron.threshold)) if p.name == "layer" else p
            for p in folded.populations
        ),
    )
    quantized = quantize(folded, LOIHI2)
    (cost,) = quantized.lost
    assert cost.name == "layer" and cost.input_bits is not None
    assert f"--input-bits {cost.input_bits} leaves more bits" in cost.notes[0]
    remedied = quantize(coarsen_inputs(folded, cost.input_bits), LOIHI2)
    weights = remedied.network.entering("layer")[0].synapse.weight
    assert not remedied.lost and remedied.errors[0].overflow_proved_absent and np.abs(weights).max() >= 6


@pytest.mark.parametrize("bits", [2, 4])
def test_states_that_allow_only_small_scales_leave_few_bits_their_mantissas(bits):
    """Weights in steps of 64 or 16 would be too large for the states; in smaller steps they fit."""
    weights = np.random.default_rng(0).normal(size=(8, 784))
    folded = layer(weights, np.full(8, 255.0), maximum=7, timesteps=25, leak=0.95)
    quantized, formats = quantize(folded, LOIHI2, weight_bits=bits), NumberFormats.of(LOIHI2, bits)
    (connection,) = quantized.network.entering("layer")
    step = formats.weight_step(grid_exponent(connection.synapse, formats))
    assert step < formats.step and connection.synapse.exponent == 0
    assert not quantized.lost and quantized.errors[0].overflow_proved_absent
    largest = np.abs(connection.synapse.weight).reshape(8, -1).max(axis=1)
    assert (largest % step == 0).all() and (largest // step == formats.weight).all()
    assert quantized.errors[0].channels_limited_by["weight"] == 8


def test_connections_of_few_bits_keep_the_exponents_between_them():
    """A kernel beside a shortcut with larger weights: the shortcut gets an exponent."""
    torch.manual_seed(0)
    body = Residual((2, 7, 8), pool=nn.Identity(), shortcut="strided convolution", stride=1, mpbn="channel")
    nn.init.constant_(body.shortcut[1].weight, 20.0)
    folded = fold(trace(enlivened(body, shape=(2, 7, 8))))
    (population,) = (p for p in folded.layers if p.name == "lif3")
    kernel, shortcut = choose_grid(folded, population, NumberFormats.of(LOIHI2, 4)).exponents
    assert kernel == 0 and shortcut > 0


def test_weights_of_two_bits_need_smaller_inputs_where_states_leave_none():
    weights = np.random.default_rng(0).normal(size=(8, 784))
    folded = layer(weights, np.full(8, 255.0), maximum=255, timesteps=25, leak=0.95)
    (cost,) = quantize(folded, LOIHI2, weight_bits=2).lost
    assert cost.input_bits == 6
    assert not quantize(coarsen_inputs(folded, 6), LOIHI2, weight_bits=2).lost


def test_no_more_bits_of_inputs_are_suggested_than_there_are():
    """One channel has large weights, so the others are lost whatever the bits of the inputs."""
    weights = np.vstack([np.full((1, 100), 40.0), np.full((3, 100), 0.2)])
    folded = layer(weights, np.full(4, 6e4), maximum=255, timesteps=25, leak=0.95)
    (cost,) = quantize(folded, LOIHI2, weight_bits=2).lost
    assert cost.input_bits is None
    assert "rounded to zero" in cost.notes[0] and "--input-bits" not in cost.notes[0]


@pytest.mark.parametrize("offset", [256, -256, 10**30])
def test_offsets_beyond_the_inputs_are_refused(offset):
    folded = layer(np.ones((2, 3)), np.ones(2), maximum=255)
    with pytest.raises(OptionError, match=rf"--input-offset {offset}; inputs are 0\.\.255"):
        offset_inputs(folded, offset)


def test_biases_that_limit_weights_are_reported_with_a_remedy():
    """Pixels with a mean in the middle: folded, it makes biases as large as a sum of weights times 128."""
    weights = np.abs(np.random.default_rng(0).normal(size=(8, 27)))
    folded = layer(weights, np.full(8, 10.0), maximum=255, bias=-128 * weights.sum(axis=1))
    quantized = quantize(folded, LOIHI2)
    gain = quantized.errors[0].input_offset
    assert gain is not None and gain.offset == 128 and gain.times_larger > 4
    assert any("--input-offset 128" in note for note in quantized.errors[0].notes)
    worse = quantize(offset_inputs(folded, -100), LOIHI2).errors[0].input_offset
    assert worse is not None and worse.offset == 128  # from the values of the data, not from the shifted ones
    remedied = quantize(offset_inputs(folded, 128), LOIHI2)
    assert remedied.errors[0].input_offset is None
    before, after = (q.network.entering("layer")[0].synapse.weight.max() for q in (quantized, remedied))
    assert after + 1 >= gain.times_larger * (before - 1)  # both are rounded


def test_measuring_needs_something_to_measure_on():
    with pytest.raises(OptionError, match="--calibration"):
        quantize(folded_network(), LOIHI2, overflow="measured")
    with pytest.raises(OptionError, match="overflow 'hoped'"):
        quantize(folded_network(), LOIHI2, overflow="hoped")
