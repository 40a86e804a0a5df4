"""A network with synaptic currents, through all commands."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from networks import assert_trains_on_integers

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import same_records
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.netx import read_netx
from mpbn_deploy.formats.nir import read_folded
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import firing, has_current
from mpbn_deploy.quantize import quantize

pytestmark = pytest.mark.usefixtures("without_lava")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("currents")
    model, out = str(place / "model.pt"), str(place / "out")
    assert console_script(["train", "--current-leak", "0.5", "--epochs", "1", "--out", model]) == 0
    options = ["--target", "loihi2", "--out", out, "--samples", "4", "--calibration", "digits"]
    assert console_script(["export", model, *options]) == 0
    return place


def test_every_file_has_the_trained_currents(folder):
    folded = fold(trace(load_model(folder / "model.pt")))
    layers = [p.name for p in firing(folded) if has_current(p.neuron)]
    assert layers == ["lif1", "lif2", "lif3"]
    integers, real = read_netx(folder / "out" / "network.net"), read_folded(folder / "out" / "network.nir")
    assert all(integers.layer(name).neuron.decay_current == 2048 for name in layers)
    assert all(real.layer(name).neuron.current_leak == 0.5 for name in layers)
    assert [p.name for p in integers.populations] == [p.name for p in folded.populations]
    written = quantize(folded, load_profile("loihi2")).network
    for ours, theirs in zip(integers.layers, written.layers, strict=True):
        assert same_records(ours.neuron.decay_current, theirs.neuron.decay_current)
    for connection in folded.connections:
        if connection.source.endswith("_constant"):
            assert np.any(connection.synapse.weight)


def test_verification_finds_no_difference(folder, capsys):
    stored = json.loads((folder / "out" / "verify.json").read_text())
    assert stored["fold"]["spikes_mismatched"] == 0 < stored["fold"]["spikes_compared"]
    assert all(c["spikes_mismatched"] == c["voltages_mismatched"] == 0 for c in stored["comparisons"])
    assert "netx is a chain of layers" in stored["stock_reader_obstacle"]
    assert console_script(["verify", str(folder / "out"), "--samples", "1", "--stock", "--json"]) == 0
    ran = [c["execution"] for c in json.loads(capsys.readouterr().out)["comparisons"]]
    assert "Lava's own models" in ran or find_spec("lava") is None


def test_the_integers_can_be_trained_on(folder):
    assert_trains_on_integers(folder)
