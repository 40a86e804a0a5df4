"""Exports from Python: a torch module and samples in memory, whose result prints its verdict."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from networks import inputs_for, int_chain
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mpbn_deploy
from mpbn_deploy.api import LIF, IntNetwork, load_dataset, load_model, open_folder, simulate
from mpbn_deploy.base import DataError, OptionError
from mpbn_deploy.data import in_memory
from mpbn_deploy.export.given import copy_of
from mpbn_deploy.formats.options import ExportOptions

pytestmark = pytest.mark.usefixtures("without_lava")
BUDGET = {"samples": 2, "budget": 0}


class Net(nn.Module):
    """A handwritten spiking network, which names its time steps."""

    def __init__(self, features=6):
        super().__init__()
        self.num_steps = 3
        self.hidden, self.lif, self.out = nn.Linear(features, 8), LIF((8,)), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.lif(self.hidden(x)))


@pytest.fixture
def net(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return Net()


def samples(count=40, features=6, levels=17):
    random = np.random.default_rng(0)
    return random.integers(0, levels, size=(count, features)), random.integers(0, 3, size=count)


@pytest.mark.parametrize("kind", ["arrays", "tensors", "Dataset", "DataLoader", "mapping"])
def test_a_module_and_samples_of_any_kind(net, kind, capsys):
    raw, labels = samples()
    x, y = torch.tensor(raw / 16, dtype=torch.float32), torch.tensor(labels)
    data = {
        "arrays": (x.numpy(), labels),
        "tensors": (x, y),
        "Dataset": TensorDataset(x, y),
        "DataLoader": DataLoader(TensorDataset(x, y), batch_size=16),
        "mapping": {"test_x": x, "test_y": y, "train_x": x, "train_y": y},
    }[kind]
    result = mpbn_deploy.export(net, "loihi2", data=data, **BUDGET)
    said = "note: Net: inputs of shape (6,), whole numbers 0..16, which the module gets as (n - 0) / 16"
    assert said in (err := capsys.readouterr().err) and "time steps: 3" in err
    assert result.folder.name == "Net.loihi2" and result.verified.fold.agrees
    assert result.verified.accuracy.samples == (40 if kind == "mapping" else 8)
    lines = str(result).splitlines()
    assert lines[0].startswith("yellow: Net on Intel Loihi 2: bit-exact") and len(lines) <= 12
    assert (open_folder("Net.loihi2").network.input_range.maximum, net.lif.timesteps) == (
        16,
        Net().lif.timesteps,
    )


def test_the_same_module_gives_the_same_bytes_and_another_gives_others(net):
    data = samples()
    found = [mpbn_deploy.export(net, "loihi2", data=data, out=name, **BUDGET) for name in ("a", "b")]
    manifests = [open_folder(each.folder).manifest for each in found]
    assert manifests[0]["sha256"] == manifests[1]["sha256"]
    with torch.no_grad():
        net.out.bias += 1
    changed = mpbn_deploy.export(net, "loihi2", data=data, out="c", **BUDGET)
    assert open_folder(changed.folder).manifest["model"]["sha256"] != manifests[0]["model"]["sha256"]


def test_samples_over_time_state_the_time_steps(net):
    frames = np.random.default_rng(1).integers(0, 2, size=(20, 5, 6))
    result = mpbn_deploy.export(net, "loihi2", data=(frames, np.zeros(20, int)), **BUDGET)
    assert result.quantized.network.timesteps == 5
    assert (result.quantized.network.input_range.minimum, result.quantized.network.input_range.maximum) == (
        0,
        1,
    )


def test_a_network_of_ours_states_all_but_its_samples(model_path, tmp_path):
    digits = load_dataset("digits")
    result = mpbn_deploy.export(load_model(model_path), "loihi2", tmp_path / "out", data=digits, **BUDGET)
    assert result.verified.accuracy.samples == len(digits.test)
    assert (
        "model"
        not in (tmp_path / "out" / "run.toml").read_text().partition("# not given")[0].split("\n\n")[1]
    )
    with pytest.raises(OptionError, match="takes whole numbers and normalizes them itself"):
        mpbn_deploy.export(load_model(model_path), "loihi2", data=digits.test.inputs / 7.3)


@pytest.mark.parametrize(
    "scaled",
    [
        lambda n: n / 255,
        lambda n: (n / 255 - 0.1307) / 0.3081,
        lambda n: (
            (n / 255 - np.array([0.4914, 0.4822, 0.4465])[:, None, None])
            / np.array([0.247, 0.243, 0.261])[:, None, None]
        ),
        lambda n: n * 2.0 - 255,
        lambda n: n,
    ],
)
def test_the_bytes_behind_normalized_images_are_found(scaled):
    """As torchvision's ToTensor and Normalize make them, in float32."""
    pixels = np.random.default_rng(0).integers(0, 256, size=(30, 3, 9, 9))
    pixels[0, :, 0, :2] = (0, 255)
    given = scaled(pixels).astype(np.float32)
    found = in_memory((given, np.zeros(30, int)))
    whole = found.own.parts[""].inputs
    mean, deviation = (each.reshape(-1, 1, 1) for each in (found.scaling.mean, found.scaling.deviation))
    np.testing.assert_allclose((whole - mean) / deviation, given, atol=2e-6 * np.abs(given).max())
    assert found.note is None and np.ptp(whole) in (255, 510)


def test_inputs_that_come_from_no_whole_numbers_are_rounded_and_it_is_said(net):
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    result = mpbn_deploy.export(net, "loihi2", data=(x, samples()[1]), **BUDGET)
    assert any("they are rounded to 8 bits, by at most 0.0" in note for note in result.notes)
    assert "rounded to 8 bits" in (result.folder / "report.html").read_text(encoding="utf-8")


def test_calibration_samples_of_their_own_are_not_tested(net):
    data, others = samples(), samples(count=24)
    result = mpbn_deploy.export(net, "loihi2", data=data, calibration=others, **BUDGET)
    assert result.verified.accuracy.samples == 40
    assert any("on 24 training samples" in note for note in result.notes)
    with pytest.raises(OptionError, match="go with data in memory"):
        mpbn_deploy.export(net, "loihi2", data="digits", calibration=others)


def test_what_a_module_needs_is_said(net):
    x, y = samples()
    with pytest.raises(OptionError, match=r"does not say what it takes; add data=\(x, y\)"):
        mpbn_deploy.export(net, "loihi2")
    del net.num_steps
    with pytest.raises(OptionError, match=r"for how many time steps .* add timesteps=N"):
        mpbn_deploy.export(net, "loihi2", data=(x, y))
    with pytest.raises(DataError, match="finite numbers are needed"):
        mpbn_deploy.export(net, "loihi2", data=(x * np.nan, y))
    with pytest.raises(DataError, match="gives no batches"):
        in_memory(DataLoader([]))


def test_the_search_for_better_options_names_the_call(net):
    from mpbn_deploy.export.given import taken

    given, options = taken(net, samples(), "none", ExportOptions(weight_bits=3))
    assert given.command(options, "loihi2", None) == "export(Net, 'loihi2', data=..., weight_bits=3)"


def test_a_module_that_ran_is_copied_with_its_states():
    part = nn.Module()
    part.register_buffer("mem", torch.zeros(2))
    part.mem = (torch.ones(2, requires_grad=True) * 2).cumsum(0)  # as snnTorch keeps it
    part.kept = {"a": [part.mem * 3]}
    copied = copy_of(part)
    assert copied.mem.grad_fn is None and torch.equal(copied.mem, part.mem) and copied.mem is not part.mem
    assert torch.equal(copied.kept["a"][0], part.mem * 3) and part.mem.grad_fn is not None


class Cells(HTMLParser):
    """The text of a table, and whether each tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.text, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_every_result_prints_itself_and_is_a_table_in_notebooks():
    network = int_chain()
    inputs = inputs_for(network)
    results = [
        network,
        simulate(network, inputs),
        mpbn_deploy.verify(network, inputs, budget=0),
        mpbn_deploy.fit(network, mpbn_deploy.load_profile("loihi2")),
    ]
    for result in results:
        text = str(result)
        cells = Cells(result._repr_html_())
        assert not cells.open and 2 <= len(text.splitlines()) <= 12
        assert [line for line in cells.text if re.sub(r"\s", "", line) not in re.sub(r"\s", "", text)] == []
    assert "44 neurons" in str(network) and "trace of 3 samples" in str(results[1])


def test_rooms_are_called_as_their_function():
    assert callable(mpbn_deploy.quantize) and IntNetwork is mpbn_deploy.IntNetwork
    with pytest.raises(AttributeError, match="module 'mpbn_deploy' has no attribute 'nothing'"):
        _ = mpbn_deploy.nothing
    with pytest.raises(TypeError):
        mpbn_deploy.fit()
