"""A recurrent network on digits that come row by row, through all commands."""

import json
from dataclasses import replace

import numpy as np
import pytest
from networks import assert_same_trace, needs_lava

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import same_records
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import read_netx
from mpbn_deploy.formats.nir import read_folded
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize

pytestmark = pytest.mark.usefixtures("without_lava")

DATA = ["--data", "digits-rows", "--arch", "digits-rnn"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("recurrent")
    model, out = str(place / "model.pt"), str(place / "out")
    options = [*DATA, "--leak", "0.5", "--epochs", "4", "--freeze-mpbn", "0.5"]
    assert console_script(["train", *options, "--out", model]) == 0
    options = ["--target", "loihi2", "--out", out, "--samples", "4", "--calibration", "none"]
    assert console_script(["export", model, *options]) == 0
    return place


def test_every_file_has_the_loop(folder):
    folded = fold(trace(load_model(folder / "model.pt")))
    integers, real = read_netx(folder / "out" / "network.net"), read_folded(folder / "out" / "network.nir")
    for network in (folded, integers, real):
        assert network.timesteps == 8
        assert [c.label for c in network.feedback] == ["lif1->lif1"]
        assert [c.delay for c in network.feedback] == [1]
    assert same_records(integers, quantize(folded, load_profile("loihi2")).network)


def test_verification_finds_no_difference_in_any_execution(folder, capsys):
    stored = json.loads((folder / "out" / "verify.json").read_text())
    assert stored["fold"]["spikes_mismatched"] == 0 < stored["fold"]["spikes_compared"]
    assert all(c["spikes_mismatched"] == c["voltages_mismatched"] == 0 for c in stored["comparisons"])
    assert "weights with exponents, for which netx has no key" in stored["stock_reader_obstacle"]
    assert console_script(["fit", str(folder / "out"), "--target", "loihi2"]) == 0
    assert "\ncores     2\nchips     1" in capsys.readouterr().out


@needs_lava
def test_lava_dl_reads_loops_of_matrices_without_exponents(folder):
    """As for a chip that has no exponents of weights."""
    folded = fold(trace(load_model(folder / "model.pt")))
    loihi2 = load_profile("loihi2")
    limits = {k: v for k, v in loihi2.limits.items() if k != "formats.weight_exponent_maximum"}
    network = quantize(folded, replace(loihi2, limits=limits)).network
    assert network.layers[0].neuron.threshold.min() < 0  # of MPBN: such neurons fire before the first step
    assert "lif1: neurons that fire without input, with a loop" in EXECUTORS["netx"].obstacle(network)
    lif = replace(network.layers[0].neuron, threshold=np.arange(300, 364), bias=np.zeros(64, int))
    layers = (network.layers[0].with_neuron(lif), network.output)
    network = replace(network, populations=(network.input, *layers))
    assert EXECUTORS["netx"].obstacle(network) is None
    inputs = load_dataset("digits-rows").test.inputs[:3]
    expected = simulate(network, inputs)
    assert 0.01 < expected.spikes["lif1"].mean() < 0.9
    assert_same_trace(expected, EXECUTORS["netx"].run(network, inputs, ExecutionOptions()), voltages=False)


def test_calibration_and_few_bits(folder):
    out = str(folder / "four")
    options = ["--weight-bits", "4", "--calibration", "digits-rows", "--samples", "4"]
    assert (
        console_script(["export", str(folder / "model.pt"), "--target", "loihi2", "--out", out, *options])
        == 0
    )
    stored = json.loads((folder / "four" / "verify.json").read_text())
    assert all(c["spikes_mismatched"] == 0 for c in stored["comparisons"])


def test_the_integers_of_loops_can_be_trained_on(folder):
    options = ["--init", str(folder / "model.pt"), "--quantize", "loihi2", "--weight-bits", "4"]
    again, out = str(folder / "integers.pt"), str(folder / "trained")
    assert console_script(["train", *options, "--data", "digits-rows", "--epochs", "1", "--out", again]) == 0
    assert console_script(["export", again, "--target", "loihi2", "--out", out, "--samples", "2"]) == 0
    comparisons = json.loads((folder / "trained" / "verify.json").read_text())["comparisons"]
    assert "PyTorch, as trained" in [c["execution"] for c in comparisons]
    assert all(c["spikes_mismatched"] == 0 for c in comparisons)
