"""--pooling composed, relay and auto: the integers of every other population are the same."""

from dataclasses import replace

import numpy as np
import pytest
from networks import enlivened, inputs_for, int_chain, int_pooled, with_limit
from torch import nn

from mpbn_deploy.base import OptionError
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export.folder import notes_on_relays
from mpbn_deploy.fit import fit, measure
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place
from mpbn_deploy.ir import relay_names, with_relays
from mpbn_deploy.nn import LIF
from mpbn_deploy.quantize import quantize
from mpbn_deploy.quantize.pooling import fewest_cores
from mpbn_deploy.verify.drift import measure_drift

LOIHI2 = load_profile("loihi2")
SHAPE = (2, 8, 8)


@pytest.fixture(scope="module")
def folded():
    """Two convolutions with an average after each, and a readout."""
    body = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        LIF((4, 8, 8), mpbn="channel"),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1),
        LIF((5, 4, 4), mpbn="channel"),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(5, 3),
    )
    return fold(trace(enlivened(body, shape=SHAPE)))


def test_relays_change_nothing_but_the_way(folded):
    """Spikes, voltages and drift are equal; relays add messages, which activity counts once each."""
    composed, relay = (quantize(folded, LOIHI2, pooling=form).network for form in ("composed", "relay"))
    assert not relay_names(composed) and len(relay_names(relay)) == 2
    inputs = inputs_for(composed, samples=4)
    expected, got = simulate(composed, inputs), simulate(relay, inputs)
    for name in expected.spikes:
        np.testing.assert_array_equal(expected.spikes[name], got.spikes[name])
        np.testing.assert_array_equal(expected.voltages[name], got.voltages[name])
    np.testing.assert_array_equal(expected.outputs, got.outputs)
    same = [measure_drift(folded, network, inputs) for network in (composed, relay)]
    composed_drift, relay_drift = ([p.to_json() for p in drift.populations] for drift in same)
    assert composed_drift == relay_drift
    activity = measure(relay, inputs)
    for name in relay_names(relay):
        sent = np.count_nonzero(got.spikes[name], axis=(0, 1)) / len(inputs)
        np.testing.assert_array_equal(activity.spikes[name], sent)
    assert fit(relay, LOIHI2, activity).energy is not None


@pytest.mark.parametrize("options", [{"weight_bits": 4}, {"thresholds": "shared"}])
def test_calibrated_integers_stay_equal_under_a_window(folded, options):
    """Rounded with data, weights of one window could differ, and then no relay could pool for them."""
    inputs = inputs_for(folded, samples=8)
    network = quantize(folded, LOIHI2, inputs, pooling="relay", **options).network
    assert len(relay_names(network)) == 2


def test_auto_takes_the_fewest_cores(folded):
    """Relays where a layer would not fit a core without them, and none where they only add a core."""
    plain = quantize(folded, LOIHI2, pooling="auto").network
    assert not relay_names(plain)
    few = with_limit(LOIHI2, "core.input_words", 60)
    assert relay_names(fewest_cores(plain, few))
    binary = with_limit(few, "formats.message_bits", 1)
    assert not relay_names(fewest_cores(plain, binary))
    assert not relay_names(fewest_cores(plain, load_profile("brainscales2")))  # cores are not documented


def test_auto_adds_long_sums_in_parts():
    """A matrix with more inputs than a core has axons, which no smaller part of the layer would help."""
    few = with_limit(LOIHI2, "core.input_axons", 20)
    network = int_chain()
    assert "dense" in [f.where for f in fit(network, few).found("error")]
    parts = fewest_cores(network, few)
    assert relay_names(parts) == ["dense_parts"]
    assert fit(parts, few).fits
    inputs = inputs_for(network, steps=True)
    np.testing.assert_array_equal(simulate(network, inputs).outputs, simulate(parts, inputs).outputs)


def test_chips_with_binary_spikes_send_no_messages(folded):
    network = quantize(folded, LOIHI2, pooling="relay").network
    binary = with_limit(LOIHI2, "formats.message_bits", 1)
    found = [f for f in fit(network, binary).found("error") if f.rule == "messages_of_relays_fit"]
    assert [finding.where for finding in found] == relay_names(network)
    assert "a relay sends graded messages of 0..4; loihi2 holds 0..1" in found[0].message
    assert not [f for f in fit(network, LOIHI2).findings if f.rule == "messages_of_relays_fit"]


def test_a_network_without_pooling_gets_a_note():
    (note,) = notes_on_relays(int_chain(), "relay")
    assert note.startswith("--pooling relay: no relays, because no kernel repeats its weights")
    assert notes_on_relays(int_chain(), "auto") == notes_on_relays(with_relays(int_pooled()), "relay") == ()


def test_unknown_forms_are_refused(folded):
    with pytest.raises(OptionError, match="Did you mean 'relay'"):
        quantize(folded, LOIHI2, pooling="relays")


def test_speck_pools_as_it_sends(folded):
    """The kernel after a pooling of 2 x 2 is 3 x 3, not 6 x 6; a readout of 4 x 4 pixels has one left."""
    network = quantize(folded, load_profile("unbounded")).network
    speck = load_profile("speck")
    without = replace(speck, lists={key: a for key, a in speck.lists.items() if key != "layer.pooling"})
    words = [
        [layer.use["kernel_words"] for layer in place(network, profile).layers]
        for profile in (speck, without)
    ]
    assert words[0][1:] == [4 * 16 * 8, 5 * 1 * 4]
    assert words[1][1:] == [4 * 64 * 8, 5 * 16 * 4]
    assert words[0][0] == words[1][0]
