"""The user's own data: files, folders and functions; what is read, what is said, what is refused."""

import io
import struct
import sys
import zipfile

import numpy as np
import pytest
from networks import int_chain
from numpy.lib import format as npy
from PIL import Image

from mpbn_deploy.base import DataError, OptionError
from mpbn_deploy.data import choose_samples, load_dataset, own_files as arrays_module
from mpbn_deploy.data.dataset import arranged
from mpbn_deploy.data.own_files import read_npy, read_npz

RANDOM = np.random.default_rng(0)
BYTES = RANDOM.integers(0, 200, (20, 1, 4, 4), dtype=np.uint8)
LABELS = np.arange(20) % 4


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def refuses(message, name, error=DataError, folder=None):
    with pytest.raises(error, match=message):
        load_dataset(str(name), folder)


# ---- .npz -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("convert", "kind"),
    [
        (lambda v: v, np.uint8),
        (lambda v: v > 100, np.uint8),
        (lambda v: v.astype(np.float32), np.uint8),
        (lambda v: v.astype(">i8"), np.uint8),
        (lambda v: v.astype(np.float64) - 100, np.int32),
        (lambda v: v.astype(np.uint16) * 300, np.int32),
    ],
    ids=["uint8", "bool", "whole floats", "big endian", "negative", "wide"],
)
def test_whole_numbers_of_every_type_are_read(tmp_path, convert, kind):
    given = convert(BYTES)
    dataset = load_dataset(saved(tmp_path / "mine.npz", inputs=given, labels=LABELS))
    both = np.concatenate([dataset.train.inputs, dataset.test.inputs])
    assert both.dtype == kind and sorted(both.ravel().tolist()) == sorted(given.astype(int).ravel().tolist())
    assert (dataset.input_format.minimum, dataset.input_format.maximum) == (given.min(), given.max())
    assert dataset.name == "mine.npz" and dataset.class_names == ("0", "1", "2", "3")


def test_one_part_is_split_in_the_same_way_each_time(tmp_path, capsys):
    path = saved(tmp_path / "mine.npz", inputs=BYTES, labels=LABELS)
    first, second = load_dataset(path), load_dataset(path)
    assert "16 samples are for training, 4 for tests (seed 0)" in capsys.readouterr().err
    assert (len(first.train), len(first.test)) == (16, 4)
    assert np.array_equal(first.train.inputs, second.train.inputs)
    rows = {tuple(row.ravel()) for split in (first.train, first.test) for row in split.inputs}
    assert rows == {tuple(row.ravel()) for row in BYTES}
    where = {tuple(row.ravel()): label for row, label in zip(BYTES, LABELS, strict=True)}
    assert [where[tuple(row.ravel())] for row in first.test.inputs] == first.test.labels.tolist()


@pytest.mark.parametrize(
    "names",
    [
        ("train_inputs", "train_labels", "test_inputs", "test_labels"),
        ("x_train", "y_train", "x_test", "y_test"),
        ("X_train", "y_train", "X_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
        ("train_data", "train_targets", "test_data", "test_targets"),
    ],
)
def test_parts_are_known_by_their_usual_names(tmp_path, names, capsys):
    values = BYTES[:12], LABELS[:12, None], BYTES[12:], LABELS[12:]
    path = saved(tmp_path / "mine.npz", **dict(zip(names, values, strict=True)), val_images=BYTES)
    dataset = load_dataset(path)
    assert capsys.readouterr().err == "note: mine.npz: not used: val_images\n"
    assert np.array_equal(dataset.train.inputs, BYTES[:12]) and np.array_equal(
        dataset.test.inputs, BYTES[12:]
    )
    assert np.array_equal(dataset.train.labels, LABELS[:12])


def test_classes_without_samples_are_named(tmp_path, capsys):
    dataset = load_dataset(saved(tmp_path / "mine.npz", image=BYTES, label=LABELS + 1))
    assert len(dataset.class_names) == 5
    assert "1 of 5 classes have no training sample (0); labels count from 0" in capsys.readouterr().err
    parts = {"x_train": BYTES, "y_train": LABELS, "x_test": BYTES[:1], "y_test": LABELS[:1] * 0 + 12}
    load_dataset(saved(tmp_path / "mine.npz", **parts))
    assert "9 of 13 classes have no training sample (4, 5, 6, 7, 8, 9 and 3 more);" in capsys.readouterr().err


def test_normalization_is_that_of_the_training_samples(tmp_path):
    color = RANDOM.integers(0, 256, (30, 3, 4, 4), dtype=np.uint8)
    color[:, 2] = 7
    path = saved(tmp_path / "m.npz", train_inputs=color[:20], train_labels=np.arange(20) % 3,
                 test_inputs=color[20:], test_labels=np.arange(10) % 3)  # fmt: skip
    found = load_dataset(path).input_format
    assert np.allclose(found.mean, color[:20].mean(axis=(0, 2, 3)))
    assert np.allclose(found.deviation[:2], color[:20].std(axis=(0, 2, 3))[:2]) and found.deviation[2] == 1
    features = load_dataset(saved(tmp_path / "f.npz", inputs=BYTES.reshape(20, 16), labels=LABELS))
    assert features.input_format.shape == (16,) and len(set(features.input_format.mean.tolist())) == 1


def test_what_the_file_says_is_used(tmp_path):
    facts = {"input_range": [0, 255], "mean": 128.0, "deviation": 64.0, "class_names": list("abcde")}
    dataset = load_dataset(saved(tmp_path / "mine.npz", inputs=BYTES, labels=LABELS, **facts))
    found = dataset.input_format
    assert (found.minimum, found.maximum, found.mean.tolist(), found.deviation.tolist()) == (
        0,
        255,
        [128],
        [64],
    )
    assert dataset.class_names == tuple("abcde")


def test_silence_stays_zero_in_spikes_and_recordings(tmp_path):
    for name, values in {"spikes": BYTES > 100, "counts": np.repeat(BYTES[:, None], 3, axis=1)}.items():
        dataset = load_dataset(saved(tmp_path / f"{name}.npz", inputs=values, labels=LABELS))
        assert dataset.input_format.mean.tolist() == [0] and dataset.input_format.deviation.tolist() == [1]
        assert dataset.frames == (3 if name == "counts" else None)


@pytest.mark.parametrize(
    ("shape", "axes", "expected", "frames", "said"),
    [
        ((16,), None, (16,), None, ""),
        ((8, 8), None, (1, 8, 8), None, "taken as height x width; if they are not, save axes='TF'"),
        ((8, 8), "TF", (8,), 8, ""),
        ((3, 20), "CL", (3, 20), None, ""),
        ((20, 4), "LC", (4, 20), None, ""),
        ((5, 3, 20), "TCL", (3, 20), 5, ""),
        ((2, 8, 8), None, (2, 8, 8), None, ""),
        ((8, 6, 3), None, (3, 8, 6), None, "taken as height x width x channels"),
        ((3, 6, 3), None, (3, 6, 3), None, ""),
        ((5, 8, 6), "THW", (1, 8, 6), 5, ""),
        ((5, 2, 8, 6), None, (2, 8, 6), 5, ""),
        ((5, 8, 6, 2), None, (2, 8, 6), 5, "taken as time x height x width x channels"),
    ],
)
def test_axes_are_put_in_order(tmp_path, capsys, shape, axes, expected, frames, said):
    values = RANDOM.integers(0, 9, (4, *shape))
    parts = {
        "train_inputs": values,
        "train_labels": [0, 1, 0, 1],
        "test_inputs": values,
        "test_labels": [0, 1, 0, 1],
    }
    dataset = load_dataset(saved(tmp_path / "m.npz", **parts, **({"axes": axes} if axes else {})))
    assert dataset.input_format.shape == expected and dataset.frames == frames
    assert sorted(dataset.train.inputs[0].ravel()) == sorted(values[0].ravel())
    if shape[-1] == 3 and shape[0] != 3:
        assert np.array_equal(dataset.train.inputs, values.transpose(0, 3, 1, 2))
    err = capsys.readouterr().err
    assert said in err and bool(said) == bool(err)


def test_multiples_of_a_255th_become_bytes(tmp_path, capsys):
    for kind in (np.float32, np.float64):
        scaled = (BYTES / 255).astype(kind)
        dataset = load_dataset(saved(tmp_path / "m.npz", train_inputs=scaled, train_labels=LABELS,
                                     test_inputs=scaled, test_labels=LABELS))  # fmt: skip
        assert np.array_equal(dataset.train.inputs, BYTES)
        assert "multiples of 1/255 and taken as bytes" in capsys.readouterr().err


GOOD = {"inputs": BYTES, "labels": LABELS}
BEYOND_UNICODE = np.array([0x110000] * 4, np.uint32).view("U1")
PARTS = {"train_inputs": BYTES, "train_labels": LABELS, "test_inputs": BYTES, "test_labels": LABELS}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": BYTES, "b": LABELS}, "holds a, b; it needs inputs"),
        ({"labels": LABELS}, "holds labels; it needs inputs"),
        ({}, "holds nothing; it needs inputs"),
        ({"inputs": BYTES}, "the train inputs have no labels"),
        ({**GOOD, "x": BYTES}, "inputs and x both mean inputs"),
        ({**GOOD, "train_inputs": BYTES}, "mixes unsplit inputs"),
        ({**GOOD, "test_labels": LABELS}, "has test_labels, but no inputs for them"),
        ({"test_inputs": BYTES, "test_labels": LABELS}, "has test samples only; train samples are needed"),
        ({"train_inputs": BYTES, "train_labels": LABELS}, "has train samples only; test samples are needed"),
        ({"inputs": BYTES[:1], "labels": LABELS[:1]}, "one sample cannot be split"),
        ({**GOOD, "inputs": BYTES + 0j}, "of type complex128; integers, bools or floats"),
        ({**GOOD, "inputs": BYTES.astype(str)}, "inputs of type <U3; whole numbers"),
        ({**GOOD, "inputs": BYTES / 7}, r"hold fractions, such as .*; chips take whole numbers"),
        ({**GOOD, "inputs": np.where(BYTES > 9, np.nan, 1.0)}, "hold NaN or infinity"),
        ({**GOOD, "inputs": BYTES.astype(np.int64) * 10**6}, "allowed are -8388608 to 8388608"),
        ({**GOOD, "inputs": np.arange(20)}, r"inputs of shape \(20,\), with one axis only; \[samples, "),
        ({**GOOD, "inputs": BYTES[:0]}, r"inputs of shape \(0, 1, 4, 4\)"),
        ({**GOOD, "inputs": BYTES.reshape(20, 1, 1, 1, 4, 4)}, "1 to 4 axes are allowed"),
        ({**GOOD, "labels": LABELS[:-1]}, "19 labels for 20 inputs"),
        ({**GOOD, "labels": LABELS - 1}, "labels hold -1; classes are numbered from 0"),
        ({**GOOD, "labels": LABELS * 10**6}, "labels hold 3e[+]06; classes are numbered from 0"),
        ({**GOOD, "labels": LABELS + 0.5}, "labels of type float64; whole numbers from 0"),
        ({**GOOD, "labels": LABELS.astype(str)}, "labels are strings; give numbers from 0"),
        ({**GOOD, "labels": np.eye(4)[LABELS]}, r"labels of shape \(20, 4\).*argmax"),
        ({**GOOD, "labels": LABELS * 0}, "all labels are 0; at least two classes"),
        ({**GOOD, "class_names": ["a", "b"]}, r"label 3, but 2 class_names \(0\.\.1\)"),
        ({**GOOD, "class_names": BEYOND_UNICODE}, "class_names hold characters beyond Unicode"),
        ({**GOOD, "axes": "XYZ"}, "axes 'XYZ'; allowed are F, HW"),
        ({**GOOD, "axes": "HW"}, r"axes 'HW', but samples have shape \(1, 4, 4\)"),
        ({**GOOD, "axes": ["C", "H"]}, "axes must be one string"),
        ({**GOOD, "input_range": [0, 9]}, r"its input_range is 0\.\.9"),
        ({**GOOD, "input_range": [0]}, r"mine\.npz: input_range is \[0\]\. .* input_range two whole numbers"),
        ({**GOOD, "input_range": [0, np.inf]}, "input_range two whole numbers"),
        ({**GOOD, "labels": LABELS[:0]}, "0 labels for 20 inputs; one each is needed"),
        ({**GOOD, "deviation": 0.0}, "must be above zero"),
        ({**PARTS, "test_inputs": BYTES[..., :2]},
         "they must be equal"),
        ({**PARTS, "test_inputs": BYTES[:, 0]},
         "but others have 3 axes"),
    ],
)  # fmt: skip
def test_wrong_arrays_are_refused(tmp_path, arrays, message):
    refuses(message, saved(tmp_path / "mine.npz", **arrays))


# ---- hostile files ----------------------------------------------------------------------------


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (sys.exit, ("code ran",))


def header(shape, descr="|u1", version=(1, 0)):
    file = io.BytesIO()
    write = npy.write_array_header_1_0 if version == (1, 0) else npy.write_array_header_2_0
    write(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue()


def zipped(path, parts, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts:
            archive.writestr(name, content)
    return path


def test_arrays_of_objects_run_no_code(tmp_path):
    with pytest.raises(DataError, match="is a pickle and could run code; it is not loaded"):
        np.save(tmp_path / "a.npy", np.array([Bomb(), 1], object), allow_pickle=True)
        read_npy(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", inputs=np.array([Bomb(), 1], object))
    refuses(r"inputs.npy: an array of Python objects", tmp_path / "b.npz")


def test_headers_cannot_claim_more_than_the_file_holds(tmp_path):
    path = tmp_path / "a.npy"
    for shape in ((2**40, 2**10), (3, 3), (-1, 4), (-2, -2)):
        path.write_bytes(header(shape) + b"1234")
        with pytest.raises(DataError, match="holds 4 bytes of values, but its header claims"):
            read_npy(path)
    path.write_bytes(header((2, 2), version=(2, 0)) + b"1234")
    assert read_npy(path).tolist() == [[49, 50], [51, 52]]


def test_bombs_are_not_expanded(tmp_path, monkeypatch):
    zeros = header((2**22,)) + bytes(2**22)
    monkeypatch.setattr(arrays_module, "UNSUSPICIOUS_BYTES", 2**20)
    path = zipped(tmp_path / "bomb.npz", [("inputs.npy", zeros)])
    with pytest.raises(
        DataError, match=r"that expand to 41\d+, more than 200 times as many.*np.savez instead"
    ):
        read_npz(path)
    assert read_npz(zipped(tmp_path / "plain.npz", [("inputs.npy", zeros)], zipfile.ZIP_STORED))[
        "inputs"
    ].size
    monkeypatch.setattr(arrays_module, "LARGEST_ARRAYS", 2**21)
    with pytest.raises(DataError, match=r"its arrays take .* bytes; at most 2097152"):
        read_npz(path)
    with pytest.raises(DataError, match=r"plain.npz: .* bytes; at most 2097152 are read"):
        read_npz(tmp_path / "plain.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable .npy file"),
        (b"no array", "not a readable .npy file"),
        (npy.magic(3, 0) + struct.pack("<I", 10) + b"x" * 10, r"version \(3, 0\) of the format"),
        (header((4,), "<c8") + bytes(32), "of type complex64; integers, bools or floats"),
        (header((1,), [("a", "<i4")]) + bytes(4), "integers, bools or floats are needed"),
        (header((4,))[:-5], "not a readable .npy file"),
    ],
)
def test_damaged_arrays_are_refused(tmp_path, content, message):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_npy(tmp_path / "a.npy")
    zipped(tmp_path / "a.npz", [("inputs.npy", content)])
    with pytest.raises(DataError, match=message.replace(".npy", ".npz")):
        read_npz(tmp_path / "a.npz")


def test_damaged_archives_are_refused(tmp_path):
    path = tmp_path / "mine.npz"
    saved(path, **GOOD)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:60] + b"\xff" * 20 + whole[80:], b""):
        path.write_bytes(damaged)
        refuses("mine.npz", path)
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped(path, [("inputs.npy", header((1,)) + b"1")] * 2)
    refuses("two arrays of the same name", path)


def test_names_and_folders_may_be_paths_or_strings(tmp_path, module):
    path = tmp_path / "mine.npz"
    np.savez(path, **GOOD)
    assert np.array_equal(load_dataset(path).train.inputs, load_dataset(str(path)).train.inputs)
    found = [load_dataset(f"{module}:folder", where) for where in (tmp_path, str(tmp_path))]
    assert np.array_equal(found[0].train.inputs, found[1].train.inputs)


def test_missing_and_foreign_files_are_refused(tmp_path):
    refuses("absent.npz: no such file or folder", tmp_path / "absent.npz")
    refuses("no such file or folder", "/" + "long" * 1000)
    refuses("no data set named", "long" * 1000, OptionError)
    (tmp_path / "mine.csv").write_text("1,2")
    refuses(
        "mine.csv: not a file of data that is read here. Your own data can be a .npz", tmp_path / "mine.csv"
    )
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match="not a file"):
        read_npz(tmp_path / "folder.npz")
    refuses("drop --data-dir", saved(tmp_path / "m.npz", **GOOD), OptionError, tmp_path)


# ---- folders ----------------------------------------------------------------------------------


def write_pictures(folder, count=4, size=(6, 5), mode="L"):
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            shape = (*size, 3) if mode == "RGB" else size
            pixels = np.full(shape, 10 * label + index, np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")


def test_pictures_by_class_are_read(tmp_path):
    write_pictures(tmp_path / "train")
    write_pictures(tmp_path / "val", 2)
    (tmp_path / "train" / "cat" / ".hidden.png").write_text("no picture")
    (tmp_path / "train" / "cat" / "notes.txt").write_text("no picture")
    dataset = load_dataset(str(tmp_path))
    assert dataset.name == tmp_path.name and dataset.class_names == ("cat", "dog")
    assert dataset.input_format.shape == (1, 6, 5) and dataset.train.labels.tolist() == [0, 1] * 4
    assert dataset.train.inputs[:, 0, 0, 0].tolist() == [0, 10, 1, 11, 2, 12, 3, 13]
    assert len(dataset.test) == 4


def test_gray_and_color_become_color(tmp_path):
    write_pictures(tmp_path)
    Image.fromarray(np.full((6, 5, 3), (1, 2, 3), np.uint8)).save(tmp_path / "dog" / "0.png")
    dataset = load_dataset(str(tmp_path))
    assert dataset.input_format.shape == (3, 6, 5)
    pixels = np.concatenate([dataset.train.inputs, dataset.test.inputs])[:, :, 0, 0].tolist()
    assert [1, 2, 3] in pixels and [10, 10, 10] not in pixels and [11, 11, 11] in pixels


@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_recordings_by_class_are_read_as_tonic_and_spikingjelly_write_them(tmp_path, ending):
    frames = RANDOM.integers(0, 3, (6, 4, 2, 5, 5)).astype(np.int16)
    for index, sample in enumerate(frames):
        folder = tmp_path / f"gesture{index % 2}"
        folder.mkdir(exist_ok=True)
        if ending == "npy":
            np.save(folder / f"{index}.npy", sample)
        else:
            np.savez(folder / f"{index}.npz", frames=sample)
    dataset = load_dataset(str(tmp_path))
    assert dataset.frames == 4 and dataset.input_format.shape == (2, 5, 5)
    found = np.concatenate([dataset.train.inputs, dataset.test.inputs])
    assert sorted(map(tuple, found.reshape(6, -1))) == sorted(map(tuple, frames.reshape(6, -1)))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: Image.new("L", (9, 9)).save(f / "dog" / "1.png"), r"all samples need one shape"),
        (lambda f: (f / "dog" / "1.png").write_bytes(b"none"), r"1.png: not a readable picture"),
        (lambda f: Image.new("I;16", (5, 6)).save(f / "dog" / "1.png"), "mode I;16; convert it"),
        (lambda f: np.save(f / "dog" / "1.npy", BYTES), "both pictures and recordings"),
    ],
)
def test_wrong_pictures_are_refused(tmp_path, spoil, message):
    write_pictures(tmp_path)
    spoil(tmp_path)
    refuses(message, tmp_path)


def test_wrong_folders_are_refused(tmp_path, monkeypatch):
    refuses("has no sub-folders; put the pictures of each class", tmp_path)
    (tmp_path / "cat").mkdir()
    refuses("has no files .png", tmp_path)
    np.savez(tmp_path / "cat" / "1.npz", events=BYTES)
    refuses("holds events; a recording needs `frames`", tmp_path)
    (tmp_path / "cat" / "1.npz").unlink()
    Image.new("L", (9, 9)).save(tmp_path / "cat" / "1.png")
    monkeypatch.setattr("mpbn_deploy.data.own_files.MAX_PIXELS", 80)
    refuses("9 x 9 pixels; at most 80 are read", tmp_path)
    monkeypatch.setattr("mpbn_deploy.data.own_files.MAX_PIXELS", 81)
    monkeypatch.setattr("mpbn_deploy.data.own_files.LARGEST_ARRAYS", 80)
    refuses("its samples take 81 bytes; at most 80", tmp_path)


# ---- functions --------------------------------------------------------------------------------

MODULE = """
import sys
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
x = np.arange(20 * 16).reshape(20, 1, 4, 4) % 200
y = np.arange(20) % 4
items = TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
class Pairs(Dataset):
    def __len__(self): return 20
    def __getitem__(self, i): return x[i], int(y[i])
class Ragged(Pairs):
    def __getitem__(self, i): return x[i, :, : 2 + i % 2], 0
class Single(Pairs):
    def __getitem__(self, i): return x[i]
def mapping(): return {"inputs": x, "labels": y}
def arrays(): return x, y
def tensors(): return torch.tensor(x), torch.tensor(y)
def dataset(): return items
def pairs(): return Pairs()
def parts(): return Subset(items, range(12)), Subset(items, range(12, 20))
def keras(): return (x[:12], y[:12]), (x[12:], y[12:])
def folder(path): return x + 0 * len(str(path)), y
def unlabelled(): return x
def three(): return x, y, y
def loader(): return DataLoader(items)
def iterator(): return iter([1])
def ragged(): return Ragged()
def single(): return Single()
def nothing(): return Subset(items, [])
def fails(): raise RuntimeError("no disk")
def stops(): sys.exit(3)
constant = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_samples.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_samples", raising=False)
    return "own_samples"


@pytest.mark.parametrize("name", ["mapping", "arrays", "tensors", "dataset", "pairs", "parts", "keras"])
def test_functions_give_arrays_or_datasets(module, name):
    dataset = load_dataset(f"{module}:{name}")
    expected = np.arange(20 * 16).reshape(20, 16) % 200
    found = np.concatenate([dataset.train.inputs, dataset.test.inputs]).reshape(20, 16)
    if name in ("parts", "keras"):
        assert np.array_equal(found, expected) and len(dataset.test) == 8
    assert sorted(map(tuple, found)) == sorted(map(tuple, expected))
    assert dataset.name == f"{module}:{name}" and len(dataset.class_names) == 4


def test_a_function_gets_the_folder(module, tmp_path):
    assert len(load_dataset(f"{module}:folder", tmp_path).train) == 16
    refuses("missing 1 required positional argument", f"{module}:folder", OptionError)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("unlabelled", DataError, "the train inputs have no labels"),
        ("three", DataError, r"returned 3 objects; two are needed"),
        ("loader", DataError, "returned a DataLoader; .* Of a DataLoader, return its dataset"),
        ("iterator", DataError, "returned a list_iterator"),
        ("ragged", DataError, r"item 1: shape \(1, 3, 4\), but .*item 0 has \(1, 2, 4\)"),
        ("single", DataError, r"item 0 is a ndarray; \(input, label\) is needed"),
        ("nothing", DataError, "the Dataset is empty"),
        ("fails", OptionError, "failed: RuntimeError: no disk"),
        ("stops", OptionError, "failed: SystemExit: 3"),
        ("constant", OptionError, "is an int, which cannot be called. Name a function or a class"),
        ("absent", OptionError, "cannot be imported"),
    ],
)
def test_wrong_functions_are_refused(module, name, error, message):
    refuses(message, f"{module}:{name}", error)


def test_a_dataset_beyond_the_bound_is_refused(module, monkeypatch):
    monkeypatch.setattr("mpbn_deploy.data.own_files.LARGEST_ARRAYS", 100)
    refuses("take more than 100 bytes", f"{module}:dataset")


# ---- for a network ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "shape", "result", "said"),
    [
        ((1, 8, 8), (1, 8, 8), (1, 8, 8), ""),
        ((4, 64), (64,), (4, 64), ""),
        ((1, 8, 8), (64,), (64,), "flattened to (64,)"),
        ((8, 8), (64,), (64,), "flattened to (64,)"),
        ((64,), (1, 8, 8), (1, 8, 8), "reshaped to (1, 8, 8)"),
        ((8, 8), (1, 8, 8), (1, 8, 8), "reshaped to (1, 8, 8)"),
        ((8, 6, 3), (3, 8, 6), (3, 8, 6), "reordered to (3, 8, 6)"),
        ((4, 2, 3, 3), (18,), (4, 18), "flattened to (4, 18)"),
        ((4, 3, 3, 2), (2, 3, 3), (4, 2, 3, 3), "reordered to (4, 2, 3, 3)"),
        ((4, 5, 5), (1, 5, 5), (4, 1, 5, 5), "reshaped to (4, 1, 5, 5)"),
        ((3, 20), (3, 1, 20), (3, 1, 20), ""),
        ((4, 3, 20), (3, 1, 20), (4, 3, 1, 20), ""),
        ((3, 1, 20), (3, 20), (3, 20), ""),
        ((20, 3), (3, 1, 20), (3, 1, 20), "reordered to (3, 1, 20)"),
    ],
)
def test_samples_become_what_the_network_takes(capsys, sample, shape, result, said):
    values = np.arange(3 * np.prod(sample)).reshape(3, *sample)
    found = arranged("mine", values, shape, 4)
    assert found.shape == (3, *result) and len(found) == 3
    assert np.array_equal(found[1], found[:][1]) and np.array_equal(found[np.array([2, 0])], found[:][[2, 0]])
    assert sorted(found[:].ravel()) == list(range(values.size))
    if "reordered" not in said:
        assert np.array_equal(found[:].ravel(), values.ravel())
    assert said in capsys.readouterr().err


def test_samples_of_other_shapes_are_refused():
    for sample, shape in [((1, 8, 8), (63,)), ((2, 4, 8), (4, 2, 8)), ((64,), (2, 8, 8))]:
        with pytest.raises(DataError, match="mine: samples have shape"):
            arranged("mine", np.zeros((1, *sample)), shape, 4)
    with pytest.raises(
        DataError, match=r"samples have 5 frames; the network runs 4 time steps. .*--timesteps 5"
    ):
        arranged("mine", np.zeros((1, 5, 64)), (64,), 4)


def test_samples_are_chosen_for_a_network(tmp_path, capsys):
    network = int_chain()
    shape, allowed = network.input.shape, network.input_range
    inputs = RANDOM.integers(allowed.minimum, allowed.maximum + 1, (10, *shape))
    np.save(tmp_path / "only.npy", inputs)
    found = choose_samples(network, 100_000, str(tmp_path / "only.npy"), None)
    assert np.array_equal(found.inputs, inputs) and found.labels is None and found.test is None
    assert "--samples 100000, but only.npy has 10 test samples; all 10 are used" in capsys.readouterr().err
    path = saved(tmp_path / "test.npz", test_inputs=inputs, test_labels=np.zeros(10, int))
    found = choose_samples(network, 3, path, None)
    assert len(found.inputs) == 3 and len(found.test) == 10 and not found.random
    outputs = network.layers[-1].size
    path = saved(tmp_path / "test.npz", test_inputs=inputs, test_labels=np.full(10, outputs))
    with pytest.raises(DataError, match=f"label {outputs}; the network has {outputs} outputs"):
        choose_samples(network, 3, path, None)
    path = saved(tmp_path / "test.npz", test_inputs=inputs + allowed.maximum + 1)
    with pytest.raises(DataError, match=r"the network takes .*Give raw values of that range"):
        choose_samples(network, 3, path, None)
    capsys.readouterr()
    path = saved(tmp_path / "test.npz", test_inputs=inputs // 4)
    choose_samples(network, 3, path, None)
    assert "a small part of what the network takes" in capsys.readouterr().err
    choose_samples(network, 3, saved(tmp_path / "test.npz", test_inputs=inputs), None)
    assert "small part" not in capsys.readouterr().err
    assert choose_samples(network, 3, None, None).random
    assert "inputs are random, and so are firing rates, energy and time" in capsys.readouterr().err


def test_events_are_not_frames(tmp_path, monkeypatch):
    kinds = "dict(names=['x', 'y', 't', 'p'], formats=[int] * 4)"
    (tmp_path / "of_events.py").write_text(
        f"import numpy as np\ndef build():\n    return np.zeros((9, 5), dtype={kinds}), np.zeros(9, int)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    refuses(r"are events \(x, y, t, p\); frames are needed", "of_events:build")
