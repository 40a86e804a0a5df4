"""A network with soft resets, through all commands."""

import json

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
from mpbn_deploy.ir import FloatSoftLif, SoftLif, firing
from mpbn_deploy.quantize import quantize

pytestmark = pytest.mark.usefixtures("without_lava")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("soft")
    model, out = str(place / "model.pt"), str(place / "out")
    assert console_script(["train", "--reset", "subtract", "--epochs", "1", "--out", model]) == 0
    rounding = ["--calibration", "none", "--input-offset", "0"]
    assert (
        console_script(["export", model, "--target", "loihi2", "--out", out, "--samples", "4", *rounding])
        == 0
    )
    return place


def test_every_file_has_the_trained_reset(folder):
    folded = fold(trace(load_model(folder / "model.pt")))
    assert all(isinstance(population.neuron, FloatSoftLif) for population in firing(folded))
    integers, real = read_netx(folder / "out" / "network.net"), read_folded(folder / "out" / "network.nir")
    assert all(isinstance(population.neuron, SoftLif) for population in firing(integers))
    assert all(isinstance(population.neuron, FloatSoftLif) for population in firing(real))
    assert same_records(integers, quantize(folded, load_profile("loihi2")).network)


def test_verification_finds_no_difference_and_names_what_did_not_run(folder, capsys):
    stored = json.loads((folder / "out" / "verify.json").read_text())
    assert stored["fold"]["spikes_mismatched"] == 0 < stored["fold"]["spikes_compared"]
    assert all(c["spikes_mismatched"] == 0 for c in stored["comparisons"])
    assert "soft reset" in stored["stock_reader_obstacle"]
    assert "soft reset" in (folder / "out" / "report.html").read_text(encoding="utf-8")
    common = [str(folder / "out"), "--samples", "2"]
    assert console_script(["verify", *common, "--stock", "--verbose"]) == 0
    assert "Lava's own models not run: lif1: neurons with a soft reset" in capsys.readouterr().out
    assert console_script(["run", *common, "--stock"]) == 2
    assert "--stock cannot run this network: lif1: neurons with a soft reset" in capsys.readouterr().err


def test_the_integers_can_be_trained_on(folder):
    assert_trains_on_integers(folder)
