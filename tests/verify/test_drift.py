"""Float against integer: what is counted, and which rounding is named for a spike that flips."""

import json
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import enlivened, inputs_for, replace_lava, residual_body, spiking_network
from properties import examples
from rich.console import Console

from mpbn_deploy.base import DataError, SimulationError, json_text
from mpbn_deploy.data import Samples, Split
from mpbn_deploy.execute import reference
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import (
    DECAY_ONE,
    Connection,
    Dense,
    FloatLif,
    FloatReadout,
    FoldedNetwork,
    Input,
    IntNetwork,
    Lif,
    Population,
    Readout,
)
from mpbn_deploy.quantize import quantize
from mpbn_deploy.verify import accuracy as accuracy_module, verify
from mpbn_deploy.verify.accuracy import accuracy_text, compare_classes, compare_predictions, measure_accuracy
from mpbn_deploy.verify.command import drift_table, drift_text
from mpbn_deploy.verify.drift import MEASURES, measure_drift
from mpbn_deploy.verify.flips import CAUSES, EARLIER, SEVERAL

LOIHI2 = load_profile("loihi2")


def layer(weight, threshold, bias=0, leak=0.0, current_leak=0.0):
    """One population: [neurons, sources] of weights; single numbers are a neuron with one source."""
    weight = np.atleast_2d(weight)
    bias, threshold = (np.broadcast_to(values, len(weight)).copy() for values in (bias, threshold))
    return {
        "weight": weight,
        "threshold": threshold,
        "bias": bias,
        "leak": leak,
        "current_leak": current_leak,
    }


def chain(neurons, readouts, layers, names):
    """input -> layers -> output, as connections and populations of either network."""
    shapes = [(layers[0]["weight"].shape[1],), *((len(each["weight"]),) for each in layers)]
    source = Population(name="input", shape=shapes[0], neuron=Input(minimum=0, maximum=9))
    spiking = [
        Population(name=name, shape=shape, neuron=neurons(each))
        for name, shape, each in zip(names, shapes[1:], layers, strict=True)
    ]
    last = Population(name="output", shape=(2,), neuron=readouts(np.zeros(2, layers[0]["weight"].dtype)))
    weights = [each["weight"] for each in layers] + [np.ones((2, shapes[-1][0]), layers[0]["weight"].dtype)]
    ends = ["input", *names, "output"]
    connections = [
        Connection(source=a, target=b, synapse=Dense(weight=weight))
        for (a, b), weight in zip(pairwise(ends), weights, strict=True)
    ]
    return {"populations": (source, *spiking, last), "connections": tuple(connections)}


def float_chain(*layers, timesteps=1):
    def neuron(each):
        return FloatLif(**{key: each[key] for key in ("threshold", "bias", "leak", "current_leak")})

    layers = [{**each, "weight": each["weight"].astype(float)} for each in layers]
    built = chain(neuron, lambda bias: FloatReadout(bias=bias), layers, "ab"[: len(layers)])
    return FoldedNetwork(timesteps=timesteps, **built)


def int_chain_of(*layers, timesteps=1, scale=1.0):
    def neuron(each):
        decays = {
            "decay_voltage": round((1 - each["leak"]) * DECAY_ONE),
            "decay_current": round((1 - each["current_leak"]) * DECAY_ONE),
        }
        return Lif(threshold=each["threshold"], bias=each["bias"], **decays)

    built = chain(neuron, lambda bias: Readout(bias=bias), layers, "ab"[: len(layers)])
    scales = {p.name: np.full(p.shape[0], scale) for p in built["populations"][1:]}
    return IntNetwork(timesteps=timesteps, scales=scales, **built)


def drift_of(real, integer, inputs, **options):
    """Of two networks with one population that fires, on samples of one pixel."""
    inputs = np.asarray(inputs).reshape(-1, real["weight"].shape[1])
    return measure_drift(float_chain(real, **options), int_chain_of(integer, **options), inputs)


# ---- nothing to report ------------------------------------------------------------------------


@examples(25)
@given(st.integers(0, 2**32 - 1), st.integers(-3, 5), st.sampled_from([0.0, 1.0]))
def test_equal_integers_do_not_drift(seed, exponent, leak):
    """Of real numbers that are integers times a power of two, with leaks that truncate nothing."""
    generator = np.random.default_rng(seed)
    scale = 2.0**exponent
    integers = [
        layer(generator.integers(-9, 10, size), generator.integers(-20, 60, size[0]), 3, leak)
        for size in ((4, 3), (5, 4))
    ]
    real = [
        {**each, **{key: each[key] / scale for key in ("weight", "threshold", "bias")}} for each in integers
    ]
    inputs = generator.integers(0, 10, size=(6, 3))
    network = int_chain_of(*integers, timesteps=4, scale=scale)
    folded = float_chain(*real, timesteps=4)
    *firing, last = folded.connections
    scaled = replace(last, synapse=Dense(weight=last.synapse.weight / scale))
    drift = measure_drift(replace(folded, connections=(*firing, scaled)), network, inputs)
    for population in drift.populations:
        assert (population.spike_agreement == 1).all()
        assert (population.voltage_error_largest == 0).all()
        assert not any(population.flips.values())
    assert drift.first_flip is None and drift.predictions.changed == 0
    assert "first spike that differs: none" in drift_text(drift)


# ---- which rounding ---------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2**24])
def test_a_weight(monkeypatch, at_once):
    """0.6 * 3 stays below 2; rounded it does not."""
    monkeypatch.setattr(reference, "VALUES_AT_ONCE", at_once)
    drift = drift_of(layer(0.6, 2.0), layer(1, 2), [0, 1, 3])
    flip = drift.first_flip
    assert (flip.population, flip.sample, flip.time_step, flip.index) == ("a", 2, 0, (0,))
    assert (flip.cause, flip.mended_by, flip.float_fires) == ("weight", ("weight",), False)
    assert flip.float_voltage == pytest.approx(1.8) and flip.integer_voltage == 3.0
    assert flip.float_threshold == flip.integer_threshold == 2.0
    assert drift.population("a").flips == {
        "weight": 1, "bias": 0, "threshold": 0, "leak": 0, SEVERAL: 0, EARLIER: 0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "real", "integer", "inputs"),
    [
        ("bias", layer(1.0, 3.0, 0.4), layer(1, 3, 0), [3]),
        ("threshold", layer(1.0, 3.5), layer(1, 4), [4]),
        ("threshold", layer(1.0, np.inf), layer(1, 4), [5]),
    ],
)
def test_other_numbers(cause, real, integer, inputs):
    drift = drift_of(real, integer, inputs)
    assert drift.first_flip.cause == cause and drift.first_flip.mended_by == (cause,)
    assert drift.population("a").flips[cause] == 1 == sum(drift.population("a").flips.values())


@pytest.mark.parametrize("which", ["leak", "current_leak"])
def test_a_leak(which):
    """trunc(640 * 2049 / 4096) = 320, where 640 * 0.5002 = 320.128 passes a threshold of 15 * 64 - 640."""
    leak = {which: 0.5002}
    drift = drift_of(layer(10.0, 15.0, **leak), layer(10, 15, **leak), [1], timesteps=2)
    assert (drift.first_flip.cause, drift.first_flip.time_step) == ("leak", 1)
    assert drift.first_flip.float_voltage == pytest.approx(15.002)
    assert drift.first_flip.integer_voltage == 15.0
    assert drift.population("a").flips["leak"] == 1


def test_voltages_are_in_the_float_networks_unit():
    folded, network = float_chain(layer(0.15, 0.5)), int_chain_of(layer(1, 2), scale=4.0)
    flip = measure_drift(folded, network, np.array([[3]])).first_flip
    assert (flip.integer_voltage, flip.integer_threshold, flip.float_threshold) == (0.75, 0.5, 0.5)
    assert flip.float_voltage == pytest.approx(0.45)


def test_several_together():
    """Without either rounding 1.6 is still not above 2; without both 2.2 is."""
    drift = drift_of(layer(1.6, 2.0, 0.6), layer(1, 2, 0), [1])
    assert drift.first_flip.cause == SEVERAL and drift.first_flip.mended_by == ()
    assert drift.population("a").flips[SEVERAL] == 1
    assert "cause: several together" in str(drift.first_flip)


def test_the_clearest_of_several_that_would_each_mend_it():
    drift = drift_of(layer(1.8, 1.0, 0.6), layer(1, 1, 0), [1])
    assert drift.first_flip.mended_by == ("weight", "bias") and drift.first_flip.cause == "weight"
    assert str(drift.first_flip).endswith("cause: weight (undoing bias restores it too)")
    assert drift.population("a").flips["weight"] == 1 and drift.population("a").flips["bias"] == 0


def test_only_the_past_that_both_networks_had_counts():
    """In step 0 both stay silent at 3, weight and bias cancelling; without the weight's rounding, 5 fires.

    In step 1, from 3 on, the bias makes 5. Without the weight's rounding it is 7, and not 2 after a reset
    that never was.
    """
    real, integer = layer(3.0, 4.0, 0.0, leak=1.0), layer(1, 4, 2, leak=1.0)
    drift = measure_drift(
        float_chain(real, timesteps=2), int_chain_of(integer, timesteps=2), np.array([[[1], [0]]])
    )
    flip = drift.first_flip
    assert (flip.time_step, flip.float_voltage, flip.integer_voltage) == (1, 3.0, 5.0)
    assert flip.mended_by == ("bias",)


# ---- what follows from earlier flips ----------------------------------------------------------


def test_a_flip_downstream_follows_from_the_one_upstream():
    first, second = layer(0.6, 2.0), layer(1.0, 0.5)
    folded = float_chain(first, second)
    network = int_chain_of(layer(1, 2), layer(2, 1), scale=1.0)
    drift = measure_drift(folded, network, np.array([[3]]))
    assert drift.first_flip.population == "a"
    assert drift.population("b").flips == {**dict.fromkeys((*CAUSES, SEVERAL), 0), EARLIER: 1}


def test_a_neuron_that_flipped_may_flip_again_because_of_it():
    real, integer = layer(1.6, 1.5, -0.6, leak=1.0), layer(1, 0, 0, leak=1.0)
    drift = drift_of(real, integer, [1], timesteps=3)
    spikes = [
        simulate(network, np.array([[1]])).spikes["a"][0, :, 0].tolist()
        for network in (float_chain(real, timesteps=3), int_chain_of(integer, timesteps=3))
    ]
    assert spikes == [[False, True, False], [True, True, True]]
    flips = drift.population("a").flips
    assert (flips["threshold"], flips[EARLIER], sum(flips.values())) == (1, 1, 2)


@pytest.mark.parametrize("at_once", [1, 2**24])
def test_the_first_flip_is_the_first_in_time(monkeypatch, at_once):
    """Population a flips on 3; b flips on 9, and in sample 1 that is earlier."""
    monkeypatch.setattr(reference, "VALUES_AT_ONCE", at_once)
    folded = float_chain(layer(0.6, 2.0), layer(1.0, 1.0, 0.4), timesteps=3)
    network = int_chain_of(layer(1, 2), layer(1, 1, 0), timesteps=3)
    drift = measure_drift(folded, network, np.array([[1, 3, 9], [9, 1, 1]])[..., None])
    flip = drift.first_flip
    assert (flip.population, flip.sample, flip.time_step, flip.cause) == ("b", 1, 0, "bias")
    assert drift.population("a").flips["weight"] == 1
    assert (drift.population("b").flips["bias"], drift.population("b").flips[EARLIER]) == (1, 1)


def test_neurons_that_the_flip_does_not_reach_have_causes_of_their_own():
    """Neuron 0 reads what flipped; neuron 1 reads another neuron, and its own bias flips it."""
    first = layer(np.array([[0.6], [1.0]]), 2.0)
    second = layer(np.eye(2), np.array([0.5, 1.0]), np.array([0.0, 0.4]))
    whole = layer(np.array([[1], [1]]), 2), layer(np.diag([2, 1]), 1)
    drift = measure_drift(float_chain(first, second), int_chain_of(*whole), np.array([[3]]))
    flips = drift.population("b").flips
    assert (flips["bias"], flips[EARLIER], sum(flips.values())) == (1, 1, 2)


# ---- numbers ----------------------------------------------------------------------------------


def test_numbers_of_each_step():
    """1.4 * 3 = 4.2 fires in each step; 3 does not, but 3 / 2 + 3 does."""
    drift = drift_of(layer(1.4, 4.0, leak=0.5), layer(1, 4, leak=0.5), [3], timesteps=2)
    population = drift.population("a")
    assert population.spike_agreement.tolist() == [0, 1]
    assert population.rate_float.tolist() == [1, 1] and population.rate_integer.tolist() == [0, 1]
    np.testing.assert_allclose(population.voltage_error_rms, [1.2, 0.3])
    np.testing.assert_allclose(population.voltage_error_largest, [1.2, 0.3])
    np.testing.assert_allclose(population.threshold_distance_rms, 0.2)
    assert population.near_threshold.tolist() == [1, 1]
    assert population.relative_error == pytest.approx(np.sqrt((1.44 + 0.09) / 2) / 0.2)
    assert population.over_steps()["voltage_error_largest"] == pytest.approx(1.2)
    assert population.flips["weight"] == 1 == sum(population.flips.values())
    output = drift.population("output")
    np.testing.assert_allclose(output.voltage_error_largest, 0.5)  # a spike less, over two steps
    assert np.isnan(output.threshold_distance_rms).all() and not output.fires


def test_neurons_that_never_fire_are_at_no_distance():
    real = layer(np.array([[1.0], [1.0]]), np.array([np.inf, 3.0]))
    drift = drift_of(real, layer(np.array([[1], [1]]), np.array([2**17, 3])), [2])
    whole = drift.population("a").over_steps()
    assert (whole["threshold_distance_rms"], whole["near_threshold"]) == (1.0, 1.0)


NETWORKS = {
    "channel": spiking_network,
    "none": lambda seed: spiking_network(seed, mpbn="none"),
    "residual": lambda seed: enlivened(residual_body(), shape=(2, 6, 6)),
    "own leaks": spiking_network,
}


def with_own_leaks(folded, seed):
    """Give every neuron leaks of its own."""
    random = np.random.default_rng(seed).random
    populations = [folded.input]
    for p in folded.layers:
        leaks = {} if p is folded.output else {"leak": random(p.shape), "current_leak": random(p.shape)}
        populations.append(p.with_neuron(replace(p.neuron, **leaks)))
    return replace(folded, populations=tuple(populations))


@examples(12)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4, 8]), st.sampled_from(list(NETWORKS)))
def test_against_two_plain_runs(seed, bits, kind):
    folded = fold(trace(NETWORKS[kind](seed)))
    folded = with_own_leaks(folded, seed) if kind == "own leaks" else folded
    network = quantize(folded, LOIHI2, weight_bits=bits).network
    inputs = inputs_for(network, samples=5, seed=seed)
    drift = measure_drift(folded, network, inputs)
    real, integer = simulate(folded, inputs), simulate(network, inputs)
    different = {name: spikes != real.spikes[name] for name, spikes in integer.spikes.items()}
    order = []
    for number, population in enumerate(drift.populations):
        name = population.name
        axes = (0, *range(2, different[name].ndim))
        np.testing.assert_allclose(
            1 - population.spike_agreement, different[name].mean(axis=axes), atol=1e-12
        )
        assert sum(population.flips.values()) == different[name].sum()
        order += [(at[1], number, at[0], *at[2:]) for at in np.argwhere(different[name]).tolist()]
        quiet = ~(real.spikes[name] | integer.spikes[name])
        scale = network.scales[name].reshape(-1, *(1 for _ in real.voltages[name].shape[3:]))
        steps = 64 * scale * (network.timesteps if name == "output" else 1)
        error = np.abs(integer.voltages[name] / steps - real.voltages[name])
        assert np.where(quiet, error, 0).max() <= population.voltage_error_largest.max() + 1e-12
    # Nothing before the first population can flip, so there a neuron's first flip is its own.
    flips = drift.populations[0].flips
    own = different["lif1"].any(axis=1).sum()
    assert sum(flips.values()) - flips[EARLIER] == own
    if not order:
        assert drift.first_flip is None
        return
    step, number, sample, *index = min(order)
    first = drift.first_flip
    found = (first.time_step, first.population, first.sample, list(first.index))
    assert found == (step, drift.populations[number].name, sample, index)
    assert drift.population(first.population).flips[first.cause] >= 1


def test_parts_give_what_the_whole_gives(monkeypatch):
    folded = fold(trace(spiking_network(4)))
    network = quantize(folded, LOIHI2, weight_bits=3).network
    inputs, labels = inputs_for(network, samples=7), np.zeros(7, int)
    whole = measure_drift(folded, network, inputs, labels)
    monkeypatch.setattr(reference, "VALUES_AT_ONCE", 1)
    parts = measure_drift(folded, network, inputs, labels)
    for part, population in zip(parts.populations, whole.populations, strict=True):
        assert (part.name, part.flips) == (population.name, population.flips)
        for key in MEASURES:  # sums may be taken in another order
            np.testing.assert_allclose(getattr(part, key), getattr(population, key), rtol=1e-12)
    assert str(parts.first_flip) == str(whole.first_flip)
    assert parts.predictions.to_json() == whole.predictions.to_json()
    assert whole.populations[0].flips[EARLIER] < sum(whole.populations[0].flips.values())


# ---- predictions and accuracies ---------------------------------------------------------------


def test_predictions_that_changed():
    real, integer, labels = np.array([0, 1, 2, 0, 1]), np.array([0, 2, 1, 2, 1]), np.array([0, 2, 2, 1, 0])
    found = compare_predictions(real, integer, labels)
    assert (found.samples, found.changed, found.became_right, found.became_wrong) == (5, 3, 1, 1)
    assert found.agreement == pytest.approx(0.4)
    assert str(found) == "3 of 5, of which 1 became right and 1 became wrong"
    unknown = compare_predictions(real, integer)
    assert (unknown.became_right, str(unknown)) == (None, "3 of 5")
    with pytest.raises(DataError, match="4 labels for 5 samples"):
        compare_predictions(real, integer, labels[:4])


def labelled(bits=2):
    model = spiking_network(1)
    folded = fold(trace(model))
    network = quantize(folded, LOIHI2, weight_bits=bits).network
    inputs = inputs_for(network, samples=11)
    labels = simulate(folded, inputs).predictions
    return model, folded, network, Split(inputs=inputs, labels=labels)


def test_accuracies_on_a_whole_split_in_parts(monkeypatch):
    model, folded, network, test = labelled()
    monkeypatch.setattr(accuracy_module, "SAMPLES_AT_ONCE", 4)
    found = measure_accuracy(folded, network, test, "own", model)
    right = simulate(network, test.inputs[:]).predictions == test.labels
    assert (found.float_network, found.trained_network, found.changed_by_folding) == (1.0, 1.0, 0)
    assert found.integer_network == right.mean() < 1
    assert found.predictions.changed == found.predictions.became_wrong == (~right).sum()
    assert found.samples == 11
    text = accuracy_text(found)
    assert text[0].startswith(
        f"accuracy: PyTorch 100.00%, folded 100.00%, integer {right.mean():.2%}, on 11 test samples of own"
    )
    assert text[1].startswith(
        "predictions changed by quantization, against the folded network, on these test samples: "
        f"{(~right).sum()} of 11, of which 0"
    )
    assert len(text) == 2


def test_accuracy_and_confusions_per_class():
    labels = np.array([0, 0, 0, 1, 1, 3])
    real, integer = np.array([0, 0, 1, 1, 1, 3]), np.array([0, 2, 2, 1, 0, 3])
    found = compare_classes(real, integer, labels, outputs=4)
    assert found.matrix == ((1, 0, 2, 0), (1, 1, 0, 0), (0, 0, 0, 0), (0, 0, 0, 1))
    assert [(c.label, c.predicted, c.samples) for c in found.confusions] == [(0, 2, 2), (1, 0, 1)]
    assert found.to_json()["classes"] == [
        {"label": 0, "samples": 3, "float": 2 / 3, "integer": 1 / 3},
        {"label": 1, "samples": 2, "float": 1.0, "integer": 0.5},
        {"label": 3, "samples": 1, "float": 1.0, "integer": 1.0},
    ]


def test_a_thousand_classes_have_their_most_frequent_confusions_only():
    labels = np.arange(1000).repeat(3)
    integer = (labels + (np.arange(3000) % 3 != 0)) % 1000  # one of three is right
    found = compare_classes(labels, integer, labels, outputs=1000)
    assert found.matrix is None and len(found.classes) == 1000
    assert len(found.confusions) == accuracy_module.MAX_CONFUSIONS
    assert {((c.predicted - c.label) % 1000, c.samples) for c in found.confusions} == {(1, 2)}


def test_a_measured_split_is_counted_per_class():
    _, folded, network, test = labelled()
    found = measure_accuracy(folded, network, test, "own").per_class
    assert sum(c.samples for c in found.classes) == 11 == np.sum(found.matrix)
    assert len(found.matrix) == network.output.size
    right = sum(c.integer_network * c.samples for c in found.classes)
    assert right == pytest.approx(np.trace(np.array(found.matrix)))


def test_a_model_that_the_folded_network_does_not_follow():
    model, folded, network, test = labelled()
    model.body.readout.bias.data[0] += 1000
    found = measure_accuracy(folded, network, test, "own", model)
    others = int((test.labels != 0).sum())
    assert found.changed_by_folding == others > 0
    assert found.trained_network == 1 - others / 11
    assert f"predictions changed by folding, against PyTorch in float32: {others}" in accuracy_text(found)


def test_without_a_model_nothing_is_said_of_it():
    _, folded, network, test = labelled()
    found = measure_accuracy(folded, network, test, "own")
    assert found.trained_network is None and found.changed_by_folding is None
    assert "PyTorch" not in accuracy_text(found)[0]


# ---- the report -------------------------------------------------------------------------------


@pytest.fixture
def report(monkeypatch):
    def missing(*given, **options):
        raise SimulationError("not here")

    replace_lava(monkeypatch, missing)
    model, folded, network, test = labelled(bits=3)
    samples = Samples(name="own", inputs=test.inputs[:], labels=test.labels, test=test)
    return verify(network, samples, folded=folded, model=model)


def test_keys_of_the_json(report):
    data = report.to_json()
    json_text(data)  # which refuses NaN
    assert set(data) >= {"populations", "first_flip", "predictions", "prediction_agreement", "accuracy"}
    first = data["populations"][0]
    proof = {"state_bound", "state_limit", "overflow_proved_absent"}
    assert set(first) == {"name", "flips", "steps", *MEASURES, *proof}
    assert set(first["steps"]) == set(MEASURES)
    assert all(len(values) == 3 for values in first["steps"].values())
    assert set(first["flips"]) == {*CAUSES, SEVERAL, EARLIER}
    assert first["spike_agreement"] == pytest.approx(np.mean(first["steps"]["spike_agreement"]))
    output = data["populations"][-1]
    assert output["spike_agreement"] is None and output["threshold_distance_rms"] is None
    assert output["steps"]["near_threshold"] == [None] * 3 and output["voltage_error_rms"] > 0
    assert set(data["first_flip"]) == {
        "population", "sample", "time_step", "index", "float_fires", "float_voltage", "float_threshold",
        "integer_voltage", "integer_threshold", "mended_by", "cause",
    }  # fmt: skip
    assert set(data["predictions"]) == {"samples", "changed", "became_right", "became_wrong"}
    assert data["prediction_agreement"] == 1 - data["predictions"]["changed"] / 11
    assert set(data["accuracy"]) == {
        "data", "samples", "trained", "float", "integer", "changed_by_folding", "predictions",
        "collapsed", "lost", "per_class", "tried",
    }  # fmt: skip
    assert data["accuracy"]["predictions"] == data["predictions"]


def test_an_export_knows_the_model_and_the_labels(export_folder):
    data = json.loads((export_folder / "verify.json").read_text())
    accuracy = data["accuracy"]
    assert abs(accuracy["trained"] - accuracy["float"]) * 360 <= accuracy["changed_by_folding"]
    assert accuracy["predictions"]["samples"] == 360 and data["predictions"]["became_right"] is not None


def test_text_for_people(report):
    drift = report.drift
    console = Console(file=StringIO(), width=200)
    console.print(drift_table(drift))
    rows = console.file.getvalue().splitlines()
    (first,) = [row for row in rows if row.strip().startswith("lif1")]
    whole = drift.populations[0].over_steps()
    for shown in (f"/{whole['rate_integer']:.2%}", f"{whole['spike_agreement']:.2%}", "weight "):
        assert shown in first
    (output,) = [row.split() for row in rows if row.strip().startswith("output")]
    assert output == ["output", f"{drift.population('output').over_steps()['voltage_error_rms']:.3g}"]
    assert any(line.startswith(f"first spike that differs: {drift.first_flip}") for line in drift_text(drift))


@pytest.mark.parametrize(
    ("voltage", "threshold", "shown"),
    [
        (0.535576, 0.541421, "0.535576 against 0.541421"),
        (0.5000000012, 0.5, "0.500000001 against 0.5"),
        (0.1 + 0.2, 0.3, "0.30000000000000004 against 0.29999999999999999"),
        (0.25, 0.25, "0.25 against 0.25"),  # a neuron at its threshold does not fire
        (3.0, float("inf"), "3 against inf"),
    ],
)
def test_a_flip_shows_enough_digits_to_tell_voltage_and_threshold_apart(report, voltage, threshold, shown):
    flip = replace(report.drift.first_flip, float_voltage=voltage, float_threshold=threshold)
    assert f"at {shown}, the integer network" in str(flip)


# ---- bad input --------------------------------------------------------------------------------


def test_networks_that_do_not_belong_together():
    folded, network = float_chain(layer(1.0, 2.0)), int_chain_of(layer(1, 2))
    inputs = np.array([[1]])
    with pytest.raises(SimulationError, match=r"^a: not the same population in the float"):
        measure_drift(float_chain(layer(np.ones((2, 1)), 2.0)), network, inputs)
    with pytest.raises(SimulationError, match=r"^b: not the same population"):
        measure_drift(float_chain(layer(1.0, 2.0), layer(1.0, 2.0)), network, inputs)
    with pytest.raises(SimulationError, match="runs 1 time steps, the integer network 3"):
        measure_drift(folded, replace(network, timesteps=3), inputs)
    with pytest.raises(SimulationError, match=r"^a, output: no scale per channel"):
        measure_drift(folded, replace(network, scales={}), inputs)
    with pytest.raises(SimulationError, match="no samples"):
        measure_drift(folded, network, inputs[:0])
    with pytest.raises(DataError, match="2 labels for 1 samples"):
        measure_drift(folded, network, inputs, np.array([0, 1]))
