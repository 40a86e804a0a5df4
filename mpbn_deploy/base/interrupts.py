"""Ctrl-C, from the first import to the last line.

While a command starts, there is nothing to clean up, so an interrupt ends the process at once: raised in the
middle of an import, a KeyboardInterrupt may be swallowed, or turned into another error, by the library that
is being imported. While a command runs, an interrupt is a KeyboardInterrupt, which passes every `finally`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_INTERRUPTED = 130
MESSAGE = "interrupted\n"


def exit_when_interrupted() -> None:
    """End this process at the next interrupt, unless it ignores interrupts or handles them already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def _exit(number: int, frame: Any) -> None:
    os.write(2, MESSAGE.encode())
    os._exit(EXIT_INTERRUPTED)


class Interrupts:
    """Raises KeyboardInterrupt, and remembers it where a library swallows it."""

    arrived = False

    @contextmanager
    def noticed(self) -> Iterator[None]:
        before = signal.getsignal(signal.SIGINT)
        if before not in (signal.default_int_handler, _exit):  # ignored, or somebody else's
            yield
            return
        signal.signal(signal.SIGINT, self._arrive)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _arrive(self, number: int, frame: Any) -> None:
        self.arrived = True
        signal.default_int_handler(number, frame)
