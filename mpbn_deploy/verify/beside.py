"""Compare slow executors in a process beside this one: Lava's own models take most of a verification."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from ..base import Array, announce
from ..execute.lava import children_exit_with_parent, deferred_signals, installed_version
from .comparison import Comparison, Comparisons
from .executions import Executions, compare_here
from .lava_models import SHARES

STOP_SECONDS = 15.0  # time limit for a process to stop Lava's processes, and itself


class Beside:
    """A process that compares the slow executors; without a second core, they are left to this one."""

    def __init__(self, given: Executions, inputs: Array) -> None:
        slow = tuple(executor for executor in given.executors if executor in SHARES)
        self.given = replace(given, executors=slow if _pays(given) else (), witnesses=())
        if not self.given.executors:
            return
        names = " and ".join(executor.name for executor in slow)
        announce(f"verify: reference against {names}, in a process beside this one")
        self.connection, theirs = get_context("fork").Pipe(duplex=False)
        # As with Lava's own processes: an interrupt is for this one, which ends the other.
        with theirs, deferred_signals(), children_exit_with_parent():
            self.process: ForkProcess = get_context("fork").Process(
                target=_work, args=(theirs, self.given, inputs), daemon=True
            )
            self.process.start()

    def others(self, given: Executions) -> Executions:
        """Return the executions that are left for this process."""
        left = tuple(executor for executor in given.executors if executor not in self.given.executors)
        return replace(given, executors=left)

    def result(self) -> Comparisons:
        """Wait for the comparisons; a process that died is a failure of its executors."""
        if not self.given.executors:
            return Comparisons(comparisons=())
        try:
            found: Comparisons | Exception = self.connection.recv()
        except EOFError:
            self.process.join()
            names = tuple(executor.name for executor in self.given.executors)
            why = f"its process ended with exit code {self.process.exitcode}"
            return Comparisons(
                comparisons=tuple(Comparison(execution=name, not_run=why) for name in names), failed=names
            )
        if isinstance(found, Exception):
            raise found
        return found

    def end(self) -> None:
        if self.given.executors:
            self.connection.close()
            self.process.terminate()  # it then stops Lava's processes, if it has not finished
            self.process.join(STOP_SECONDS)
            self.process.kill()
            self.process.join()


def _pays(given: Executions) -> bool:
    """Whether there is a second core, Lava, and a budget, without which executors take all samples."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and bool(given.budget) and installed_version("lava-nc") is not None


def _work(answer: Connection, given: Executions, inputs: Array) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # its threads do not survive a fork
    try:
        answer.send(compare_here(given, inputs, shown=False))
    except Exception as error:  # raised in the process that waits for the comparisons
        answer.send(error)


@contextmanager
def compared_beside(given: Executions, inputs: Array) -> Iterator[Beside]:
    """Compare slow executors during the block."""
    beside = Beside(given, inputs)
    try:
        yield beside
    finally:
        beside.end()
