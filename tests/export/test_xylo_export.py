"""Networks for Xylo from training to the export folder, Rockpool's own simulator and messages."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from networks import assert_same_trace, int_xylo, spiking_network, with_card
from torch import nn

from mpbn_deploy.base import FoldError, OptionError, QuantizeError, same_records
from mpbn_deploy.checkpoint import save_model
from mpbn_deploy.data import as_spike_counts, load_dataset
from mpbn_deploy.execute import EXECUTORS, ExecutionOptions
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export import export
from mpbn_deploy.fold import fold
from mpbn_deploy.formats.folder import open_folder
from mpbn_deploy.formats.netx import read_netx, write_netx
from mpbn_deploy.formats.nir import read_folded, write_nir
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import InputFormat
from mpbn_deploy.nn import ModelCard, SpikeCount, SpikingNetwork, StepDelay, XyloLIF
from mpbn_deploy.nn.zoo import ARCHITECTURES
from mpbn_deploy.quantize import quantize
from mpbn_deploy.verify.folding import check_fold

SHAPE, STEPS, CLASSES = (5,), 7, 3


def xylo_network(seed=0, arch="xylo-rnn", timesteps=STEPS, maximum=15, **neuron):
    """A network of the zoo whose neurons fire, as after some training."""
    torch.manual_seed(seed)
    arguments = {"input_shape": SHAPE, "classes": CLASSES, "width": 12, **neuron}
    body = ARCHITECTURES[arch](**arguments)
    for module in body.modules():
        if isinstance(module, XyloLIF):
            nn.init.uniform_(module.bias, -0.1, 0.2)
            if module.mpbn is not None:
                nn.init.uniform_(module.mpbn.bn.weight, -1.5, 1.5)
                nn.init.uniform_(module.mpbn.bn.running_mean, -0.3, 0.3)
                nn.init.uniform_(module.mpbn.bn.running_var, 0.5, 2)
        elif isinstance(module, nn.Linear):
            nn.init.uniform_(module.weight, -0.5, 0.8)
    given = InputFormat(shape=SHAPE, minimum=0, maximum=maximum, mean=[0.0], deviation=[4.0])
    card = ModelCard(architecture=arch, arguments={**arguments, "input_shape": list(SHAPE)})
    return SpikingNetwork(body, timesteps=timesteps, input_format=given, card=card).eval()


def drawn(network, samples=6):
    size = (samples, network.timesteps, *SHAPE)
    return np.random.default_rng(0).integers(0, network.input_format.maximum + 1, size)


@pytest.mark.parametrize("mpbn", ["channel", "none"])
@pytest.mark.parametrize("arch", ["xylo-rnn", "xylo-mlp"])
@pytest.mark.parametrize("seed", range(3))
def test_folding_keeps_every_spike_count(seed, arch, mpbn):
    network = xylo_network(seed, arch, mpbn=mpbn)
    folded = fold(trace(network))
    check = check_fold(network, folded, drawn(network))
    assert check.agrees and not check.spikes_mismatched and not check.outputs_mismatched
    counts = simulate(folded, drawn(network)).spikes
    assert max(values.max() for values in counts.values()) > 1
    delays = {c.label: c.delay for c in folded.connections}
    assert delays["input->lif1"] == 0 and {d for label, d in delays.items() if "input" not in label} == {1}


def test_a_change_of_folding_is_found():
    network = xylo_network()
    folded = fold(trace(network))
    with torch.no_grad():
        network.body.lif1.bias += 0.3
    assert not check_fold(network, folded, drawn(network)).agrees


def test_thresholds_of_mpbn_stay_positive():
    network = xylo_network()
    network.body.lif1.mpbn.bn.running_mean.fill_(-10)
    folded = fold(trace(network))
    assert folded.layer("lif1").neuron.threshold.min() == pytest.approx(0.125)
    assert check_fold(network, folded, drawn(network)).agrees


@pytest.mark.parametrize("calibrated", [False, True])
def test_quantized_networks_are_close_and_round_trip(tmp_path, calibrated):
    network = xylo_network()
    folded, inputs = fold(trace(network)), drawn(network, 32)
    quantized = quantize(folded, load_profile("xylo-a3"), inputs if calibrated else None)
    real, integer = simulate(folded, inputs), emulate(quantized.network, inputs)
    for name, counts in real.spikes.items():
        assert np.abs(counts - integer.spikes[name]).mean() < 0.05 * max(counts.mean(), 1)
    write_netx(quantized.network, tmp_path / "x.net")
    assert same_records(quantized.network, read_netx(tmp_path / "x.net"))
    write_nir(folded, tmp_path / "x.nir")
    again = simulate(read_folded(tmp_path / "x.nir"), inputs)
    assert all(np.array_equal(again.spikes[name], counts) for name, counts in real.spikes.items())


def test_decays_that_are_no_shift_are_reported():
    network = xylo_network(leak=0.9, current_leak=0.6)
    quantized = quantize(fold(trace(network)), load_profile("xylo-a3"))
    neuron = quantized.network.layer("lif1").neuron
    assert (neuron.shift_voltage, neuron.shift_current) == (3, 1)
    assert any("leak of its membrane differs by" in note for note in quantized.notes)
    assert any("leak of its current differs by" in note for note in quantized.notes)


def test_hard_resets_are_rejected(tmp_path):
    save_model(tmp_path / "model.pt", with_card(spiking_network()))
    with pytest.raises(QuantizeError, match=r"resets to zero; .* subtract their threshold.*--neuron xylo"):
        export(tmp_path / "model.pt", "xylo-a2", data="random", arch="networks:conv_body")
    assert not (tmp_path / "model.xylo-a2").exists()


def test_xylo_networks_are_for_xylo():
    with pytest.raises(QuantizeError, match="choose --target xylo-a2, xylo-a3 or xylo-imu"):
        quantize(fold(trace(xylo_network())), load_profile("loihi2"))


def test_a_bias_of_the_current_is_rejected():
    hidden = (nn.Linear(5, 4), XyloLIF(4), StepDelay())
    body = nn.Sequential(*hidden, nn.Linear(4, 3, bias=False), XyloLIF(3, max_spikes=1), SpikeCount())
    given = InputFormat(shape=SHAPE, minimum=0, maximum=15, mean=[0.0], deviation=[4.0])
    with pytest.raises(FoldError, match=r"Linear\(bias=False\)"):
        fold(trace(SpikingNetwork(body, timesteps=4, input_format=given)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("xylo")
    save_model(path / "model.pt", xylo_network(maximum=16))
    return export(path / "model.pt", "xylo-a3", data="random")


def test_export_verifies_and_writes_the_numbers_of_the_chip(folder):
    assert folder.verified.bit_exact and folder.fitted.fits
    opened = open_folder(folder.folder)
    assert opened.network.input_range.maximum == 8  # 0..16 would be more than 15 spikes
    card = json.loads((folder.folder / "xylo.json").read_text())
    assert card["device"] == "syns65302" and card["timesteps"] == STEPS
    with np.load(folder.folder / "xylo.npz") as numbers:
        assert numbers["weights_in"].shape == (5, 12) and numbers["weights_out"].shape == (12, 3)
        assert np.abs(numbers["weights_rec"]).max() <= 127


# Importing any of Rockpool's devices imports samna, the driver of boards, which its simulator does not use.
WITHOUT_SAMNA = """
import importlib.abc, importlib.machinery, sys
from unittest.mock import MagicMock

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        found = name.split(".")[0] == "samna"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec):
        return MagicMock(__path__=[])

    def exec_module(self, module):
        pass

sys.meta_path.append(Finder())
"""


@pytest.mark.slow
def test_the_script_runs_in_rockpool(folder, tmp_path):
    pytest.importorskip("xylosim", reason="pip install xylosim")
    if find_spec("rockpool") is None:
        pytest.skip("pip install rockpool")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SAMNA)
    network = open_folder(folder.folder).network
    inputs = np.random.default_rng(1).integers(0, 9, (1, STEPS, 5))
    np.save(tmp_path / "counts.npy", inputs[0])
    command = [sys.executable, str(folder.folder / "run_on_xylo.py"), str(tmp_path / "counts.npy")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = simulate(network, inputs).outputs[0]
    assert f"spikes of each output: {' '.join(map(str, expected))} class" in done.stdout


def test_the_maker_agrees_with_the_export(folder):
    pytest.importorskip("xylosim", reason="pip install xylosim")
    network = open_folder(folder.folder).network
    inputs = np.random.default_rng(1).integers(0, 9, (20, STEPS, 5))
    assert_same_trace(
        simulate(network, inputs), EXECUTORS["xylosim"].run(network, inputs, ExecutionOptions())
    )
    assert "maker's simulator" in folder.verified.maker_claim


def test_too_large_for_the_chip(tmp_path):
    network = xylo_network(width=70)
    save_model(tmp_path / "model.pt", network)
    found = export(tmp_path / "model.pt", "xylo-a2", data="random").fitted
    assert found.fits is False
    assert any("73 synapses from one neuron; xylo-a2 holds at most 64" in f.message for f in found.findings)


def test_data_become_spike_counts():
    rows = load_dataset("digits-rows")
    counted = as_spike_counts(rows, 15, None)
    values = np.asarray(counted.train.inputs)
    assert counted.frames == 12 and not values[:, 8:].any()
    assert set(np.unique(values)) <= set(range(0, 17, 2)) and not counted.input_format.mean.any()
    with pytest.raises(OptionError, match="channels over time"):
        as_spike_counts(load_dataset("digits"), 15, None)


def test_options_that_do_not_go_together():
    with pytest.raises(OptionError, match="reset zero"):
        XyloLIF(3, reset="zero")
    with pytest.raises(OptionError, match="a positive number"):
        XyloLIF(3, threshold=-1.0)
    with pytest.raises(OptionError, match="channels over time"):
        ARCHITECTURES["xylo-mlp"]((1, 8, 8), 10)


def test_gradients_reach_every_parameter():
    network = xylo_network().train()
    outputs = network(torch.tensor(drawn(network), dtype=torch.float32))
    nn.functional.cross_entropy(outputs, torch.arange(6) % CLASSES).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


def test_xylo_networks_of_others_are_read_back(tmp_path):
    network = int_xylo(2)
    write_netx(network, tmp_path / "x.net")
    assert same_records(network, read_netx(tmp_path / "x.net"))
