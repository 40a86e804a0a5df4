"""Folding is the first question of the verdict: a network that it changed is red everywhere, ties are not."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from networks import input_format, inputs_for, spiking_network
from torch import nn

from mpbn_deploy.base import main
from mpbn_deploy.data import Samples, Split, load_dataset
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.export.__main__ import COMMAND as EXPORT
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import rounding_bounds, trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.ir import FoldedNetwork
from mpbn_deploy.nn import LIF, SpikingNetwork
from mpbn_deploy.quantize import quantize
from mpbn_deploy.report.__main__ import COMMAND as REPORT
from mpbn_deploy.schemas import json_schema
from mpbn_deploy.verify import FoldCheck, verify
from mpbn_deploy.verify.__main__ import COMMAND as VERIFY
from mpbn_deploy.verify.folding import check_fold

pytestmark = pytest.mark.usefixtures("without_lava")

# ---- modules that do more than their neurons ------------------------------------------------------

SNNTORCH = """
import snntorch as snn, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(64, 24), nn.Linear(24, 10)
        self.fc1.weight.data *= 4
        self.fc2.weight.data *= 4
        self.l1, self.l2 = snn.Leaky(beta=0.9), snn.Leaky(beta=0.9)

    def forward(self, x):
        mem1, mem2, sent = self.l1.init_leaky(), self.l2.init_leaky(), []
        for _ in range(6):
            spk, mem1 = self.l1(self.fc1(x), mem1)
            spk, mem2 = self.l2(self.fc2(spk), mem2)
            sent.append(spk)
            mem2 = CHANGE
        return torch.stack(sent).mean(0)
"""
SPIKINGJELLY = """
import torch
from spikingjelly.activation_based import neuron
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(64, 24), nn.Linear(24, 10)
        self.fc1.weight.data *= 4
        self.fc2.weight.data *= 4
        self.l1, self.l2 = neuron.LIFNode(v_threshold=0.5), neuron.LIFNode(v_threshold=0.25)

    def forward(self, x):
        sent = self.l2(self.fc2(self.l1(self.fc1(x))))
        self.l2.v = CHANGE
        return sent
"""
LIBRARIES = {"snntorch": (SNNTORCH, "mem2"), "spikingjelly": (SPIKINGJELLY, "self.l2.v")}


@pytest.fixture(params=LIBRARIES)
def written(request, tmp_path, monkeypatch):
    """Write a module of a library whose last membrane is changed; return arguments of `export`."""
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    source, membrane = LIBRARIES[request.param]

    def write(change):
        name = "folding_" + "".join(filter(str.isalnum, request.node.name))
        (tmp_path / f"{name}.py").write_text(source.replace("CHANGE", membrane + change))
        monkeypatch.syspath_prepend(tmp_path)
        torch.save(__import__(name).Net().state_dict(), tmp_path / "model.pt")
        words = f"--arch {name}:Net --timesteps 6 --input-shape 64 --input-range 0 16 --normalize 0 16"
        words += " --data digits --budget 0"
        return [str(tmp_path / "model.pt"), *words.split(), "--target", "loihi2", "--samples", "8"]

    return write


@pytest.mark.interop
def test_the_frontend_rejects_a_changed_membrane(written, capsys):
    assert main(EXPORT, written(".clamp(-0.2, 2.0)")) == 2
    assert "line" in (said := capsys.readouterr().err) and "a clamp: the value is cut at a limit" in said


@pytest.mark.interop
def test_what_the_frontend_lets_through_turns_the_verdict_red(written, tmp_path, capsys, monkeypatch):
    """The issue: exported as bit-exact, exit 0, with a footnote on changed spikes."""
    monkeypatch.setattr("mpbn_deploy.frontend.stage.prove", lambda player, trained, recognized: None)
    folder = str(tmp_path / "out")
    assert main(EXPORT, [*written(" * (len(x) == 1)"), "--out", folder]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("red: ") and ": folding changed the network: " in first
    recorded = json.loads((tmp_path / "out" / "verify.json").read_text())
    assert recorded["fold"]["samples_changed"] > 0 and not recorded["fold"]["agrees"]
    assert recorded["bit_exact"] and not recorded["passed"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "folding changed the network" in page

    assert main(VERIFY, [folder, "--budget", "0"]) == 1  # without the module, from what was recorded
    assert capsys.readouterr().out.startswith("red: folding changed the network: ")
    assert main(VERIFY, [folder, "--budget", "0", "--json"]) == 1
    again = json.loads(capsys.readouterr().out)
    assert again["fold"] == recorded["fold"] and not again["passed"]
    assert again["verdict"].startswith("folding changed the network: ")
    assert main(VERIFY, [folder, "--budget", "0", "--check"]) == 1

    capsys.readouterr()
    assert main(REPORT, [folder, folder, "--out", str(tmp_path / "both.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exports"][0]["fold_agrees"] is False


@pytest.mark.interop
def test_a_module_of_a_library_has_its_own_accuracy(written, tmp_path, capsys):
    given = written("")
    main(EXPORT, [*given, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().out
    recorded = json.loads((tmp_path / "out" / "verify.json").read_text())
    assert recorded["fold"]["agrees"] and recorded["fold"]["outputs_compared"] == 8 * 10
    test = load_dataset("digits").test
    module = __import__(given[2].partition(":")[0]).Net().eval()
    inputs = torch.tensor(test.inputs, dtype=torch.float32).flatten(1) / 16
    with torch.no_grad():
        steps = [module(inputs) for _ in range(6)] if "spikingjelly" in given[2] else [module(inputs)]
    found = torch.stack(steps).mean(0).argmax(1).numpy()
    accuracy = float(np.mean(found == test.labels))
    assert recorded["accuracy"]["trained"] == accuracy
    assert f"PyTorch {accuracy:.2%}, " in said


# ---- ties -----------------------------------------------------------------------------------------


def network_of(body, features):
    given = replace(input_format((features,)), mean=np.zeros(features), deviation=np.full(features, 3.0))
    return SpikingNetwork(body, timesteps=3, input_format=given).eval()


class Tenths(nn.Module):
    """Sums of tenths that equal the threshold, but for rounding; folding divides the weights by three."""

    def __init__(self, threshold=1.0):
        super().__init__()
        self.fc, self.lif, self.readout = nn.Linear(12, 8, bias=False), LIF(8, mpbn="none"), nn.Linear(8, 3)
        self.lif.threshold = threshold
        generator = torch.Generator().manual_seed(0)
        self.fc.weight.data = torch.randint(-3, 6, (8, 12), generator=generator).double() / 10

    def forward(self, x):
        return self.readout(self.lif(self.fc(x)))


@pytest.fixture
def tenths():
    torch.manual_seed(0)
    network = network_of(Tenths().double(), 12)
    inputs = 3 * np.random.default_rng(0).integers(0, 4, (200, 12))
    return network, fold(trace(network)), inputs


def test_ties_are_counted_and_do_not_turn_the_verdict_red(tenths):
    check = check_fold(*tenths)
    assert check.spikes_mismatched > 0 and check.samples_undecided > 0 == check.samples_changed
    assert 0 < check.ties <= check.spikes_mismatched and check.agrees and not check.verdict
    assert f"{check.samples_undecided} of 200 samples undecided" in str(check)
    assert check.outputs_compared == 3 * (200 - check.samples_undecided) and not check.outputs_mismatched


def changed(folded: FoldedNetwork, name, **changes):
    """Change numbers of a population's neuron by a factor."""
    populations = [
        population.with_neuron(
            replace(
                population.neuron,
                **{key: getattr(population.neuron, key) * by for key, by in changes.items()},
            )
        )
        if population.name == name
        else population
        for population in folded.populations
    ]
    return replace(folded, populations=tuple(populations))


@pytest.mark.parametrize("factor", [1.01])
def test_differences_beyond_ties_are_red_even_beside_ties(tenths, factor):
    network, folded, inputs = tenths
    inputs = np.concatenate([inputs, np.random.default_rng(1).integers(0, 10, (200, 12))])
    check = check_fold(network, changed(folded, "lif", threshold=factor), inputs)
    assert check.samples_changed > 0 and not check.agrees
    assert check.verdict.startswith(
        f"folding changed the network: {check.spikes_mismatched} of {check.spikes_compared} spikes, "
    )


def test_an_output_that_differs_by_more_than_rounding_is_red():
    model = spiking_network()
    folded = fold(trace(model))
    inputs = inputs_for(folded, samples=6)
    right = check_fold(model, folded, inputs)
    assert right.agrees and right.outputs_compared == 6 * right.outputs_compared // 6 > 0
    check = check_fold(model, changed(folded, "output", bias=1 + 1e-9), inputs)
    assert check.spikes_mismatched == 0 < check.outputs_mismatched and not check.agrees
    assert "outputs" in check.verdict


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_covers_other_orders_of_summation_and_is_tight_enough(seed):
    """Networks whose terms cancel: shuffled inputs give the same membranes, but for rounding."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    body = nn.Sequential(nn.Linear(300, 40), nn.BatchNorm1d(40), LIF(40), nn.Linear(40, 4)).double()
    body[0].weight.data *= torch.logspace(-3, 3, 300)  # small terms drown in large ones
    body[1].running_mean.data.normal_(std=1e3)
    network = network_of(body, 300)
    order = torch.tensor(rng.permutation(300))
    inputs = rng.integers(0, 10, (8, 300))
    folded, shuffled = fold(trace(network)), network_of(body, 300)
    ours = simulate(folded, inputs)
    body[0].weight.data = body[0].weight.data[:, order]
    theirs = simulate(fold(trace(shuffled)), inputs[:, order])
    steps = torch.tensor(inputs[:, order], dtype=torch.float64).expand(network.timesteps, -1, -1)
    spikes = {"2": torch.tensor(theirs.spikes["2"]).transpose(0, 1)}
    bound = rounding_bounds(trace(shuffled), steps, spikes, np.finfo(np.float64).eps)
    assert np.array_equal(ours.spikes["2"], theirs.spikes["2"])
    assert (np.abs(ours.outputs - theirs.outputs) <= bound.outputs.numpy()).all()
    assert float(bound.outputs.max()) < 1e-9 * np.abs(ours.outputs).max()
    assert not bound.ties["2"].any()


# ---- records --------------------------------------------------------------------------------------


def test_nothing_compared_is_no_pass():
    check = FoldCheck(
        samples=4, spikes_compared=0, spikes_mismatched=0, samples_changed=0, samples_undecided=0, ties=0,
        outputs_compared=0, outputs_mismatched=0, predictions_changed=0, largest_output_difference=None,
    )  # fmt: skip
    assert not check.agrees and check.verdict.startswith("folding not tested: nothing")


def test_a_check_is_read_back_and_those_of_earlier_releases_too(tenths):
    check = check_fold(*tenths)
    assert asdict(FoldCheck.from_json(json.loads(json.dumps(check.to_json())))) == asdict(check)
    assert check.to_json().keys() == json_schema("verify")["properties"]["fold"]["properties"].keys()
    before = {"spikes_compared": 172800, "spikes_mismatched": 218, "largest_output_difference": None}
    assert not FoldCheck.from_json(before).agrees
    assert FoldCheck.from_json({**before, "spikes_mismatched": 0}).agrees


def test_predictions_that_change_in_the_test_split_only_are_red(tenths):
    """The samples that are verified are silent; those of the test split are not."""
    network, folded, _ = tenths
    integers = quantize(folded, load_profile("loihi2")).network
    inputs = np.random.default_rng(1).integers(0, 10, (300, 12))
    test = Split(inputs=inputs, labels=np.zeros(300, int))
    samples = Samples(name="mine", inputs=np.zeros((4, 12), int), labels=None, test=test)
    right = verify(integers, samples, folded=folded, model=network, budget=0)
    assert right.fold.agrees
    wrong = verify(integers, samples, folded=changed(folded, "lif", threshold=1.3), model=network, budget=0)
    suspects = wrong.accuracy.changed_by_folding
    assert 0 < suspects == len(wrong.accuracy.suspects)
    assert wrong.fold.samples == 4 + min(suspects, 64) and wrong.fold.samples_changed > 0
    assert not wrong.passed and wrong.verdict.startswith("folding changed the network: ")


NORMALIZED = """
import torch
from torch import nn
from mpbn_deploy.nn import LIF

class Net(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(64, 24), LIF(24), nn.Linear(24, 10), nn.BatchNorm1d(10))
        self[3].running_var.data.uniform_(2, 3)
"""


def test_what_a_file_rounds_is_no_change_by_folding(tmp_path, monkeypatch, capsys):
    """A norm behind the readout: its folded weights are no numbers of float32, which network.nir has."""
    (tmp_path / "normalized_readout.py").write_text(NORMALIZED)
    monkeypatch.syspath_prepend(tmp_path)
    torch.save(__import__("normalized_readout").Net().state_dict(), tmp_path / "model.pt")
    words = "--arch normalized_readout:Net --timesteps 6 --input-shape 64 --input-range 0 16 --normalize 0 16"
    command = [str(tmp_path / "model.pt"), *words.split(), "--target", "loihi2", "--samples", "8"]
    main(EXPORT, [*command, "--data", "digits", "--budget", "0", "--json", "--out", str(tmp_path / "out")])
    found = json.loads(capsys.readouterr().out)
    recorded = json.loads((tmp_path / "out" / "verify.json").read_text())["fold"]
    assert recorded["agrees"] and recorded["outputs_compared"] == 80
    assert 0 < recorded["largest_output_difference"] < 1e-12
    assert "folding" not in found["verdict"]
