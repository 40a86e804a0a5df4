"""Ctrl-C, from the first import to the end of the process.

While a command starts, there is nothing to clean up, so an interrupt ends the process at once: raised in the
middle of an import, a KeyboardInterrupt may be swallowed, or turned into another error, by the library that
is being imported. While a command runs, an interrupt is a KeyboardInterrupt, which passes every `finally`.
After the last line of a command, an interrupt is ignored. Before the first, it is Python's own.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

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
