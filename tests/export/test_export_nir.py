"""`export theirs.nir`: the whole pipeline on files that others wrote."""

import json
import shlex
from dataclasses import astuple, replace
from types import SimpleNamespace

import nir
import nir_files as foreign
import nir_graphs
import numpy as np
import pytest
from networks import inputs_for, int_chain, needs_lava

from mpbn_deploy.base import FormatError, OptionError, main
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export import export
from mpbn_deploy.export.__main__ import COMMAND
from mpbn_deploy.export.folder import _chance
from mpbn_deploy.formats.folder import open_folder
from mpbn_deploy.formats.nir import read_folded, write_nir
from mpbn_deploy.ir import Input
from mpbn_deploy.verify.accuracy import Accuracy

pytestmark = pytest.mark.usefixtures("without_lava")


def theirs(tmp_path, name="pools"):
    return foreign.written(tmp_path, foreign.graph_of(*foreign.CHAINS[name]))


@needs_lava
@pytest.mark.parametrize("name", ["pools", "line"])
def test_a_chain_of_others_runs_bit_exactly_in_lava(tmp_path, name):
    result = export(theirs(tmp_path, name), "loihi2", timesteps=3, input_range=(0, 3), samples=3)
    assert result.good and result.verified.executed == len(result.verified.comparisons) >= 2
    opened = open_folder(result.folder)
    assert opened.network.timesteps == 3 and opened.network.input_range.maximum == 3
    assert (
        opened.manifest["model"]["name"] == "theirs.nir" and opened.manifest["model"]["architecture"] is None
    )


@needs_lava
def test_a_recurrent_network_of_others(tmp_path):
    path = foreign.written(tmp_path, foreign.graph_of((3,), *foreign.recurrent(foreign.cuba)))
    result = export(path, "loihi2", timesteps=5, samples=3)
    assert result.verified.bit_exact


@needs_lava
@pytest.mark.parametrize("kind", [nir_graphs.identity_skip, nir_graphs.own_biases])
def test_files_of_ours_say_all_that_is_needed(tmp_path, kind):
    write_nir(kind(), tmp_path / "ours.nir")
    assert export(tmp_path / "ours.nir", "loihi2", samples=2).verified.bit_exact


@needs_lava
@pytest.mark.parametrize("readout", ["leaks", "current, weighted, rests elsewhere"])
def test_a_leaking_readout_of_others(tmp_path, readout):
    nodes = [foreign.affine(4, 5), foreign.lif(4), foreign.affine(3, 4, 7), foreign.READOUTS[readout]]
    path = foreign.written(tmp_path, foreign.graph_of((5,), nodes))
    result = export(path, "loihi2", timesteps=6, samples=4)
    assert result.good and result.verified.executed == len(result.verified.comparisons)
    opened = open_folder(result.folder)
    assert opened.folded.output.neuron.leak == opened.network.output.neuron.decay_voltage / 1024 * 0.75
    inputs = np.random.default_rng(0).integers(0, 2, size=(50, 6, 5))
    real, integer = simulate(read_folded(path, timesteps=6), inputs), simulate(opened.network, inputs)
    alike = (real.spikes["n1"] == integer.spikes["n1"]).all(axis=(1, 2))
    assert alike.mean() > 0.5
    scale = 64 * 6 * opened.network.scales[opened.network.output.name]
    error = (integer.outputs / scale - real.outputs)[alike]
    assert np.abs(error).max() < 0.01 * np.ptp(real.outputs)


@pytest.mark.parametrize("lowest", [4, -30])
def test_the_portable_dialect(lowest, tmp_path, capfd):
    """Also of neurons that fire without input, which get a loop."""
    real = nir_graphs.conv_chain(lowest=lowest)
    write_nir(real, tmp_path / "ours.nir")
    arguments = [str(tmp_path / "ours.nir"), "--target", "loihi2", "--samples", "2", "--json"]
    assert main(COMMAND, [*arguments, "--nir-dialect", "portable"]) == 0
    opened = open_folder(json.loads(capfd.readouterr().out)["folder"])
    assert opened.manifest["options"]["nir_dialect"] == "portable"
    assert all((p.neuron.threshold == 1).all() for p in opened.folded.populations[1:-1])
    inputs = inputs_for(real, samples=9)
    expected, got = simulate(real, inputs), simulate(opened.folded, inputs)
    for name in ("a", "b"):
        np.testing.assert_array_equal(expected.spikes[name], got.spikes[name])
    # The scales are those of the network in the file, so its voltages and the integers' have one unit.
    for population in json.loads((opened.path / "verify.json").read_text())["populations"][:-1]:
        assert population["voltage_error_rms"] < 0.05 * population["threshold_distance_rms"]


def test_what_is_not_portable_is_said_before_the_work(tmp_path, capfd):
    write_nir(nir_graphs.own_thresholds(), tmp_path / "ours.nir")
    arguments = [str(tmp_path / "ours.nir"), "--target", "loihi2", "--nir-dialect", "portable"]
    assert main(COMMAND, arguments) == 2
    said = capfd.readouterr().err
    assert "a: neurons that share a kernel differ in threshold" in said
    assert "--nir-dialect faithful" in said and "quantize" not in said
    assert [file.name for file in tmp_path.iterdir()] == ["ours.nir"]


def test_an_empty_range(tmp_path, capfd):
    arguments = [str(theirs(tmp_path)), "--target", "loihi2", "--timesteps", "2", "--input-range", "5", "2"]
    assert main(COMMAND, arguments) == 2
    assert "theirs.nir: input range 5..2 is empty; give the lowest value first" in capfd.readouterr().err


def test_the_command(tmp_path, capfd):
    path = theirs(tmp_path)
    arguments = [str(path), "--target", "loihi2", "--timesteps", "2", "--samples", "2", "--json"]
    code = main(COMMAND, [*arguments, "--input-range", "0", "5", "--dt", "2e-4"])
    data = json.loads(capfd.readouterr().out)
    assert code == 0 and data["bit_exact"] and data["folder"].endswith("theirs.loihi2")
    neuron = open_folder(data["folder"]).folded.populations[1].neuron
    np.testing.assert_allclose(neuron.leak, 0.0)  # tau 2e-4: with a dt as long, all is forgotten
    assert main(COMMAND, arguments[:3]) == 2
    assert "time steps unknown; give --timesteps above zero" in capfd.readouterr().err


def test_a_network_without_spikes_is_said_to_have_none(tmp_path):
    path = foreign.written(tmp_path, foreign.graph_of((5,), [foreign.affine(4, 5)]))
    result = export(path, "loihi2", timesteps=2, samples=2)
    assert result.good and result.notes[0].startswith(
        "the network has no spiking neuron: it is one linear map"
    )
    assert not any("no spiking neuron" in note for note in _notes(tmp_path, "matrix"))


def _notes(tmp_path, name):
    return export(theirs(tmp_path, name), "loihi2", timesteps=2, samples=2).notes


@pytest.mark.parametrize("chips", [[], ["--chips", "2", "--tiling", "best"]])
def test_an_export_that_does_not_fit_names_the_command_that_looks_further(tmp_path, capfd, chips):
    arguments = [
        str(theirs(tmp_path)),
        "--timesteps",
        "2",
        "--samples",
        "2",
        "--input-range",
        "0",
        "5",
        *chips,
    ]
    asked = ["--target", "loihi1", *chips[:2], "--first-layer", "chip", *chips[2:], "--advise"]
    assert main(COMMAND, [*arguments, "--target", "loihi1", "--first-layer", "chip", "--verbose"]) == 1
    out = capfd.readouterr().out
    assert "compute the first layer on the host: fit --first-layer host" in out
    typed = shlex.join(["python", "-m", "mpbn_deploy.fit", str(tmp_path / "theirs.loihi1"), *asked])
    assert f"next      {typed}\n" in out
    assert main(COMMAND, [*arguments, "--target", "loihi2"]) == 0
    assert "--advise" not in capfd.readouterr().out


def test_inputs_that_training_normalized_and_of_fewer_bits(tmp_path):
    """Values 0..3 as the file takes them, given as 8..20 with a mean of 8 and a deviation of 4."""
    inputs = np.random.default_rng(0).integers(
        0, 4, size=(3, 2, *read_folded(theirs(tmp_path), timesteps=2).input.shape)
    )
    raw = {"timesteps": 2, "input_range": (8, 20), "normalize": (8, 4), "samples": 1}
    folder = open_folder(export(theirs(tmp_path), "loihi2", **raw).folder)
    expected = simulate(read_folded(theirs(tmp_path), timesteps=2, input_range=(0, 3)), inputs)
    assert (simulate(folder.folded, 4 * inputs + 8).outputs == expected.outputs).all()
    assert folder.options.normalize == (8, 4)
    coarse = open_folder(export(theirs(tmp_path), "loihi2", **raw, input_bits=2, input_offset=-1).folder)
    for network in (coarse.network, coarse.folded):
        assert astuple(network.input_range) == astuple(Input(minimum=1, maximum=3, divisor=7, offset=-1))


def test_an_export_without_weights_is_no_success(tmp_path):
    result = export(theirs(tmp_path), "loihi2", timesteps=2, samples=1)
    assert result.good and not result.doubts
    first, *others = result.quantized.errors
    gone = replace(first, channels_without_weights=first.channels_with_weights)
    lost = replace(result, quantized=replace(result.quantized, errors=(gone, *others)))
    assert not lost.good and lost.to_json()["without_weights"] == [first.name]
    count = first.channels_with_weights
    assert f"{count} of {count} channels have no weight left after rounding" in lost.doubts[0]


@pytest.mark.parametrize(("above_chance", "doubted"), [(0.05, True), (0.3, False)])
def test_a_float_network_near_chance_is_doubted(tmp_path, above_chance, doubted):
    """On 50 samples, two standard errors are between 8 (ten classes) and 14 points (two)."""
    result = export(theirs(tmp_path), "loihi2", timesteps=2, samples=1)
    classes = result.quantized.network.output.size
    assert 2 <= classes <= 10 and not result.doubts
    right = 1 / classes + above_chance
    measured = Accuracy(data="mine", samples=50, float_network=right, integer_network=right)
    found = replace(result, verified=replace(result.verified, accuracy=measured)).doubts
    assert [f"near chance for {classes} classes" in line for line in found] == [True] * doubted


def test_one_output_is_no_chance():
    measured = Accuracy(data="mine", samples=50, float_network=1.0, integer_network=1.0)
    network = SimpleNamespace(output=SimpleNamespace(size=1))
    assert not [*_chance(SimpleNamespace(network=network), SimpleNamespace(accuracy=measured))]


def test_neurons_that_cannot_fire_are_doubted(tmp_path):
    """A time step that is a thousand times too short leaves every voltage below its threshold."""
    path = theirs(tmp_path, "matrix")
    assert not export(path, "loihi2", timesteps=2, input_range=(0, 3), samples=2).doubts
    short = {"timesteps": 2, "input_range": (0, 3), "samples": 2, "dt": foreign.DT / 1000}
    result = export(path, "loihi2", **short, out=tmp_path / "short")
    (doubt,) = result.doubts
    assert "n1: no neuron can fire, for any input; check the thresholds, --input-range" in doubt
    assert "--dt" in doubt
    assert result.verified.silent == ("n1",) and not result.verified.passed and not result.good


def test_what_does_not_go_together(tmp_path, model_path):
    with pytest.raises(OptionError, match="--arch applies to checkpoints only"):
        export(theirs(tmp_path), "loihi2", timesteps=2, arch="networks:conv_body")
    with pytest.raises(OptionError, match="--normalize 0 -1; a finite mean and a deviation above zero"):
        export(theirs(tmp_path), "loihi2", timesteps=2, normalize=(0.0, -1.0))
    for options, message in (
        ({"dt": 1e-3}, "--dt applies to NIR files only"),
        ({"nir_reset": "zero"}, "--nir-reset applies to NIR files only"),
        ({"nir_current": "new"}, "--nir-current applies to NIR files only"),
        ({"input_range": (0, 1)}, "--input-range applies to NIR files and bare state_dicts only"),
        ({"input_shape": (1, 8, 8)}, "--input-shape applies to NIR files and bare state_dicts only"),
    ):
        with pytest.raises(OptionError, match=message):
            export(model_path, "loihi2", **options)
    write_nir(int_chain(), tmp_path / "integers.nir")
    with pytest.raises(FormatError, match="an integer network, already quantized"):
        export(tmp_path / "integers.nir", "loihi2")
    nir.write(tmp_path / "none.nir", foreign.lif(2))
    with pytest.raises(FormatError, match="holds no NIRGraph"):
        export(tmp_path / "none.nir", "loihi2", timesteps=2)
