"""Read mutated files, one after the other: python fuzz_worker.py FOLDER FIRST_SEED COUNT KIND...

Prints a line per file: its kind and seed before it is read, then `read`, `rejected`, or `failed` and why. A
reader must return or raise a DeployError, and may take a gigabyte. Who started this process watches the time.
"""

import io
import json
import pickle
import resource
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import nir_graphs
from networks import int_chain, int_loop, int_residual

from mpbn_deploy.base import DeployError, hdf5
from mpbn_deploy.checkpoint import load_model
from mpbn_deploy.checkpoint.safe_reading import read_safely, read_safetensors, safetensors_bytes
from mpbn_deploy.data.own import read_own
from mpbn_deploy.data.reading import read_plain_pickle
from mpbn_deploy.formats.folder import FORMAT, VERSION, read_manifest, seal
from mpbn_deploy.formats.netx import read_netx, write_netx
from mpbn_deploy.formats.nir import read_nir, write_nir
from mpbn_deploy.hardware import load_profile

GIGABYTE = 2**30
SECONDS = 2.0  # for an HDF5 file, instead of ten
TESTS = Path(__file__).parents[1]
NUMBERS = [0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**24, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - 16]
WORDS = [
    b"0",
    b"-1",
    b"1e400",
    b"99999999999999999999",
    b"[" * 2000,
    b"{}",
    b"null",
    b'"',
    b"\x00",
    b"\x1b[2J",
]


def originals(kind, folder):
    """Return small good files of a kind."""
    path = folder / "original"
    if kind == "netx":
        for network in (int_chain(), int_residual(delay=1), int_loop()):
            write_netx(network, path)
            yield path.read_bytes()
    elif kind == "nir":
        for network in (nir_graphs.conv_chain(), nir_graphs.long_loop(), int_residual()):
            write_nir(network, path)
            yield path.read_bytes()
    elif kind == "checkpoint":
        yield (TESTS / "golden" / "model.pt").read_bytes()
        torch.save({"weight": torch.ones(2, 3), "more": [1, "two", (3.0, None)]}, path)
        yield path.read_bytes()
    elif kind == "safetensors":
        content = read_safely(TESTS / "golden" / "model.pt")
        yield safetensors_bytes(content)
    elif kind == "manifest":
        files = dict.fromkeys(
            ("network.nir", "network.net", "fit.json", "verify.json", "report.html"), "0" * 64
        )
        manifest = {"format": FORMAT, "version": VERSION, "files": files, "target": {"name": "loihi2"}}
        manifest |= {
            "data": "digits",
            "model": {"name": "model.pt"},
            "class_names": ["a", "b"],
            "scales": {"a": [1.0, 2.5]},
        }
        yield repr({**manifest, "sha256": seal(manifest)}).replace("'", '"').encode()
    elif kind == "profile":
        yield (TESTS / "toy_chip.toml").read_bytes()
    elif kind == "arrays":
        arrays = {"inputs": np.arange(64).reshape(4, 16) % 9, "labels": np.array([0, 1, 0, 1])}
        np.savez(path.with_suffix(".npz"), **arrays)
        yield path.with_suffix(".npz").read_bytes()
    else:
        batch = {"data": np.zeros((2, 8), np.uint8), "labels": [0, 1], "batch_label": "one"}
        for protocol in (0, 2, 4):
            yield pickle.dumps(batch, protocol)


def read(kind, path):
    """Read a file as commands do."""
    if kind == "manifest":
        (path.parent / "manifest.json").write_bytes(sealed_again(path.read_bytes()))
        return read_manifest(path.parent)
    readers = {
        "netx": lambda: read_netx(path),
        "nir": lambda: read_nir(path, timesteps=2),
        "checkpoint": lambda: load_model(path),
        "safetensors": lambda: read_safetensors(path),
        "profile": lambda: load_profile(path),
        "arrays": lambda: read_own(str(path), None),
        "pickle": lambda: read_plain_pickle(path),
    }
    return readers[kind]()


def sealed_again(content):
    """Return a manifest with the right hash of its own, as an attacker would write it."""
    try:
        manifest = json.loads(content)
        return json.dumps({**manifest, "sha256": seal(manifest)}).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return content


SUFFIXES = {"profile": ".toml", "arrays": ".npz", "checkpoint": ".pt", "safetensors": ".safetensors"}
KINDS = ("netx", "nir", "checkpoint", "safetensors", "manifest", "profile", "arrays", "pickle")


def mutated(content, random):
    """Return a file with a few changes; parts of a zip archive are changed inside, so that it stays whole."""
    if content[:2] == b"PK" and random.random() < 0.7:
        return rezipped(content, random)
    content = bytearray(content)
    for _ in range(random.geometric(0.6)):
        content = CHANGES[random.integers(len(CHANGES))](content, random)
    return bytes(content)


def rezipped(content, random):
    with zipfile.ZipFile(io.BytesIO(content)) as archive, io.BytesIO() as file:
        parts = archive.infolist()
        chosen = random.integers(len(parts))
        with zipfile.ZipFile(file, "w") as copy:
            for index, part in enumerate(parts):
                inside = archive.read(part)
                copy.writestr(part.filename, mutated(inside, random) if index == chosen else inside)
        return file.getvalue()


def place(content, random, size=1):
    return int(random.integers(max(1, len(content) - size)))


def flip(content, random):
    if content:
        content[place(content, random)] ^= 1 << random.integers(8)
    return content


def number(content, random):
    size = int(random.choice([1, 2, 4, 8]))
    value = NUMBERS[random.integers(len(NUMBERS))] % 256**size
    start = place(content, random, size)
    content[start : start + size] = value.to_bytes(size, "little")
    return content


def word(content, random):
    start = place(content, random)
    content[start : start + int(random.integers(4))] = WORDS[random.integers(len(WORDS))]
    return content


def cut(content, random):
    return content[: place(content, random)]


def drop(content, random):
    start = place(content, random)
    del content[start : start + int(random.integers(1, 64))]
    return content


def repeat(content, random):
    start, size = place(content, random), int(random.integers(1, 64))
    content[start:start] = content[start : start + size] * int(random.choice([1, 2, 50]))
    return content


def copy_elsewhere(content, random):
    start, to, size = place(content, random), place(content, random), int(random.integers(1, 64))
    content[to : to + size] = content[start : start + size]
    return content


CHANGES = (flip, flip, flip, number, number, word, cut, drop, repeat, copy_elsewhere)


def outcome(kind, path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read(kind, path)
        word = "read"
    except DeployError as error:
        word = "rejected" if len(str(error)) < 100_000 else "failed message of 100 kB"
    except BaseException as error:
        word = f"failed {type(error).__name__}: {str(error)[:200]!r}"
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 > GIGABYTE:
        word = "failed more than a gigabyte"
    return word


def main(folder, first, count, kinds):
    hdf5.SECONDS = SECONDS
    for kind in kinds:
        good = list(originals(kind, folder))
        for seed in range(first, first + count):
            random = np.random.default_rng(seed)
            path = folder / f"{kind}{SUFFIXES.get(kind, '')}"
            path.write_bytes(mutated(good[random.integers(len(good))], random))
            print(kind, seed, end=" ", flush=True)
            print(outcome(kind, path), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
