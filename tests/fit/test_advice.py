"""Advice: what is printed makes the network fit, seen by fitting again; and comparisons of chips."""

import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import assert_same_trace, input_format, inputs_for, int_pooled, int_sigma_delta
from torch import nn

from mpbn_deploy.base import OptionError, SimulationError, main
from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export import stage as export
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.fit import measure, stage as fit
from mpbn_deploy.fit.__main__ import COMMAND as FIT
from mpbn_deploy.fit.advice import CURES, OF_CORES, SETUP_CURES, Question, _Search, advise
from mpbn_deploy.fit.form import (
    _check_readout,
    activity_on_chip,
    fit_on_chip,
    without_first_layer,
    without_readout,
)
from mpbn_deploy.fit.rules import RULES
from mpbn_deploy.fit.stage import short_verdict
from mpbn_deploy.fit.text import advice_text
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.folder import NetworkFile, open_folder
from mpbn_deploy.formats.nir import write_nir
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import Limit, load_profile, profile_files, profile_names
from mpbn_deploy.hardware.place import place, tiles_remembered
from mpbn_deploy.ir import Input
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.train import Training, train

pytestmark = pytest.mark.usefixtures("without_lava")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A small trained network, exported for Loihi 2."""
    folder = tmp_path_factory.mktemp("advise")
    network = train(load_dataset("digits"), "digits-cnn", timesteps=2, training=Training(epochs=1))
    save_model(folder / "model.pt", network)
    export.export(folder / "model.pt", "loihi2", samples=4)
    return folder / "model.loihi2"


def tight(profile, **limits):
    """The profile with other limits, key dots as double underscores."""
    changed = {
        key.replace("__", "."): Limit(value=value, source="test", basis="derived")
        for key, value in limits.items()
    }
    return replace(profile, limits={**profile.limits, **changed})


def run_json(capsys, *arguments, command=FIT):
    code = main(command, [*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


# ---- the first layer on the host ----------------------------------------------------------------


def test_a_network_behind_its_first_layer_fires_the_same_spikes(exported):
    opened = open_folder(exported)
    samples = opened.samples(4, None, None)
    whole = simulate(opened.network, samples.inputs)
    rest = without_first_layer(opened.network)
    assert (rest.input.name, rest.input_range.maximum) == ("lif1", 1)
    sent = whole.spikes["lif1"].astype(np.int64)
    behind = simulate(rest, sent)
    for name in ("lif2", "lif3"):
        np.testing.assert_array_equal(behind.spikes[name], whole.spikes[name])
    np.testing.assert_array_equal(behind.outputs, whole.outputs)
    seen = activity_on_chip(rest, measure(opened.network, samples.inputs))
    same = measure(rest, sent)
    assert seen.spikes.keys() == same.spikes.keys()
    for name in same.spikes:
        np.testing.assert_array_equal(seen.spikes[name], same.spikes[name])


def test_what_reaches_a_readout_on_the_host_is_on_the_chip(exported):
    opened = open_folder(exported)
    report = fit_on_chip(opened.network, load_profile("loihi2"), None, readout="host")
    assert [layer.name for layer in report.layers] == ["lif1", "lif2", "lif3"]
    assert report.to_json()["readout"] == "host"
    with pytest.raises(OptionError, match="lif3 is not a readout behind a population that fires"):
        without_readout(without_readout(opened.network))


def test_without_a_first_layer_of_its_own_nothing_can_go_to_the_host(exported):
    network = open_folder(exported).network
    rest = without_first_layer(without_first_layer(without_first_layer(network)))
    with pytest.raises(OptionError, match="the input is read by output; this needs one population that"):
        without_first_layer(rest)


def test_a_layer_that_has_only_a_number_is_named_as_a_layer():
    network = fold(trace(nn.Sequential(nn.Linear(2, 2), LIF(2)), (2,), 1))
    with pytest.raises(OptionError, match='--readout host: layer "1" is not a readout'):
        _check_readout(network.layers[:1])


def test_the_host_can_encode_the_input_and_energy_counts_the_messages_sent():
    network = int_sigma_delta()
    inputs = inputs_for(network, steps=True)
    whole = simulate(network, inputs)
    rest = without_first_layer(network)
    behind = simulate(rest, whole.spikes["changes"])
    assert_same_trace(behind, replace(whole, **{
        kind: {name: values for name, values in getattr(whole, kind).items() if name != "changes"}
        for kind in ("spikes", "voltages")
    }))  # fmt: skip
    sent = measure(network, inputs).counts("maps")
    np.testing.assert_array_equal(sent, np.count_nonzero(whole.spikes["maps"], axis=(0, 1)))
    assert 0 < sent.sum() < whole.spikes["maps"].size


# ---- advice -------------------------------------------------------------------------------------


def test_what_fits_needs_no_advice(exported, capsys):
    code, data = run_json(capsys, exported, "--advise")
    assert (code, data["fits"], data["advice"]) == (0, True, [])


def test_advice_for_loihi1_fits_when_its_commands_are_typed(exported, capsys, monkeypatch):
    """Graded pixels and many thresholds: both must be mended, and the printed commands do."""
    code, data = run_json(capsys, exported, "--target", "loihi1", "--advise")
    assert (code, data["fits"]) == (1, False)
    assert data["advice"] and all(one["fits"] for one in data["advice"])
    monkeypatch.chdir(exported.parent)
    for one in data["advice"]:
        assert 0 <= one["predictions_changed"] <= one["samples"]
        assert one["predictions_reference"] == "given integer network"  # `export` counts against floats
        for command in one["commands"]:
            module, *arguments = shlex.split(command.removeprefix("python -m mpbn_deploy."))
            code = main({"export": EXPORT, "fit": FIT}[module], [*arguments, "--samples", "2"])
            capsys.readouterr()
            assert code == 0, command


def test_fewer_bits_are_advised_where_synapses_overflow(exported):
    """A core with few words for synapses holds the weights when they are narrower, no sooner."""
    opened = open_folder(exported)
    needed = {bits: _most_words(opened, bits) for bits in (8, 4)}
    assert needed[4] < needed[8]
    profile = tight(load_profile("loihi2"), core__synapse_words=needed[4], core__neurons=10**6)
    few = replace(profile, limits={k: v for k, v in profile.limits.items() if k != "core.total_words"})
    profile = tight(few, chip__cores=3)
    question = Question(opened=opened, target="few.toml", profile=profile, first_layer="host", readout="chip")
    report = question.ask(opened.network)
    found = advise(question, report)
    assert not report.fits and found and all(one.report.fits for one in found)
    bits = [int(match[1]) for one in found if (match := re.search(r"(\d)-bit weights", one.description))]
    assert bits and all(4 <= width < 8 for width in bits)


def _most_words(opened, bits):
    from mpbn_deploy.quantize import quantize

    network = quantize(opened.folded, load_profile("loihi2"), weight_bits=bits).network
    report = fit.fit(network, load_profile("loihi2"))
    return max(layer.use["synapse_words"].used for layer in report.layers)


def test_more_chips_are_advised_where_one_is_too_small(exported):
    opened = open_folder(exported)
    profile = tight(load_profile("loihi2"), chip__cores=2)
    question = Question(opened=opened, target="two.toml", profile=profile, first_layer="chip")
    found = advise(question, question.ask(opened.network))
    assert "2 chips" in [one.description for one in found]
    chips = next(one for one in found if one.description == "2 chips")
    assert chips.commands == (
        f"python -m mpbn_deploy.fit {exported} --target two.toml --chips 2 --first-layer chip",
    )


def test_remedies_are_of_rules_that_exist():
    names = {rule.__name__ for rule in RULES}
    assert {*CURES, *SETUP_CURES, *OF_CORES} <= names


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """A network with average pooling, exported from a NIR file."""
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), LIF((4, 8, 8)), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3)
    )
    file = tmp_path_factory.mktemp("pooled") / "a.nir"
    network = SpikingNetwork(body, timesteps=2, input_format=input_format((1, 8, 8)))
    write_nir(fold(trace(network)), file)
    export.export(file, "loihi2", samples=2, data="random")
    return open_folder(file.with_suffix(".loihi2"))


@pytest.mark.parametrize(("tiling", "tried"), [("compiler", {"compiler", "best"}), ("best", {"best"})])
def test_relays_are_tried_in_the_tilings_of_the_setups(pooled, tiling, tried):
    question = Question(opened=pooled, target="loihi2", profile=load_profile("loihi2"), tiling=tiling)
    search = _Search(question, question.ask(pooled.network))
    relays = [plan for plan in search._plans() if plan.kind == "relays"]
    assert {plan.options.tiling for plan in relays} == tried
    assert all(search._try_plan(plan) for plan in relays)


@pytest.mark.parametrize("tiling", ["compiler", "best"])
def test_remembered_tiles_are_those_of_a_new_search(pooled, tiling):
    """With and without the first layer, whose removal leaves the tiles of the others as they were."""
    profile = tight(load_profile("loihi1"), core__neurons=40)
    networks = [pooled.network, without_first_layer(pooled.network), pooled.network]
    alone = [place(network, profile, tiling=tiling) for network in networks]
    with tiles_remembered():
        together = [place(network, profile, tiling=tiling) for network in networks]
    for one, other in zip(alone, together, strict=True):
        assert [(p.tile, p.use, p.by_tool) for p in one.layers] == [
            (p.tile, p.use, p.by_tool) for p in other.layers
        ]


def test_attempts_with_equal_integers_are_listed_by_their_number_of_chips():
    network = int_pooled()
    profile = tight(load_profile("loihi2"), chip__cores=1, core__neurons=64, core__input_words=200)
    question = Question(
        opened=NetworkFile(netx=Path("network.net"), network=network),
        target="one.toml",
        profile=profile,
        tiling="compiler",
    )
    chips = [one.report.chips for one in advise(question, question.ask(network))]
    assert chips == sorted(chips) and len(set(chips)) == 3


def test_where_nothing_helps_the_nearest_try_says_what_remains(exported, capsys):
    code = main(FIT, [str(exported), "--target", "xylo-a3", "--advise", "--samples", "2"])
    text = capsys.readouterr().out
    assert code == 1
    advice = text.split("no change makes the network fit, so none was tried. No option cures this: ")[1]
    assert advice.startswith("not met: ")
    assert "reset to zero is supported (network)" in advice.split(".")[0]
    assert "reset the voltage to zero; xylo-a3 cannot" in advice
    assert "trying" not in text  # no quantization adds a reset


def test_advice_for_an_event_driven_chip_says_that_its_spikes_may_differ(exported):
    """Rules of speck hold behind the last LIF, but it has no time steps: fits, with a warning."""
    network = without_first_layer(without_first_layer(open_folder(exported).network))
    opened = NetworkFile(netx=exported / "network.net", network=network)
    graded = replace(opened, network=_with_input_range(network, 0, 9))
    for target, remark in (("speck", True), ("loihi1", False)):
        question = Question(opened=graded, target=target, profile=load_profile(target), first_layer="chip")
        report = question.ask(graded.network)
        (host,) = [one for one in advise(question, report) if one.setup == "first layer on the host"]
        printed = "\n".join(advice_text(report, [host]).renderables)
        assert host.report.fits and "each of these commands makes the network fit" in printed
        assert ("spikes on the chip itself may differ" in printed) == remark


def _with_input_range(network, low, high):
    first = network.input.with_neuron(Input(minimum=low, maximum=high))
    return replace(network, populations=(first, *network.layers))


def test_errors_of_a_chip_without_formats_agree_on_how_to_export(exported):
    """Speck's profile lacks what quantization needs: every message names the target to use instead."""
    report = fit.fit(open_folder(exported).network, load_profile("speck"))
    exporting = [finding.message for finding in report.found("error") if "xport" in finding.message]
    assert {"biases_fit_format", "distinct_thresholds_fit_layer"} <= {f.rule for f in report.found("error")}
    assert len(exporting) >= 2 and all("--target unbounded" in message for message in exporting)


def test_a_file_of_integers_alone_gets_no_other_quantization(exported):
    opened = NetworkFile(netx=exported / "network.net", network=open_folder(exported).network)
    question = Question(opened=opened, target="loihi1", profile=load_profile("loihi1"))
    found = advise(question, question.ask(opened.network))
    assert len(found) == 1 and not found[0].report.fits and found[0].plan is None


# ---- the printed tables -------------------------------------------------------------------------


def test_the_legend_explains_every_short_heading(exported, capsys):
    main(FIT, [str(exported), "--samples", "2", "--verbose"])
    text = capsys.readouterr().out
    assert "%: of a core's capacity, on the fullest core of the layer; axons: " in text
    for heading in ("axons", "grp", "syn", "map", "total"):
        assert text.count(f"; {heading}: ") == 1
    assert "; kernels: " not in text


def test_the_table_of_targets_is_complete_in_a_narrow_terminal(capsys, monkeypatch):
    def printed(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(FIT, ["--targets"]) == 0
        return capsys.readouterr().out

    def letters(text):
        return Counter("".join(text.replace("─", "").split()))

    for columns in (100, 80, 50):
        narrow = printed(columns)
        assert max(map(len, narrow.splitlines()[:-1])) <= columns  # the last line is the legend
        assert letters(narrow) == letters(printed(200))
        assert narrow.count(" 16384..65536 ") == 2  # numbers stay whole


# ---- comparison, energy, bad input --------------------------------------------------------------


def test_several_targets_in_one_table(exported, capsys):
    targets = [argument for name in profile_names() for argument in ("--target", name)]
    code, data = run_json(capsys, exported, *targets, "--samples", "2")
    assert code == 1
    assert [one["target"] for one in data["targets"]] == profile_names()
    main(FIT, [str(exported), *targets, "--samples", "2", "--verbose"])
    lines = capsys.readouterr().out.splitlines()
    for one in data["targets"]:
        rules = {finding["rule"] for finding in one["findings"] if finding["severity"] == "error"}
        said = [line for line in lines if line.startswith(f"{one['target']}: error: ")]
        assert len(said) == len(rules)  # one line per rule
        known = one["cores"] is not None or one["target"] == "unbounded"
        assert one["fits"] == (False if rules else True if known else None)


def test_a_chip_whose_cores_nobody_explained_is_never_said_to_hold_a_network(exported, capsys):
    report = fit.fit(open_folder(exported).network, load_profile("spinnaker2"))
    assert (report.fits, report.cores, report.chips, short_verdict(report)) == (None, None, None, "?")
    assert fit.fit(open_folder(exported).network, load_profile("unbounded")).fits is True
    main(FIT, [str(exported), "--target", "spinnaker2", "--samples", "2"])
    assert "no error found, but its core allocation is undocumented" in capsys.readouterr().out


def test_energy_comes_from_the_activity_of_samples(exported, capsys):
    code, data = run_json(capsys, exported, "--samples", "3")
    opened = open_folder(exported)
    activity = measure(opened.network, opened.samples(3, None, None).inputs)
    report = fit.fit(opened.network, load_profile("loihi2"), activity)
    assert (code, data["energy"]) == (0, json.loads(json.dumps(report.energy.to_json())))
    assert data["energy"]["samples"] == 3
    main(FIT, [str(exported), "--samples", "3", "--energy"])
    text = capsys.readouterr().out
    assert "synaptic operations" in text and "ordinary network" in text


def test_activity_of_another_network_is_refused(exported):
    network = open_folder(exported).network
    rest = without_first_layer(network)
    activity = measure(network, np.zeros((1, *network.input.shape), np.int64))
    with pytest.raises(SimulationError, match="does not match this network"):
        fit.fit(rest, load_profile("loihi2"), activity)


def test_energy_without_data_is_an_error_and_a_plain_fit_says_so(exported, capsys):
    arguments = [str(exported / "network.net"), "--target", "loihi2"]
    assert main(FIT, [*arguments, "--energy"]) == 2
    assert "error: --energy needs the activity of samples: name their data set with --data." in (
        capsys.readouterr().err
    )
    assert main(FIT, arguments) == 0
    assert "energy and time are not estimated; name one with --data" in capsys.readouterr().err


def test_several_chips_are_cut_where_few_spikes_cross(exported, tmp_path, capsys):
    profile = tmp_path / "small.toml"
    text = (fit_profile := _source("loihi2")).replace(
        re.search(r"^cores = .*$", fit_profile, re.MULTILINE)[0],
        'cores = { value = 2, source = "test", basis = "derived" }',
    )
    profile.write_text(text, encoding="utf-8")
    code, data = run_json(capsys, exported, "--target", profile, "--chips", "2", "--samples", "2")
    assert (code, data["chips"], data["between_chips"]["board"]) == (0, 2, "kapoho_point")
    opened = open_folder(exported)
    spikes = emulate(opened.network, opened.samples(2, None, None).inputs).spikes
    first, second, third = (spikes[name].sum() / 2 for name in ("lif1", "lif2", "lif3"))
    # Four cores in a row, two on each chip: of the three ways to pair them, the one that least crosses.
    assert data["between_chips"]["spikes_per_sample"] == min(second, first + third, first + second + third)


def _source(name):
    (path,) = (file.path for file in profile_files() if file.name == name)
    return path.read_text(encoding="utf-8")


def test_ways_are_combined_where_one_alone_does_not_do(exported):
    """Plain spikes and too few cores at once."""
    opened = open_folder(exported)
    profile = tight(load_profile("loihi2"), formats__message_bits=1, chip__cores=1)
    question = Question(opened=opened, target="plain.toml", profile=profile)
    found = advise(question, question.ask(opened.network))
    assert found[0].description == "first layer on the host, 3 chips"
    assert found[0].commands[0].endswith("--target plain.toml --chips 3 --first-layer host")
    assert found[0].question.ask(opened.network).fits


def test_commands_are_quoted_and_name_the_model_where_it_lies(exported, tmp_path):
    folder = tmp_path / "my exports"
    folder.mkdir()
    (folder / "model.pt").write_bytes((exported.parent / "model.pt").read_bytes())
    export.export(folder / "model.pt", "loihi2", samples=1)
    opened = open_folder(folder / "model.loihi2")
    question = Question(opened=opened, target="loihi1", profile=load_profile("loihi1"))
    (first, *_) = advise(question, question.ask(opened.network))
    words = shlex.split(first.commands[0])
    assert words[:4] == ["python", "-m", "mpbn_deploy.export", str(folder / "model.pt")]


def test_absent_calibration_data_does_not_hide_the_report(exported, capsys, monkeypatch):
    opened = open_folder(exported)
    manifest = {**opened.manifest, "options": {**opened.manifest["options"], "calibration": "cifar10"}}
    question = Question(
        opened=replace(opened, manifest=manifest), target="loihi1", profile=load_profile("loihi1")
    )
    found = advise(question, question.ask(opened.network))
    assert all(one.plan is None for one in found)
    assert "calibrated on cifar10, which cannot be read" in capsys.readouterr().err


def test_thresholds_per_channel_core_and_population_are_compared(exported, capsys):
    code, data = run_json(capsys, exported, "--compare-thresholds", "--samples", "8")
    own, core, shared = data["thresholds"]
    assert code == 0
    assert [one["thresholds"] for one in (own, core, shared)] == ["own", "core", "shared"]
    assert own["most_per_population"] > shared["most_per_population"] == 1
    assert own["not_known"] > shared["not_known"] == own["predictions_changed"] == 0
    assert all(0 <= one["accuracy"] <= 1 and one["samples"] == 8 for one in data["thresholds"])
    for one in (core, shared):  # the export that is compared stays
        folder = exported.with_name(f"model.loihi2-{one['thresholds']}")
        exporting, fitting = map(shlex.split, one["commands"])
        assert exporting[exporting.index("--thresholds") + 1] == one["thresholds"]
        assert exporting[-2:] == ["--out", str(folder)] and fitting[3] == str(folder)
    assert main(FIT, [str(exported / "network.net"), "--target", "loihi2", "--compare-thresholds"]) == 2
    assert "needs the real numbers of an export folder" in capsys.readouterr().err
