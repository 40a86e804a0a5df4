"""The form that "auto" chooses: the fewest cores that fit, with the reason, and again from run.toml."""

import json
from itertools import product
from math import inf
from typing import get_args

import numpy as np
import pytest
import torch
from json_schemas import check_json
from networks import inputs_for, int_chain, int_pooled, with_limit
from test_search import SMALL, pooled_body

from mpbn_deploy.base import main, remembered
from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.fit.__main__ import COMMAND as FIT
from mpbn_deploy.fit.form import fit_on_chip, resolved_pooling
from mpbn_deploy.formats.options import PoolingChoice, read_config
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import Tiling, place
from mpbn_deploy.ir import InputFormat, relay_names, with_relays, without_relays
from mpbn_deploy.nn import ModelCard, SpikingNetwork
from mpbn_deploy.quantize import express_pooling, fewest_cores, pooling

pytestmark = pytest.mark.usefixtures("without_lava")
LOIHI1, LOIHI2 = load_profile("loihi1"), load_profile("loihi2")
FEW = with_limit(with_limit(LOIHI2, "core.input_words", 60), "core.neurons", 64)
SHAPE = ["--arch", "test_search:pooled_body", "--input-shape", "1", "8", "8", "--timesteps", "2"]


def chosen(report):
    return {choice.option: choice.chosen for choice in report.choices}


@pytest.mark.parametrize("profile", [LOIHI2, FEW, with_limit(LOIHI2, "core.neurons", 9)])
def test_no_other_form_takes_fewer_cores(profile):
    network = int_pooled()

    def report_of(form, tiling):
        network_of_form = express_pooling(network, profile, form, tiling)
        return fit_on_chip(network_of_form, profile, None, chips=100, tiling=tiling, pooling=form)

    auto = report_of("auto", "auto")
    others = [report_of(*form) for form in product(get_args(PoolingChoice), get_args(Tiling))]
    assert auto.fits and auto.cores == min(other.cores if other.fits else inf for other in others)
    assert auto.tiling in ("compiler", "best") and auto.first_layer == auto.readout == "chip"


def test_the_compilers_tiling_stays_where_a_search_saves_nothing():
    network = int_chain()
    auto, compiler, best = (place(network, LOIHI2, tiling=each) for each in ("auto", "compiler", "best"))
    assert auto.cores == compiler.cores == best.cores
    assert [layer.tile for layer in auto.layers] == [layer.tile for layer in compiler.layers]
    assert (auto.tiling, best.tiling) == ("compiler", "best")


def test_the_host_takes_over_only_what_does_not_fit_otherwise():
    network = int_chain(timesteps=2)
    assert chosen(fit_on_chip(network, LOIHI2, None))["first layer"] == "chip"
    plain = with_limit(LOIHI2, "formats.message_bits", 1)
    report = fit_on_chip(network, plain, None)
    assert report.fits and (report.first_layer, report.readout) == ("host", "chip")
    (why,) = [choice.why for choice in report.choices if choice.option == "first layer"]
    assert why == "otherwise not met: input values fit message (input)"
    typed = fit_on_chip(network, plain, None, first_layer="chip")
    assert typed.fits is False and "first layer" not in chosen(typed)


def test_spiking_neurons_remain_on_the_chip(capsys):
    """Behind its only spiking layer, a network has nothing but sums; they would fit every chip."""
    one_layer = ["--arch", "test_form:one_layer", "--input-shape", "4", "--timesteps", "2"]
    assert main(FIT, [*one_layer, "--target", "loihi1", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["first_layer"] == "chip"
    assert main(FIT, [*one_layer, "--target", "loihi1", "--first-layer", "host"]) == 0


def one_layer():
    from mpbn_deploy.nn import LIF

    return torch.nn.Sequential(torch.nn.Linear(4, 6), LIF((6,)), torch.nn.Linear(6, 3))


def test_the_first_answer_says_what_was_chosen_and_why(tmp_path, monkeypatch, capsys):
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    line = [*SHAPE, "--target", "small.toml"]
    assert main(FIT, [*line, "--pooling", "composed"]) == 1
    capsys.readouterr()
    assert main(FIT, [*line, "--verbose"]) == 0
    text = capsys.readouterr().out
    assert "pooling: 1 relay population (" in text and " without relays)" in text
    assert "first layer: chip (the network fits)" in text
    assert main(FIT, [*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    check_json("fit", report)
    assert [one["option"] for one in report["choices"]] == ["pooling", "tiling", "first layer", "readout"]


def test_an_export_repeats_its_form(tmp_path, monkeypatch, capsys):
    given = InputFormat(shape=(1, 8, 8), minimum=0, maximum=16, mean=[5.0], deviation=[6.0])
    torch.manual_seed(0)
    card = ModelCard(architecture="test_search:pooled_body", class_names=tuple("0123456789"))
    save_model(tmp_path / "m.pt", SpikingNetwork(pooled_body(), timesteps=2, input_format=given, card=card))
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    arch = ["--arch", card.architecture]
    line = ["m.pt", *arch, "--target", "small.toml", "--data", "digits", "--samples", "2", "--json"]
    assert main(EXPORT, line) == 0
    manifest = json.loads((tmp_path / "m.small" / "manifest.json").read_text())
    check_json("manifest", manifest)
    assert manifest["form"]["pooling"].startswith("1 relay population (")
    recorded = read_config(tmp_path / "m.small" / "run.toml")
    assert (recorded["first_layer"], recorded["readout"]) == ("chip", "chip")
    assert recorded["pooling"] == manifest["options"]["pooling"] == "relay"
    assert recorded["tiling"] == manifest["options"]["tiling"] != "auto"
    assert main(EXPORT, ["--config", "m.small/run.toml", "--out", "again", "--json"]) == 0
    for name in ("network.net", "network.nir"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "m.small" / name).read_bytes()
    capsys.readouterr()
    assert main(FIT, ["m.small", "--target", "small.toml", "--samples", "0", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    fitted = json.loads((tmp_path / "m.small" / "fit.json").read_text())
    assert (again["cores"], again["tiling"]) == (fitted["cores"], fitted["tiling"])


def test_a_form_is_recorded_by_the_option_that_gives_it_again():
    network = int_pooled()
    assert resolved_pooling(network) == "composed"
    assert resolved_pooling(with_relays(network)) == "relay"
    split = fewest_cores(network, with_limit(FEW, "core.input_words", 40), "best")
    if relay_names(split) != relay_names(with_relays(without_relays(split))):
        assert resolved_pooling(split) == "auto"


def test_many_poolings_are_tried_together(monkeypatch):
    """As in networks of hundreds of poolings, which would take as many placements of the whole network."""
    network, alone = int_pooled(), fewest_cores(int_pooled(), FEW, "best")
    monkeypatch.setattr(pooling, "MAX_SINGLE", 1)
    together = fewest_cores(network, FEW, "best")
    inputs = inputs_for(network)
    np.testing.assert_array_equal(simulate(network, inputs).outputs, simulate(together, inputs).outputs)
    cores = [place(form, FEW, tiling="best").cores for form in (network, alone, together)]
    assert cores[1] <= cores[2] <= cores[0]


def test_what_is_remembered_of_an_array_ends_with_it():
    calls = []
    total = remembered(lambda array: calls.append(1) or int(array.sum()))
    array = np.arange(4)
    assert (total(array), total(array), len(calls)) == (6, 6, 2)  # it might change
    array.flags.writeable = False
    assert (total(array), total(array), len(calls)) == (6, 6, 3)
    view = np.arange(8)[:4]
    view.flags.writeable = False
    assert (total(view), total(view), len(calls)) == (6, 6, 5)  # through its base
