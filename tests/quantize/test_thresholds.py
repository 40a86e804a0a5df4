"""Thresholds under the limits of a chip: exact where that is possible, and told where it is not."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from networks import Residual, enlivened, inputs_for, spiking_network, with_limit
from properties import examples
from test_quantize import LOIHI2, folded_network, layer
from torch import nn

from mpbn_deploy.base import NetworkError, OptionError, QuantizeError
from mpbn_deploy.data import DATASETS
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export import export
from mpbn_deploy.fit import fit
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place
from mpbn_deploy.ir import FloatLif, Lif, bounds
from mpbn_deploy.quantize import load_calibration, quantize
from mpbn_deploy.quantize.thresholds import choose_values, silence_constants
from mpbn_deploy.quantize.voltage_samples import sample_voltages, simulated_voltages

LOIHI1 = load_profile("loihi1")
ONLY_POSITIVE = with_limit(LOIHI2, "formats.threshold_minimum", 1)
LIMITS = {
    "shared": (LOIHI2, "shared"),
    "seven per core": (LOIHI1, "own"),
    "only positive": (ONLY_POSITIVE, "own"),
}
under_limits = pytest.mark.parametrize(("profile", "thresholds"), LIMITS.values(), ids=LIMITS)


def lifs(network):
    return [p.neuron for p in network.populations if isinstance(p.neuron, Lif)]


def threshold_findings(report):
    rules = {"thresholds_fit_format", "distinct_thresholds_fit_core"}
    return [f.message for f in report.findings if f.rule in rules and f.severity == "error"]


def flips(folded, network, inputs):
    """The share of spikes that differ, per population that fires."""
    real, integer = emulate(folded, inputs).spikes, emulate(network, inputs).spikes
    fires = [p.name for p in folded.populations if isinstance(p.neuron, FloatLif)]
    return {name: np.mean(real[name] != integer[name]) for name in fires}


def told(quantized, index=0):
    return quantized.errors[index].to_json()["thresholds"]


# ---- exact ways -------------------------------------------------------------------------------


@examples(60)
@given(seed=st.integers(0, 2**31), limit=st.sampled_from(sorted(LIMITS)))
def test_without_memory_thresholds_move_into_biases_spike_by_spike(seed, limit):
    """Weights that need no rounding, thresholds and biases that are any numbers, negative ones too."""
    generator = np.random.default_rng(seed)
    weight = generator.integers(-127, 128, size=(9, 8)).astype(float)
    weight[:, 0] = 127
    folded = layer(
        weight,
        generator.uniform(-300, 400, 9),
        bias=generator.uniform(-100, 100, 9),
        maximum=3,
        timesteps=1,
    )
    profile, thresholds = LIMITS[limit]
    quantized = quantize(folded, profile, thresholds=thresholds)
    network = quantized.network
    inputs = generator.integers(0, 4, size=(300, 8))
    spikes = simulate(network, inputs).spikes["layer"]
    rounded = simulate(quantize(folded, LOIHI2).network, inputs).spikes["layer"]
    real = simulate(folded, inputs).spikes["layer"]
    # Biases and thresholds are rounded once, together; where each keeps its own, they are rounded twice.
    if limit == "only positive":
        assert np.mean(spikes != real) <= np.mean(rounded != real)
    else:
        np.testing.assert_array_equal(spikes, real)
    assert min(lifs(network)[0].threshold) >= 1
    assert told(quantized)["channels_approximated"] == 0


def test_a_leak_of_zero_is_no_memory():
    generator = np.random.default_rng(0)
    weight = generator.integers(-20, 21, size=(6, 8)).astype(float)
    weight[:, 0] = 127
    folded = layer(weight, generator.integers(-90, 90, 6) + 0.5, timesteps=4, leak=0.0)
    quantized = quantize(folded, LOIHI2, thresholds="shared")
    network = quantized.network
    assert told(quantized)["channels_approximated"] == 0
    inputs = generator.integers(0, 2, size=(200, 4, 8))
    real, integer = (simulate(n, inputs).spikes["layer"] for n in (folded, network))
    np.testing.assert_array_equal(real, integer)


@examples(40)
@given(seed=st.integers(0, 2**31), share=st.floats(0.1, 1))
def test_positive_thresholds_are_shared_by_the_scale_alone(seed, share):
    """Channels that are multiples of each other share a threshold without an error."""
    generator = np.random.default_rng(seed)
    weight = generator.integers(-100, 101, size=(4, 6)).astype(float)
    weight[:, 0] = 127
    threshold = share * 127 + 0.5  # whole after scaling by two
    factors = generator.uniform(0.1, 9, 4)
    folded = layer(weight * factors[:, None], threshold * factors, timesteps=3)
    quantized = quantize(folded, LOIHI2, thresholds="shared")
    network = quantized.network
    assert len(np.unique(lifs(network)[0].threshold)) == 1
    described = told(quantized)
    assert described["channels_scaled"] == 4 and described["rule"] == "shared by the population"


@examples(40)
@given(seed=st.integers(0, 2**31), leak=st.sampled_from((0.0, 0.25, 1.0)))
def test_constant_channels_lose_their_weights_and_no_spike(seed, leak):
    generator = np.random.default_rng(seed)
    threshold = generator.choice([-40.0, -6.0, -1.0, 0.5, 2.0, 30.0, np.inf, -np.inf], size=12)
    folded = layer(
        generator.normal(size=(12, 5)), threshold, bias=generator.normal(size=12), timesteps=3, leak=leak
    )
    silent = silence_constants(folded)
    inputs = generator.integers(0, 2, size=(50, 3, 5))
    np.testing.assert_array_equal(
        simulate(folded, inputs).spikes["layer"], simulate(silent, inputs).spikes["layer"]
    )
    never, always = (~np.isfinite(threshold) & (np.sign(threshold) == sign) for sign in (1, -1))
    assert not silent.connections[0].synapse.weight[never | always].any()
    for profile, thresholds in LIMITS.values():
        spikes = simulate(quantize(folded, profile, thresholds=thresholds).network, inputs).spikes["layer"]
        assert not spikes[..., never].any() and spikes[..., always].all()


def test_a_network_without_constant_channels_stays_as_it_is():
    folded = folded_network(gains="positive")
    assert silence_constants(folded) is folded


def test_constant_channels_are_told():
    folded = layer(np.ones((3, 2)), [np.inf, 1.5, -5.0])
    quantized = quantize(folded, LOIHI2)
    described = quantized.errors[0].to_json()
    assert described["thresholds"]["channels_never_firing"] == 1
    assert described["thresholds"]["channels_always_firing"] == 1
    assert described["notes"] == [
        f"layer: 1 of 3 channels {which} fire, for any input; their weights were removed."
        for which in ("never", "always")
    ]


# ---- limits -----------------------------------------------------------------------------------


@examples(15)
@given(
    seed=st.integers(0, 2**31),
    limit=st.sampled_from(sorted(LIMITS)),
    bits=st.integers(2, 8),
    mpbn=st.sampled_from(("channel", "element")),
)
def test_limits_hold_for_every_network(seed, limit, bits, mpbn):
    """Gains of both signs give thresholds of both signs; element-wise ones differ within a channel."""
    folded = folded_network(seed, mpbn=mpbn, gains="mixed" if mpbn == "channel" else "positive")
    profile, thresholds = LIMITS[limit]
    network = quantize(folded, profile, weight_bits=bits, thresholds=thresholds).network
    assert all(bound.fits for bound in bounds(network).values())
    assert all(neuron.threshold.min() >= 1 for neuron in lifs(network))
    assert not threshold_findings(fit(network, profile))
    if thresholds == "shared":
        assert all(len(np.unique(neuron.threshold)) == 1 for neuron in lifs(network))
    for neuron in lifs(network):
        assert np.abs(neuron.bias).max() <= 4095


@under_limits
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_spikes_stay_close_to_the_float_network(profile, thresholds, bits, seed):
    folded = folded_network(seed, gains="positive")
    inputs = inputs_for(folded, samples=300)
    held = quantize(folded, profile, inputs[:200], weight_bits=bits, thresholds=thresholds).network
    own = quantize(folded, LOIHI2, inputs[:200], weight_bits=bits).network
    found, least = (flips(folded, n, inputs[200:]) for n in (held, own))
    for name in found:
        assert found[name] <= 2 * least[name] + (0.03 if bits == 8 else 0.06)


@under_limits
def test_calibration_keeps_the_limits(profile, thresholds):
    folded = folded_network(1)
    inputs = inputs_for(folded, samples=100)
    for bits in (3, 8):
        network = quantize(folded, profile, inputs, weight_bits=bits, thresholds=thresholds).network
        assert not threshold_findings(fit(network, profile))
        assert all(neuron.threshold.min() >= 1 for neuron in lifs(network))
        assert thresholds == "own" or all(len(np.unique(n.threshold)) == 1 for n in lifs(network))


def test_calibration_puts_the_cut_into_biases():
    """Few bits: with fixed thresholds too, fewer spikes flip than by plain rounding."""
    folded = folded_network(gains="positive")
    inputs = inputs_for(folded, samples=200)
    plain, fitted = (
        quantize(folded, LOIHI2, data, weight_bits=3, thresholds="shared").network for data in (None, inputs)
    )
    assert sum(flips(folded, fitted, inputs).values()) < sum(flips(folded, plain, inputs).values())


def test_few_thresholds_on_each_of_several_cores():
    """Forty neurons on cores of ten: each core has two thresholds, and they need not be the same."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(40, 12)), generator.uniform(0.1, 5, 40), timesteps=4)
    profile = with_limit(with_limit(LOIHI1, "core.neurons", 10), "core.thresholds", 2)
    quantized = quantize(folded, profile)
    network = quantized.network
    per_core = [len(np.unique(part)) for part in lifs(network)[0].threshold.reshape(4, 10)]
    assert max(per_core) == 2 and len(np.unique(lifs(network)[0].threshold)) > 2
    assert told(quantized)["rule"] == "at most 2 per core"
    many = quantize(folded, with_limit(profile, "core.thresholds", 10)).network
    inputs = generator.integers(0, 2, size=(400, 12))
    assert flips(folded, many, inputs)["layer"] <= flips(folded, network, inputs)["layer"] < 0.03


@pytest.mark.parametrize("tiling", ["compiler", "best"])
def test_one_threshold_per_core_of_the_tiling_that_is_asked_for(tiling):
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(600, 300)), generator.uniform(0.1, 5, 600), timesteps=4)
    network = quantize(folded, LOIHI2, thresholds="core", tiling=tiling).network
    (placed,) = place(network, LOIHI2, tiling=tiling).layers
    assert len(list(placed.tiles())) > 1
    for tile in placed.tiles():
        assert len(np.unique(np.broadcast_to(lifs(network)[0].threshold, placed.shape)[tile])) == 1


def test_a_placement_that_never_settles_ends_with_few_for_all(monkeypatch):
    from mpbn_deploy.quantize import stage as module

    tries = []
    monkeypatch.setattr(module, "core_limits_hold", lambda *_: tries.append(1) is not None)
    network = quantize(folded_network(), LOIHI1).network
    assert len(tries) == 3
    assert all(len(np.unique(neuron.threshold)) <= 7 for neuron in lifs(network))


def test_negative_thresholds_of_neurons_with_memory_are_approximated_and_told():
    folded = layer([[1.0, -1.0, 0.5], [1.0, 0.5, -0.7]], [-0.4, 0.6], timesteps=4)
    quantized = quantize(folded, ONLY_POSITIVE)
    network = quantized.network
    described = quantized.errors[0].to_json()
    assert described["thresholds"]["channels_approximated"] == 1
    (note,) = described["notes"]
    assert note == (
        "layer: thresholds of 1 of 2 channels were approximated by biases (limit: own, at least 1); "
        "`verify` counts the spikes that differ."
    )
    inputs = np.random.default_rng(0).integers(0, 2, size=(300, 4, 3))
    assert flips(folded, network, inputs)["layer"] < 0.1


def test_a_bias_takes_over_more_where_data_says_so():
    """A neuron that is silent for long gathers the bias of many steps; with data, it is a smaller one."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(16, 10)), generator.uniform(-1, 0.3, 16), timesteps=8, leak=0.9)
    inputs = generator.integers(0, 2, size=(400, 10))
    plain, fitted = (quantize(folded, ONLY_POSITIVE, data).network for data in (None, inputs))
    assert flips(folded, fitted, inputs)["layer"] < flips(folded, plain, inputs)["layer"]


def test_states_that_could_overflow_lower_the_shared_threshold():
    """A perceptron on 8-bit pictures fills the state; rounding adds up."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(8, 784)), generator.uniform(100, 900, 8), maximum=255, timesteps=4)
    network = quantize(folded, LOIHI2, thresholds="shared").network
    assert bounds(network)["layer"].fits
    assert len(np.unique(lifs(network)[0].threshold)) == 1


def test_unknown_words_are_refused():
    with pytest.raises(OptionError, match=r"thresholds 'common'\. Known: core, own, shared"):
        quantize(folded_network(), LOIHI2, thresholds="common")


# ---- the choice -------------------------------------------------------------------------------


@examples(60)
@given(seed=st.integers(0, 2**31), few=st.integers(1, 4))
def test_the_choice_of_few_values_is_the_best_there_is(seed, few):
    """Costs that fall to a home and rise from there: the same total as trying all choices."""
    generator = np.random.default_rng(seed)
    columns, home = 7, generator.integers(0, 7, size=10)
    steps = generator.uniform(0, 1, size=(10, columns))
    distance = np.abs(np.cumsum(steps, axis=1) - np.cumsum(steps, axis=1)[np.arange(10), home][:, None])
    chosen = choose_values(distance, few)
    assert len(np.unique(chosen)) <= few
    best = min(distance[:, list(some)].min(axis=1).sum() for some in combinations(range(columns), few))
    assert distance[np.arange(10), chosen].sum() == pytest.approx(best)


def test_what_cannot_be_is_not_chosen():
    cost = np.array([[np.inf, 1.0, 2.0], [np.inf, 5.0, 1.0], [np.inf, 1.0, np.inf]])
    assert choose_values(cost, 1).tolist() == [1, 1, 1]
    assert choose_values(cost, 2).tolist() == [1, 2, 1]


def test_evidence_is_what_the_float_network_does():
    folded = folded_network(gains="positive", timesteps=4)
    inputs = inputs_for(folded, samples=64)
    for name, found in sample_voltages(folded, inputs).items():
        spikes = emulate(folded, inputs).spikes[name]
        assert found.fires.double().mean() == pytest.approx(spikes.mean(), abs=0.05)
        ordinary = found.lowest == found.highest
        agrees = (found.voltage > found.lowest) == found.fires
        assert agrees[ordinary].double().mean() > 0.999
        assert found.growth.min() >= 1 and found.growth.max() < 4 / 3


def test_evidence_can_be_imagined():
    """Currents of a normal distribution: about as many spikes as independent inputs give."""
    generator = np.random.default_rng(0)
    folded = layer(generator.normal(size=(8, 100)), np.full(8, 3.0), timesteps=4, leak=0.25)
    found = simulated_voltages(folded, folded.populations[1])
    inputs = generator.uniform(0, 1, size=(500, 100))  # the mean and the variance that are imagined
    rate = emulate(folded, inputs).spikes["layer"].mean(axis=(0, 1))
    np.testing.assert_allclose(found.fires.double().mean(dim=0).numpy(), rate, atol=0.06)


def test_a_matrix_onto_a_picture_shares_too():
    """Windows with different weights become a dense synapse onto (channels, height, width)."""
    torch.manual_seed(0)
    pool = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
    body = Residual((2, 7, 8), pool=pool, shortcut="average", stride=1, mpbn="channel")
    folded = fold(trace(enlivened(body, shape=(2, 7, 8))))
    inputs = inputs_for(folded, samples=8)
    network = quantize(folded, LOIHI2, inputs, thresholds="shared").network
    assert all(len(np.unique(neuron.threshold)) == 1 for neuron in lifs(network))


# ---- what users may give ----------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(wrong):
    with pytest.raises(NetworkError, match="input->layer: weights hold NaN or infinity"):
        quantize(layer([[1.0, wrong]], 1.0), LOIHI2)


@under_limits
def test_a_channel_without_weights_is_constant_or_held(profile, thresholds):
    folded = layer([[0.0, 0.0], [1.0, 1.0]], [0.5, 1.0], bias=[0.2, 0.0], timesteps=4, leak=0.9)
    network = quantize(folded, profile, thresholds=thresholds).network
    inputs = np.zeros((1, 2), int)
    real, integer = (simulate(n, inputs).spikes["layer"] for n in (folded, network))
    assert network.connections[0].synapse.weight[0].tolist() == [0, 0]
    np.testing.assert_array_equal(real[..., 0], integer[..., 0])


@under_limits
def test_a_threshold_far_beyond_its_weights(profile, thresholds):
    """Out of reach, the channel is silent; within reach of a bias, its weights are lost, and that is told."""
    folded = layer([[1.0, -1.0], [1e-6, -1e-6]], [0.5, 1.0], bias=[0.0, 0.999999], timesteps=1)
    quantized = quantize(folded, profile, thresholds=thresholds)
    network = quantized.network
    described = quantized.errors[0].to_json()
    assert described["thresholds"]["channels_never_firing"] == 1
    near = layer([[1.0, -1.0], [1e-6, -1e-6]], [0.5, 1.0], bias=[0.0, 0.9999995], timesteps=1)
    quantized = quantize(near, profile, thresholds=thresholds)
    network = quantized.network
    assert bounds(network)["layer"].fits and np.abs(lifs(network)[0].bias).max() <= 4095
    described = quantized.errors[0].to_json()
    assert described["channels_without_weights"] == 1
    assert "layer: all weights of 1 of 2 channels were rounded to zero" in described["notes"][0]


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (np.zeros((4, 3), int), r"calibration: inputs of shape \(4, 3\)"),
        (np.zeros((0, 2), int), "calibration: no samples"),
        (np.full((4, 2), 2), r"calibration: inputs from 2 to 2; the network takes 0\.\.1"),
        (np.full((4, 2), 0.5), "calibration: inputs hold fractions"),
        (np.full((4, 2), np.nan), "calibration: inputs hold NaN"),
    ],
    ids=["shape", "empty", "range", "fractions", "NaN"],
)
def test_calibration_data_that_the_network_cannot_take(inputs, why):
    with pytest.raises(QuantizeError, match=why):
        quantize(layer([[1.0, -1.0]], 0.5), LOIHI2, inputs)


def test_calibration_on_one_class_is_told(monkeypatch, digits, capsys):
    one = replace(digits, train=replace(digits.train, labels=np.full_like(digits.train.labels, 7)))
    monkeypatch.setitem(DATASETS, "digits", lambda folder: one)
    folded = fold(trace(spiking_network(shape=digits.input_format.shape)))
    found = load_calibration(folded, "digits", None)
    (note,) = found.notes
    assert len(found.inputs) == 256 and note in capsys.readouterr().err
    assert note == "calibration: all 256 samples of digits are of class 7; shuffle the data set."
    monkeypatch.setitem(DATASETS, "digits", lambda folder: digits)
    assert load_calibration(folded, "digits", None).notes == ()


# ---- exports ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "thresholds"), [("loihi1", "own"), ("loihi2", "shared")])
def test_export_under_limits(model_path, tmp_path, digits, target, thresholds):
    result = export(
        model_path, target, tmp_path / "out", thresholds=thresholds, calibration="digits", samples=4
    )
    assert result.verified.bit_exact
    assert not threshold_findings(result.fitted)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["options"]["thresholds"] == thresholds
    described = [p["thresholds"] for p in manifest["quantization"] if "thresholds" in p]
    assert len(described) == 3 and all(one["smallest"] >= 1 for one in described)
    if thresholds == "shared":
        assert all(one["distinct"] == 1 for one in described)
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(note in page for population in manifest["quantization"] for note in population["notes"])
    accuracy = result.verified.accuracy
    assert accuracy is not None and accuracy.integer_network > accuracy.float_network - 0.04
