"""Checkpoints as people save them: bare and nested state_dicts, prefixes, half precision, safetensors."""

import importlib.util
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import conv_body, spiking_network, with_card

from mpbn_deploy.__main__ import console_script
from mpbn_deploy.base import CheckpointError, FrontendError, MissingPackageError, OptionError
from mpbn_deploy.checkpoint import InputFacts, load_model, save_model
from mpbn_deploy.frontend import trace
from mpbn_deploy.nn import LIF

ARCH = "networks:conv_body"
FACTS = InputFacts(shape=(2, 5, 7), range=(0, 9), normalization=(1.0, 2.0))
needs_safetensors = pytest.mark.skipif(
    importlib.util.find_spec("safetensors") is None, reason="safetensors is not installed"
)


@pytest.fixture(scope="module")
def network():
    return with_card(spiking_network()).eval()


@pytest.fixture
def state(network):
    return dict(network.body.state_dict())


def load(path, **changes):
    return load_model(path, **{"arch": ARCH, "timesteps": 3, "inputs": FACTS, **changes})


def written(tmp_path, content):
    torch.save(content, tmp_path / "theirs.pt")
    return tmp_path / "theirs.pt"


def prefixed(state, prefix):
    return {prefix + name: value for name, value in state.items()}


SHAPES = {
    "bare": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 9, "optimizer": {"lr": 0.1}},
    "model": lambda state: {"model": state},
    "module": lambda state: prefixed(state, "module."),
    "compiled": lambda state: {"model_state_dict": prefixed(state, "module._orig_mod.")},
    "lightning": lambda state: {"state_dict": prefixed(state, "model."), "hyper_parameters": {"width": 4}},
    "somebody's": lambda state: {"net": prefixed(state, "network.body."), "epoch": 3},
    "any key": lambda state: {"state": state, "val_acc": 0.92, "best": {"loss": torch.tensor(1.0)}},
    "deeper": lambda state: {"run": {"best": {"weights_of_epoch_9": state}}, "optim": {"m": dict(state)}},
    "no counters": lambda state: {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")},
}


def test_the_key_of_nested_tensors_is_named_and_must_be_clear(tmp_path, state, capsys):
    path = written(tmp_path, {"run": {"best": state}, "epoch": 3})
    load(path)
    assert f"note: {path}: the tensors under the key 'run.best' are the network's" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="several dictionaries of tensors, under 'ema', 'last'"):
        load(written(tmp_path, {"ema": state, "last": dict(state)}))


@pytest.mark.parametrize("kind", SHAPES)
def test_a_state_dict_gives_the_network_it_was_taken_from(tmp_path, network, state, kind):
    loaded = load(written(tmp_path, SHAPES[kind](state)))
    inputs = torch.randint(0, 10, (4, 2, 5, 7)).float()
    bodies = [each.body(((inputs - 1) / 2).repeat(3, 1, 1, 1)) for each in (network, loaded)]
    assert torch.equal(*bodies) and not loaded.training
    found = loaded.input_format
    assert (found.shape, found.minimum, found.maximum) == ((2, 5, 7), 0, 9)
    assert found.mean.tolist() == [1, 1] and found.deviation.tolist() == [2, 2]
    assert loaded.timesteps == 3 and loaded.card.architecture == ARCH


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_converted_and_it_is_said(tmp_path, state, kind, capsys):
    other = {name: v.to(kind) if v.is_floating_point() else v for name, v in state.items()}
    loaded = load(written(tmp_path, other)).body.state_dict()
    assert all(torch.equal(loaded[name], other[name].to(loaded[name].dtype)) for name in other)
    assert loaded["conv1.weight"].dtype == torch.float32
    name = str(kind).removeprefix("torch.")
    assert f"{name} numbers are converted to the network's type" in capsys.readouterr().err


def test_normalization_per_channel(tmp_path, state):
    facts = InputFacts(shape=(2, 5, 7), range=(0, 9), normalization=(1.0, 2.0, 3.0, 4.0))
    found = load(written(tmp_path, state), inputs=facts).input_format
    assert found.mean.tolist() == [1, 2] and found.deviation.tolist() == [3, 4]


def test_weights_that_do_not_show_the_shape_of_inputs(tmp_path):
    with pytest.raises(CheckpointError, match=r"--input-shape SIZE \.\.\. --input-range"):
        load_model(written(tmp_path, {"gain": torch.ones(3)}))
    with pytest.raises(CheckpointError, match=r"--input-shape 64 --input-range"):
        load_model(written(tmp_path, {"bias": torch.ones(3), "fc.weight": torch.ones(3, 64)}))


def test_the_name_that_a_file_remembers_is_copied_into_the_hint(tmp_path, state):
    for name, shown in (("theirs:Net", "theirs:Net"), ("theirs:Net; rm", "package.module:build")):
        path = written(tmp_path, {"state_dict": state, "arch": name})
        with pytest.raises(
            CheckpointError, match=f"its inputs: --arch {shown} --timesteps N --input-shape 2"
        ):
            load_model(path)


def test_raw_inputs_are_announced(tmp_path, state, capsys):
    facts = InputFacts(shape=(2, 5, 7), range=(0, 9))
    assert load(written(tmp_path, state), inputs=facts).input_format.mean.tolist() == [0, 0]
    assert "gets raw input values; if it was trained on (x - mean) / deviation" in capsys.readouterr().err
    load(written(tmp_path, state), inputs=InputFacts(shape=(2, 5, 7), range=(0, 1)))  # spikes
    assert "gets raw input values" not in capsys.readouterr().err


def test_what_is_missing_is_asked_for(tmp_path, state):
    path = written(tmp_path, {"state_dict": state, "arch": "resnet18"})
    with pytest.raises(
        CheckpointError, match=r"trained with arch 'resnet18'\. .*--arch package.module:build"
    ):
        load_model(path)
    with pytest.raises(
        OptionError, match=r"add --timesteps N --input-shape 2 HEIGHT WIDTH --input-range LOWEST"
    ):
        load_model(path, arch=ARCH)
    with pytest.raises(OptionError, match=r"does not say everything; add --input-range LOWEST HIGHEST \("):
        load(path, inputs=InputFacts(shape=(2, 5, 7)))
    with pytest.raises(OptionError, match=r"pt: input range 9\.\.0 is empty; give the lowest value first\.$"):
        load(path, inputs=InputFacts(shape=(2, 5, 7), range=(9, 0)))
    with pytest.raises(OptionError, match=r"\(channels, length\) or \(channels, height, width\)"):
        load(path, inputs=InputFacts(shape=(5, 7, 1, 1), range=(0, 9)))
    with pytest.raises(OptionError, match="no architecture named 'conv_bodi'"):
        load(path, arch="conv_bodi")


def test_every_wrong_tensor_is_listed_with_the_nearest_name(tmp_path, state):
    state["conv.weight"] = state.pop("conv1.weight")
    state["surplus"] = torch.zeros(1)
    state["readout.weight"] = state["readout.weight"][:, :2].clone()
    state["norm1.num_batches_tracked"] = torch.full((), 0.5)
    with pytest.raises(CheckpointError) as caught:
        load(written(tmp_path, state))
    assert str(caught.value).splitlines()[1:] == [
        "  - missing conv1.weight (nearest in the file: conv.weight)",
        "  - norm1.num_batches_tracked: torch.float32 (); torch.int64 () is needed",
        "  - readout.weight: torch.float32 (3, 2); torch.float32 (3, 6) is needed",
        "  - unknown conv.weight (nearest in the network: conv1.weight)",
        "  - unknown surplus",
    ]


def test_constants_of_neurons_may_be_missing_or_half(tmp_path, capsys, monkeypatch):
    """Versions of snnTorch save different constants; people halve everything, whole numbers too."""
    snntorch = pytest.importorskip("snntorch")

    def build():
        return torch.nn.Sequential(torch.nn.Linear(4, 3), snntorch.Leaky(beta=0.75, init_hidden=True))

    monkeypatch.setattr("networks.tutorial", build, raising=False)
    whole = {name: value.half() for name, value in build().state_dict().items()}
    some = {name: value for name, value in whole.items() if name != "1.graded_spikes_factor"}
    facts = InputFacts(shape=(4,), range=(0, 1))
    loaded = load(written(tmp_path, some), arch="networks:tutorial", inputs=facts).body.state_dict()
    assert loaded["1.reset_mechanism_val"].dtype == torch.int64 and loaded["1.beta"] == 0.75
    err = capsys.readouterr().err
    assert "does not hold 1.graded_spikes_factor; taken from the network as it is built" in err
    with pytest.raises(CheckpointError, match=r"missing 0\.weight"):
        load(written(tmp_path, {"0.bias": whole["0.bias"]}), arch="networks:tutorial", inputs=facts)


@pytest.mark.parametrize(("trained", "built"), [("subtract", "zero"), ("zero", "subtract")])
def test_neurons_of_snntorch_that_are_built_with_another_reset(tmp_path, monkeypatch, trained, built):
    """Its forward would use the number in the file, and our translation the argument of the class."""
    snntorch = pytest.importorskip("snntorch")

    def build(reset=built):
        leaky = snntorch.Leaky(beta=0.75, init_hidden=True, reset_mechanism=reset)
        return torch.nn.Sequential(torch.nn.Linear(4, 3), leaky)

    monkeypatch.setattr("networks.tutorial", build, raising=False)
    facts = InputFacts(shape=(4,), range=(0, 1))
    load(written(tmp_path, build().state_dict()), arch="networks:tutorial", inputs=facts)
    path = written(tmp_path, build(trained).state_dict())
    with pytest.raises(CheckpointError, match=f"\n  - 1: {trained} in the file, {built} as built\n"):
        load(path, arch="networks:tutorial", inputs=facts)


def test_an_unsupported_neuron_of_snntorch_is_not_blamed_on_its_reset(tmp_path, monkeypatch):
    snntorch = pytest.importorskip("snntorch")

    def build(reset="subtract"):
        alpha = snntorch.Alpha(alpha=0.9, beta=0.75, init_hidden=True, reset_mechanism=reset)
        return torch.nn.Sequential(torch.nn.Linear(4, 3), alpha)

    monkeypatch.setattr("networks.tutorial", build, raising=False)
    path = written(tmp_path, build().state_dict())
    network = load(path, arch="networks:tutorial", inputs=InputFacts(shape=(4,), range=(0, 1)))
    with pytest.raises(FrontendError, match="a neuron has one membrane and, at most, one synaptic current"):
        trace(network.body, (4,), 2)


@pytest.mark.parametrize(
    ("reset", "said"), [("zero", "spikes reset to zero"), ("subtract", "spikes subtract the threshold")]
)
def test_how_our_neurons_reset_is_announced(tmp_path, monkeypatch, capsys, reset, said):
    body = torch.nn.Sequential(torch.nn.Linear(4, 3), LIF(3, reset=reset))
    monkeypatch.setattr("networks.tutorial", lambda: body, raising=False)
    path = written(tmp_path, body.state_dict())
    load(path, arch="networks:tutorial", inputs=InputFacts(shape=(4,), range=(0, 1)))
    assert f"does not say how neurons reset; as networks:tutorial builds them, {said}" in (
        capsys.readouterr().err
    )


def test_a_checkpoint_that_was_trained_with_another_reset_than_its_network_has(tmp_path, monkeypatch):
    """The function takes the argument, and ignores it."""
    network = with_card(spiking_network())
    network.card = replace(network.card, arguments={"reset": "subtract"})
    save_model(tmp_path / "model.pt", network)
    monkeypatch.setattr("networks.deaf", lambda reset: conv_body(), raising=False)
    with pytest.raises(
        CheckpointError, match=r"another reset .*\n  - \w+: subtract in the file, zero as built"
    ):
        load_model(tmp_path / "model.pt", arch="networks:deaf")


def test_wrong_values_are_named(tmp_path, state):
    state["readout.bias"] = torch.full_like(state["readout.bias"], torch.nan)
    with pytest.raises(CheckpointError, match=r"readout\.bias: 3 of 3 values are NaN or infinite"):
        load(written(tmp_path, state))
    state["readout.bias"] = torch.zeros(1).expand(3)
    with pytest.raises(CheckpointError, match="claim more numbers than the file holds"):
        load(written(tmp_path, state))


def test_networks_of_the_zoo_take_shape_and_classes_from_the_file(tmp_path, digits):
    from mpbn_deploy.nn.zoo import ARCHITECTURES

    body = ARCHITECTURES["digits-mlp"](input_shape=(1, 8, 8), classes=7)
    path = written(tmp_path, body.state_dict())
    loaded = load(path, arch="digits-mlp", inputs=InputFacts(shape=(1, 8, 8), range=(0, 16)))
    assert loaded(torch.zeros(2, 1, 8, 8)).shape == (2, 7)
    save_model(tmp_path / "ours.pt", loaded)  # from now on, it says everything itself
    assert load_model(tmp_path / "ours.pt").input_format.maximum == 16


def test_a_bare_state_dict_is_exported(tmp_path, state, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, {"state_dict": prefixed(state, "module.")})
    line = f"export {path.name} --target loihi2 --samples 3 --arch {ARCH} --timesteps 3"
    line += " --input-shape 2 5 7 --input-range 0 9 --normalize 1 2"
    assert console_script(line.split()) == 0
    out, err = capfd.readouterr()
    assert (
        "bit-exact to the reference; Lava's own models not run; " in out
        and "\nfolding   0 of " in out
        and "are random" in err
    )
    manifest = json.loads((tmp_path / "theirs.loihi2" / "manifest.json").read_text())
    assert manifest["model"]["architecture"] == ARCH
    assert console_script(["fit", "theirs.loihi2", "--target", "loihi1", "--samples", "0", "--advise"]) == 1
    advised = re.search(r"python -m mpbn_deploy\.(export \S.*)", capfd.readouterr().out)
    assert console_script([*shlex.split(advised[1]), "--samples", "1"]) != 2, capfd.readouterr().err


# ---- safetensors --------------------------------------------------------------------------------


@needs_safetensors
def test_safetensors_hold_the_same_as_a_checkpoint(tmp_path, network):
    save_model(tmp_path / "model.safetensors", network)
    save_model(tmp_path / "again.safetensors", network)
    assert (tmp_path / "model.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"if you trust it, add --arch networks:conv_body"):
        load_model(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors", arch=ARCH)
    inputs = torch.randint(0, 10, (4, 2, 5, 7)).float()
    assert torch.equal(network(inputs), loaded(inputs))
    assert loaded.card.class_names == network.card.class_names and loaded.timesteps == network.timesteps
    assert np.array_equal(loaded.input_format.mean, network.input_format.mean)


@needs_safetensors
def test_safetensors_of_other_tools_are_bare(tmp_path, network, state):
    from safetensors.torch import load_file, save_file

    save_file(state, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="a bare state_dict, which does not say how"):
        load_model(tmp_path / "theirs.safetensors")
    loaded = load(tmp_path / "theirs.safetensors").body.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items())
    save_model(tmp_path / "ours.safetensors", network)  # and the other way round
    theirs = load_file(tmp_path / "ours.safetensors")
    assert theirs.keys() == state.keys() and all(torch.equal(theirs[n], v) for n, v in state.items())


@needs_safetensors
@pytest.mark.parametrize("metadata", ["no json", "[1]", "[" * 100_000, '{"format": "mpbn_deploy.model"}'])
def test_damaged_metadata_is_refused(tmp_path, state, metadata):
    from safetensors.torch import save_file

    save_file(state, tmp_path / "m.safetensors", metadata={"mpbn_deploy": metadata})
    with pytest.raises(CheckpointError, match=r"not a readable safetensors file|is damaged|missing key"):
        load_model(tmp_path / "m.safetensors")


@needs_safetensors
@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b[:100], lambda b: b"\xff" * 8 + b[8:], lambda b: b[:-1]]
)
def test_damaged_safetensors_are_refused(tmp_path, network, damage):
    path = tmp_path / "m.safetensors"
    save_model(path, network)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"m\.safetensors: not a readable safetensors file"):
        load_model(path)


def test_safetensors_that_are_missing_or_too_large(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="no such file"):
        load_model(tmp_path / "m.safetensors")
    (tmp_path / "m.safetensors").write_bytes(b"12345")
    monkeypatch.setattr("mpbn_deploy.checkpoint.safe_reading.LARGEST_FILE", 4)
    with pytest.raises(CheckpointError, match="5 bytes; at most 4 are read"):
        load_model(tmp_path / "m.safetensors")


def test_without_the_package_it_is_named(tmp_path, network, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(MissingPackageError, match="pip install safetensors"):
        save_model(tmp_path / "m.safetensors", network)
    assert not list(tmp_path.iterdir())
