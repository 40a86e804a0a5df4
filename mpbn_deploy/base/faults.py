"""Report an exception that no input should cause: two lines for the user, the traceback in a file."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import traceback

from .text import one_line


def log_fault(error: Exception) -> tuple[str, str]:
    """Write the traceback to a new file; return what happened, and whose fault it is with the file's path."""
    what = one_line(f"error: {type(error).__name__}: {error}")
    told = "this is a bug of mpbn_deploy, not of your input; please report it"
    try:
        number, path = tempfile.mkstemp(prefix="mpbn-deploy-", suffix=".log")
    except OSError:  # no folder can be written: show the traceback at least
        traceback.print_exception(error)
        return what, f"{told}, with the lines above"
    with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{shlex.join(sys.argv)}\nPython {platform.python_version()}, {platform.platform()}\n\n")
        traceback.print_exception(error, file=file)
    return what, f"{told}, with {path}"
