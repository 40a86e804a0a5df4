"""Whatever is wrong with a user's data or weights: one message, exit code 2, and nothing is written."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import conv_body
from PIL import Image
from torch import nn

from mpbn_deploy.base import main
from mpbn_deploy.data import own_files as arrays_module
from mpbn_deploy.export.__main__ import COMMAND
from mpbn_deploy.nn import LIF

pytestmark = pytest.mark.usefixtures("without_lava")

SHAPE = (2, 5, 7)
INPUTS = np.random.default_rng(0).integers(0, 10, (20, *SHAPE))
LABELS = np.arange(20) % 3
WEIGHTS = "weights.pt --arch networks:conv_body --timesteps 3 --input-shape 2 5 7 --input-range 0 9"


class Code:
    def __reduce__(self):
        return sys.exit, ("code ran",)


class Depends(nn.Module):
    """Takes another path for bright pictures."""

    def __init__(self):
        super().__init__()
        self.body = conv_body()

    def forward(self, x):
        return self.body(x if x.sum() > 0 else -x)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with good weights and good data."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    torch.save(conv_body().state_dict(), "weights.pt")
    np.savez("good.npz", inputs=INPUTS, labels=LABELS)
    return tmp_path


@pytest.fixture
def refused(here, capfd):
    """Run an export that must fail, and return its message."""

    def run(words):
        before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
        assert main(COMMAND, [*shlex.split(words), "--target", "loihi2", "--out", "made"]) == 2
        out, err = capfd.readouterr()
        assert out == "" and err.count("error: ") == 1 and "Traceback" not in err
        assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
        return err.partition("error: ")[2].strip()

    return run


def test_the_good_ones_are_exported(here, capfd):
    assert main(COMMAND, [*f"{WEIGHTS} --data good.npz --samples 2".split(), "--target", "loihi2"]) == 0
    assert re.search("\nfolding   0 of [1-9].* spikes differ from PyTorch", capfd.readouterr().out)


def bomb(path):
    np.savez_compressed(path, inputs=np.zeros((4, 2**20), np.uint8))


def pictures(path):
    for name in ("a", "b"):
        Path(path, name).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(np.zeros((5, 7), np.uint8)).save(f"{path}/{name}/{number}.png")


def arrays(**changes):
    return lambda path: np.savez(path, **{"inputs": INPUTS, "labels": LABELS, **changes})


DATA = {
    "no inputs": (lambda path: np.savez(path, labels=LABELS), "holds labels; it needs inputs"),
    "fractions": (arrays(inputs=INPUTS / 9), "round them: np.rint(255 * inputs)"),
    "larger fractions": (arrays(inputs=INPUTS / 2), "round them: x = inputs - inputs.min(0); np.rint(255"),
    "complex": (arrays(inputs=INPUTS + 1j), "of type complex128; integers, bools or floats are needed"),
    "strings": (arrays(inputs=INPUTS.astype(str)), "whole numbers are needed"),
    "infinite": (arrays(inputs=np.full(INPUTS.shape, np.inf)), "NaN or infinity"),
    "shape": (
        arrays(inputs=INPUTS[..., :4]),
        "samples have shape (2, 5, 4); the network takes (2, 5, 7). Save inputs as [samples, 2",
    ),
    "other channels": (arrays(inputs=INPUTS[:, :1].repeat(3, 1)), "They have 3 channels; give 2"),
    "gray": (arrays(inputs=INPUTS[:, 0]), "They are gray: repeat them in 2 channels"),
    "beyond the range": (arrays(inputs=2 * INPUTS), "with --input-range 0 18; where --normalize"),
    "labels": (arrays(labels=LABELS + 1), "the network has 3 outputs, for labels 0..2. Save labels that"),
    "negative labels": (arrays(labels=LABELS - 1), "labels hold -1; classes are numbered from 0"),
    "fewer labels": (arrays(labels=LABELS[1:]), "19 labels for 20 inputs; one each is needed"),
    "objects": (arrays(inputs=np.array([Code(), 1], object)), "could run code; it is not loaded"),
    "bomb": (bomb, "more than 200 times as many"),
    "no archive": (lambda path: Path(path).write_text("1,2"), "not a readable .npz file"),
}


@pytest.mark.parametrize("name", DATA)
def test_data(here, refused, name, monkeypatch):
    monkeypatch.setattr(arrays_module, "UNSUSPICIOUS_BYTES", 2**20)  # so that a small bomb is one
    write, message = DATA[name]
    write("bad.npz")
    said = refused(f"{WEIGHTS} --data bad.npz")
    assert message in said and said.startswith("bad.npz: ")


def test_files_in_each_others_place(here, refused):
    given = WEIGHTS.partition(" ")[2]
    assert "good.npz: a file of data, not a network. Name the network first, and the data with --data" in (
        refused(f"good.npz {given}")
    )
    (here / "code.py").write_text("import nothing")
    assert "Python code, not weights. " in refused(f"code.py {given}")
    assert "weights.pt: a file of tensors, such as a network, and no data" in refused(
        f"{WEIGHTS} --data weights.pt"
    )
    (here / "theirs.nir").write_text("")
    assert "theirs.nir: a network, not data" in refused(f"{WEIGHTS} --data theirs.nir")
    pictures("gray")
    assert "gray: samples have shape (1, 5, 7); the network takes (2, 5, 7). They are gray" in refused(
        f"{WEIGHTS} --data gray"
    )
    assert "gray: a folder, not a file" in refused(f"gray {given}")
    (here / "export").mkdir()
    (here / "export" / "manifest.json").write_text("{}")
    assert "export: an export folder, not data" in refused(f"{WEIGHTS} --data export")
    assert "export: an export folder already; run, verify, fit and report take it" in refused("export")


def test_weights(here, refused):
    state = conv_body().state_dict()
    state["conv.weight"] = state.pop("conv1.weight")
    state["readout.weight"] = state["readout.weight"][:, :2]
    torch.save(state, "weights.pt")
    assert refused(WEIGHTS).splitlines() == [
        "weights.pt: does not match the network 'networks:conv_body':",
        "  - missing conv1.weight (nearest in the file: conv.weight)",
        "  - readout.weight: torch.float32 (3, 2); torch.float32 (3, 6) is needed",
        "  - unknown conv.weight (nearest in the network: conv1.weight)",
    ]
    torch.save(conv_body(), "weights.pt")
    assert "loading it would run code. Save the weights alone" in refused(WEIGHTS)


def test_options_of_weights(here, refused):
    first = refused("weights.pt")
    assert "Name the class or function that builds it" in first
    assert "--input-shape 2 HEIGHT WIDTH --input-range LOWEST HIGHEST (0 255 for bytes, 0 1 for" in first
    for numbers in ("1", "1 2 3", "1 2 3 4 5 6"):
        said = refused(f"{WEIGHTS} --normalize {numbers}")
        assert f"--normalize with {len(numbers.split())} numbers; 2, or 4 are needed" in said
    assert "must be above zero" in refused(f"{WEIGHTS} --normalize 1 0")
    assert "For your own, give networks:conv_body." in refused(WEIGHTS.replace(":", "."))


def test_a_forward_that_depends_on_data(here, refused, monkeypatch):
    monkeypatch.setattr("networks.depends", Depends, raising=False)
    torch.save(Depends().state_dict(), "weights.pt")
    assert "takes a number out of its data (if," in refused(WEIGHTS.replace("conv_body", "depends"))


@pytest.mark.parametrize(("pooling", "stage"), [("composed", "_quantize"), ("relay", "_write_networks")])
def test_layers_that_the_host_cannot_compute(here, refused, monkeypatch, pooling, stage):
    def body():
        return nn.Sequential(nn.Flatten(), nn.Linear(70, 6), LIF(6), nn.Linear(6, 3))

    monkeypatch.setattr("networks.shallow", body, raising=False)
    monkeypatch.delattr(f"mpbn_deploy.export.stage.{stage}")  # is never reached
    torch.save(body().state_dict(), "weights.pt")
    asked = f"{WEIGHTS.replace('conv_body', 'shallow')} --pooling {pooling} --first-layer host --readout host"
    assert "output is not a readout behind a population that fires. Use --readout chip" in refused(asked)
