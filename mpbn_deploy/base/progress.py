"""Progress of long work: a bar on a terminal, plain lines in a pipe, always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track

Item = TypeVar("Item")
LINES_IN_A_PIPE = 4  # how many lines one piece of work prints when nobody watches a bar
LONGEST_SILENCE = 30.0  # seconds between lines, as far as the parts of the work allow
QUIET_SECONDS = 2.0  # seconds that work in a pipe may take without a line
Watch = Callable[[Iterable[int], int], Iterable[int]]  # sees the parts of some work go by, and how many


def unwatched(parts: Iterable[int], total: int) -> Iterable[int]:
    """A `Watch` that shows nothing."""
    return parts


def watched(label: str) -> Watch:
    """A `Watch` that shows what takes long."""

    def watch(parts: Iterable[int], total: int) -> Iterable[int]:
        return track(parts, label, total, quiet_seconds=QUIET_SECONDS)

    return watch


def track(items: Iterable[Item], label: str, total: int, *, quiet_seconds: float = 0.0) -> Iterator[Item]:
    """Yield the items and show how many of `total` are done; in a pipe, no line before `quiet_seconds`."""
    if sys.stderr.isatty():
        yield from rich_track(items, label, total, console=Console(stderr=True), transient=True)
        return
    every = max(1, -(-total // LINES_IN_A_PIPE))
    started = last = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        due = done % every == 0 or done == total or now - last >= LONGEST_SILENCE
        if due and now - started >= quiet_seconds:
            print(f"{label}: {done}/{total}", file=sys.stderr, flush=True)
            last = now


def announce(text: str) -> None:
    """Say what begins now."""
    print(text, file=sys.stderr, flush=True)
