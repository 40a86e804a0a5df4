"""`export weights.pt --arch theirs:Net`: modules of other libraries, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mpbn_deploy.base import main
from mpbn_deploy.export.__main__ import COMMAND
from mpbn_deploy.export.model import FoldedModel
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.ir import InputFormat
from mpbn_deploy.nn import LIF, SpikingNetwork

pytestmark = pytest.mark.interop

HEAD = """
import torch
from torch import nn
{imports}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.fc2 = nn.Linear(12, 8), nn.Linear(8, 4)
        {neurons}

    def forward(self, x):
        {forward}
"""
LOOP = """first, sent = self.start(), []
        for step in x:
            first = self.lif1(self.fc1(step), *first)
            sent.append(self.lif2(self.fc2(first[0]))[0])
            first = first[1:]
        return torch.stack(sent)

    def start(self):
        return {start}"""
SNN = "import snntorch as snn"
MODULES = {
    "betas of each neuron": (
        SNN,
        "self.lif1 = snn.Leaky(beta=torch.linspace(0.2, 0.9, 8), learn_beta=True)\n"
        "        self.lif2 = snn.Leaky(beta=0.9)",
        LOOP.format(start="(self.lif1.init_leaky(),)"),
    ),
    "currents": (
        SNN,
        "self.lif1 = snn.Synaptic(alpha=0.5, beta=0.8)\n        self.lif2 = snn.Leaky(beta=0.9)",
        LOOP.format(start="self.lif1.init_synaptic()"),
    ),
    "norse": (
        "import norse.torch as norse",
        "self.lif1 = norse.LIFBoxCell(norse.LIFBoxParameters(v_th=torch.tensor(0.1)))\n"
        "        self.lif2 = norse.IAFCell()",
        "z, s, t, sent = None, None, None, []\n"
        "        for step in x:\n"
        "            z, s = self.lif1(self.fc1(step), s)\n"
        "            z, t = self.lif2(self.fc2(z), t)\n"
        "            sent.append(z)\n"
        "        return torch.stack(sent)",
    ),
}


@pytest.fixture
def given(tmp_path, monkeypatch, request):
    """Write a module and its state_dict; return the arguments of `export`."""

    def write(imports, neurons, forward):
        for library in ("snntorch", "norse"):
            pytest.importorskip(library, reason=f"{library} is not installed (pip install {library})")
        name = "theirs_" + "".join(filter(str.isalnum, request.node.name))
        (tmp_path / f"{name}.py").write_text(HEAD.format(imports=imports, neurons=neurons, forward=forward))
        monkeypatch.syspath_prepend(tmp_path)
        torch.save(__import__(name).Net().state_dict(), tmp_path / "weights.pt")
        words = f"--arch {name}:Net --timesteps 6 --input-shape 12 --input-range 0 3 --samples 3"
        return [str(tmp_path / "weights.pt"), *words.split(), "--target", "loihi2"]

    return write


@pytest.mark.parametrize("name", MODULES)
def test_a_module_and_its_weights(given, capfd, name):
    arguments = given(*MODULES[name])
    assert main(COMMAND, [*arguments, "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["bit_exact"] and data["assumptions"] == []
    certificate = json.loads((Path(data["folder"]) / "verify.json").read_text())
    assert certificate["fold"]["spikes_mismatched"] == 0
    assert certificate["fold"]["spikes_compared"] == 3 * 6 * (8 + 4)


@pytest.mark.parametrize(
    ("neurons", "forward", "message"),
    [
        (
            "self.lif1 = snn.Alpha(alpha=0.9, beta=0.8, init_hidden=True)",
            "return self.fc2(self.lif1(self.fc1(x)))",
            "lif1, ",
        ),
        (
            "self.lif1 = snn.Leaky(beta=0.5, init_hidden=True)",
            "return self.fc2(self.lif1(self.fc1(x).relu()))",
            ": a rectifier (relu). Layers of a spiking network",
        ),
        (
            "self.lif1 = snn.Leaky(beta=0.5, init_hidden=True)",
            "return self.fc2(self.lif1(self.fc1(x))).softmax(-1)",
            "Softmax divides by a sum over all outputs, which no neuron of a chip computes.",
        ),
        (
            "self.lif1 = snn.Leaky(beta=0.5, init_hidden=True)",
            "return self.fc2(self.lif1(self.fc1(x if x.max() < 2 else -x)))",
            "takes a number out of its data (if,",
        ),
    ],
)
def test_one_message_and_nothing_written(given, capfd, tmp_path, neurons, forward, message):
    arguments = given(SNN, neurons, forward)
    before = sorted(file.name for file in tmp_path.iterdir())
    assert main(COMMAND, arguments) == 2
    said = capfd.readouterr().err
    assert message in said and "Traceback" not in said
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != "__pycache__") == [
        name for name in before if name != "__pycache__"
    ]


def test_the_model_knows_which_membranes_are_normalized(tmp_path):
    """The report says nothing about MPBN of a network that has none."""
    values = InputFormat(shape=(4,), minimum=0, maximum=1, mean=np.zeros(1), deviation=np.ones(1))
    body = nn.Sequential(
        nn.Linear(4, 3), LIF(3, mpbn="channel"), nn.Linear(3, 3), LIF(3, mpbn="none"), nn.Linear(3, 2)
    )
    module = SpikingNetwork(body, timesteps=2, input_format=values)
    model = FoldedModel(path=tmp_path, folded=fold(trace(module)), module=module)
    assert model.normalized == ("1",) and set(model.trained_thresholds) == {"1", "3"}
    assert FoldedModel(path=tmp_path, folded=model.folded).normalized == ()
