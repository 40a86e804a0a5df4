"""Mutated files of every kind: read, or rejected with one message, within ten seconds and a gigabyte.

They are read in a process of its own, so that a hang or a crash is found and named. The profile `ci` tries
the same few files each time, `dev` others, `long` a hundred thousand. Files that once did harm are kept in
corpus/.
"""

import os
import selectors
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from mpbn_deploy.base import DeployError, hdf5

HERE = Path(__file__).parent
KINDS = ("netx", "nir", "checkpoint", "safetensors", "manifest", "profile", "arrays", "pickle")
ABSENT = "absent"  # a kind that has no reader, so that reading it fails
USUAL, LONG = 60, 12_500  # files of a kind
MOST_SECONDS = 60  # per file; readers end themselves after two or ten, if the machine is not busy
START_SECONDS = 200
CORPUS = sorted((HERE / "corpus").glob("*-*"))


class Watched:
    """A process that reads files, and is killed if it says nothing for too long."""

    def __init__(self, folder, first, count, kinds):
        command = [sys.executable, str(HERE / "fuzz_worker.py"), str(folder), str(first), str(count), *kinds]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = b""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def lines(self):
        """Yield kind, seed and outcome of each file."""
        stream, limit = self.process.stdout, START_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while selector.select(limit):
                if not (more := os.read(stream.fileno(), 2**16)):
                    break
                limit, self.said = MOST_SECONDS, self.said + more
                *whole, self.said = self.said.split(b"\n")
                yield from (line.decode().split(" ", 2) for line in whole)
            else:
                pytest.fail(f"no answer within {limit} s; the file is {self.said.decode()!r}")

    def end(self):
        """Return the exit code and the last words, the file being read among them."""
        err = self.process.communicate()[1].decode()
        return self.process.returncode, self.said.decode() + err[-2000:]


def first_seed():
    return 0 if settings.default.derandomize else int.from_bytes(os.urandom(6), "little")


def files_per_kind():
    return LONG if settings.default.max_examples >= 1000 else USUAL


@pytest.mark.timeout(6 * 3600)
def test_mutated_files_are_read_or_rejected(tmp_path):
    outcomes, failures = Counter(), []
    with Watched(tmp_path, first_seed(), files_per_kind(), [*KINDS, ABSENT]) as watched:
        for kind, seed, outcome in watched.lines():
            outcomes[kind, outcome.split()[0]] += 1
            if outcome.startswith("failed") and kind != ABSENT:
                failures.append(f"{kind} {seed}: {outcome}")
        code, last = watched.end()
    assert code == 0, last
    assert not failures, "\n".join(failures)
    assert outcomes[ABSENT, "failed"] == files_per_kind()  # failures would be noticed
    for kind in KINDS:  # mutations are neither harmless nor so coarse that nothing is reached
        assert outcomes[kind, "rejected"] + outcomes[kind, "read"] == files_per_kind()
        assert outcomes[kind, "rejected"] > 0 and outcomes[kind, "read"] > 0, outcomes


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_files_that_once_did_harm_are_rejected(path, tmp_path, monkeypatch):
    from fuzz_worker import SUFFIXES, read

    monkeypatch.setattr(hdf5, "SECONDS", 1.0)
    kind = path.name.split("-")[0]
    copy = tmp_path / f"copy{SUFFIXES.get(kind, '')}"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(DeployError) as caught:
        read(kind, copy)
    assert str(tmp_path) in str(caught.value) and len(str(caught.value)) < 3000
