"""Temporary files and folders, named after the process that owns them, so that the next one can clean up.

A process that is killed leaves its temporary entries behind. Their names hold the process id and a mark of
the machine, because a disk may be shared: the next process that writes there removes those whose owner is
dead.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

TEMPORARY = "mpbn-"  # folders in the temporary folder of the system


def owned_name(start: str) -> str:
    """Return the beginning of a temporary name: `start`, then the machine and the id of this process."""
    return f"{start}{_machine()}-{os.getpid()}."


def abandoned(folder: Path, start: str) -> list[Path]:
    """Return the temporary entries of a folder whose owner, a process of this user and machine, is dead."""
    pattern = re.compile(rf"{re.escape(start)}{_machine()}-(\d+)\.")
    try:
        found = [(entry, pattern.match(entry.name)) for entry in os.scandir(folder)]
        return [
            Path(entry)
            for entry, match in found
            if match and _is_dead(int(match[1])) and entry.stat(follow_symlinks=False).st_uid == os.getuid()
        ]
    except OSError:  # a folder that cannot be listed, or an entry that somebody else removed just now
        return []


def remove_abandoned(folder: Path, start: str) -> None:
    """Remove what dead processes left in a folder; what cannot be removed stays."""
    for entry in abandoned(folder, start):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def new_temporary_folder() -> str:
    """Make a folder in the system's temporary folder, and remove there those of dead processes."""
    remove_abandoned(Path(tempfile.gettempdir()), TEMPORARY)
    return tempfile.mkdtemp(prefix=owned_name(TEMPORARY))


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield a temporary folder, which is removed at the end of the block."""
    folder = new_temporary_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return a mark of this machine, or of this container, within which process ids are unique."""
    namespace = Path("/proc/self/ns/pid")
    inside = str(namespace.readlink()) if namespace.is_symlink() else ""
    return f"{zlib.crc32(f'{platform.node()} {inside}'.encode()) % 2**16:04x}"  # short: paths of sockets are


def _is_dead(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # it is alive, and somebody else's
        return False
    return False
