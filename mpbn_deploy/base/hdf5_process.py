"""Read HDF5 files in another process, so that no file can exhaust the memory or keep a command busy for ever.

A damaged file can make the HDF5 library loop without end, deaf to every signal but SIGKILL, or allocate far
more than the file holds. So a process of its own (`hdf5.serve`) reads all files, one after the other, under
limits that the kernel enforces. It starts with the first file, which takes 0.2 s, and ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import subprocess
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FormatError
from .interrupts import interrupts_blocked

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
