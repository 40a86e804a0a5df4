"""Writing files: whole or not at all, and the same bytes for the same content."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .errors import OptionError


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole file or nothing, even if the power fails: under a temporary name, then renamed."""
    path = path.resolve()  # a link stays a link; what it leads to is replaced
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # else the new name may reach the disk before the content does
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OptionError(f"{path}: cannot be written ({error.strerror}).") from error


def refuse_unwritable(path: Path) -> None:
    """Find out before hours of work whether a file could be written there."""
    if path.is_dir():
        raise OptionError(f"{path}: is a folder; give the name of a file.")
    if path.exists() and not path.is_file():
        raise OptionError(f"{path}: is a device or a pipe; give the name of a file.")
    path = path.resolve()
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise OptionError(f"{path}: cannot be written; {path.parent} is not a folder one may write to.")


def json_text(data: Any) -> str:
    """JSON as we write it everywhere: readable, keys in the order given, one newline at the end."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"
