"""Let terminals that take fewer characters than Unicode show text: mu as u, others as escapes."""

from __future__ import annotations

import codecs
import sys

NAME = "mpbn_deploy.shown"
PLAIN = {"\u00b5": "u", "\u2192": "->", "\u00b1": "+-", "\u00d7": "x", "\u2713": "ok", "\u2717": "no"}


def show_beyond_encoding() -> None:
    """Let standard output and error replace characters that their encoding lacks, in place of an error."""
    codecs.register_error(NAME, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test or a notebook took its place
            stream.reconfigure(errors=NAME)


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start]
    shown = PLAIN.get(found) or found.encode("ascii", "backslashreplace").decode()
    return shown, error.start + 1
