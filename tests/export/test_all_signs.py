"""Element-wise MPBN gains above, below and equal to zero within a channel, from training to every file."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from networks import (
    CURRENTS,
    LOOPS,
    RESETS,
    assert_same_trace,
    inputs_for,
    needs_lava,
    spiking_network,
    with_zero_gains,
)
from properties import examples

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import same_records
from mpbn_deploy.checkpoint import load_model, save_model
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import read_netx, write_netx
from mpbn_deploy.formats.nir import read_folded, write_nir
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import state_intervals
from mpbn_deploy.quantize import quantize

pytestmark = pytest.mark.usefixtures("without_lava")

KINDS = {
    "resets": st.sampled_from(RESETS),
    "currents": st.sampled_from(CURRENTS),
    "recurrent": st.sampled_from(LOOPS),
    "leak": st.sampled_from([0.25, 0.9]),
}


def folded_network(seed, **options):
    return fold(trace(with_zero_gains(spiking_network(seed, mpbn="element", **options), 0.2)))


def constant_neurons(network):
    """Return which neurons of lif1 never fire and which always do, for thresholds beyond every voltage."""
    population = network.layer("lif1")
    lowest, highest = state_intervals(network, population)[1]
    return population.neuron.threshold > highest, population.neuron.threshold < lowest


@examples(15)
@given(seed=st.integers(0, 2**31), **KINDS)
def test_integers_and_files_are_exact(tmp_path_factory, seed, **options):
    folded, place = folded_network(seed, **options), tmp_path_factory.mktemp("signs")
    assert folded.layer("lif1").shape[0] > 4
    write_nir(folded, place / "network.nir")
    real = read_folded(place / "network.nir")
    assert real.shapes == folded.shapes
    np.testing.assert_array_equal(constant_neurons(real), constant_neurons(folded))
    for before, after in zip(folded.layers[:-1], real.layers[:-1], strict=True):
        np.testing.assert_allclose(before.neuron.threshold, after.neuron.threshold, rtol=1e-6)
    write_nir(real, place / "again.nir")
    assert same_records(read_folded(place / "again.nir"), real)
    network, inputs = quantize(folded, load_profile("loihi2")).network, inputs_for(folded, seed=seed)
    write_netx(network, place / "network.net")
    assert same_records(read_netx(place / "network.net"), network)
    assert_same_trace(simulate(network, inputs), emulate(network, inputs))


@examples(15)
@given(seed=st.integers(0, 2**31), bits=st.sampled_from([2, 3, 8]), **KINDS)
def test_constant_neurons_stay_constant_in_integers(seed, bits, **options):
    folded = folded_network(seed, **options)
    network = quantize(folded, load_profile("loihi2"), weight_bits=bits).network
    spikes = simulate(network, inputs_for(folded, samples=20, seed=seed)).spikes["lif1"]
    never, always = constant_neurons(folded)
    assert never.any() and not spikes[:, :, never].any() and spikes[:, :, always].all()


@needs_lava
@pytest.mark.parametrize("seed", range(4))
def test_lava_computes_the_same(seed):
    options = {"resets": RESETS[seed], "currents": CURRENTS[seed], "recurrent": LOOPS[seed]}
    network = quantize(folded_network(seed, **options), load_profile("loihi2")).network
    inputs = inputs_for(network, samples=2, seed=seed)
    got = EXECUTORS["lava"].run(network, inputs, ExecutionOptions())
    assert_same_trace(simulate(network, inputs), got)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An export of a network whose second layer has gains of all signs."""
    place = tmp_path_factory.mktemp("signs")
    model, out = str(place / "model.pt"), str(place / "out")
    arch = ["--arch", "networks:both_kinds", "--data", "digits"]
    assert console_script(["train", *arch, "--epochs", "1", "--out", model]) == 0
    network = load_model(model, arch="networks:both_kinds")
    gain = network.body[5].mpbn.bn.weight.data.view(8, 9)
    gain[:5, ::2] *= -1
    gain[:, 3] = 0.0
    save_model(model, network)
    export = ["export", model, "--arch", "networks:both_kinds", "--target", "loihi2", "--samples", "4"]
    assert console_script([*export, "--calibration", "none", "--out", out]) == 0
    return place


def test_the_export_command_verifies_and_counts_both_copies(folder):
    folded = fold(trace(load_model(folder / "model.pt", arch="networks:both_kinds")))
    integers, real = read_netx(folder / "out" / "network.net"), read_folded(folder / "out" / "network.nir")
    name = folded.layers[1].name
    assert [network.layer(name).shape for network in (folded, integers, real)] == [(13, 3, 3)] * 3
    assert same_records(integers, quantize(folded, load_profile("loihi2")).network)
    stored = json.loads((folder / "out" / "verify.json").read_text())
    assert stored["fold"]["spikes_mismatched"] == 0 < stored["fold"]["spikes_compared"]
    assert all(c["spikes_mismatched"] == c["voltages_mismatched"] == 0 for c in stored["comparisons"])
