"""The plain command chooses what we would deploy, says so in one line, and is red where it cannot."""

import json
from dataclasses import replace

import nir
import numpy as np
import pytest

from mpbn_deploy.base import OptionError, main
from mpbn_deploy.checkpoint import load_model, save_model
from mpbn_deploy.data import load_dataset
from mpbn_deploy.export import export
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.formats.folder import open_folder
from mpbn_deploy.formats.options import ExportOptions
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY

pytestmark = pytest.mark.usefixtures("without_lava")
QUICK = {"budget": 0, "samples": 4}


def typed(folder):
    """Return the options in run.toml and those in the manifest."""
    lines = [line.split(" = ") for line in (folder / "run.toml").read_text().splitlines() if " = " in line]
    return dict(lines), json.loads((folder / "manifest.json").read_text())["options"]


def test_widths_of_layers_are_chosen_recorded_and_chosen_again(model_path, tmp_path):
    result = export(model_path, "loihi2", tmp_path / "a", weight_bits="auto", most_bytes=20000, **QUICK)
    run, options = typed(result.folder)
    assert (run["weight_bits"], options["weight_bits"], options["most_bytes"]) == ('"auto"', "auto", 20000)
    found = json.loads((result.folder / "manifest.json").read_text())["widths"]
    assert found["chosen"]["bytes"] <= 20000 and found["chosen"] in found["curve"]
    assert sum(note.startswith("--weight-bits auto: ") for note in result.notes) == 1
    assert "Bits of each layer" in (result.folder / "report.html").read_text()
    again = tmp_path / "b"
    assert main(EXPORT, ["--config", str(result.folder / "run.toml"), "--out", str(again)]) == 0
    assert (again / "network.net").read_bytes() == (result.folder / "network.net").read_bytes()


def test_calibration_is_the_default_where_samples_are(model_path, tmp_path, capsys):
    result = export(model_path, "loihi2", tmp_path / "a", **QUICK)
    note = "integers chosen on 256 training samples of digits, none of which is tested"
    assert sum(note in each for each in result.notes) == 1
    run, manifest = typed(result.folder)
    assert run["calibration"] == '"digits"' and manifest["calibration"] == "digits"
    explicit = export(model_path, "loihi2", tmp_path / "b", calibration="digits", **QUICK)
    again = tmp_path / "c"
    options = ["--config", str(result.folder / "run.toml"), "--out", str(again)]
    assert main(EXPORT, [*options, "--json"]) == 0
    networks = [(each / "network.net").read_bytes() for each in (result.folder, explicit.folder, again)]
    assert networks[0] == networks[1] == networks[2]
    nearest = export(model_path, "loihi2", tmp_path / "d", calibration="none", **QUICK)
    assert (nearest.folder / "network.net").read_bytes() != networks[0]
    assert typed(nearest.folder)[0]["calibration"] == '"none"'
    assert typed(nearest.folder)[1]["calibration"] is None
    assert main(VERIFY, [str(result.folder), "--check", "--budget", "0", "--json"]) == 0


def test_without_samples_there_is_no_calibration(model_path, tmp_path):
    result = export(model_path, "loihi2", tmp_path / "a", data="random", **QUICK)
    assert typed(result.folder)[0]["calibration"] == '"none"'
    assert not any("integers chosen on" in note for note in result.notes)
    with pytest.raises(OptionError, match="--overflow measured needs calibration data"):
        export(model_path, "loihi2", tmp_path / "b", data="random", overflow="measured", **QUICK)


def test_measured_overflow_ends_without_advice_to_undo_it(model_path, tmp_path):
    result = export(model_path, "loihi2", tmp_path / "a", overflow="measured", **QUICK)
    assert result.good
    assert not any("--overflow proved" in finding.message for finding in result.fitted.findings)


@pytest.mark.parametrize("labelled", [True, False])
def test_samples_in_one_part_are_never_both_calibrated_and_tested(
    model_path, tmp_path, monkeypatch, capsys, labelled
):
    """Each sample has a number of its own in a corner, which tells where it went."""
    from mpbn_deploy.export import stage

    digits = load_dataset("digits").train
    inputs = np.array(digits.inputs[:60])
    inputs[:, 0, 0, 0], inputs[:, 0, 0, 1] = np.arange(60) % 16, np.arange(60) // 16
    arrays = {"inputs": inputs, **({"labels": digits.labels[:60]} if labelled else {})}
    np.savez(tmp_path / "mine.npz", **arrays)
    seen = {}

    def quantize(folded, profile, calibration, *given, **options):
        seen["calibrated"] = calibration
        return original(folded, profile, calibration, *given, **options)

    original = stage.quantize
    monkeypatch.setattr(stage, "quantize", quantize)
    for name in ("auto", str(tmp_path / "mine.npz")):
        result = export(
            model_path, "loihi2", tmp_path / "a", data=tmp_path / "mine.npz", calibration=name, **QUICK
        )
        tested = result.verified.accuracy.samples if labelled else QUICK["samples"]
        numbers = [int(x[0, 0, 0]) + 16 * int(x[0, 0, 1]) for x in seen["calibrated"]]
        assert len(set(numbers)) == len(numbers) == 60 - tested
        if not labelled:
            assert not set(numbers) & set(range(tested))
    assert ("mine.npz has no test part; 48 samples are for training" in capsys.readouterr().err) == labelled
    result = export(model_path, "loihi2", tmp_path / "b", data=tmp_path / "mine.npz", samples=None, budget=0)
    assert typed(result.folder)[0]["calibration"] == ('"none"' if not labelled else f'"{tmp_path}/mine.npz"')


def test_data_with_a_test_part_only_are_not_calibrated_on(model_path, tmp_path, capsys):
    digits = load_dataset("digits").test
    np.savez(tmp_path / "t.npz", test_inputs=np.array(digits.inputs[:]), test_labels=digits.labels)
    result = export(model_path, "loihi2", tmp_path / "a", data=tmp_path / "t.npz", **QUICK)
    assert "no calibration: t.npz has no samples beside those that are tested" in capsys.readouterr().err
    assert typed(result.folder)[0]["calibration"] == '"none"'


def biased(model_path, tmp_path):
    """Return a model of bytes that are normalized, so that the mean is in the biases of the first layer."""
    network = load_model(model_path)
    network.input_format = replace(
        network.input_format, maximum=255, mean=np.full(1, 128.0), deviation=np.full(1, 64.0)
    )
    network.card = replace(network.card, training={})
    save_model(tmp_path / "biased.pt", network)
    return tmp_path / "biased.pt"


def test_the_offset_is_chosen_without_data(model_path, tmp_path):
    for given, expected in (("auto", "128"), (0, "0"), (100, "100")):
        result = export(biased(model_path, tmp_path), "loihi2", tmp_path / "a", input_offset=given, **QUICK)
        assert typed(result.folder)[0]["input_offset"] == expected
        assert typed(result.folder)[1]["input_offset"] == int(expected)
        said = any("(--input-offset auto, which leaves more bits to weights)" in n for n in result.notes)
        assert said == (given == "auto")
    assert open_folder(result.folder).options.input_offset == 100


def test_offsets_are_numbers_or_auto(capsys):
    with pytest.raises(OptionError, match="input_offset 'some'; a whole number or 'auto' is needed"):
        ExportOptions(input_offset="some")
    with pytest.raises(SystemExit):
        main(EXPORT, ["m.pt", "--target", "loihi2", "--input-offset", "some"])
    assert "'some' is not a whole number or auto" in capsys.readouterr().err


def test_manifests_written_before_there_was_auto():
    recorded = ExportOptions.from_recorded({"weight_bits": 4, "calibration": None}, "manifest.json")
    assert (recorded.input_offset, recorded.calibration, recorded.calibrated) == (0, None, False)


# ---- red where accuracy is lost, or nothing fires -------------------------------------------------


def test_lost_accuracy_is_red_with_a_command_that_was_tried(model_path, tmp_path, capsys):
    options = ["--weight-bits", "2", "--calibration", "none", "--budget", "0", "--samples", "4"]
    command = [str(model_path), "--target", "loihi2", "--out", str(tmp_path / "a"), *options]
    assert main(EXPORT, command) == 1
    out = capsys.readouterr().out
    assert "points of accuracy lost by quantization; the integers:" in out.splitlines()[0]
    assert main(VERIFY, [str(tmp_path / "a"), "--budget", "0", "--verbose"]) == 1
    again = capsys.readouterr().out
    assert "ACCURACY LOST" in again
    (line,) = [
        line for line in again.splitlines() if line.startswith("this command keeps it (tried: integer ")
    ]
    words = line.partition("): ")[2].split()
    assert f"next      {' '.join(words)}" in out
    promised = float(line.partition("integer ")[2].partition("%")[0])
    assert words[:3] == ["python", "-m", "mpbn_deploy.export"]
    assert main(EXPORT, [*words[3:], "--json"]) == 0
    json.loads(capsys.readouterr().out)
    found = json.loads((tmp_path / "a" / "verify.json").read_text())["accuracy"]
    assert round(100 * found["integer"], 2) == promised and not found["lost"] and found["tried"] == []


def test_networks_that_stay_silent_are_red(model_path, tmp_path, capsys):
    """Inputs of one, where the network was trained on larger ones."""
    network = load_model(model_path)
    for name, tensor in network.body.state_dict().items():
        if name.endswith("weight") and tensor.dim() > 1:
            tensor.mul_(1e-4)
    save_model(tmp_path / "quiet.pt", network)
    command = [str(tmp_path / "quiet.pt"), "--target", "loihi2", "--budget", "0", "--samples", "4"]
    assert main(EXPORT, command) == 1
    out = capsys.readouterr().out
    assert "never fired, and no spike reaches the outputs" in out.splitlines()[0]
    assert main(VERIFY, [str(tmp_path / "quiet.loihi2"), "--budget", "0", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["silent"]


def test_a_wrong_dt_is_named_as_the_cause_of_silence(tmp_path, capsys):
    """Time constants of 20 ms, in steps that are assumed to be 0.1 ms: nothing adds up to a threshold."""
    ones = np.ones(3)
    neurons = nir.LIF(tau=0.02 * ones, r=ones, v_leak=0 * ones, v_threshold=0.5 * ones)
    nir.write(tmp_path / "slow.nir", nir.NIRGraph.from_list(nir.Linear(weight=np.eye(3)), neurons))
    command = [str(tmp_path / "slow.nir"), "--target", "loihi2", "--timesteps", "8", "--budget", "0"]
    assert main(EXPORT, command) == 1
    out = capsys.readouterr().out
    assert "check --dt, which was assumed, --input-range and --normalize" in out
    assert "no neuron can fire, for any input" in out
    assert main(EXPORT, [*command, "--dt", "0.02", "--nir-reset", "zero"]) == 0


def test_lost_accuracy_stays_red_where_it_cannot_be_measured_again(model_path, tmp_path, capsys):
    folder = export(
        model_path, "loihi2", tmp_path / "a", weight_bits=2, calibration="none", **{**QUICK, "samples": 2}
    ).folder
    capsys.readouterr()
    assert main(VERIFY, [str(folder), "--budget", "0", "--data", "random"]) == 1
    out = capsys.readouterr().out
    assert "points of accuracy lost by quantization" in out.split("\n", 2)[1] + out.split("\n", 2)[0]
    assert "the accuracy is the one that the export recorded" in out
    assert main(VERIFY, [str(folder), "--budget", "0", "--data", "random", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["accuracy"]["lost"]
    assert main(VERIFY, [str(folder), "--budget", "0", "--check", "--data", "digits"]) == 1
    assert "the certificate holds" in capsys.readouterr().out


def test_a_network_whose_hidden_neurons_never_fire_is_red(tmp_path, capsys):
    """A direct connection from the inputs keeps the outputs busy."""
    ones = np.ones(3)
    hidden = nir.LIF(tau=2e-4 * ones, r=ones, v_leak=0 * ones, v_threshold=100 * ones)
    nodes = {
        "input": nir.Input({"input": np.array([3])}),
        "near": nir.Linear(weight=np.eye(3)),
        "hidden": hidden,
        "far": nir.Linear(weight=np.eye(3)),
        "lif": nir.LIF(tau=2e-4 * ones, r=ones, v_leak=0 * ones, v_threshold=0.2 * ones),
        "output": nir.Output({"output": np.array([3])}),
    }
    edges = [("input", "near"), ("near", "hidden"), ("hidden", "far"), ("far", "lif"), ("near", "lif")]
    nir.write(tmp_path / "dead.nir", nir.NIRGraph(nodes=nodes, edges=[*edges, ("lif", "output")]))
    command = [
        str(tmp_path / "dead.nir"),
        "--target",
        "loihi2",
        "--timesteps",
        "4",
        "--budget",
        "0",
        "--json",
    ]
    assert main(EXPORT, command) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"].startswith("silent: hidden never fired, and no spike reaches the outputs")
