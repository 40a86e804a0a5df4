"""Write files atomically and reproducibly; read files of text that others wrote, within bounds."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from .errors import DeployError, FormatError, OptionError

LARGEST_TEXT = 2**24  # bytes of a file of JSON or TOML; ours have some thousands
MANIFEST_FILE = "manifest.json"  # marks an export folder


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file, then rename it: even a power failure leaves no partial file."""
    path = path.resolve()  # replace the target of a link, not the link
    remove_abandoned(path.parent, f".{path.name}.")
    temporary = path.with_name(f"{owned_name(f'.{path.name}.')}part")
    try:
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # otherwise the rename may reach the disk before the content
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OptionError(f"{path}: cannot be written ({error.strerror}).") from error


def check_writable(path: Path) -> None:
    """Raise OptionError if a file cannot be written to `path`; called before hours of work."""
    if path.is_dir():
        raise OptionError(f"{path}: is a folder; give the name of a file.")
    if path.exists() and not path.is_file():
        raise OptionError(f"{path}: is a device or a pipe; give the name of a file.")
    path = path.resolve()
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise OptionError(f"{path}: cannot be written; {path.parent} is not a writable folder.")


def read_text(path: Path, error: type[DeployError]) -> str:
    """Read a file of UTF-8 text; raise `error` if it cannot be read, or is far larger than any such file."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
        text = content.decode("utf-8")
    except OSError as reason:
        raise error(f"{path}: cannot be read ({reason.strerror}).") from reason
    except UnicodeDecodeError as reason:
        raise error(f"{path}: not a file of UTF-8 text ({reason}).") from reason
    if len(content) > LARGEST_TEXT:
        raise error(f"{path}: more than {LARGEST_TEXT} bytes, which is the limit.")
    return text


def similar_path(path: Path) -> str:
    """Suggest what lies beside a path that does not exist and has nearly its name."""
    beside = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
    close = get_close_matches(path.name, beside, n=1)
    return f" Did you mean {str(path.with_name(close[0]))!r}?" if close else ""


def read_json(path: Path) -> Any:
    """Read a JSON file; raise FormatError if it is not one."""
    try:
        return json.loads(read_text(path, FormatError))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not readable as JSON ({error}).") from error


def json_text(data: Any) -> str:
    """Return indented JSON with keys in the given order and a final newline."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


# Temporary files and folders, named after the process that owns them, so that the next one can clean up.
#
# A process that is killed leaves its temporary entries behind. Their names hold the process id and a mark of
# the machine, because a disk may be shared: the next process that writes there removes those whose owner is
# dead.


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


def remove_abandoned_folders() -> None:
    """Remove the temporary folders of dead processes."""
    remove_abandoned(Path(tempfile.gettempdir()), TEMPORARY)


def new_temporary_folder() -> str:
    """Make a folder in the system's temporary folder, and remove there those of dead processes."""
    remove_abandoned_folders()
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


# What glibc does with freed memory; elsewhere, nothing happens.


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # parameters of mallopt
LARGEST_BLOCK = 2**30


def keep_freed_memory() -> None:
    """Let glibc keep freed blocks up to 1 GB.

    By default it returns blocks above 32 MB to the system, and every layer of every training step then pays
    for fresh, zeroed pages.
    """
    _call("mallopt", MMAP_THRESHOLD, LARGEST_BLOCK)
    _call("mallopt", TRIM_THRESHOLD, 2 * LARGEST_BLOCK - 1)


def return_freed_memory() -> None:
    """Let glibc return freed memory to the system: forks copy the tables of all pages, also of free ones."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
