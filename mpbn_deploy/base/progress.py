"""Show progress on standard error: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
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
        with _silence.of_a_bar():
            console = Console(stderr=True)
            yield from rich_track(items, printable(label), total, console=console, transient=True)
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
    _silence.begin(text)


# ---- signs of life ------------------------------------------------------------------------------


class _Silence:
    """Since when nothing has been shown, and after which message."""

    def __init__(self) -> None:
        self.bars = 0  # on a terminal, where they move by themselves
        self.begin("started")

    def begin(self, text: str) -> None:
        self.text, self.since = text, time.perf_counter()

    @contextmanager
    def of_a_bar(self) -> Iterator[None]:
        self.bars += 1
        try:
            yield
        finally:
            self.bars -= 1
            self.begin(self.text)


_silence = _Silence()


@contextmanager
def signs_of_life(first: float = QUIET_SECONDS, longest: float = LONGEST_SILENCE) -> Iterator[None]:
    """Whenever nothing is shown for a while, repeat the last message and how long ago it was.

    The first repetition comes after `first` seconds; pauses then double, up to `longest` seconds.
    """
    done = Event()
    thread = Thread(target=_watch, args=(done, first, longest), daemon=True, name="signs of life")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _watch(done: Event, first: float, longest: float) -> None:
    since, shown, pause = _silence.since, _silence.since, first
    while not done.wait(first / 5):
        if since != _silence.since:
            since, shown, pause = _silence.since, _silence.since, first
        now = time.perf_counter()
        if now - shown >= pause and not _silence.bars:
            # Not by print: a process that is forked meanwhile would find its lock taken for ever.
            with suppress(OSError):  # nobody reads standard error any more
                os.write(2, f"  ({printable(_silence.text)}: {now - since:.0f} s ago)\n".encode())
            shown, pause = now, min(2 * pause, longest)
