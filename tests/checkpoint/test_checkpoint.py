"""model.pt: whole, safe, and clear about what is wrong with it."""

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from networks import spiking_network, with_card
from torch import nn

from mpbn_deploy.base import CheckpointError, NetworkError, OptionError, pickle_check, write_atomically
from mpbn_deploy.checkpoint import (
    PAPER_ARCHITECTURES,
    InputFacts,
    build_body,
    example_model,
    load_model,
    read_safely,
    save_model,
)
from mpbn_deploy.checkpoint.architectures import input_format, paper_names
from mpbn_deploy.checkpoint.state import _is_exact
from mpbn_deploy.ir import InputFormat
from mpbn_deploy.nn import SpikingNetwork
from mpbn_deploy.nn.zoo import ARCHITECTURES

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


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_half_precision_rounds_weights_once(path, tmp_path, suffix):
    half = tmp_path / f"half.{suffix}"
    save_model(half, with_card(spiking_network()), half=True)
    whole, loaded = (load_model(file, arch=ARCH).body.state_dict() for file in (path, half))
    assert half.stat().st_size < path.stat().st_size
    for name, values in whole.items():
        assert loaded[name].dtype == values.dtype
        assert torch.equal(loaded[name], values.half().float() if values.dim() > 1 else values)
    save_model(tmp_path / f"again.{suffix}", load_model(half, arch=ARCH), half=True)
    assert half.read_bytes() == (tmp_path / f"again.{suffix}").read_bytes()


@pytest.mark.parametrize("factor", [1.0, 1e9])
def test_half_precision_stores_trained_integers_as_they_are(tmp_path, factor):
    trained = load_model(example_model("digits-4bit"))
    trained.body.synapses[0].quanta *= factor
    trained.body.synapses[0].weight.data /= factor
    save_model(tmp_path / "whole.pt", trained)
    save_model(tmp_path / "half.pt", trained, half=True)
    whole, half = (load_model(tmp_path / f"{name}.pt") for name in ("whole", "half"))
    assert (tmp_path / "half.pt").stat().st_size < 0.4 * (tmp_path / "whole.pt").stat().st_size
    for before, after in zip(
        whole.body.to_integers(4).connections, half.body.to_integers(4).connections, strict=True
    ):
        assert np.array_equal(before.synapse.weight, after.synapse.weight)
    save_model(tmp_path / "again.pt", half, half=True)
    assert (tmp_path / "again.pt").read_bytes() == (tmp_path / "half.pt").read_bytes()


@pytest.mark.parametrize("quanta", [torch.zeros(16), torch.ones(3), None])
def test_stored_integers_need_their_quanta(tmp_path, quanta):
    trained = load_model(example_model("digits-4bit"))
    save_model(tmp_path / "model.pt", trained, half=True)
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    content["state_dict"]["synapses.0.quanta"] = quanta
    if quanta is None:
        del content["state_dict"]["synapses.0.quanta"]
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"synapses\.0\.(weight|quanta)"):
        load_model(tmp_path / "model.pt")


def test_code_from_elsewhere_runs_only_when_the_user_names_it(path):
    with pytest.raises(
        CheckpointError, match=r"runs its code; if you trust it, add --arch networks:conv_body"
    ):
        load_model(path)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    (tmp_path / "evil.pt").write_bytes(pickle.dumps({"format": Evil()}))
    torch.save({"format": Evil()}, tmp_path / "evil_zip.pt")
    for name in ("evil.pt", "evil_zip.pt"):
        with pytest.raises(CheckpointError, match="not loaded, because loading it would run code"):
            load_model(tmp_path / name)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 broken zip", bytes(1000)])
def test_not_a_checkpoint(tmp_path, content):
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.pt: not a checkpoint, or a damaged one"):
        load_model(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("suffix", "reader"),
    [
        ("pt", "mpbn_deploy.checkpoint.safe_reading._checked_archive"),
        ("safetensors", "mpbn_deploy.checkpoint.safe_reading.json.loads"),
    ],
)
def test_too_little_memory_is_no_damage(tmp_path, monkeypatch, suffix, reader):
    if suffix == "safetensors":
        pytest.importorskip(suffix)
    save_model(tmp_path / f"model.{suffix}", with_card(spiking_network()))
    monkeypatch.setattr(reader, Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        load_model(tmp_path / f"model.{suffix}", arch=ARCH)


def test_no_half_precision_is_exact_in_another():
    half, other = torch.zeros(1, dtype=torch.float16), torch.zeros(1, dtype=torch.bfloat16)
    assert not _is_exact(other, half) and not _is_exact(half, other)
    assert _is_exact(half, torch.zeros(1)) and not _is_exact(torch.zeros(1), half)


def test_no_such_file_and_too_large_a_file(tmp_path, path, monkeypatch):
    with pytest.raises(CheckpointError, match="no such file"):
        load_model(tmp_path / "nothing.pt")
    monkeypatch.setattr("mpbn_deploy.checkpoint.safe_reading.LARGEST_FILE", 10)
    with pytest.raises(CheckpointError, match="at most 10 are read"):
        load_model(path)


def test_a_tensor_is_no_checkpoint(tmp_path):
    torch.save(torch.zeros(3), tmp_path / "model.pt")
    with pytest.raises(
        CheckpointError, match="holds a Tensor; a checkpoint of mpbn_deploy holds a dictionary"
    ):
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
        ("shape", [2, 5, 1, 1], r"shape \(2, 5, 1, 1\)"),
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


def test_names_that_are_not_strings_are_rejected(path):
    content = torch.load(path, weights_only=True)
    for key, what in (("arguments", "arguments"), ("state_dict", "tensors")):
        change(path, **{**content, key: {**content[key], 7: torch.ones(2)}})
        with pytest.raises(CheckpointError, match=rf"names of {what} must be strings; found \[7\]"):
            load_model(path, arch=ARCH)


def test_absurd_sizes_take_no_memory(path):
    """Neither arguments that ask for a huge network, nor a tensor of one number that poses as many."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="does not match the network 'digits-cnn'"):
        load_model(
            change(path, arguments={"input_shape": [1, 10**4, 10**4], "classes": 10**6}), arch="digits-cnn"
        )
    hollow = torch.zeros(1).expand(4, 2, 3, 3).expand(10**5, 4, 2, 3, 3)
    with pytest.raises(CheckpointError, match="claim more numbers than the file holds"):
        load_model(change_state(change(path, arguments={}), **{"conv1.weight": hollow}), arch=ARCH)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_wrong_architectures_are_named(path, tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text("from torch import nn\nfrom math import floor\ndef body(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"no architecture named 'digits-cn'.*Did you mean"):
        load_model(change(path, architecture="digits-cn"))
    with pytest.raises(OptionError, match="no architecture named 'digits'"):
        load_model(path, arch="digits")
    with pytest.raises(OptionError, match="cannot be imported"):
        load_model(path, arch="no_such_package:factory")
    with pytest.raises(OptionError, match=r"cannot be imported .* Did you mean 'conv_body'"):
        load_model(path, arch="networks:conv_bod")
    with pytest.raises(OptionError) as found:
        load_model(path, arch="own_code:nothing")
    assert str(found.value).endswith("Known: body.")  # and nothing that it imports
    with pytest.raises(OptionError, match=r"Name the module, not its file: tests\.networks:conv_body"):
        load_model(path, arch="./tests/networks.py:conv_body")
    with pytest.raises(
        OptionError, match=r"is a module, which cannot be called\. Name a function or a class"
    ):
        load_model(path, arch="networks:np")
    with pytest.raises(OptionError, match=r"returned a dict; a torch\.nn\.Module is needed"):
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
    with pytest.raises(OptionError, match="failing' cannot be built: ZeroDivisionError: division by zero"):
        load_model(path, arch="networks:failing")


@pytest.mark.parametrize("name", ["exiting", "no_such_name"])
def test_importing_somebodys_code_may_fail_in_any_way(path, name, tmp_path, monkeypatch):
    (tmp_path / "exiting.py").write_text("import sys; sys.exit(0)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OptionError, match="cannot be imported"):
        load_model(path, arch=f"{name}:factory")


def test_a_bare_state_dict_is_named(path):
    torch.save(torch.load(path, weights_only=True)["state_dict"], path)
    with pytest.raises(
        CheckpointError, match=r"a bare state_dict, which does not say how its network is built\..* --arch"
    ):
        load_model(path)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(CheckpointError, match="not a file"):
        load_model(tmp_path)


def test_variances_below_zero_are_named(path):
    with pytest.raises(CheckpointError, match=r"norm1\.running_var: a negative variance"):
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


# ---- files that ask for too much --------------------------------------------------------------


def archive(program, storage=bytes(12), compression=zipfile.ZIP_STORED, more=()):
    """A zip file as torch.save writes it, around a pickle."""
    parts = {"data.pkl": program, "data/0": storage, "version": b"3\n", "byteorder": b"little"}
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", compression) as writer:
            for name, content in [*parts.items(), *more]:
                writer.writestr(f"archive/{name}", content)
        return file.getvalue()


def tensor_program(count=3, kind=b"Float"):
    """The pickle of {"a": tensor of three}, which claims that the part named 0 holds `count` numbers."""
    storage = b"(X\x07\0\0\0storagectorch\n" + kind + b"Storage\nX\x01\0\0\x000X\x03\0\0\0cpu"
    storage += b"J" + count.to_bytes(4, "little") + b"tQ"
    sizes = b"K\x00K\x03\x85K\x01\x85\x89ccollections\nOrderedDict\n)R"
    return b"\x80\x02}X\x01\0\0\0actorch._utils\n_rebuild_tensor_v2\n(" + storage + sizes + b"tRs."


def doubled(levels):
    """A key that is a tuple of twice a tuple of twice a tuple and so on, which takes for ever to hash."""
    again = b"".join(b"q%ch%c\x86" % (level, level) for level in range(levels))
    return b"\x80\x02}(N" + again + b"Nu."


ORDERED = b"ccollections\nOrderedDict\n"
FEW_BYTES = [
    (b"\x80\x02}(Ncbuiltins\nbytearray\nJ\0\0\0\x10\x85Ru.", r"builtins\.bytearray\); not loaded"),
    (b"\x80\x02}(Nctorch\nFloatTensor\nJ\0\0\0\x10\x85Ru.", r"torch\.FloatTensor\); not loaded"),
    (b"\x80\x02}(Nctorch.storage\nUntypedStorage\nK\x09\x85Ru.", r"torch\.storage\.UntypedStorage\)"),
    (doubled(60), "a tuple that is referenced twice"),
    (b"\x80\x02}(N" + b"\x85" * 9 + b"Nu.", "tuples nested more than 8 deep"),
    (b"\x80\x02}(N" + b"2\x86" * 60 + b"Nu.", "opcode DUP"),
    (b"\x80\x04}(N\x8fu.", "opcode EMPTY_SET"),
    (b"\x80\x02}(N]q\x00(h\x00h\x00eu.", "a list or dictionary that is referenced twice"),
    (b"\x80\x02}(N]q\x00(" + ORDERED + b"h\x00\x85Ru.", "a list or dictionary that is referenced twice"),
    (b"\x80\x02}(N" + ORDERED + b")Rq\x00Nh\x00u.", "a list or dictionary that is referenced twice"),
    (b"\x80\x02}(N" + ORDERED + b"]\x85Ru.", r"collections\.OrderedDict with arguments"),
    (b"\x80\x02}(NX\xd0\x07\0\0" + b"a" * 2000 + b"q\x00Nh\x00u.", "a long text that is referenced twice"),
    (b"\x80\x02}(NK\x01)Ru.", "a plain value where a name is needed"),
    (b"\x80\x02}(N" + ORDERED + b"NRu.", "a plain value where a tuple or short tuple is needed"),
    (b"\x80\x02}(N)Nbu.", "a short tuple where a list or dictionary is needed"),
    (b"\x80\x02}(Nctorch\nfloat32\nNNsu.", "a name where a list or dictionary is needed"),
    (b"\x80\x02}((\x85Nu.", "a mark where a value is needed"),
    (b"\x80\x02}((q\x00NNu.", "a mark where a value is needed"),
    (b"\x80\x02}r\xff\xff\xff\x7f.", "memo index 2147483647 in a pickle of 9 bytes"),
]


@pytest.mark.parametrize(("program", "message"), FEW_BYTES)
def test_few_bytes_do_not_fill_memory_or_time(tmp_path, program, message):
    (tmp_path / "model.pt").write_bytes(archive(program))
    with pytest.raises(CheckpointError, match=rf"model\.pt: .*{message}"):
        load_model(tmp_path / "model.pt")


def test_pickles_without_end_are_refused(path, monkeypatch):
    monkeypatch.setattr(pickle_check, "MAX_OPCODES", 100)
    with pytest.raises(
        CheckpointError, match=r"more than 100 opcodes; .* never need that, so it is not loaded"
    ):
        load_model(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive(tensor_program(), compression=zipfile.ZIP_DEFLATED), "a zip archive with compressed parts"),
        (archive(tensor_program(), more=[("DATA/0", b"")]), "a zip archive with two parts of the same name"),
        (archive(tensor_program(count=10**9)), "a storage that claims 1000000000 numbers in 12 bytes"),
        (archive(tensor_program(kind=b"Double")), "a storage that claims 3 numbers in 12 bytes"),
    ],
)
def test_archives_that_pose_as_more_are_refused(tmp_path, content, message):
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"model\.pt: {message}"):
        read_safely(tmp_path / "model.pt")


def test_parts_that_overlap_are_refused(tmp_path):
    """A list of parts in which the same bytes are claimed again and again."""
    content = archive(tensor_program(), more=[("a", bytes(5000)), ("b", b"")])
    head, size = b"PK\x01\x02", (5000).to_bytes(4, "little")
    last = content.rindex(head)
    content = content[: last + 20] + size * 2 + content[last + 28 :]
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"parts claim more than the \d+ bytes of the file"):
        read_safely(tmp_path / "model.pt")


def test_torch_reads_the_archive_that_was_checked(tmp_path):
    """Python looks for the list of parts before the end, torch where the end says that it is."""
    harmless, other = (archive(b"\x80\x02}X\x01\0\0\0aK" + value + b"s.") for value in (b"\x01", b"\x02"))
    (tmp_path / "model.pt").write_bytes(other[:-22] + harmless[:-22] + other[-22:])
    assert torch.load(tmp_path / "model.pt", weights_only=True) == {"a": 2}
    assert read_safely(tmp_path / "model.pt") == {"a": 1}


def test_the_crafted_archive_is_one_that_torch_reads(tmp_path):
    (tmp_path / "model.pt").write_bytes(archive(tensor_program()))
    assert torch.equal(read_safely(tmp_path / "model.pt")["a"], torch.zeros(3))


def test_the_format_before_torch_1_6_is_named(path):
    torch.save(torch.load(path, weights_only=True), path, _use_new_zipfile_serialization=False)
    with pytest.raises(
        CheckpointError, match=r"before 1\.6, which is not supported.* newer torch and save it again"
    ):
        load_model(path)


def trained(make_optimizer):
    """A module after a step, and its optimizer: all that optimizers keep."""
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))
    optimizer = make_optimizer([{"params": [parameter]} for parameter in module.parameters()])
    module(torch.ones(4, 1, 3, 3)).sum().backward()
    optimizer.step()
    return {"network": module.state_dict(), "optimizer": optimizer.state_dict()}


def tied():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    return module


HONEST = {
    "sgd": partial(trained, partial(torch.optim.SGD, lr=0.1, momentum=0.9)),
    "adam": partial(trained, partial(torch.optim.AdamW, lr=0.1)),  # shares its betas
    "tied": lambda: tied().state_dict(),
    "parameters": lambda: OrderedDict(tied().named_parameters(remove_duplicate=False)),
    "views": lambda: dict(enumerate(torch.arange(6.0).reshape(2, 3).T)),
    "empty": lambda: {"none": torch.zeros(0, 3), "scalar": torch.tensor(2)},
    "types": lambda: {str(kind): torch.ones(2, dtype=kind) for kind in KINDS} | {"kind": torch.float32},
    "plain": lambda: {
        "a": (1, (2.5, None)),
        "b": [True, {"c": -(10**30)}],
        3: "text",
        "d": torch.Size([1, 2]),
    },
    "random": lambda: {"random_state": torch.get_rng_state()},
}
KINDS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
KINDS += (torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128)


@pytest.mark.parametrize("name", HONEST)
def test_all_that_trainings_save_is_read(tmp_path, name):
    content = HONEST[name]()
    torch.save(content, tmp_path / "file.pt")
    read = read_safely(tmp_path / "file.pt")
    assert same(read, content) and getattr(read, "_metadata", None) == getattr(content, "_metadata", None)


def same(left, right):
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, torch.Tensor):
        return type(left) is type(right) and left.dtype == right.dtype and torch.equal(left, right)
    return left == right and type(left) is type(right)


def test_notes_that_share_a_list_are_read_again(tmp_path):
    network, shared = with_card(spiking_network()), [1, (2, 3)]
    notes = {"a": shared, "b": {"c": shared}}
    network.card = replace(network.card, training=notes)
    save_model(tmp_path / "model.pt", network)
    assert load_model(tmp_path / "model.pt", arch=ARCH).card.training == notes


def test_content_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    done, synchronize, rename = [], os.fsync, Path.replace

    def noted_fsync(number):
        done.append(("fsync", os.fstat(number).st_size))
        synchronize(number)

    def noted_replace(self, target):
        done.append(("replace", target.name))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_atomically(tmp_path / "file", b"content")
    assert done == [("fsync", 7), ("replace", "file")] and (tmp_path / "file").read_bytes() == b"content"


# ---- checkpoints of the paper's code ----------------------------------------------------------

# Copied from the state dicts of the paper's code: ours, theirs, shape.
PAPER_NAMES = {
    "paper:res20m": [
        ("conv1.weight", "model.conv1.0.pool.weight", (64, 3, 3, 3)),
        ("norm1.running_mean", "model.conv1.1.bn.running_mean", (64,)),
        ("lif1.mpbn.bn.running_var", "model.conv1.2.bn.running_var", (64,)),
        ("conv3.weight", "model.conv1.6.pool.weight", (64, 64, 3, 3)),
        ("lif3.mpbn.bn.bias", "model.conv1.8.bn.bias", (64,)),
        ("layer1.0.conv1.weight", "model.layer1.0.conv1.pool.weight", (64, 64, 3, 3)),
        ("layer1.0.norm1.weight", "model.layer1.0.bn1.bn.weight", (64,)),
        ("layer1.0.lif1.mpbn.bn.weight", "model.layer1.0.relu1.bn.weight", (64,)),
        ("layer2.0.conv1.weight", "model.layer2.0.conv1.pool.weight", (128, 64, 3, 3)),
        ("layer2.0.shortcut.conv.weight", "model.layer2.0.downsample.1.pool.weight", (128, 64, 1, 1)),
        ("layer2.0.shortcut.norm.bias", "model.layer2.0.downsample.2.bn.bias", (128,)),
        ("layer4.1.norm2.num_batches_tracked", "model.layer4.1.bn2.bn.num_batches_tracked", ()),
        ("layer4.1.lif2.mpbn.bn.weight", "model.layer4.1.output_act.bn.weight", (512,)),
        ("readout.weight", "model.fc.conv.weight", (10, 512)),
        ("readout.bias", "model.fc.conv.bias", (10,)),
    ],
    "paper:res19": [
        ("conv1.weight", "model.conv1.pool.weight", (128, 3, 3, 3)),
        ("norm1.weight", "model.bn1.bn.weight", (128,)),
        ("lif1.mpbn.bn.weight", "model.relu.bn.weight", (128,)),
        ("layer2.0.shortcut.conv.weight", "model.layer2.0.downsample.0.pool.weight", (256, 128, 1, 1)),
        ("layer2.0.shortcut.norm.weight", "model.layer2.0.downsample.1.bn.weight", (256,)),
        ("layer3.1.lif2.mpbn.bn.bias", "model.layer3.1.output_act.bn.bias", (512,)),
        ("readout.weight", "model.fc.conv.weight", (10, 512)),
    ],
    "paper:res20": [
        ("lif1.mpbn.bn.running_mean", "model.relu.bn.running_mean", (128,)),
        ("layer3.2.conv2.weight", "model.layer3.2.conv2.pool.weight", (512, 512, 3, 3)),
    ],
    "paper:VGG16": [
        ("conv1.bias", "model.features.0.pool.bias", (64,)),
        ("lif2.mpbn.bn.weight", "model.features.5.bn.weight", (64,)),
        ("conv3.weight", "model.features.7.pool.weight", (128, 64, 3, 3)),
        ("lif13.mpbn.bn.running_var", "model.features.42.bn.running_var", (512,)),
        ("readout.weight", "model.classifier.conv.weight", (10, 512)),
    ],
}
PAPER_TENSORS = {"paper:res20m": 229, "paper:res19": 201, "paper:res20": 223, "paper:VGG16": 158}


@pytest.mark.parametrize("arch", PAPER_ARCHITECTURES)
def test_names_of_the_papers_code(arch):
    with torch.device("meta"):
        body = build_body(PAPER_ARCHITECTURES[arch], {"input_shape": (3, 32, 32), "classes": 10})
    state, names = body.state_dict(), paper_names(body, arch)
    assert names.keys() == state.keys() and len(set(names.values())) == PAPER_TENSORS[arch]
    found = [(ours, names[ours], tuple(state[ours].shape)) for ours, _, _ in PAPER_NAMES[arch]]
    assert found == PAPER_NAMES[arch]


@pytest.fixture
def slim(monkeypatch):
    """The paper's networks with few channels, so that their files are small."""
    for name in PAPER_ARCHITECTURES.values():
        monkeypatch.setitem(ARCHITECTURES, name, partial(ARCHITECTURES[name], width=4))


def paper_network(arch, classes=10, mpbn="channel"):
    """One of the paper's networks, with numbers everywhere that differ from their defaults."""
    torch.manual_seed(0)
    arguments = {"input_shape": (3, 32, 32), "classes": classes, "mpbn": mpbn}
    body = build_body(PAPER_ARCHITECTURES[arch], arguments)
    network = SpikingNetwork(body, timesteps=3, input_format=input_format(classes))
    for norm in (module for module in body.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias, 0.2, 0.2)
    nn.init.normal_(body.readout.bias)
    network(torch.randint(0, 256, (4, 3, 32, 32)))
    return network.eval()


def as_theirs(network, arch):
    names = paper_names(network.body, arch)
    return {names[name]: tensor for name, tensor in network.body.state_dict().items()}


@pytest.fixture
def paper_state(slim):
    return as_theirs(paper_network("paper:res20m"), "paper:res20m")


@pytest.fixture
def theirs(tmp_path):
    return tmp_path / "snn_T2_res20m.pth"


@pytest.mark.parametrize("mpbn", ["channel", "none"])
@pytest.mark.parametrize("arch", PAPER_ARCHITECTURES)
def test_checkpoints_of_the_papers_code(slim, theirs, arch, mpbn):
    network = paper_network(arch, mpbn=mpbn)
    torch.save(as_theirs(network, arch), theirs)
    loaded = load_model(theirs, arch=arch, timesteps=3)
    images = torch.randint(0, 256, (2, 3, 32, 32))
    assert torch.equal(network(images), loaded(images)) and not loaded.training
    assert loaded.card.arguments["mpbn"] == mpbn and loaded.body.lif1.surrogate == "tanh"


def test_the_example_reads_them(slim, theirs, run_here):
    torch.save(as_theirs(paper_network("paper:res20m"), "paper:res20m"), theirs)
    shown = run_here("paper_checkpoint.py", theirs).stdout
    assert "paper:res20m: 20 populations, 28 connections" in shown and "cores, fits: True" in shown
    assert "class of a gray picture: " in shown


@pytest.mark.parametrize(
    ("classes", "data", "mean", "deviation"),
    [(10, "cifar10", 0.4914, 0.2023), (100, "cifar100", 0.5071, 0.2675)],
)
def test_the_papers_networks_take_raw_pixels(slim, theirs, classes, data, mean, deviation):
    torch.save(as_theirs(paper_network("paper:res19", classes), "paper:res19"), theirs)
    loaded = load_model(theirs, arch="paper:res19", timesteps=2)
    normalized = loaded.normalize(torch.full((1, 3, 32, 32), 51.0, dtype=torch.float64))
    assert normalized[0, 0, 0, 0].item() == pytest.approx((0.2 - mean) / deviation, rel=1e-12)
    assert (loaded.input_format.minimum, loaded.input_format.maximum) == (0, 255)
    assert loaded.timesteps == 2 and loaded.card.training == {"data": data, "source": "paper:res19"}


def test_a_network_of_the_paper_becomes_our_file(paper_state, theirs, tmp_path):
    torch.save(paper_state, theirs)
    loaded = load_model(theirs, arch="paper:res20m", timesteps=2)
    save_model(tmp_path / "model.pt", loaded)
    again, images = load_model(tmp_path / "model.pt"), torch.randint(0, 256, (2, 3, 32, 32))
    assert again.card.architecture == "resnet20" and torch.equal(loaded(images), again(images))


def test_data_parallel_is_unwrapped(paper_state, theirs):
    torch.save({f"module.{name}": tensor for name, tensor in paper_state.items()}, theirs)
    images = torch.randint(0, 256, (2, 3, 32, 32))
    expected = paper_network("paper:res20m")(images)
    assert torch.equal(load_model(theirs, arch="paper:res20m", timesteps=3)(images), expected)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_the_papers_checkpoints_are_recognized(paper_state, theirs, prefix):
    torch.save({f"{prefix}{name}": tensor for name, tensor in paper_state.items()}, theirs)
    with pytest.raises(
        CheckpointError,
        match="looks like a checkpoint of the paper's code; name its network with --arch paper:res20m, "
        "paper:res19, paper:res20 or paper:VGG16, and add --timesteps",
    ):
        load_model(theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.conv1.2.bn.running_var": None}, r"missing model\.conv1\.2\.bn\.running_var"),
        ({"model.fc.conv.weight": None}, r"missing model\.fc\.conv\.weight"),
        ({"model.layer9.weight": torch.zeros(1)}, r"unknown model\.layer9\.weight"),
        (
            {"model.layer1.0.conv1.pool.weight": torch.zeros(4, 4, 5, 5)},
            r"layer1\.0\.conv1\.pool\.weight: torch.float32 \(4, 4, 5, 5\); torch.float32 \(4, 4, 3, 3\)",
        ),
        (
            {"model.conv1.1.bn.running_var": -torch.ones(4)},
            r"conv1\.1\.bn\.running_var: a negative variance",
        ),
        (
            {"model.fc.conv.weight": torch.zeros(7, 32)},
            "7 classes; networks of the paper's code have 10 or 100",
        ),
        ({"model.fc.conv.weight": torch.tensor(1.0)}, r"model\.fc\.conv\.weight: torch.float32 \(\);"),
        ({"epoch": 3}, "a bare state_dict of tensors"),
        (
            {"format": "mpbn_deploy.model"},
            "a checkpoint of mpbn_deploy, not of the paper.s code; drop --arch paper:res20m",
        ),
    ],
)
def test_what_is_wrong_with_the_papers_checkpoints_is_said_in_its_names(
    paper_state, theirs, changes, message
):
    state = {name: value for name, value in {**paper_state, **changes}.items() if value is not None}
    torch.save(state, theirs)
    with pytest.raises(CheckpointError, match=message):
        load_model(theirs, arch="paper:res20m", timesteps=2)


def test_another_network_of_the_paper_is_told_apart(paper_state, theirs):
    torch.save(paper_state, theirs)
    with pytest.raises(CheckpointError, match=r"does not match the network 'vgg16'(.|\n)*and \d+ more"):
        load_model(theirs, arch="paper:VGG16", timesteps=2)


def test_an_ordinary_network_of_the_papers_code_is_named(slim, theirs):
    torch.save({"conv1.0.weight": torch.zeros(4, 3, 3, 3), "fc.weight": torch.zeros(10, 32)}, theirs)
    with pytest.raises(CheckpointError, match="--spike option; without it, it trains an ordinary network"):
        load_model(theirs, arch="paper:res20m", timesteps=2)


def test_the_papers_checkpoints_need_timesteps_and_a_known_name(paper_state, theirs):
    torch.save(paper_state, theirs)
    with pytest.raises(OptionError, match="do not store the number of time steps; add --timesteps"):
        load_model(theirs, arch="paper:res20m")
    with pytest.raises(OptionError, match=r"no architecture 'paper:vgg16'\. Did you mean 'paper:VGG16'"):
        load_model(theirs, arch="paper:vgg16", timesteps=2)
    with pytest.raises(
        OptionError, match=r"--normalize does not apply to checkpoints of the paper's own code"
    ):
        load_model(theirs, arch="paper:res20m", timesteps=2, inputs=InputFacts(normalization=(0.0, 255.0)))
