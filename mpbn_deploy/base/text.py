"""Show text that others wrote: names of layers, classes and files, and messages that repeat them.

A terminal obeys escape sequences and carriage returns, and terminals and browsers obey characters that change
the direction of text or are invisible. A name could so overwrite a verdict, or imitate another name. All
output passes `printable`, and names that enter from files pass `one_line`.
"""

from __future__ import annotations

import codecs
import re
import sys
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

# What terminals that take fewer characters than Unicode show in place of these; others become escapes.
PLAIN = {"\u00b5": "u", "\u2192": "->", "\u00b1": "+-", "\u00d7": "x", "\u2713": "ok", "\u2717": "no"}
PLAIN_ERRORS = "mpbn_deploy.plain"  # a name for codecs

LONGEST_NAME = 300  # characters
LONGEST_MESSAGE = 3000

# Control characters except tab and newline; marks of direction; invisible characters and separators; halves
# of surrogate pairs, which stand for bytes that are not UTF-8; tags.
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


def printable(text: str) -> str:
    """Return text with an escape such as \\x1b in place of each character that would be obeyed, not shown."""
    return OBEYED.sub(_escaped, text)


def one_line(text: str) -> str:
    """Return printable text without line breaks or tabs, shortened to the length of a name."""
    return shortened(re.sub("[\t\n]", _escaped, printable(shortened(text, LONGEST_NAME + 1))), LONGEST_NAME)


def shortened(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return text of at most `longest` characters, without its middle: the end often says what to do."""
    if len(text) <= longest:
        return text
    end = longest // 3
    return f"{text[: longest - end - 5]} ... {text[-end:]}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def show_beyond_encoding() -> None:
    """Let standard output and error replace characters that their encoding lacks, in place of an error."""
    codecs.register_error(PLAIN_ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test or a notebook took its place
            stream.reconfigure(errors=PLAIN_ERRORS)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start]
    return PLAIN.get(found) or found.encode("ascii", "backslashreplace").decode(), error.start + 1


# ---- verdicts ---------------------------------------------------------------------------------

Color = Literal["red", "yellow", "green"]  # red: exit code 1; yellow: it holds if something unknown does
CSS = {"red": "#b91c1c", "yellow": "#a16207", "green": "#15803d"}  # dark enough to be read on white
LABEL_WIDTH = 10  # of the longest label, "unchecked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A result in a few lines: a verdict, and rows of a label and a text."""

    color: Color | None  # None for what is neither good nor bad, such as a network
    verdict: str
    rows: tuple[tuple[str, str], ...]

    def with_rows(self, **texts: str) -> Summary:
        """Return the summary with more rows, those that have a text."""
        return replace(self, rows=(*self.rows, *((label, text) for label, text in texts.items() if text)))

    @property
    def headline(self) -> str:
        return self.verdict if self.color is None else f"{self.color}: {self.verdict}"

    def __str__(self) -> str:
        width = max([LABEL_WIDTH, *(len(label) + 1 for label, _ in self.rows)])
        lines = (f"{label.ljust(width)}{text}" for label, text in self.rows)
        return printable("\n".join((self.headline, *lines)))

    def _repr_html_(self) -> str:
        """Return a table, which notebooks show."""
        style = "" if self.color is None else f' style="color: {CSS[self.color]}"'
        head = f"<caption><b{style}>{_html(self.headline)}</b></caption>"
        cells = (f"<tr><th>{_html(label)}</th><td>{_html(text)}</td></tr>" for label, text in self.rows)
        return f"<table>{head}{''.join(cells)}</table>"


def _html(text: str) -> str:
    return escape(printable(text))


class Summarized:
    """A result whose str() is its summary, and which notebooks show as a table."""

    __slots__ = ()

    @property
    def summary(self) -> Summary:
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.summary)

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()
