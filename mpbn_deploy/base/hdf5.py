"""Read and write HDF5 files as trees: dictionaries of arrays, strings and trees. No other file imports h5py.

Files are read in a process of its own (`serve`, started by `hdf5_process`) with limits on memory and time.
Bounds reject what no network needs before it is allocated. Writing is reproducible: the same tree gives the
same bytes.
"""

from __future__ import annotations

import atexit
import io
import json
import math
import os
import pickle
import resource
import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .errors import FormatError
from .files import write_atomically
from .terminal import interrupts_blocked

# Well above the needs of any known network, and small enough for any machine.
LARGEST_ARRAY = 2**27  # values of up to eight bytes
LARGEST_TREE = 2**28
TREE_OF_A_SMALL_FILE = 2**25  # more than the weights of the largest network of the zoo
VALUES_PER_BYTE = 16  # of a larger file
MAX_ENTRIES = 100_000
UNSUSPICIOUS_BYTES = 2**24
LARGEST_EXPANSION = 1100  # bytes per stored byte: values that were never written occupy no space in a file


def read_here(path: Path, shown: str) -> Tree:
    """Read a whole HDF5 file in this process; messages call it `shown`.

    Rejects links, aliases, virtual data and sizes beyond the bounds above.
    """
    try:
        with h5py.File(path, "r") as file:
            return _Reader(shown, path.stat().st_size).group(file)
    except FormatError:
        raise
    except Exception as error:  # a damaged or hostile file can make h5py raise anything
        raise FormatError(
            f"{shown}: not a readable HDF5 file ({error}). Check that it is complete."
        ) from error


def write_tree(path: Path, tree: Tree) -> None:
    """Write a tree atomically; the same tree gives the same bytes."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=False) as file:
        _write(file, tree)
    write_atomically(path, buffer.getvalue())


def _write(group: Any, tree: Tree) -> None:
    for name, value in tree.items():
        match value:
            case dict():
                _write(group.create_group(name), value)
            case str():
                group.create_dataset(name, data=value, dtype=h5py.string_dtype("ascii"), track_times=False)
            case _:
                group.create_dataset(name, data=np.asarray(value), track_times=False)


class _Reader:
    """Reads one file and enforces the bounds on what it holds."""

    def __init__(self, shown: str, size: int) -> None:
        self.shown = shown
        self.most_values = min(LARGEST_TREE, max(TREE_OF_A_SMALL_FILE, VALUES_PER_BYTE * size))
        self.values = 0
        self.entries = 0
        self.addresses: set[Any] = set()

    def group(self, group: Any) -> Tree:
        tree: Tree = {}
        for name in group:
            self._count(entries=1)
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                self._reject(group, f"{name} is a link; links are not followed")
            item = group[name]
            self._check_alias(item)
            tree[name] = self.group(item) if isinstance(item, h5py.Group) else self.dataset(item)
        return tree

    def dataset(self, dataset: Any) -> Any:
        size = int(dataset.size or 0) * max(1, dataset.dtype.itemsize // 8)
        if size > LARGEST_ARRAY:
            self._reject(dataset, f"is too large, {dataset.shape} of {dataset.dtype}")
        stored, claimed = dataset.id.get_storage_size(), int(dataset.nbytes or 0)
        if claimed > max(UNSUSPICIOUS_BYTES, LARGEST_EXPANSION * stored):
            self._reject(dataset, f"claims {claimed} bytes, but the file holds {stored}")
        chunk = int(np.prod(dataset.chunks or (0,), dtype=object)) * dataset.dtype.itemsize
        if chunk > max(UNSUSPICIOUS_BYTES, claimed):
            self._reject(dataset, f"is stored in chunks of {chunk} bytes, but holds {claimed}")
        if dataset.is_virtual or dataset.external:
            self._reject(dataset, "stores its values in another file; only one file is read")
        if dataset.dtype.kind == "O" and h5py.check_string_dtype(dataset.dtype) is None:
            self._reject(dataset, "holds lists or references; numbers and strings are read")
        self._count(values=size)
        return self._value(dataset)

    def _value(self, dataset: Any) -> Any:
        value = dataset[()]
        if isinstance(value, h5py.Empty):
            return np.zeros(0)
        if isinstance(value, np.ndarray) and value.dtype.kind == "O":
            # Strings may share their characters in the file, but not in memory.
            self._count(values=sum(len(text) for text in value.flat))
        return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value

    def _check_alias(self, item: Any) -> None:
        """Reject an object with two names: a fan of such groups is exponentially large."""
        address = h5py.h5o.get_info(item.id).addr
        if address in self.addresses:
            self._reject(item, "has two names, or holds itself; each entry may have one")
        self.addresses.add(address)

    def _count(self, *, values: int = 0, entries: int = 0) -> None:
        self.values += values
        self.entries += entries
        if self.values > self.most_values or self.entries > MAX_ENTRIES:
            raise FormatError(
                f"{self.shown}: more than {self.most_values} values or {MAX_ENTRIES} entries, which is the "
                "limit for a file of its size."
            )

    def _reject(self, item: Any, reason: str) -> None:
        raise FormatError(f"{self.shown}: {item.name} {reason}.")


# ---- in a process of its own --------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Read files until the process that started this one closes the connection, or ends."""
    connection = Connection(descriptor)
    _send(connection, "ready")
    while True:
        try:
            path, shown, seconds, memory = connection.recv()
        except EOFError:
            return
        _limit(seconds, memory)
        try:
            _send(connection, read_here(Path(path), shown))
        except FormatError as error:
            _send(connection, str(error))


def _send(connection: Connection, answer: Tree | str) -> None:
    """Send a tree or a message; arrays are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(answer, protocol=5, buffer_callback=buffers.append)
    connection.send((content, len(buffers)))
    for buffer in buffers:
        connection.send_bytes(buffer.raw())


def _limit(seconds: float, memory: int) -> None:
    """Let the kernel end this process after `seconds` more of computing, and deny it more memory.

    A second later than the parent gives up, so that it is the parent who says why.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = {
        resource.RLIMIT_CPU: math.ceil(used.ru_utime + used.ru_stime + seconds) + 1,
        resource.RLIMIT_AS: memory,
    }
    for kind, limit in wanted.items():
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


# Read HDF5 files in another process, so that no file can exhaust the memory or keep a command busy for ever.
#
# A damaged file can make the HDF5 library loop without end, deaf to every signal but SIGKILL, or allocate far
# more than the file holds. So a process of its own (`hdf5.serve`) reads all files, one after the other, under
# limits that the kernel enforces. It starts with the first file, which takes 0.2 s, and ends with this
# process.


Tree = dict[str, Any]

SECONDS = 10.0  # to read a small file
MEMORY = 2**30  # bytes of address space, of which the process takes a tenth by itself
SMALL = 10 * 2**20  # bytes; larger files may take longer, and more memory:
BYTES_PER_SECOND = 2**20
MEMORY_PER_BYTE = 16
START_SECONDS = 120.0  # on a busy machine
MAX_READS = 500  # then another process takes over: the library leaks memory on damaged files

CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from mpbn_deploy.base.hdf5 import serve
serve(int(sys.argv[2]))
"""
# One thread is enough, and no code is loaded that is not part of the HDF5 library itself.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HDF5_PLUGIN_PRELOAD": "::"}


def as_text(value: Any) -> str | None:
    """Return a string, which some libraries write as bytes or as an array of one; None for anything else."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return value if isinstance(value, str) else None


def read_tree(path: Path) -> Tree:
    """Read a whole HDF5 file; raise FormatError if it is damaged, breaks a bound, or exceeds its limits."""
    try:
        if not path.is_file():
            raise FormatError(f"{path}: no such file.")
        larger = max(0, path.stat().st_size - SMALL)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror}).") from error
    seconds, memory = SECONDS + larger / BYTES_PER_SECOND, MEMORY + MEMORY_PER_BYTE * larger
    with _lock:
        return _current_process().read(path, seconds, memory)


class _ReadingProcess:
    """A process that reads files for the process that started it."""

    def __init__(self) -> None:
        self.owner, self.reads, self.usable = os.getpid(), 0, True
        self.connection, theirs = Pipe()
        with theirs, interrupts_blocked():  # Ctrl-C is for the command, which ends this process itself
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", CODE, json.dumps(_import_path()), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT},
            )
        self._ask(None, "HDF5 files", START_SECONDS)

    def read(self, path: Path, seconds: float, memory: int) -> Tree:
        """Return the tree of a file; end the process if it takes longer than `seconds`, or dies."""
        self.reads += 1
        answer = self._ask((str(path.absolute()), str(path), seconds, memory), str(path), seconds)
        if isinstance(answer, str):
            raise FormatError(answer)
        tree: Tree = answer
        return tree

    def _ask(self, question: Any, what: str, seconds: float) -> Any:
        self.usable = False  # until the whole answer has arrived
        try:
            if question is not None:
                self.connection.send(question)
            answer = self._answer(seconds)
            self.usable = True
        except TimeoutError as error:
            raise FormatError(
                f"{what}: not read within {seconds:.0f} s, the limit for a file of this size. It is probably "
                "damaged; get another copy."
            ) from error
        except (EOFError, OSError) as error:  # it crashed, or the kernel ended it
            code = self.process.wait()
            raise FormatError(
                f"{what}: reading ended the HDF5 library (exit code {code}). The file is probably damaged, "
                "or needs too much memory or time; get another copy."
            ) from error
        finally:
            if not self.usable:
                self.end()
        return answer

    def _answer(self, seconds: float) -> Any:
        """Receive what `_send` sent."""
        if not self.connection.poll(seconds):
            raise TimeoutError
        content, count = self.connection.recv()
        return pickle.loads(content, buffers=[self.connection.recv_bytes() for _ in range(count)])

    def end(self) -> None:
        """End the process, in the middle of a file too."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


_lock = threading.Lock()
_process: _ReadingProcess | None = None


def _current_process() -> _ReadingProcess:
    """Return the process of this process; one that a fork inherited belongs to its parent."""
    global _process
    if _process is not None and _process.owner == os.getpid():
        if _process.usable and _process.reads < MAX_READS:
            return _process
        _process.end()
    _process = _ReadingProcess()
    return _process


@atexit.register
def _end_process() -> None:
    if _process is not None and _process.owner == os.getpid():
        _process.end()


def _import_path() -> list[str]:
    """Return the folders from which this process imports, without the current one."""
    package = str(Path(__file__).parents[2])
    return [package, *(path for path in sys.path if path not in ("", package, str(Path.cwd())))]
