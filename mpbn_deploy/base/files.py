"""Write files atomically and reproducibly; read files of text that others wrote, within bounds."""

from __future__ import annotations

import json
import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .errors import DeployError, FormatError, OptionError
from .leftovers import owned_name, remove_abandoned

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
