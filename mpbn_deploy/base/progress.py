"""Show progress on standard error: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track

from .text import printable

Item = TypeVar("Item")
LINES_IN_A_PIPE = 4  # lines that one task prints in a pipe
LONGEST_SILENCE = 30.0  # seconds after which another line is printed, at the next item
QUIET_SECONDS = 5.0  # a task shorter than this prints nothing in a pipe
Progress = Callable[[range], Iterable[int]]  # shows progress while the numbers of a range are taken


def no_progress(numbers: range) -> Iterable[int]:
    """Return the numbers without showing progress."""
    return numbers


def progress_bar(label: str) -> Progress:
    """Return a `Progress` that shows a bar under `label` if the task takes more than a moment."""
    return lambda numbers: track(numbers, label, len(numbers), quiet_seconds=QUIET_SECONDS)


def track(items: Iterable[Item], label: str, total: int, *, quiet_seconds: float = 0.0) -> Iterator[Item]:
    """Yield the items and show how many of `total` are done; a pipe stays silent for `quiet_seconds`."""
    if sys.stderr.isatty():
        yield from rich_track(items, printable(label), total, console=Console(stderr=True), transient=True)
        return
    every = max(1, -(-total // LINES_IN_A_PIPE))
    started = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        due = done % every == 0 or done == total or now - last >= LONGEST_SILENCE
        if due and now - started >= quiet_seconds:
            announce(f"{label}: {done}/{total}")
            last = now


def announce(text: str) -> None:
    """Print a message on standard error."""
    print(printable(text), file=sys.stderr, flush=True)
