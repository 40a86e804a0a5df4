"""The search for the fewest cores: integers stay equal, and what is printed can be typed."""

import io
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch
from json_schemas import check_json
from networks import inputs_for, int_chain, int_pooled, with_limit
from rich.console import Console
from torch import nn

from mpbn_deploy.base import OptionError, main
from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.fit import fit
from mpbn_deploy.fit.__main__ import COMMAND as FIT
from mpbn_deploy.fit.form import Question
from mpbn_deploy.fit.search import fewest, search
from mpbn_deploy.fit.text import search_text
from mpbn_deploy.formats.folder import NetworkFile
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.hardware.place import place
from mpbn_deploy.ir import Dense, InputFormat, bounds, relay_names
from mpbn_deploy.nn import LIF, ModelCard, SpikingNetwork
from mpbn_deploy.quantize import fewest_cores

pytestmark = pytest.mark.usefixtures("without_lava")
LOIHI2 = load_profile("loihi2")


def asked(network, profile=LOIHI2):
    opened = NetworkFile(netx="network.net", network=network)
    return Question(opened=opened, target=profile.name, profile=profile)


def test_every_form_computes_the_same_integers():
    network = int_pooled()
    few = with_limit(with_limit(LOIHI2, "core.input_words", 60), "core.neurons", 64)
    steps = search(asked(network, few))
    inputs = inputs_for(network)
    expected = simulate(network, inputs)
    for step in steps:
        got = simulate(step.network, inputs)
        np.testing.assert_array_equal(expected.outputs, got.outputs)
        for name in expected.spikes:
            np.testing.assert_array_equal(expected.spikes[name], got.spikes[name])
    assert relay_names(fewest(steps).network)


def test_the_best_form_lies_between_the_bound_and_the_compilers_cut():
    steps = search(asked(int_pooled(), with_limit(LOIHI2, "core.neurons", 9)))
    compiler, best = steps[0].report, fewest(steps).report
    assert best.lower_bound <= best.cores <= compiler.cores
    assert [step.question.tiling for step in steps[:2]] == ["compiler", "best"]
    hosted = [(step.question.first_layer, step.question.readout) for step in steps[-3:]]
    assert hosted == [("chip", "host"), ("host", "chip"), ("host", "host")]


def test_no_command_is_recommended_where_nothing_fits():
    steps = search(asked(int_pooled(), with_limit(LOIHI2, "formats.weight_bits", 2)))
    assert all(step.report.fits is False for step in steps)
    console = Console(width=100, file=io.StringIO())
    console.print(search_text("loihi2", steps))
    printed = console.file.getvalue()
    assert "none of these fits; --advise looks for changes that do" in printed and "python" not in printed


def test_a_network_without_relays_is_listed_once():
    """Its parts on the host are parts of the network as it is, which needs no other export."""
    steps = search(asked(int_chain()))
    assert [step.change for step in steps] == [
        "as it is, the compiler's cut",
        "as it is, best tiling and storage",
        "as it is, readout on the host",
        "as it is, first layer on the host",
        "as it is, first layer and readout on the host",
    ]
    assert all(len(step.commands) == 1 and ".fit " in step.commands[0] for step in steps)


def test_a_form_that_fits_is_better_than_fewer_cores():
    fits, does_not = search(asked(int_chain()))[:2]
    fewer = replace(does_not, report=replace(does_not.report, cores=1, fits=False))
    assert fewest([fits, fewer]) is fits and fits.report.cores > 1


def test_rows_without_zeros_take_fewer_cores():
    """A matrix of which one weight in eight is left: the compiler stores its zeros, the search drops them."""
    network = int_chain()
    dense = next(c for c in network.connections if isinstance(c.synapse, Dense))
    weight = np.where(np.arange(dense.synapse.weight.size) % 8, 0, 5).reshape(dense.synapse.weight.shape)
    sparse = replace(dense, synapse=replace(dense.synapse, weight=weight.astype(np.int32)))
    network = replace(network, connections=tuple(sparse if c is dense else c for c in network.connections))
    few = with_limit(LOIHI2, "core.synapse_words", weight.shape[1])
    name = dense.target
    usual, best = (
        {layer.name: layer for layer in place(network, few, tiling=tiling).layers}[name]
        for tiling in ("compiler", "best")
    )
    assert (usual.storage, best.storage) == ("usual", "sparse")
    assert usual.lower_bound == best.lower_bound == best.cores == 1 < usual.cores
    rows = np.count_nonzero(weight, axis=0)  # one per input: 3 bits of weight and 12 of index, after 10
    assert best.use["synapse_words"] == sum(-(-(15 * entries + 10) // 64) for entries in rows if entries)


def test_states_are_bounded_as_without_relays():
    """The interval of a relay's messages holds for all its neurons, which alone would prove less."""
    network = int_chain()
    parts = fewest_cores(network, with_limit(LOIHI2, "core.input_axons", 20))
    assert relay_names(parts) == ["dense_parts"]
    bound, loose = (bounds(form)["dense"].magnitude for form in (network, parts))
    assert bound < loose
    narrow = with_limit(LOIHI2, "formats.state_bits", bound.bit_length())
    findings = fit(parts, narrow).found("error")
    (message,) = [f.message for f in findings if (f.rule, f.where) == ("states_stay_in_width", "dense")]
    assert f"a state can reach {bound};" in message


def test_other_kinds_of_cores_have_nothing_to_search():
    with pytest.raises(OptionError, match="speck does not divide layers over a memory of words"):
        search(asked(int_pooled(), load_profile("speck")))


def test_what_cannot_be_searched_is_said_before_the_first_search(capsys):
    shape = ["--input-shape", "1", "8", "8", "--timesteps", "2"]
    line = ["--arch", "digits-mlp", *shape, "--target", "loihi2", "--target", "speck", "--search"]
    assert main(FIT, line) == 2
    err = capsys.readouterr().err
    assert "speck does not divide layers" in err and "search: loihi2" not in err


def pooled_body():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        LIF((4, 8, 8), mpbn="channel"),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1),
        LIF((5, 4, 4), mpbn="channel"),
        nn.Flatten(),
        nn.Linear(80, 10),
    )


SMALL = """
schema = 1
name = "small"
title = "Loihi 2 with small cores"
description = "For a test."
extends = "loihi2"

[core]
synapse_words = { value = 100, source = "test", basis = "derived" }
input_words = { value = 180, source = "test", basis = "derived" }
"""


def test_what_search_and_advice_print_exits_with_0_and_keeps_its_promise(tmp_path, monkeypatch, capsys):
    """On a chip whose cores hold no composed kernel, both print an export with relays."""
    given = InputFormat(shape=(1, 8, 8), minimum=0, maximum=16, mean=[5.0], deviation=[6.0])
    torch.manual_seed(0)
    card = ModelCard(architecture="test_search:pooled_body", class_names=tuple("0123456789"))
    save_model(tmp_path / "m.pt", SpikingNetwork(pooled_body(), timesteps=2, input_format=given, card=card))
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    usual = ["--data", "digits", "--samples", "2"]
    composed = ["--arch", card.architecture, "--target", "small.toml", "--pooling", "composed"]
    assert main(EXPORT, ["m.pt", *composed, *usual, "--calibration", "none"]) == 1
    capsys.readouterr()
    line = ["m.small", "--target", "small.toml", *usual, "--search", "--advise", "--json"]
    assert main(FIT, line) == 1
    report = json.loads(capsys.readouterr().out)
    check_json("fit", report)
    assert report["advice"] and report["search"][2]["relays"]
    for one in (*report["advice"], report["search"][2]):
        assert one["commands"] and one["fits"]
        for command in one["commands"]:
            module, *typed = shlex.split(command.removeprefix("python -m mpbn_deploy."))
            code = main({"export": EXPORT, "fit": FIT}[module], [*typed, "--samples", "2", "--json"])
            found = json.loads(capsys.readouterr().out)
            assert code == 0, command
        assert (found["cores"], found["chips"]) == (one["cores"], one["chips"])


def test_after_a_search_an_untrained_network_is_to_be_exported_in_the_form_that_fits(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shape = ["--input-shape", "1", "8", "8", "--timesteps", "2"]
    line = ["--arch", "test_search:pooled_body", *shape, "--target", "small.toml", "--search"]
    assert main(FIT, [*line, "--pooling", "composed"]) == 1
    said = re.search(r"^next +(.*)", capsys.readouterr().out, re.MULTILINE)[1]
    typed = said.removeprefix("train it, then python -m mpbn_deploy.export WEIGHTS.pt ")
    assert typed.endswith("--target small.toml --first-layer chip --readout chip --tiling best")
    torch.manual_seed(0)
    body = pooled_body()
    body[3].weight.data *= 8  # so that neurons fire; a silent network is no deployment
    torch.save(body.state_dict(), "weights.pt")
    assert main(EXPORT, ["weights.pt", *shlex.split(typed)]) == 0
