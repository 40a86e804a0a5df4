"""Own data in every command, as users type it: trained, calibrated, exported, run, verified, fitted."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import end_of

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import SimulationError
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.folder import open_folder
from mpbn_deploy.frontend import trace

pytestmark = pytest.mark.usefixtures("without_lava")


def call(line):
    try:
        return console_script(line.split())
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory, digits):
    """A folder with own data, and a network that was trained and exported with it."""
    home = tmp_path_factory.mktemp("home")
    images, labels = digits.train.inputs[:400, 0].astype(float), digits.train.labels[:400]
    np.savez(home / "mine.npz", inputs=images, labels=labels)
    np.save(home / "only.npy", images[:20].astype(np.uint8))
    before = Path.cwd()
    os.chdir(home)
    try:
        assert call("train --data mine.npz --arch digits-mlp --epochs 2 --out m.pt") == 0
        assert (
            call(f"export m.pt --target loihi2 --data {home}/mine.npz --calibration mine.npz --samples 4")
            == 0
        )
    finally:
        os.chdir(before)
    return home


@pytest.fixture
def typed(home, monkeypatch, capfd):
    """Run a command line in that folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(home)

    def run(line):
        code = call(line)
        return code, *capfd.readouterr()

    return run


def test_what_is_known_from_the_data_is_recorded_in_the_model(home):
    model = load_model(home / "m.pt")
    given = load_dataset(str(home / "mine.npz")).input_format
    found = model.input_format
    assert (found.shape, found.minimum, found.maximum) == ((1, 8, 8), 0, 16)
    assert np.array_equal(found.mean, given.mean) and np.array_equal(found.deviation, given.deviation)
    assert model.card.training["data"] == "mine.npz"


def test_an_export_names_data_without_their_folder(home):
    manifest = json.loads((home / "m.loihi2" / "manifest.json").read_text())
    assert manifest["data"] == manifest["options"]["calibration"] == "mine.npz"
    verified = json.loads((home / "m.loihi2" / "verify.json").read_text())
    assert verified["data"] == "mine.npz" and verified["accuracy"]["samples"] == 80


def test_run_takes_own_data(typed):
    code, out, err = typed("run m.loihi2 --backend emulator --data mine.npz --samples 100000")
    assert code == 0 and "80 samples of mine.npz, accuracy" in out
    assert "--samples 100000, but mine.npz has 80 test samples; all 80 are used" in err
    code, out, err = typed("run m.loihi2 --backend emulator --data only.npy --samples all")
    assert code == 0 and "20 samples of only.npy, " in out and "accuracy" not in out
    assert "have shape (8, 8); reshaped to (1, 8, 8)" in err


def test_a_file_cannot_name_own_data(typed):
    """Names in a model or an export are not opened: only the user names files and code."""
    code, _, err = typed("run m.loihi2 --backend emulator")
    assert code == 2 and "mine.npz is your own data, of which only the name is recorded" in err
    assert "Add --data with the path or function: --data mine.npz" in err
    code, _, err = typed("fit m.loihi2")
    assert code == 0 and "energy and time are not estimated, because" in err and "--data mine.npz" in err
    code, _, err = typed("export m.pt --target loihi2 --samples 2 --out other")
    assert code == 0 and "trained on mine.npz, data of your own, so inputs are random" in err
    assert "no data set is known" not in err


def test_fit_and_advice_take_own_data(typed):
    code, out, _ = typed("fit m.loihi2 --data mine.npz")
    assert code == 0 and "estimated from 16 samples" in out
    code, out, err = typed("fit m.loihi2 --target loihi1 --advise --data mine.npz")
    assert code in (0, 1) and "Traceback" not in err
    printed = [line for line in out.splitlines() if "python -m mpbn_deploy." in line]
    assert printed and all("--data mine.npz" in line for line in printed)


def next_command(out):
    """The command that a report suggests, as a line for `typed`."""
    (line,) = [line for line in out.splitlines() if line.startswith("next ")]
    return line.split("mpbn_deploy.")[1]


def test_the_next_command_names_own_data_so_that_it_works(typed, home):
    """As typed in this command, or else as typed in the export: with its folder."""
    _, out, _ = typed("fit m.loihi2")
    assert next_command(out) == f"run m.loihi2 --data {home}/mine.npz"
    code, out, _ = typed(f"{next_command(out)} --backend emulator")
    assert code == 0 and "samples of mine.npz" in out
    _, out, _ = typed("fit m.loihi2 --data mine.npz")
    assert next_command(out) == "fit m.loihi2 --target loihi2 --data mine.npz --compare-thresholds"
    code, out, _ = typed(next_command(out))
    assert code == 0 and next_command(out) == "run m.loihi2 --data mine.npz"
    exports = [line.split() for line in out.splitlines() if "mpbn_deploy.export" in line]
    assert [words[words.index("--out") + 1] for words in exports] == ["m.loihi2-core", "m.loihi2-shared"]


@pytest.mark.parametrize("text", ["of_another_release = 1", 'data = "elsewhere/other.npz"', "samples = 4"])
def test_without_a_path_in_the_export_its_data_have_the_name_of_the_manifest(home, tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    opened = open_folder(home / "m.loihi2")
    assert opened.data_words == ["--data", f"{home}/mine.npz"]
    assert replace(opened, path=tmp_path).data_words == ["--data", "mine.npz"]
    files = {name: found for name, found in opened.manifest["files"].items() if name != "run.toml"}
    assert replace(opened, manifest={**opened.manifest, "files": files}).data_words == ["--data", "mine.npz"]


def test_data_sets_that_are_known_need_only_their_folder(home, tmp_path):
    (tmp_path / "run.toml").write_text('data_dir = "pictures"')
    opened = replace(open_folder(home / "m.loihi2"), path=tmp_path)
    for name, words in {"cifar10": ["--data-dir", "pictures"], "random": []}.items():
        assert replace(opened, manifest={**opened.manifest, "data": name}).data_words == words


def test_a_network_of_integers_only_is_not_sent_to_a_comparison_that_needs_real_numbers(typed):
    _, out, _ = typed("fit m.loihi2/network.net --target loihi2 --data mine.npz")
    assert next_command(out) == "run m.loihi2/network.net --data mine.npz"


def test_inputs_of_fewer_bits_are_rounded_by_every_command(typed):
    code, out, _ = typed(
        "export m.pt --target loihi2 --data mine.npz --samples 2 --input-bits 2 --out coarse --verbose"
    )
    assert code == 0 and "takes 0..3: inputs 0..16, divided by 6 and rounded (--input-bits)" in out
    assert "next      python -m mpbn_deploy.run coarse --data mine.npz\n" in out
    code, out, err = typed("run coarse --backend emulator --data mine.npz --samples all")
    assert code == 0 and "values of mine.npz, divided by 6 and rounded" in err
    assert int(out.split("accuracy ")[1].split(".")[0]) > 70


def test_an_offset_is_subtracted_from_inputs_by_every_command(typed):
    code, out, _ = typed(
        "export m.pt --target loihi2 --data mine.npz --samples 2 --input-offset 8 --out less --verbose"
    )
    assert code == 0 and "takes -8..8: inputs 0..16 minus 8 (--input-offset)" in out
    code, out, err = typed("run less --backend emulator --data mine.npz --samples all")
    assert code == 0 and "values of mine.npz minus 8 (--input-offset)" in err
    assert int(out.split("accuracy ")[1].split(".")[0]) > 70


@pytest.mark.lava
def test_verify_and_its_certificate_take_own_data(typed, home):
    code, out, _ = typed(f"verify m.loihi2 --check --data {home}/mine.npz")
    assert code == 0 and "the certificate holds" in out
    code, _, err = typed("verify m.loihi2 --check --data digits")
    assert code == 2 and "the certificate covers samples of mine.npz" in err


@pytest.mark.lava
def test_random_inputs_are_announced_and_marked(typed, home):
    code, out, err = typed("export m.pt --target loihi2 --samples 2 --out random")
    assert code == 0 and "so inputs are random, and so are firing rates, energy and time" in err
    assert "differ, on 2 random inputs: " in out and "estimated from 2 random inputs" in out
    assert json.loads((home / "random" / "fit.json").read_text())["energy"]["random_inputs"] is True
    assert json.loads((home / "random" / "verify.json").read_text())["data"] == "random"
    page = (home / "random" / "report.html").read_text()
    assert "per random input, estimated" in page and "mean per time step, on random inputs" in page
    assert "On 2 random inputs, the network is" in page or "over 2 random inputs" in page
    assert "random input" not in (home / "m.loihi2" / "report.html").read_text()
    code, out, _ = typed("run m.loihi2 --backend emulator --data random")
    assert code == 0 and "16 random inputs, " in out
    code, out, _ = typed("fit m.loihi2 --target loihi1 --target loihi2 --data random")
    assert "energy and time are those of random inputs" in out


def test_flat_data_train_on_from_a_network_of_pictures(typed, home):
    with np.load(home / "mine.npz") as mine:
        np.savez(home / "flat.npz", inputs=mine["inputs"].reshape(400, 64), labels=mine["labels"])
    code, _, err = typed("train --init m.pt --data flat.npz --epochs 1 --out again.pt")
    assert code == 0 and err.count("have shape (64,); reshaped to (1, 8, 8)") == 1
    np.savez(home / "wide.npz", inputs=np.full((64, 1, 8, 8), 99), labels=np.arange(64) % 10)
    code, _, err = typed("train --init m.pt --data wide.npz --epochs 1 --out none.pt")
    assert code == 2 and "the network takes inputs in 0..16; samples of wide.npz are in 99..99" in err
    assert not (home / "none.pt").exists()


@pytest.mark.parametrize(
    "line",
    [
        "train --data {} --epochs 1 --out none.pt",
        "export m.pt --target loihi2 --data {} --out none",
        "export m.pt --target loihi2 --calibration {} --out none",
        "run m.loihi2 --backend emulator --data {}",
        "verify m.loihi2 --data {}",
        "fit m.loihi2 --data {}",
    ],
)
def test_a_pickle_in_data_ends_every_command_with_one_message(typed, home, line):
    np.savez(home / "pickle.npz", inputs=np.array([{}, 1], object), labels=np.zeros(2))
    code, out, err = typed(line.format("pickle.npz"))
    assert code == 2 and out == "" and err.count("error:") == 1 and "could run code; it is not loaded" in err
    assert not list(home.glob("none*")) and not list(home.glob(".none*"))


def test_an_ablation_takes_own_data(run_here, home):
    line = ["--data", home / "mine.npz", "--arch", "digits-mlp", "--seeds", 1, "--epochs", 1]
    for _ in range(2):  # the second time nothing is trained
        done = run_here("ablation.py", *line, "--out", home / "study")
        assert not done.returncode, end_of(done.stderr)
    assert (
        "epoch 1/1" not in done.stderr and "mine.npz, digits-mlp" in (home / "study/ablation.md").read_text()
    )


# ---- executors check what they are given --------------------------------------------------------


@pytest.mark.parametrize("execute", [simulate, emulate])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: np.where(v > 8, np.nan, v), "inputs hold NaN or infinity"),
        (lambda v: np.where(v > 8, np.inf, v), "inputs hold NaN or infinity"),
        (lambda v: v + 0j, "inputs are of type complex128"),
        (lambda v: v.astype(str), "inputs are of type <U"),
        (lambda v: v - 1.0, r"inputs from -1.0 to .*; the network takes 0\.\.16"),
        (lambda v: v + 1, r"inputs from 1 to 17; the network takes 0\.\.16"),
    ],
)
def test_folded_networks_check_their_inputs(home, digits, execute, change, message):
    folded = fold(trace(load_model(home / "m.pt")))
    with pytest.raises(SimulationError, match=message):
        execute(folded, change(digits.test.inputs[:8].astype(int)))


def test_bools_are_spikes(home):
    folded = fold(trace(load_model(home / "m.pt")))
    spikes = np.random.default_rng(0).random((3, 1, 8, 8)) < 0.5
    for execute in (simulate, emulate):
        assert np.array_equal(execute(folded, spikes).outputs, execute(folded, spikes.astype(int)).outputs)
