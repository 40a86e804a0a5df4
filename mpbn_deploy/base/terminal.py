"""Print what rich renders; text of others is shown, never obeyed."""

from __future__ import annotations

import _thread
import atexit
import codecs
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from threading import Event, Thread
from types import FrameType
from typing import Literal, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import track as rich_track
from rich.segment import Segment

# Show text that others wrote: names of layers, classes and files, and messages that repeat them.
#
# A terminal obeys escape sequences and carriage returns, and terminals and browsers obey characters that
# change the direction of text or are invisible. A name could so overwrite a verdict, or imitate another name.
# All output passes `printable`, and names that enter from files pass `one_line`.


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


class _Shown:
    """A text or a table, in which characters that a terminal would obey are escaped."""

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.content, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def show_text(content: RenderableType) -> None:
    """Print a text or a table on standard output; names in it are not interpreted as markup."""
    console = Console(soft_wrap=True, markup=False, emoji=False, highlight=False)
    console.print(_Shown(content))


# Show progress on standard error: a bar on a terminal, plain lines in a pipe.


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


# Ctrl-C, from the first import to the end of the process.
#
# While a command starts, there is nothing to clean up, so an interrupt ends the process at once: raised in
# the middle of an import, a KeyboardInterrupt may be swallowed, or turned into another error, by the library
# that is being imported. While a command runs, an interrupt is a KeyboardInterrupt, which passes every
# `finally`. After the last line of a command, an interrupt is ignored. Before the first, it is Python's own.


EXIT_INTERRUPTED = 130
MESSAGE = "interrupted\n"
REPEAT_SECONDS = 0.5


def exit_when_interrupted() -> None:
    """End this process at the next interrupt, unless it ignores interrupts or handles them already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)
        # Runs after all other exit functions. Python would restore the default then, which kills.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _exit(number: int, frame: FrameType | None) -> None:
    os.write(2, MESSAGE.encode())
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread, and in all threads and processes that it starts: they inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Interrupts:
    """Raises KeyboardInterrupt, and raises it again if a library, a destructor or a callback swallowed it."""

    arrived = False
    _is_repetition = False

    @contextmanager
    def noticed(self) -> Iterator[None]:
        before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
        if before not in (signal.default_int_handler, _exit):  # ignored, or somebody else's
            yield
            return
        sys.unraisablehook = partial(_show_unless_interrupt, hook)
        signal.signal(signal.SIGINT, self._arrive)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            sys.unraisablehook = hook
            # Once a KeyboardInterrupt has left an exec of a string (dataclasses do that), `python -m` kills
            # itself with SIGINT at exit, even if it was caught. The next exec of a string resets this.
            exec("")

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        repetition, self._is_repetition = self._is_repetition, False
        if repetition and _is_interrupt(sys.exc_info()[1]):  # not swallowed: it is passing a `finally`
            return
        self.arrived = True
        _thread.start_new_thread(self._repeat, ())
        signal.default_int_handler(number, frame)

    def _repeat(self) -> None:
        time.sleep(REPEAT_SECONDS)
        if signal.getsignal(signal.SIGINT) == self._arrive:
            self._is_repetition = True
            os.kill(os.getpid(), signal.SIGINT)


def _show_unless_interrupt(
    hook: Callable[[sys.UnraisableHookArgs], object], unraisable: sys.UnraisableHookArgs
) -> None:
    """Show an exception that nobody can catch, unless it is an interrupt, which is repeated."""
    if unraisable.exc_type is not KeyboardInterrupt:
        hook(unraisable)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is an interrupt, or was raised while one was handled."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__context__))
