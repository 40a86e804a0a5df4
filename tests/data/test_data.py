"""Readers of data sets, on tiny files that the tests write in the layouts of the real ones."""

import gzip
import os
import pickle
import struct
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mpbn_deploy.base import DataError, MissingPackageError, OptionError, pickle_check
from mpbn_deploy.data import DATASETS, images as imagenet, images as mnist, load_dataset, reading, recordings
from mpbn_deploy.data.recordings import CLASS_NAMES, read_recording


def random_bytes(*shape, seed=0, below=256):
    return np.random.default_rng(seed).integers(0, below, shape, dtype=np.uint8)


def refuses(message, name, folder):
    with pytest.raises(DataError, match=message):
        load_dataset(name, folder)


def test_importing_data_imports_no_heavy_library():
    code = "import sys, mpbn_deploy.data; print([m for m in ('PIL', 'sklearn', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits", "digits-rows", "fashion-mnist"}))
def test_a_missing_data_set_says_where_it_comes_from_and_what_to_type(name, tmp_path, monkeypatch):
    monkeypatch.setattr("mpbn_deploy.data.recordings.find_spec", lambda package: None)
    typed = "Get the data set from .*--data-dir FOLDER"
    refuses(rf"{name}: .* not found \(no folder was given\).*{typed}", name, None)
    refuses(rf"not found \(looked in {tmp_path} and its sub-folders .*{typed}", name, tmp_path)
    refuses(rf"not found \({tmp_path}/absent is not a folder\).*{typed}", name, tmp_path / "absent")
    refuses("not found", name, tmp_path / ("long" * 1000))


def test_digits_are_those_that_scikit_learn_loads(monkeypatch):
    from sklearn.datasets import load_digits

    theirs, ours = load_digits(), load_dataset("digits")
    order = np.random.default_rng(0).permutation(len(theirs.target))
    for split, part in ((ours.test, order[:360]), (ours.train, order[360:])):
        np.testing.assert_array_equal(split.inputs[:, 0], theirs.images[part])
        np.testing.assert_array_equal(split.labels, theirs.target[part])
    assert ours.class_names == tuple(map(str, theirs.target_names))
    monkeypatch.setattr("mpbn_deploy.data.images.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="digits: scikit-learn is not installed; pip install"):
        load_dataset("digits")


def test_digits_come_row_by_row():
    digits, rows = load_dataset("digits"), load_dataset("digits-rows")
    assert rows.frames == 8 and rows.input_format.shape == (8,)
    for whole, split in ((digits.train, rows.train), (digits.test, rows.test)):
        np.testing.assert_array_equal(whole.inputs[:, 0], split.inputs)
        np.testing.assert_array_equal(whole.labels, split.labels)
    with pytest.raises(OptionError, match="digits: the data set ships with scikit-learn"):
        load_dataset("digits-rows", Path("somewhere"))


@pytest.mark.skipif(find_spec("aeon") is None, reason="aeon is not installed")
@pytest.mark.parametrize(
    ("name", "stem", "classes"),
    [("japanese-vowels", "JapaneseVowels", 9), ("basic-motions", "BasicMotions", 4)],
)
def test_recordings_of_aeon_are_frames_or_signals(name, stem, classes):
    found, data = load_dataset(name), Path(find_spec("aeon").origin).parent / "datasets" / "data"
    for split, part in ((found.train, "TRAIN"), (found.test, "TEST")):
        lines = (data / stem / f"{stem}_{part}.ts").read_text().split("@data\n")[1].splitlines()
        labels = [line.rsplit(":")[-1] for line in lines]
        assert len(set(zip(labels, split.labels.tolist(), strict=True))) == len(found.class_names) == classes
        given = found.input_format
        assert given.minimum <= np.min(split.inputs) < np.max(split.inputs) <= given.maximum
        first = np.array(lines[0].split(":")[0].split(","), float)  # one channel
        ours = split.inputs[0][: len(first), 0] if found.frames else split.inputs[0][0]
        assert np.corrcoef(first, ours)[0, 1] > 0.9
    assert given.shape == ((12,) if found.frames else (6, 100))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2:3,x:Running", "recording 1 is damaged"),
        ("1,2:3,4:Flying", "recording 1 is damaged"),
        ("1,2:3,4:Running", "recording 1 is not 6 channels of up to 100 frames"),
        ("nan:1:1:1:1:1:Running", "holds no recordings, or numbers that are not finite"),
    ],
)
def test_damaged_lines_of_recordings_are_refused(tmp_path, line, message):
    for part in ("TRAIN", "TEST"):
        (tmp_path / f"BasicMotions_{part}.ts").write_text(f"@data\n{line}\n")
    refuses(message, "basic-motions", tmp_path)


def test_without_a_folder_fashion_mnist_is_looked_for_where_debian_puts_it(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    assert mnist.FASHION_MNIST.default == Path("/usr/share/datasets/fashion-mnist")
    monkeypatch.setattr(mnist, "FASHION_MNIST", replace(mnist.FASHION_MNIST, default=tmp_path))
    assert len(load_dataset("fashion-mnist").train) == 5
    monkeypatch.setattr(mnist, "FASHION_MNIST", replace(mnist.FASHION_MNIST, default=tmp_path / "absent"))
    refuses("apt-get install dataset-fashion-mnist", "fashion-mnist", None)


# ---- idx files --------------------------------------------------------------------------------


def idx_bytes(values, magic=b"\0\0\x08", sizes=None):
    sizes = values.shape if sizes is None else sizes
    return magic + bytes([len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + values.tobytes()


def write_mnist(folder, dot="-", pack=None):
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for seed, (split, count) in enumerate([("train", 5), ("t10k", 3)]):
        written[split] = random_bytes(count, 28, 28, seed=seed), random_bytes(count, seed=seed, below=10)
        for kind, dimensions, values in zip(("images", "labels"), (3, 1), written[split], strict=True):
            path = folder / f"{split}-{kind}{dot}idx{dimensions}-ubyte{'.gz' if pack else ''}"
            path.write_bytes((pack or bytes)(idx_bytes(values)))
    return written


@pytest.mark.parametrize(
    ("name", "subfolder", "dot", "pack"),
    [
        ("mnist", "", "-", None),
        ("mnist", "MNIST/raw", ".", gzip.compress),
        ("fashion-mnist", "FashionMNIST/raw", ".", None),
        ("fashion-mnist", "fashion-mnist", "-", gzip.compress),
    ],
)
def test_idx_files_are_read_plain_or_compressed(tmp_path, name, subfolder, dot, pack):
    written = write_mnist(tmp_path / subfolder, dot, pack)
    dataset = load_dataset(name, tmp_path)
    for split, key in ((dataset.train, "train"), (dataset.test, "t10k")):
        images, labels = written[key]
        assert split.inputs.dtype == np.uint8 and not split.inputs.flags.writeable
        assert np.array_equal(split.inputs, images[:, None]) and np.array_equal(split.labels, labels)
    assert dataset.input_format.shape == (1, 28, 28) and len(dataset.class_names) == 10
    assert (dataset.name, dataset.frames, dataset.augmentation) == (name, None, "none")
    mean = {"mnist": 0.1307, "fashion-mnist": 0.2860}[name]
    assert dataset.input_format.mean.tolist() == [255 * mean]


IMAGES = random_bytes(5, 28, 28)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx_bytes(IMAGES, magic=b"\0\0\x0d"), "starts with 00000d03; an idx file .* 00000803"),
        (b"\0\0\x08\x03\0\0", "starts with 00000803; an idx file"),
        (idx_bytes(IMAGES, sizes=(5, 14, 56)), r"claims sizes \(5, 14, 56\)"),
        (idx_bytes(IMAGES, sizes=(0, 28, 28)), r"claims sizes \(0, 28, 28\)"),
        (idx_bytes(IMAGES, sizes=(10**9, 28, 28)), r"claims sizes \(1000000000, 28, 28\)"),
        (idx_bytes(IMAGES, sizes=(10**6, 28, 28)), "holds 3920 bytes, but its header claims 784000000"),
        (idx_bytes(IMAGES)[:-1], "holds 3919 bytes, but its header claims 3920"),
        (idx_bytes(IMAGES) + b"\0", "holds more bytes"),
        (idx_bytes(IMAGES[:4]), "train-labels-idx1-ubyte: 5 labels for 4 images"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path, content, message):
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    refuses(message, "mnist", tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda packed: packed[:-9], "damaged or truncated"),
        (lambda packed: packed[:1000] + bytes(20) + packed[1020:], "damaged or truncated"),
        (lambda packed: packed[:10] + b"\xff" * 20 + packed[30:], "damaged or truncated"),
        (lambda packed: b"no gzip" + packed, "damaged or truncated"),
        # a bomb: 64 MB of zeros behind the images are never unpacked
        (lambda _: gzip.compress(idx_bytes(IMAGES) + bytes(2**26), 1), "holds more bytes"),
    ],
)
def test_damaged_compressed_files_are_refused(tmp_path, damage, message):
    write_mnist(tmp_path, pack=gzip.compress)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    refuses(message, "mnist", tmp_path)


def test_wrong_labels_and_incomplete_data_sets_are_refused(tmp_path):
    write_mnist(tmp_path)
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(np.array([3, 10, 11], np.uint8)))
    refuses(
        r"t10k-labels-idx1-ubyte: label 10 \(2 of 3 labels are invalid\); allowed are 0..9", "mnist", tmp_path
    )
    labels.unlink()
    refuses("t10k-labels-idx1-ubyte: no such file; the data set is incomplete", "mnist", tmp_path)


def test_files_beyond_the_bound_or_not_readable_are_refused(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", lambda path: os.rmdir(path))  # noqa: PTH106  raises OSError
    refuses("train-images-idx3-ubyte: cannot be read", "mnist", tmp_path)
    monkeypatch.setattr(reading, "LARGEST_FILE", 100)
    refuses("3936 bytes; at most 100 are read", "mnist", tmp_path)


# ---- CIFAR ------------------------------------------------------------------------------------

NAMES10 = list(CLASS_NAMES)
NAMES100 = [f"class {number}" for number in range(100)]
TRAIN10 = [f"data_batch_{number}" for number in range(1, 6)]


def cifar_parts(names, classes):
    """Two records for each file."""
    return {
        name: (random_bytes(2, 3072, seed=seed), random_bytes(2, seed=seed, below=classes))
        for seed, name in enumerate(names)
    }


def write_binary10(folder):
    folder.mkdir(parents=True, exist_ok=True)
    parts = cifar_parts([*TRAIN10, "test_batch"], 10)
    for name, (pixels, labels) in parts.items():
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], pixels], 1).tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(NAMES10) + "\n\n")
    return parts


def write_binary100(folder):
    folder.mkdir(parents=True, exist_ok=True)
    parts = cifar_parts(["train", "test"], 100)
    for name, (pixels, labels) in parts.items():
        coarse = np.full((2, 1), 200, np.uint8)  # not looked at
        (folder / f"{name}.bin").write_bytes(np.concatenate([coarse, labels[:, None], pixels], 1).tobytes())
    (folder / "fine_label_names.txt").write_text("\n".join(NAMES100) + "\n")
    return parts


def write_pickles(folder, parts, label_key, meta, names_key, names, dumps):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (pixels, labels) in parts.items():
        (folder / name).write_bytes(dumps({"data": pixels, label_key: labels.tolist()}))
    (folder / meta).write_bytes(dumps({names_key: names}))
    return parts


def write_pickles10(folder, dumps):
    parts = cifar_parts([*TRAIN10, "test_batch"], 10)
    return write_pickles(folder, parts, "labels", "batches.meta", "label_names", NAMES10, dumps)


def write_pickles100(folder, dumps):
    parts = cifar_parts(["train", "test"], 100)
    return write_pickles(folder, parts, "fine_labels", "meta", "fine_label_names", NAMES100, dumps)


def python2_pickle(value, kind=b"u1", shape=None, fortran=False):
    """As cPickle of Python 2 wrote the files of the web page: protocol 2, strings of bytes."""
    return b"\x80\x02" + python2_opcodes(value, kind, shape, fortran) + b"."


def python2_opcodes(value, *options):
    match value:
        case dict():
            items = [python2_opcodes(part, *options) for pair in value.items() for part in pair]
            return b"}(" + b"".join(items) + b"u"
        case list():
            return b"](" + b"".join(python2_opcodes(item, *options) for item in value) + b"e"
        case int():
            return b"J" + struct.pack("<i", value)
        case str():
            return b"U" + bytes([len(value)]) + value.encode()
        case np.ndarray():
            return python2_array(value, *options)


def python2_array(array, kind, shape, fortran):
    sizes = b"".join(b"J" + struct.pack("<i", size) for size in shape or array.shape)
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    type_ = b"cnumpy\ndtype\nU" + bytes([len(kind)]) + kind + b"K\x00K\x01\x87R"
    type_ += b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    content = array.tobytes(order="F" if fortran else "C")
    raw = b"T" + struct.pack("<i", len(content)) + content
    return made + b"(K\x01(" + sizes + b"t" + type_ + (b"\x88" if fortran else b"\x89") + raw + b"tb"


def fortran_pickle(value):
    return python2_pickle(value, fortran=True)


def python3_pickle(protocol):
    return lambda value: pickle.dumps(value, protocol)


PICKLERS = [python2_pickle, fortran_pickle, *map(python3_pickle, range(6))]


def assert_cifar(dataset, parts, train_names, test_name, names):
    for split, files in ((dataset.train, train_names), (dataset.test, [test_name])):
        pixels = np.concatenate([parts[file][0] for file in files]).reshape(-1, 3, 32, 32)
        assert split.inputs.dtype == np.uint8 and not split.inputs.flags.writeable
        assert np.array_equal(split.inputs, pixels)
        assert split.labels.tolist() == [int(label) for file in files for label in parts[file][1]]
    assert dataset.class_names == tuple(names) and dataset.frames is None
    assert dataset.augmentation == "crop-flip-cutout" and dataset.input_format.shape == (3, 32, 32)


@pytest.mark.parametrize("subfolder", ["", "cifar-10-batches-bin"])
def test_cifar10_in_its_binary_layout(tmp_path, subfolder):
    parts = write_binary10(tmp_path / subfolder)
    dataset = load_dataset("cifar10", tmp_path)
    assert_cifar(dataset, parts, TRAIN10, "test_batch", NAMES10)
    assert dataset.input_format.mean.tolist() == [255 * mean for mean in (0.4914, 0.4822, 0.4465)]
    assert dataset.input_format.deviation.tolist() == [255 * part for part in (0.2023, 0.1994, 0.2010)]


@pytest.mark.parametrize("subfolder", ["", "cifar-100-binary"])
def test_cifar100_in_its_binary_layout_takes_the_fine_label(tmp_path, subfolder):
    parts = write_binary100(tmp_path / subfolder)
    assert_cifar(load_dataset("cifar100", tmp_path), parts, ["train"], "test", NAMES100)


@pytest.mark.parametrize("dumps", PICKLERS)
def test_cifar_in_its_python_layout(tmp_path, dumps):
    parts = write_pickles10(tmp_path / "cifar-10-batches-py", dumps)
    assert_cifar(load_dataset("cifar10", tmp_path), parts, TRAIN10, "test_batch", NAMES10)
    parts = write_pickles100(tmp_path, dumps)
    assert_cifar(load_dataset("cifar100", tmp_path), parts, ["train"], "test", NAMES100)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_3.bin", bytes(3072), "3072 bytes; a multiple of the record size, 3073"),
        ("test_batch.bin", b"", "test_batch.bin: 0 bytes"),
        (
            "test_batch.bin",
            b"\x0a" + bytes(3072),
            r"label 10 \(1 of 1 labels are invalid\); allowed are 0..9",
        ),
        ("batches.meta.txt", b"cat\ndog\n", "2 class names; 10 are needed"),
        ("batches.meta.txt", None, "batches.meta.txt: no such file"),
        ("data_batch_5.bin", None, "data_batch_5.bin: no such file"),
    ],
)
def test_damaged_binary_files_are_refused(tmp_path, name, content, message):
    write_binary10(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refuses(message, "cifar10", tmp_path)


class Hostile:
    """A pickle of this would run a command when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_hostile_pickle_runs_nothing(tmp_path):
    write_pickles10(tmp_path, python2_pickle)
    for protocol in range(6):
        (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": Hostile(tmp_path / "ran")}, protocol))
        refuses(r"test_batch: names posix\.system; only byte arrays", "cifar10", tmp_path)
    assert not (tmp_path / "ran").exists()


PIXELS, LABELS = random_bytes(2, 3072), [3, 4]
RAW_PIXELS = b"T" + struct.pack("<i", PIXELS.size) + PIXELS.tobytes()
NESTED = b"\x80\x02}(N" + b"\x85" * 5000 + b"Nu."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (python2_pickle({"data": PIXELS}, shape=(2**30, 3072)), "claims shape .* but holds 6144 bytes"),
        (python2_pickle({"data": PIXELS}, shape=(-2, -3072)), r"claims shape \(-2, -3072\)"),
        (python2_pickle({"data": PIXELS}, kind=b"f8"), "an array of f8; only bytes"),
        (python2_pickle({"data": PIXELS})[:-9], "not a readable pickle"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".", "not a readable pickle"),  # a terabyte of bytes
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "memo index 2147483647 in a pickle of 9 bytes"),
        (NESTED, "tuples nested more than 8 deep"),
        (b"\x80\x02]q\x00.", "holds a list; a dictionary is needed"),
        (
            b"\x80\x02cnumpy\nndarray\n}U\x01aK\x01sb.",
            "a name where a result is needed",
        ),  # an attribute of numpy.ndarray
        (pickle.dumps({"data": np.zeros(3, "O")}), "an array of O8; only bytes"),
        (python2_pickle({"data": PIXELS}).replace(RAW_PIXELS, b"N"), "an array whose elements are not bytes"),
        (python2_pickle({"data": PIXELS.tolist()}), "'data' is list; an array"),
        (python2_pickle({"data": PIXELS[:, 1:]}), r"'data' is \(2, 3071\); an array"),
        (python2_pickle({"data": PIXELS[:0]}), r"'data' is \(0, 3072\); an array"),
        (python2_pickle({"labels": LABELS}), "'data' is NoneType; an array"),
        (python2_pickle({"data": PIXELS}), "'labels' is not a list of 2"),
        (python2_pickle({"data": PIXELS, "labels": [3]}), "'labels' is not a list of 2"),
        (python2_pickle({"data": PIXELS, "labels": [3, "4"]}), "'labels' is not a list of 2"),
        (pickle.dumps({"data": PIXELS, "labels": [3, 10**30]}), "'labels' is not a list of 2"),
        (python2_pickle({"data": PIXELS, "labels": [3, -1]}), "label -1 "),
    ],
)
def test_damaged_pickles_are_refused(tmp_path, content, message):
    write_pickles10(tmp_path, python2_pickle)
    (tmp_path / "test_batch").write_bytes(content)
    refuses(f"test_batch: .*{message}", "cifar10", tmp_path)


TEXT = b"X\x40\x9c\0\0" + b"a" * 40_000
ENCODE = b"\x80\x02}(U\x01a](c_codecs\nencode\nq\x00"
SHORT_ENCODE = b"h\x00X\x01\0\0\0aX\x06\0\0\0latin1\x86R"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ENCODE + TEXT + b"N\x86q\x01R" + b"h\x00h\x01R" * 9 + b"eu.", "a tuple that is referenced twice"),
        (ENCODE + TEXT + b"q\x02N\x86R" + b"h\x00h\x02N\x86R" * 9 + b"eu.", "a long text that is referenced"),
        (ENCODE + SHORT_ENCODE * 21 + b"eu.", "more than 20 calls"),
        (b"\x80\x04}(U\x01a](" + b"\x8f" * 9 + b"eu.", "opcode EMPTY_SET"),
        (b"\x80\x02}(N" + b"2\x86" * 60 + b"Nu.", "opcode DUP"),
        (
            b"\x80\x02}(N" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60)) + b"Nu.",
            "tuple that is referenced",
        ),
        (pickle.dumps({"data": {1, 2}}), "opcode EMPTY_SET"),
        (
            python2_pickle({"data": PIXELS}, shape=(2**30,) * 9),
            r"claims shape \(\d+(, \d+){5}, \.\.\.\) but holds",
        ),
    ],
)
def test_few_bytes_do_not_fill_memory_or_time(tmp_path, content, message):
    write_pickles10(tmp_path, python2_pickle)
    (tmp_path / "test_batch").write_bytes(content)
    refuses(f"test_batch: .*{message}", "cifar10", tmp_path)


def test_pickles_without_end_are_refused(tmp_path, monkeypatch):
    write_pickles10(tmp_path, python2_pickle)
    monkeypatch.setattr(pickle_check, "MAX_OPCODES", 30)
    refuses(r"more than 30 opcodes; data sets never need that, so it is not loaded", "cifar10", tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [(["cat"], "1 class names; 10"), ([1] * 10, "not a list of strings"), (7, "not a list of strings")],
)
def test_names_in_pickles_are_checked(tmp_path, names, message):
    write_pickles10(tmp_path, python2_pickle)
    (tmp_path / "batches.meta").write_bytes(python2_pickle({"label_names": names}))
    refuses(f"batches.meta: .*{message}", "cifar10", tmp_path)


# ---- CIFAR10-DVS ------------------------------------------------------------------------------

HEADER = b"#!AER-DAT2.0\r\n# This is a raw AE data file - do not edit\r\n"


def aedat(addresses, header=HEADER):
    """Addresses as events, a microsecond apart."""
    times = np.arange(len(addresses))
    return header + np.stack([np.asarray(addresses), times], 1).astype(">u4").tobytes()


def address(column, row, channel):
    """What the camera writes for an event that belongs there in the image."""
    return (127 - column) << 8 | (127 - row) << 1 | (1 - channel)


def write_dvs(folder, count=3):
    """Ten events for each recording, whose row is the number of the recording."""
    for label, name in enumerate(CLASS_NAMES):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            content = aedat([address(10 * label, 8 * number, 1)] * 10)
            (folder / name / f"cifar10_{name}_{number}.aedat").write_bytes(content)


@pytest.fixture
def recording(tmp_path):
    """Writes a recording and reads it."""

    def write_and_read(content):
        path = tmp_path / "one.aedat"
        path.write_bytes(content)
        return read_recording(path)

    return write_and_read


def test_events_become_counts_at_their_pixels(recording):
    given = [address(0, 0, 0), address(127, 0, 0), address(0, 127, 1), address(5, 64, 1)] * 10
    read = recording(aedat(given))
    assert read.frames.shape == (10, 2, 48, 48) and read.frames.dtype == np.uint8
    for frame in read.frames:  # each holds four events: row and column are 48/128 of the camera's
        assert np.argwhere(frame).tolist() == [[0, 0, 0], [0, 0, 47], [1, 24, 1], [1, 47, 0]]
        assert frame.sum() == 4
    assert (read.clipped, read.external) == (0, 0)


def test_raw_addresses_are_those_of_the_camera(recording):
    """bits 14-8 are y, 7-1 are x and 0 is polarity; turned: channel 1 - p, row 127 - x, column 127 - y"""
    read = recording(aedat([0x7F00] * 10, header=b""))
    assert np.argwhere(read.frames[0]).tolist() == [[1, 47, 0]]
    read = recording(aedat([0x00FF] * 10))
    assert np.argwhere(read.frames[0]).tolist() == [[0, 0, 47]]


def test_frames_hold_equal_numbers_of_events(recording):
    read = recording(aedat([address(1, 1, 0)] * 57))
    assert read.frames.sum(axis=(1, 2, 3)).tolist() == [6, 6, 6, 5, 6, 6, 5, 6, 6, 5]


def test_clipped_counts_and_external_events_are_counted(recording):
    read = recording(aedat([0x8001, *[address(1, 1, 0)] * 2560, 0xFFFF]))
    assert read.frames.max() == 255 and read.clipped == 10 and read.external == 2


def test_events_agree_with_a_slow_count(recording):
    given = np.random.default_rng(0).integers(0, 2**15, 1234)
    expected = np.zeros((10, 2, 48, 48), int)
    for number, raw in enumerate(given.tolist()):
        x, y, polarity = raw >> 1 & 127, raw >> 8, raw & 1
        row, column = (127 - x) * 48 // 128, (127 - y) * 48 // 128
        expected[number * 10 // 1234, 1 - polarity, row, column] += 1
    assert np.array_equal(recording(aedat(given)).frames, expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (aedat([0] * 10)[:-3], "one.aedat: 77 bytes of events; each event has 8"),
        (HEADER, "one.aedat: 0 events; at least 10"),
        (b"# a header without an end", "0 events"),
        (aedat([0] * 9 + [0x8000] * 5), "9 events; at least 10"),
        (aedat([0] * 10 + [0x10000]), "one.aedat: address 0x10000; .* 0..0xffff"),
        (aedat([0] * 10, header=b"#!AER-DAT3.1\r\n"), "one.aedat: AEDAT 3.1; CIFAR10-DVS is AEDAT 2.0"),
    ],
)
def test_damaged_recordings_are_refused(recording, content, message):
    with pytest.raises(DataError, match=message):
        recording(content)


def test_recordings_without_end_are_refused(recording, monkeypatch):
    assert recordings.LARGEST_RECORDING == 64 * 2**20
    monkeypatch.setattr(recordings, "LARGEST_RECORDING", 100)
    with pytest.raises(DataError, match=r"one\.aedat: \d+ bytes; a recording of CIFAR10-DVS has at most 100"):
        recording(aedat([0] * 10))


@pytest.mark.parametrize("subfolder", ["", "CIFAR10DVS"])
def test_cifar10_dvs_takes_the_last_tenth_of_each_class_to_test_with(tmp_path, subfolder):
    write_dvs(tmp_path / subfolder, count=12)
    dataset = load_dataset("cifar10-dvs", tmp_path)
    assert dataset.train.inputs.shape == (100, 10, 2, 48, 48) and len(dataset.test) == 20
    for split, first in ((dataset.train, 0), (dataset.test, 10)):  # 10 comes after 9, not after 1
        assert split.labels.tolist() == list(range(10)) * (len(split) // 10)
        for sample, (frames, label) in enumerate(zip(split.inputs, split.labels, strict=True)):
            row, column = 8 * (first + sample // 10) * 48 // 128, 10 * label * 48 // 128
            assert np.argwhere(frames[0]).tolist() == [[1, row, column]]
    assert (dataset.frames, dataset.augmentation) == (10, "roll-flip")
    given = dataset.input_format
    assert (given.shape, given.minimum, given.maximum) == ((2, 48, 48), 0, 255)
    assert given.mean.tolist() == [0, 0] and given.deviation.tolist() == [1, 1]


def caches(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_frames_are_converted_once(tmp_path, capfd):
    write_dvs(tmp_path)
    first = load_dataset("cifar10-dvs", tmp_path)
    said = capfd.readouterr().err
    assert "events to frames: 30/30" in said and "0 of 1382400 counts were above 255" in said
    assert isinstance(first.train.inputs, np.memmap) and not first.train.inputs.flags.writeable
    second = load_dataset("cifar10-dvs", tmp_path)
    assert capfd.readouterr().err == "" and len(caches(tmp_path)) == 1
    assert np.array_equal(first.train.inputs, second.train.inputs)


def test_a_stale_or_damaged_cache_is_made_anew(tmp_path, capfd):
    write_dvs(tmp_path)
    load_dataset("cifar10-dvs", tmp_path)
    (before,) = caches(tmp_path)
    (tmp_path / "cat" / "cifar10_cat_0.aedat").write_bytes(aedat([0x8000, *[address(0, 0, 0)] * 3000]))
    capfd.readouterr()
    changed = np.array(load_dataset("cifar10-dvs", tmp_path).train.inputs)  # not the file damaged below
    assert changed[3].sum() == 10 * 255
    said = capfd.readouterr().err
    assert "10 of 1382400 counts were above 255" in said and "1 external events" in said
    (after,) = caches(tmp_path)
    assert after != before
    for damage in (b"", (tmp_path / after).read_bytes()[:-1], b"no array"):
        (tmp_path / after).write_bytes(damage)
        again = load_dataset("cifar10-dvs", tmp_path)
        assert np.array_equal(again.train.inputs, changed)
        del again


def test_a_recording_of_the_same_size_but_another_time_is_converted(tmp_path):
    write_dvs(tmp_path)
    before = np.array(load_dataset("cifar10-dvs", tmp_path).train.inputs)
    path = tmp_path / "cat" / "cifar10_cat_0.aedat"
    time = path.stat().st_mtime_ns
    path.write_bytes(aedat([address(127, 127, 0)] * 10))
    os.utime(path, ns=(time, time + 1))
    after = load_dataset("cifar10-dvs", tmp_path).train.inputs
    assert np.argwhere(after[3, 0]).tolist() == [[0, 47, 47]] and not np.array_equal(before, after)
    assert len(caches(tmp_path)) == 1


def test_two_that_convert_at_the_same_time_both_end_well(tmp_path, capfd, monkeypatch):
    """The second starts and ends while the first writes; on another machine it may have the same id."""
    write_dvs(tmp_path)
    save, seconds = np.save, []

    def save_while_another_does(file, *arguments, **options):
        monkeypatch.setattr(np, "save", save)
        seconds.append(load_dataset("cifar10-dvs", tmp_path))
        save(file, *arguments, **options)

    monkeypatch.setattr(np, "save", save_while_another_does)
    first = load_dataset("cifar10-dvs", tmp_path)
    assert np.array_equal(first.train.inputs, seconds[0].train.inputs)
    assert "not cached" not in capfd.readouterr().err and len(caches(tmp_path)) == 1


def test_a_stale_cache_that_another_process_removed_is_no_fault(tmp_path, capfd, monkeypatch):
    write_dvs(tmp_path)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([self / "gone.npy"]))
    load_dataset("cifar10-dvs", tmp_path)
    assert "not cached" not in capfd.readouterr().err and len(caches(tmp_path)) == 1


def test_where_nothing_can_be_written_frames_stay_in_memory(tmp_path, capfd, monkeypatch):
    write_dvs(tmp_path)
    monkeypatch.setattr(recordings, "CACHE_NAME", "absent/frames")
    dataset = load_dataset("cifar10-dvs", tmp_path)
    assert "frames are not cached" in capfd.readouterr().err and caches(tmp_path) == []
    assert type(dataset.train.inputs) is np.ndarray and dataset.train.inputs.sum() == 20 * 10


def test_incomplete_classes_are_refused(tmp_path):
    write_dvs(tmp_path)
    for path in (tmp_path / "truck").iterdir():
        path.rename(path.with_suffix(".zip"))
    refuses("truck: 0 .aedat files; at least two are needed", "cifar10-dvs", tmp_path)
    for number in range(2):
        (tmp_path / "truck" / f"{number}.aedat").symlink_to(tmp_path / "absent")
    refuses("truck/0.aedat: no such file", "cifar10-dvs", tmp_path)
    (tmp_path / "ship").rename(tmp_path / "boat")
    refuses("ship: cannot be read as a folder", "cifar10-dvs", tmp_path)


# ---- ImageNet ---------------------------------------------------------------------------------

CLASSES = ("n01440764", "n01443537")


def write_imagenet(folder, size=(30, 20)):
    """Three images to train with and one to test with for each class, each of one colour."""
    for split, count in (("train", 3), ("val", 1)):
        for label, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                image = Image.new("RGB", size, (100 * label, 40 * number, 255))
                image.save(folder / split / name / f"{name}_{number}.JPEG", quality=100, subsampling=0)


@pytest.mark.parametrize("subfolder", ["", "imagenet"])
def test_imagenet_is_decoded_when_asked_for(tmp_path, subfolder):
    write_imagenet(tmp_path / subfolder)
    dataset = load_dataset("imagenet", tmp_path)
    images = dataset.train.inputs
    assert len(images) == len(dataset.train) == 6 and images.shape == (6, 3, 256, 256)
    assert dataset.test.inputs[:].shape == dataset.test.inputs.shape == (2, 3, 224, 224)
    assert dataset.train.labels.tolist() == [0, 1, 0, 1, 0, 1]  # in turns
    whole = images[:]
    assert whole.dtype == np.uint8
    seen = whole.astype(int).mean(axis=(2, 3)).round().astype(int)
    expected = [[100 * label, 40 * number, 255] for number in range(3) for label in range(2)]
    assert np.abs(seen - expected).max() <= 2  # JPEG rounds
    for chosen in (4, -1, np.int64(2), slice(1, 5, 2), slice(0), [5, 0], np.array([[1, 1], [3, 2]])):
        assert np.array_equal(images[chosen], whole[chosen])
    assert np.array_equal(images[dataset.train.labels == 1], whole[1::2])
    assert dataset.class_names == CLASSES and dataset.augmentation == "crop-flip" and dataset.frames is None
    assert dataset.input_format.shape == (3, 224, 224)
    assert dataset.input_format.mean.tolist() == [255 * mean for mean in (0.485, 0.456, 0.406)]
    with pytest.raises(IndexError):
        images[6]


def test_the_middle_is_taken_once_the_shorter_side_is_256(tmp_path):
    """Sizes at which Pillow does not resize, so that pixels must stay as they are."""
    pixels = random_bytes(256, 300, 3)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    Image.fromarray(pixels.transpose(1, 0, 2)).save(tmp_path / "high.png")
    wide = imagenet.decode_image(str(tmp_path / "wide.png"), 224)
    assert np.array_equal(wide, pixels[16:240, 38:262].transpose(2, 0, 1))
    high = imagenet.decode_image(str(tmp_path / "high.png"), 256)
    assert np.array_equal(high, pixels[:, 22:278].transpose(2, 1, 0))


def test_gray_images_have_three_channels(tmp_path):
    Image.new("L", (300, 260), 7).save(tmp_path / "gray.png")
    assert np.array_equal(
        imagenet.decode_image(str(tmp_path / "gray.png"), 224), np.full((3, 224, 224), 7, np.uint8)
    )


def bomb(width, height):
    """A PNG that claims a size, with nothing in it."""
    return lambda path: Image.new("1", (width, height)).save(path, "PNG")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-10]), "truncated"),
        (lambda path: path.write_bytes(b"no image"), "cannot identify"),
        (bomb(20_000, 10_000), "exceeds limit"),  # Pillow's own guard
        (bomb(10_000, 9_000), "exceeds limit"),  # where it only warns
        (bomb(10_000, 7_000), "10000 x 7000 gives 70000000 pixels; at most 67108864"),
        (bomb(1, 2_000), "1 x 2000 gives 131072000 pixels"),
    ],
)
def test_damaged_and_huge_images_are_refused_by_name(tmp_path, damage, message):
    write_imagenet(tmp_path)
    damage(tmp_path / "val" / CLASSES[1] / f"{CLASSES[1]}_0.JPEG")
    with pytest.raises(DataError, match=rf"{CLASSES[1]}_0.JPEG: not a readable image .*{message}"):
        load_dataset("imagenet", tmp_path).test.inputs[:2]


def test_classes_must_be_the_same_and_not_empty(tmp_path):
    write_imagenet(tmp_path)
    for split in ("train", "val"):
        (tmp_path / split / "n9").mkdir()
        if split == "train":
            refuses("1 class folders are only in train or only in val, such as n9", "imagenet", tmp_path)
    refuses("n9: has no images", "imagenet", tmp_path)
    (tmp_path / "empty" / "train").mkdir(parents=True)
    (tmp_path / "empty" / "val").mkdir()
    refuses("train: has no class folders", "imagenet", tmp_path / "empty")
