"""model.pt: whole, safe, and clear about what is wrong with it."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from networks import spiking_network, with_card

from mpbn_deploy.checkpoint import build_body, load_model, save_model
from mpbn_deploy.errors import CheckpointError, NetworkError, OptionError
from mpbn_deploy.float_ir import InputFormat

ARCH = "networks:conv_body"


@pytest.fixture
def path(tmp_path):
    save_model(tmp_path / "model.pt", with_card(spiking_network()))
    return tmp_path / "model.pt"


def change(path, **changes):
    content = torch.load(path, weights_only=True)
    content.update(changes)
    torch.save({key: value for key, value in content.items() if value is not None}, path)
    return path


def change_state(path, **changes):
    state = dict(torch.load(path, weights_only=True)["state_dict"])
    state.update(changes)
    return change(path, state_dict={key: value for key, value in state.items() if value is not None})


def test_round_trip(path):
    saved, loaded = with_card(spiking_network()), load_model(path, arch=ARCH)
    inputs = torch.randint(0, 10, (4, 2, 5, 7)).float()
    assert torch.equal(saved(inputs), loaded(inputs))
    assert loaded.card.class_names == ("a", "b", "c") and not loaded.training
    assert loaded.timesteps == 3 and load_model(path, arch=ARCH, timesteps=5).timesteps == 5
    assert (loaded.input_format.mean == saved.input_format.mean).all()


def test_same_network_same_bytes(path, tmp_path):
    save_model(tmp_path / "other_name.pt", with_card(spiking_network()))
    assert path.read_bytes() == (tmp_path / "other_name.pt").read_bytes()


def test_code_from_elsewhere_runs_only_when_the_user_names_it(path):
    with pytest.raises(
        CheckpointError, match=r"runs its code; if you trust it, say so with --arch networks:conv_body"
    ):
        load_model(path)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    (tmp_path / "evil.pt").write_bytes(pickle.dumps({"format": Evil()}))
    torch.save({"format": Evil()}, tmp_path / "evil_zip.pt")
    for name in ("evil.pt", "evil_zip.pt"):
        with pytest.raises(CheckpointError, match="refused, reading it would run code"):
            load_model(tmp_path / name)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 broken zip", bytes(1000)])
def test_not_a_checkpoint(tmp_path, content):
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.pt: not a checkpoint, or a damaged one"):
        load_model(tmp_path / "model.pt")


def test_no_such_file_and_too_large_a_file(tmp_path, path, monkeypatch):
    with pytest.raises(CheckpointError, match="no such file"):
        load_model(tmp_path / "nothing.pt")
    monkeypatch.setattr("mpbn_deploy.checkpoint.LARGEST_FILE", 10)
    with pytest.raises(CheckpointError, match="at most 10 are read"):
        load_model(path)


def test_a_tensor_is_no_checkpoint(tmp_path):
    torch.save(torch.zeros(3), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint of mpbn_deploy, but a Tensor"):
        load_model(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timesteps": None}, "missing key 'timesteps'"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"timesteps": "4"}, "'timesteps' is of type str; int is needed"),
        ({"timesteps": True}, "'timesteps' is of type bool"),
        ({"format": "other"}, "format 'other' version 1; this release reads 'mpbn_deploy.model' version 1"),
        ({"version": 2}, "version 2"),
        ({"arguments": {"shape": {}}}, "arguments shape are not numbers"),
        ({"input": {}}, "input format: missing key 'shape'"),
    ],
)
def test_wrong_content_is_named(path, changes, message):
    with pytest.raises(CheckpointError, match=message):
        load_model(change(path, **changes), arch=ARCH)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("shape", [2, 5], r"shape \(2, 5\)"),
        ("shape", [], r"shape \(\)"),
        ("minimum", 99, "range 99..9 is empty"),
        ("mean", [float("nan")], "mean .* one finite number"),
        ("mean", ["a", "b"], "mean .* one finite number"),
        ("deviation", [0.0, 1.0], "must be above zero"),
    ],
)
def test_wrong_input_formats_are_named(path, field, value, message):
    given = {**torch.load(path, weights_only=True)["input"], field: value}
    with pytest.raises(CheckpointError, match=message):
        load_model(change(path, input=given), arch=ARCH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conv1.weight": None}, "missing conv1.weight"),
        ({"conv9.weight": torch.zeros(1)}, "unknown conv9.weight"),
        (
            {"conv1.weight": torch.zeros(1)},
            r"conv1.weight: torch.float32 \(1,\); torch.float32 \(4, 2, 3, 3\)",
        ),
        (
            {"conv1.bias": torch.tensor([0.0, float("nan"), 1, 2])},
            "conv1.bias: 1 of 4 values are NaN or infinite",
        ),
        ({"conv1.bias": 3}, r"\['conv1.bias'\] are not tensors"),
    ],
)
def test_wrong_weights_are_named(path, changes, message):
    with pytest.raises(CheckpointError, match=message):
        load_model(change_state(path, **changes), arch=ARCH)


def test_absurd_sizes_take_no_memory(path):
    """Neither arguments that ask for a huge network, nor a tensor of one number that poses as many."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="does not fit the network 'digits-cnn'"):
        load_model(
            change(path, arguments={"input_shape": [1, 10**4, 10**4], "classes": 10**6}), arch="digits-cnn"
        )
    hollow = torch.zeros(1).expand(4, 2, 3, 3).expand(10**5, 4, 2, 3, 3)
    with pytest.raises(CheckpointError, match="claim more numbers than the file holds"):
        load_model(change_state(change(path, arguments={}), **{"conv1.weight": hollow}), arch=ARCH)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_wrong_architectures_are_named(path):
    with pytest.raises(CheckpointError, match=r"no architecture named 'digits-cn'.*Did you mean"):
        load_model(change(path, architecture="digits-cn"))
    with pytest.raises(OptionError, match="no architecture named 'digits'"):
        load_model(path, arch="digits")
    with pytest.raises(OptionError, match="cannot be imported"):
        load_model(path, arch="no_such_package:factory")
    with pytest.raises(OptionError, match="cannot be imported"):
        load_model(path, arch="networks:no_such_factory")
    with pytest.raises(OptionError, match="is not a function"):
        load_model(path, arch="networks:np")
    with pytest.raises(OptionError, match=r"gave a dict; a torch\.nn\.Module is needed"):
        build_body("networks:no_module", {})
    with pytest.raises(OptionError, match="no signature found"):
        build_body("builtins:dict", {})
    with pytest.raises(OptionError, match="missing a required argument: 'input_shape'"):
        build_body("digits-cnn", {"width": 3})


def test_a_network_without_a_card_cannot_be_saved(tmp_path):
    with pytest.raises(OptionError, match="no ModelCard"):
        save_model(tmp_path / "model.pt", spiking_network())


def test_a_folder_that_is_not_there_is_named_and_nothing_is_left(tmp_path):
    with pytest.raises(OptionError, match="cannot be written"):
        save_model(tmp_path / "nowhere" / "model.pt", with_card(spiking_network()))


def test_a_factory_that_fails_is_named(path):
    with pytest.raises(OptionError, match=r"cannot be built with .*: ZeroDivisionError: division by zero"):
        load_model(path, arch="networks:failing")


@pytest.mark.parametrize("name", ["exiting", "no_such_name"])
def test_importing_somebodys_code_may_fail_in_any_way(path, name, tmp_path, monkeypatch):
    (tmp_path / "exiting.py").write_text("import sys; sys.exit(0)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OptionError, match="cannot be imported"):
        load_model(path, arch=f"{name}:factory")


def test_a_bare_state_dict_is_named(path):
    torch.save(torch.load(path, weights_only=True)["state_dict"], path)
    with pytest.raises(CheckpointError, match="a bare state_dict; save the network with"):
        load_model(path)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(CheckpointError, match="not a file"):
        load_model(tmp_path)


def test_variances_below_zero_are_named(path):
    with pytest.raises(CheckpointError, match=r"norm1\.running_var: a variance below zero"):
        load_model(change_state(path, **{"norm1.running_var": -torch.ones(4)}), arch=ARCH)


def test_time_steps_without_end_are_refused(path):
    with pytest.raises(OptionError, match=r"timesteps 1000000000; allowed are 1\.\.10000"):
        load_model(change(path, timesteps=10**9), arch=ARCH)


def test_what_cannot_be_built_again_is_not_saved(tmp_path):
    network = with_card(spiking_network())
    for changes, message in (
        ({"architecture": "build"}, "package.module:factory is needed"),
        ({"arguments": {"activation": print}}, "arguments activation are not numbers"),
    ):
        network.card = replace(with_card(network).card, **changes)
        with pytest.raises((OptionError, CheckpointError), match=message):
            save_model(tmp_path / "model.pt", network)
    assert list(tmp_path.iterdir()) == []


def test_an_input_format_takes_any_sequence_and_checks_itself():
    given = InputFormat(shape=[2, 5, 7], minimum=0, maximum=9, mean=(3,), deviation=[1.5, 2])
    assert (
        given.mean.tolist() == [3.0, 3.0]
        and given.deviation.tolist() == [1.5, 2.0]
        and given.shape == (2, 5, 7)
    )
    with pytest.raises(NetworkError) as caught:
        InputFormat(shape=(2, 5, 7), minimum=0, maximum=1.5, mean=(1, 2, 3), deviation="x")
    assert len(caught.value.problems) == 3
