"""The commands as users type them: output, exit codes, bad input."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import end_of, needs_lava, spiking_network, wait_for_lava, with_card

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import commands as cli, write_atomically
from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.execute.c import compiler
from mpbn_deploy.execute.outside import WITNESSES
from mpbn_deploy.formats.folder import check_replaceable, open_folder, seal
from mpbn_deploy.formats.options import ExportOptions

pytestmark = pytest.mark.usefixtures("without_lava")

COMMANDS = ("train", "export", "run", "verify", "fit", "report", "doctor")


def call(command, *arguments):
    """Run a command in this process; returns its exit code."""
    try:
        return console_script([command, *map(str, arguments)])
    except SystemExit as stop:  # argparse leaves this way
        return int(stop.code or 0)


@pytest.fixture
def result(capfd):
    """Run a command with --json; gives exit code, the JSON on stdout, and stderr."""

    def run(command, *arguments):
        code = call(command, *arguments, "--json")
        out, err = capfd.readouterr()
        return code, json.loads(out) if out else None, err

    return run


@pytest.fixture
def refused(capfd):
    """Run a command that must end with exit code 2 and one message; gives the message."""

    def run(command, *arguments):
        assert call(command, *arguments) == 2
        out, err = capfd.readouterr()
        assert "Traceback" not in err and out == ""
        return err

    return run


@pytest.fixture
def folder(export_folder, tmp_path):
    """A copy of the export that a test may spoil."""
    return Path(shutil.copytree(export_folder, tmp_path / "export"))


# ---- what works -------------------------------------------------------------------------------


def test_train_and_export(result, tmp_path):
    model = tmp_path / "model.pt"
    code, data, err = result("train", "--arch", "digits-mlp", "--epochs", 1, "--out", model)
    assert code == 0 and data["model"] == str(model) and 0 < data["test_accuracy"] <= 1
    assert "epoch 1/1: loss" in err
    code, data, err = result("export", model, "--target", "loihi2", "--samples", 2)
    assert code == 0 and "earlier export" not in err
    assert data["folder"] == str(tmp_path / "model.loihi2") and data["fits"] and data["bit_exact"]
    files = {
        "network.nir",
        "network.net",
        "manifest.json",
        "fit.json",
        "verify.json",
        "report.html",
        "run.toml",
        "neurobench.json",
    }
    assert set(data["files"]) == files == {p.name for p in (tmp_path / "model.loihi2").iterdir()}
    beside = {"model.best.pt", "model.log.jsonl", "model.curves.png"}
    assert {p.name for p in tmp_path.iterdir()} == {
        "model.pt",
        "model.loihi2",
        *beside,
    }  # nothing half-written


@needs_lava
def test_the_same_export_twice_gives_the_same_bytes(export_folder, model_path, result, tmp_path):
    code, _, _ = result(
        "export", model_path, "--target", "loihi2", "--samples", 4, "--out", tmp_path / "again"
    )
    assert code == 0
    for file in export_folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes(), file.name


def test_exporting_again_replaces_the_folder(folder, model_path, result):
    (folder / "report.html").write_text("old")
    code, _, err = result("export", model_path, "--target", "loihi2", "--samples", 2, "--out", folder,
                          "--weight-bits", 4, "--calibration", "digits")  # fmt: skip
    assert f"note: {folder} holds an earlier export; this one will replace it\n" in err
    assert code == 0 and (folder / "report.html").read_text() != "old"
    manifest = json.loads((folder / "manifest.json").read_text())
    chosen = ExportOptions(input_offset=0, pooling="composed", tiling="compiler")
    assert manifest["options"] == {**chosen.recorded(), "weight_bits": 4, "calibration": "digits"}
    assert manifest["model"]["name"] == "model.pt" and len(manifest["model"]["sha256"]) == 64


@needs_lava
def test_run_both_backends_alike(export_folder, result, digits):
    code, lava, _ = result("run", export_folder, "--samples", 3, "--backend", "lava")
    assert code == 0 and lava["backend"] == "lava" and lava["samples"] == 3
    code, fast, _ = result(
        "run", export_folder, "--samples", "all", "--backend", "emulator", "--data", "digits"
    )
    assert code == 0 and fast["samples"] == 360 and fast["samples_per_second"] > 0
    assert fast["predictions"][:3] == lava["predictions"]
    assert fast["accuracy"] == np.mean(np.array(fast["predictions"]) == digits.test.labels)


def test_run_on_random_inputs_has_no_accuracy(export_folder, result):
    code, data, _ = result("run", export_folder, "--samples", 5, "--backend", "emulator", "--data", "random")
    assert code == 0 and data["accuracy"] is None and len(data["predictions"]) == 5


def test_verify(export_folder, result):
    code, data, _ = result("verify", export_folder, "--samples", 2)
    assert code == 0 and data["bit_exact"] is True
    assert data["spikes_mismatched"] == data["voltages_mismatched"] == data["outputs_mismatched"] == 0
    assert data["spikes_compared"] > 10_000 and data["first_mismatch"] is None
    assert [p["name"] for p in data["populations"]] == ["lif1", "lif2", "lif3", "output"]
    assert data["prediction_agreement"] == 1.0


def test_fit(export_folder, result):
    code, data, _ = result("fit", export_folder)
    assert code == 0 and data["target"] == "loihi2" and data["fits"] and data["chips"] == 1
    assert [layer["name"] for layer in data["layers"]] == ["lif1", "lif2", "lif3", "output"]
    assert data["cores"] == sum(layer["cores"] for layer in data["layers"])
    assert data["layers"][0]["neurons"] == 16 * 8 * 8


def test_a_network_that_does_not_fit_is_still_written(model_path, result, tmp_path):
    """Loihi 1 takes plain spikes; its 7 thresholds per core, none below one, are held by an export for it."""
    code, data, _ = result(
        "export", model_path, "--target", "loihi1", "--samples", 2, "--out", tmp_path / "l1",
        "--first-layer", "chip",
    )  # fmt: skip
    assert code == 1 and data["bit_exact"] and not data["fits"]
    assert (tmp_path / "l1" / "report.html").stat().st_size > 1000
    code, data, _ = result("fit", tmp_path / "l1", "--target", "loihi1", "--first-layer", "chip")
    broken = {f["rule"] for f in data["findings"] if f["severity"] == "error"}
    assert code == 1 and broken == {"input_values_fit_message"}
    assert call("fit", tmp_path / "l1", "--target", "loihi2") == 0


def test_an_export_for_another_target_has_too_many_thresholds(export_folder, result):
    code, data, _ = result("fit", export_folder, "--target", "loihi1")
    (message, *_) = [f["message"] for f in data["findings"] if f["rule"] == "distinct_thresholds_fit_core"]
    assert code == 1 and "Export for this target (--target loihi1)" in message


def test_export_with_shared_thresholds(model_path, result, refused, tmp_path):
    code, data, _ = result("export", model_path, "--target", "loihi2", "--samples", 2,
                           "--thresholds", "shared", "--out", tmp_path / "shared")  # fmt: skip
    manifest = json.loads((tmp_path / "shared" / "manifest.json").read_text())
    assert code == 0 and data["notes"][1:] == [n for p in manifest["quantization"] for n in p["notes"]]
    assert "invalid choice: 'some'" in refused(
        "export", model_path, "--target", "loihi2", "--thresholds", "some"
    )


def test_fit_lists_targets(result):
    code, data, _ = result("fit", "--targets")
    assert code == 0 and {"loihi1", "loihi2"} <= {target["name"] for target in data["targets"]}


def test_doctor(result):
    code, data, _ = result("doctor")
    checks = {check["name"]: check for check in data["checks"]}
    assert set(checks) == {
        "Python",
        "torch",
        "NIR",
        "h5py",
        "data",
        "report",
        "Numba",
        "Lava (our models)",
        "lava-dl netx",
        *(witness.name for witness in WITNESSES.values()),
    }
    assert all(check["works"] for check in checks.values() if check["needed"])
    assert code == (0 if data["works"] else 1)


def test_doctor_says_what_to_type(monkeypatch, capfd):
    from mpbn_deploy.execute.lava import compat

    monkeypatch.setattr(compat, "installed_version", lambda package: None)
    monkeypatch.setattr("mpbn_deploy.doctor.sys.version_info", (3, 9, 0))
    assert call("doctor") == 1
    out, _ = capfd.readouterr()
    assert f"to fix lava-dl netx: {compat.INSTALL_LAVA}\n" in out
    assert "use Python 3.10, 3.11, 3.12 or 3.13" in out


def test_people_get_text(export_folder, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert call("run", export_folder, "--samples", 2, "--backend", "emulator") == 0
    assert call("fit", export_folder) == 0
    assert call("fit", "--targets") == 0
    out, _ = capfd.readouterr()
    assert "samples per second" in out and "loihi2: fits" in out and "Intel Loihi 2" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_worth_reading(command, capfd):
    assert call(command, "--help") == 0
    out, _ = capfd.readouterr()
    assert "--json" in out and len(out) > 300


@needs_lava
def test_commands_run_as_modules_and_print_nothing_but_json(export_folder, tmp_path):
    """In a process of their own, from another folder, as a user would."""
    done = subprocess.run(
        [sys.executable, "-m", "mpbn_deploy.run", str(export_folder), "--samples", "2", "--json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["backend"] == ("c" if compiler() else "emulator")  # the fastest


def test_a_users_own_network(result, tmp_path, monkeypatch):
    save_model(tmp_path / "own.pt", with_card(spiking_network(gains="positive")))
    options = ("--target", "loihi2", "--arch", "networks:conv_body", "--samples", 3)
    code, data, _ = result("export", tmp_path / "own.pt", *options)
    assert code == 0 and data["bit_exact"]
    manifest = json.loads((tmp_path / "own.loihi2" / "manifest.json").read_text())
    assert manifest["data"] == "random"


def test_the_console_script_finds_modules_of_the_current_folder(tmp_path):
    """As `python -m` does."""
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def build(input_shape, classes, mpbn):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    np.savez(
        tmp_path / "few.npz", inputs=np.arange(50 * 64).reshape(50, 1, 8, 8) % 16, labels=np.arange(50) % 2
    )
    script = Path(sys.executable).with_name("mpbn-deploy")
    line = "train --data few.npz --arch mine:build --epochs 1 --timesteps 1 --json"
    done = subprocess.run([script, *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["architecture"] == "mine:build"


def test_an_interrupt_ends_with_one_word(monkeypatch, capfd):
    def interrupted(options):
        raise KeyboardInterrupt

    from mpbn_deploy import doctor

    monkeypatch.setattr(doctor, "COMMAND", replace(doctor.COMMAND, load=lambda: interrupted))
    assert call("doctor") == 130
    assert capfd.readouterr().err == "interrupted\n"


def test_an_error_is_json_too(result):
    code, data, err = result("run", "nowhere")
    assert code == 2 and "does not exist" in data["error"] and "error: nowhere" in err


def test_output_that_cannot_be_written(export_folder):
    command = [sys.executable, "-m", "mpbn_deploy", "fit", str(export_folder), "--samples", "0"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and "standard output cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


@needs_lava
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_told_to_end_in_the_middle_leaves_nothing(model_path, tmp_path, number, code):
    """As `timeout`, service managers and terminals that close do it: to all processes at once."""
    command = [sys.executable, "-m", "mpbn_deploy.export", str(model_path), "--target", "loihi2", "--out"]
    temporary = tempfile.TemporaryDirectory()  # with a short path, for sockets
    environment = {**os.environ, "TMPDIR": temporary.name}
    with temporary, subprocess.Popen(
        [*command, str(tmp_path / "out"), "--samples", "all"],
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup lets processes ignore it
    ) as run:  # fmt: skip
        while "against Lava" not in run.stderr.readline():
            assert run.poll() is None
        wait_for_lava(run.pid)
        os.killpg(run.pid, number)
        out, err = end_of(run)
        assert list(Path(temporary.name).iterdir()) == []
    assert run.returncode == code and "Traceback" not in out + err
    assert list(tmp_path.iterdir()) == []


# ---- bad input --------------------------------------------------------------------------------


def test_no_such_file(refused):
    assert "nothing.pt: no such file" in refused("export", "nothing.pt", "--target", "loihi2")


def test_not_a_checkpoint(refused, tmp_path):
    (tmp_path / "model.pt").write_text("hello")
    assert "not a checkpoint" in refused("export", tmp_path / "model.pt", "--target", "loihi2")


def test_missing_and_extra_keys(refused, model_path, tmp_path):
    content = torch.load(model_path, weights_only=True)
    torch.save({**content, "surplus": 1}, tmp_path / "extra.pt")
    del content["input"]
    torch.save(content, tmp_path / "missing.pt")
    assert "unknown key 'surplus'" in refused("export", tmp_path / "extra.pt", "--target", "loihi2")
    assert "missing key 'input'" in refused("export", tmp_path / "missing.pt", "--target", "loihi2")


def test_nan_in_weights(refused, model_path, tmp_path):
    content = torch.load(model_path, weights_only=True)
    content["state_dict"]["conv2.weight"][0, 0, 0, 0] = float("nan")
    torch.save(content, tmp_path / "nan.pt")
    message = refused("export", tmp_path / "nan.pt", "--target", "loihi2")
    headline = "nan.pt: tensors of the network 'digits-cnn' hold invalid values:"
    assert f"{headline}\n  - conv2.weight: 1 of 4608 values are NaN or infinite\n" in message
    assert [p.name for p in tmp_path.iterdir()] == ["nan.pt"]


def test_unknown_target(refused, model_path):
    assert "Did you mean 'loihi2'" in refused("export", model_path, "--target", "loihi22")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.npz", "a file of data; this command needs an export folder or a .net file"),
        ("fit.json", "a file of an export folder; name the folder itself, "),
        ("model.lohi2", "does not exist. Did you mean "),
        ("absent", "does not exist. Name a folder that python -m mpbn_deploy.export wrote, or a .net file"),
    ],
)
def test_what_is_no_export_is_named(refused, tmp_path, name, message):
    (tmp_path / "model.loihi2").mkdir()
    for file in ("mine.npz", "fit.json"):
        (tmp_path / file).write_bytes(b"")
    for command in ("run", "fit", "verify"):
        assert f"{tmp_path / name}: {message}" in refused(command, tmp_path / name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "loihi1", "loihi2"], "is repeated for several values: --target ONE --target ANOTHER"),
        (["--input-shape", "1,8,8"], "'1,8,8' is not a whole number; separate numbers by spaces: 1 8 8"),
        (["--input-range", "0"], "expected 2 arguments: LOWEST HIGHEST"),
    ],
)
def test_several_values_of_an_option(capsys, words, message):
    from mpbn_deploy.fit.__main__ import COMMAND

    with pytest.raises(SystemExit):
        cli.main(COMMAND, ["folder", *words])
    assert message in capsys.readouterr().err


def test_a_misspelt_checkpoint_is_recognized(refused, model_path):
    wrong = model_path.with_name(model_path.name.replace("m", "mm", 1))
    message = refused("export", wrong, "--target", "loihi2")
    assert f"{wrong}: no such file. Did you mean '{model_path}'?" in message


def test_unknown_layer_in_a_users_module(refused, tmp_path):
    network = with_card(spiking_network())
    save_model(tmp_path / "own.pt", network)
    message = refused(
        "export", tmp_path / "own.pt", "--target", "loihi2", "--arch", "networks:body_with_relu"
    )
    assert "relu: a rectifier (relu). Layers of a spiking network send spikes" in message


@pytest.mark.parametrize("command", ["train", "export"])
@pytest.mark.parametrize("steps", ["0", "-1", "two"])
def test_impossible_time_steps(refused, command, steps):
    given = ["model.pt", "--target", "loihi2"] if command == "export" else []
    assert "--timesteps" in refused(command, *given, "--timesteps", steps)


def test_impossible_weight_bits(refused, model_path, tmp_path):
    out = tmp_path / "out"
    assert "2..8 bits" in refused(
        "export", model_path, "--target", "loihi2", "--weight-bits", 9, "--out", out
    )
    assert not out.exists()


@pytest.mark.parametrize("name", ["network.net", "network.nir", "fit.json", "verify.json", "report.html"])
def test_a_folder_that_was_tampered_with(refused, folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(bytes(content))
    for command in ("run", "verify", "fit"):
        assert f"{name}: changed since it was exported" in refused(command, folder)


def test_a_truncated_network(refused, folder):
    file = folder / "network.net"
    file.write_bytes(file.read_bytes()[:1000])
    assert "network.net: changed since it was exported" in refused("run", folder)


def test_missing_files_and_manifests(refused, folder, tmp_path):
    (folder / "fit.json").unlink()
    assert "fit.json: missing" in refused("run", folder)
    assert "not an export folder" in refused("run", tmp_path)
    for content, message in (
        ("{", "not readable as JSON"),
        ("[" * 200_000, "not readable as JSON"),
        ("[]", "not an export of version 2"),
        (json.dumps({"format": "mpbn_deploy.export", "version": 99}), "not an export of version 2"),
        (json.dumps({"format": "mpbn_deploy.export", "version": 2}), "its own sha256 differs"),
        (sealed({"format": "mpbn_deploy.export", "version": 2, "files": {"../evil": "0"}}), "damaged"),
    ):
        (folder / "manifest.json").write_text(content)
        assert message in refused("verify", folder)


def test_a_manifest_with_odd_names(refused, folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(sealed({**manifest, "target": {"name": 3}}))
    assert "must be strings" in refused("fit", folder)
    del manifest["class_names"]
    (folder / "manifest.json").write_text(sealed(manifest))
    assert "must be strings" in refused("run", folder)


def sealed(manifest):
    """Return the text of a manifest whose hash of its own is right."""
    return json.dumps({**manifest, "sha256": seal(manifest)})


def test_an_edited_manifest_is_noticed_whatever_its_layout(refused, folder):
    """Target, scales and names of classes are in no other file."""
    text = (folder / "manifest.json").read_text()
    manifest = json.loads(text)
    layer = next(iter(manifest["scales"]))
    for change in (
        {"target": {**manifest["target"], "name": "loihi1"}},
        {"scales": {**manifest["scales"], layer: [2 * scale for scale in manifest["scales"][layer]]}},
        {"class_names": manifest["class_names"][::-1]},
        {"data": "random"},
        {"sha256": "0" * 64},
        {"more": 1},
    ):
        (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
        assert "manifest.json: changed since it was exported (its own sha256" in refused("fit", folder)
    (folder / "manifest.json").write_text(json.dumps(dict(reversed(manifest.items()))))
    assert open_folder(folder).target == "loihi2"


def test_an_export_of_another_version_can_be_replaced(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 1}))
    check_replaceable(folder)


def test_wrong_samples(refused, export_folder):
    assert "--samples" in refused("run", export_folder, "--samples", 0)
    assert "no data set named 'digitz'. Did you mean 'digits'" in refused(
        "run", export_folder, "--data", "digitz"
    )


def test_a_data_set_of_another_shape(refused, tmp_path):
    save_model(tmp_path / "own.pt", with_card(spiking_network(gains="positive")))
    arguments = (tmp_path / "own.pt", "--target", "loihi2", "--arch", "networks:conv_body")
    assert "samples have shape (1, 8, 8)" in refused("export", *arguments, "--data", "digits")
    assert "calibration: digits: samples have shape (1, 8, 8)" in refused(
        "export", *arguments, "--calibration", "digits"
    )


@pytest.mark.parametrize("manifest", [None, '{"name": "a web app"}'])
def test_a_folder_of_somebody_else_is_not_overwritten(refused, model_path, tmp_path, manifest):
    letters = tmp_path / "letters"
    letters.mkdir()
    (letters / "dear.txt").write_text("Dear")
    if manifest:
        (letters / "manifest.json").write_text(manifest)
    message = refused("export", model_path, "--target", "loihi2", "--out", letters)
    assert "exists and is not an export folder" in message
    assert (letters / "dear.txt").read_text() == "Dear"


def test_an_export_with_something_of_the_users_in_it_is_not_overwritten(refused, model_path, folder):
    (folder / "notes.txt").write_text("mine")
    assert "is not an export folder" in refused("export", model_path, "--target", "loihi2", "--out", folder)
    (folder / "notes.txt").unlink()
    (folder / "manifest.json").write_text("{}")
    assert "is not an export folder" in refused("export", model_path, "--target", "loihi2", "--out", folder)


def test_a_link_is_not_overwritten(refused, model_path, folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert "is a link" in refused("export", model_path, "--target", "loihi2", "--out", tmp_path / "link")


def test_names_are_never_read_as_markup(capfd, tmp_path):
    """A folder and class names with brackets, which rich would take for styles."""
    network = with_card(spiking_network(gains="positive"))
    network.card = replace(network.card, class_names=("[/b]", "[red]", ":smile:"))
    save_model(tmp_path / "own.pt", network)
    out = tmp_path / "run[v2]"
    options = (
        "--target",
        "loihi2",
        "--arch",
        "networks:conv_body",
        "--samples",
        2,
        "--out",
        out,
        "--verbose",
    )
    assert call("export", tmp_path / "own.pt", *options) == 0
    assert call("run", out, "--samples", 20, "--backend", "emulator") == 0
    text, _ = capfd.readouterr()
    assert f"written: {out}/" in text
    assert set(text.split("predictions: ")[1].split()) <= {"[/b]", "[red]", ":smile:", "..."}


def test_a_profile_of_ones_own_is_asked_for_again(model_path, result, refused, tmp_path):
    text = Path(load_profile_path("loihi2")).read_text().replace('name = "loihi2"', 'name = "mychip"')
    (tmp_path / "mychip.toml").write_text(text)
    out = tmp_path / "out"
    code, _, _ = result(
        "export", model_path, "--target", tmp_path / "mychip.toml", "--samples", 1, "--out", out
    )
    assert code == 0
    assert "exported for 'mychip', a profile of your own; give its file with --target" in refused("fit", out)
    assert call("fit", out, "--target", tmp_path / "mychip.toml") == 0


def load_profile_path(name):
    from mpbn_deploy.hardware import profile as hardware

    return next(Path(hardware.__file__).parents[2].glob(f"**/hw_profiles/{name}.toml"))


def test_train_finds_out_first_whether_it_can_write(refused, tmp_path):
    assert "is not a writable folder" in refused("train", "--out", tmp_path / "nowhere" / "model.pt")
    assert "is a folder" in refused("train", "--out", tmp_path)


def test_doctor_runs_where_other_commands_could_not(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "mpbn_deploy.export.stage", None)  # importing it raises
    assert call("doctor") in (0, 1)
    assert "torch" in capfd.readouterr().out


def test_a_place_that_cannot_be_written(refused, model_path, tmp_path):
    (tmp_path / "file").write_text("")
    message = refused("export", model_path, "--target", "loihi2", "--out", tmp_path / "file" / "out")
    assert "cannot be written" in message


@pytest.mark.parametrize("command", ["run", "verify", "fit"])
@pytest.mark.parametrize(("name", "what"), [("a.nir", "a NIR file"), ("a.pt", "a checkpoint")])
def test_what_must_be_exported_first(refused, tmp_path, command, name, what):
    (tmp_path / name).write_text("")
    message = refused(command, tmp_path / name)
    assert f"{tmp_path / name}: {what}; this command needs an export folder or a .net file" in message
    assert f"Export it first: python -m mpbn_deploy.export {tmp_path / name} --target loihi2" in message


def test_what_is_exported_already(refused, tmp_path):
    message = refused("export", tmp_path / "a.net", "--target", "loihi2")
    assert (
        "holds integers already and cannot be exported again; fit, run and verify accept it directly"
        in message
    )


def test_a_pipe_is_not_left_without_a_line_for_long(monkeypatch, capfd):
    from mpbn_deploy.base import terminal

    clock = iter([0, 10, 31, 40, 62, 63, 64, 65, 66])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    assert list(terminal.track(range(8), "work", 8)) == list(range(8))
    assert capfd.readouterr().err.splitlines() == [f"work: {n}/8" for n in (2, 4, 6, 8)]
    clock = iter([0, 10, 31, 40, 62])
    assert list(terminal.track(range(4), "slow", 400)) == list(range(4))
    assert capfd.readouterr().err.splitlines() == ["slow: 2/400", "slow: 4/400"]


def test_a_long_silence_is_broken(capfd):
    from mpbn_deploy.base import announce, signs_of_life

    with signs_of_life(first=0.02, longest=0.05):
        announce("quantize: a wide layer")
        time.sleep(0.3)
    first, *others = capfd.readouterr().err.splitlines()
    assert first == "quantize: a wide layer"
    assert others and set(others) == {"  (quantize: a wide layer: 0 s ago)"}
    time.sleep(0.1)
    assert capfd.readouterr().err == ""


def test_fit_without_a_network(refused):
    assert "no network given. Name a folder that `export` wrote or a .net file" in refused("fit")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    from mpbn_deploy.base import OptionError

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OptionError, match="No space left on device"):
        write_atomically(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []


def test_what_may_not_be_read_is_one_message(capsys):
    def execute(options):
        raise PermissionError(13, "Permission denied", "locked/manifest.json")

    command = cli.Command(
        name="fit", summary="", details="", add_arguments=lambda parser: None, load=lambda: execute
    )
    assert cli.main(command, []) == 2
    assert (
        capsys.readouterr().err == "error: locked/manifest.json: Permission denied; check its permissions.\n"
    )
    assert cli.main(command, ["--json"]) == 2
    assert "Permission denied" in json.loads(capsys.readouterr().out)["error"]
