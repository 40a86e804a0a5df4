"""Run the executors of a network and compare each with the reference."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

import numpy as np

from ..base import (
    Array,
    MissingPackageError,
    SimulationError,
    announce,
    no_progress,
    progress_bar,
    record,
    remove_abandoned_folders,
)
from ..execute import EXECUTORS, ExecutionOptions, Executor, ListedExecutor, chip_of, chunks
from ..execute.lava import LavaFailedError, children_exit_with_parent, deferred_signals, installed_version
from ..execute.outside import Witness, WitnessFailedError
from ..execute.reference import simulate
from ..ir import IntNetwork, Trace, check_input_values, count_spikes, join_overflows
from .comparison import Comparison, Comparisons, compare, join_samples
from .lava_models import LAVA_STOCK, SHARES, compare_with_witness, compare_within_budget

REFERENCE, EMULATOR, LAVA = "reference", "emulator", "lava"
Seen = Callable[[Array, Trace], None]


@record
class Executions:
    """The network, the executors to compare with the reference, and the options they run with.

    `budget` is the time for slow executors (Lava's own models, lava-dl's reader) and for each witness, in
    seconds; None: all samples, however long it takes.
    """

    network: IntNetwork
    executors: tuple[Executor, ...]
    options: ExecutionOptions
    budget: float | None
    witnesses: tuple[Witness, ...] = ()

    def portable(self) -> Executions:
        """Return a copy that can be sent to another machine."""
        return replace(self, options=self.options.portable())


def chosen_executors(network: IntNetwork, *, slow: bool, netx: bool) -> tuple[ListedExecutor, ...]:
    """Return the executors of the network's neurons, without the reference.

    Slow ones only with `slow`, file readers only with `netx`. Our models in Lava add only Lava's scheduler to
    what the emulator shows, so they run where Lava's own models cannot.
    """
    chip = chip_of(network)
    maker_runs = slow and LAVA_STOCK.obstacle(network) is None
    return tuple(
        executor
        for key, executor in EXECUTORS.items()
        if key != REFERENCE
        and not (key == LAVA and maker_runs)
        and not executor.requested
        and not executor.on_board
        and executor.chip in (None, chip)
        and (slow or not executor.slow)
        and (netx or not executor.reads_file)
    )


def compare_executions(
    given: Executions, inputs: Array, *, shown: bool = True, seen: Seen | None = None
) -> Comparisons:
    """Run the reference and all executors on some samples, and compare them.

    Samples run in chunks, so that memory does not grow with their number. With `shown`, messages and progress
    bars are printed. `seen` is given the samples and the trace of the reference of each chunk.
    """
    network = given.network
    check_input_values(network, np.asarray(inputs))
    if not (parts := chunks(network, len(inputs))):
        raise SimulationError("no samples: inputs are empty; give at least one sample.")
    if shown:
        announce(f"verify: the reference, {len(inputs)} samples of {network.timesteps} steps")
    bar = progress_bar("verify: comparisons, chunks of samples") if shown and len(parts) > 1 else no_progress
    whole: Comparisons | None = None
    with ExitStack() as started:
        wanted: list[Executor | Witness] = [*given.executors, *given.witnesses]
        running = [started.enter_context(_Running(each, given, len(inputs), shown)) for each in wanted]
        for index in bar(range(len(parts))):
            part = parts[index]
            reference = simulate(network, inputs[part])
            if seen is not None:
                seen(inputs[part], reference)
            found = replace(
                join_executors(each.compare(inputs, part, reference) for each in running),
                overflows=reference.overflows,
                trace=replace(reference, voltages={}),
                counted=count_spikes(reference),
            )
            whole = found if whole is None else join_samples(network, [(0, whole), (part.start, found)])
    assert whole is not None  # there is a chunk
    return whole


class _Running:
    """An executor or witness, started once and compared with the reference chunk by chunk."""

    def __init__(self, executor: Executor | Witness, given: Executions, samples: int, shown: bool) -> None:
        self.executor, self.given, self.samples, self.shown = executor, given, samples, shown
        self.started = ExitStack()
        self.run: Callable[[Array], Trace] | None = None
        self.ended: Comparisons | None = None  # what later chunks give: nothing more, or why it did not run

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.started.close()

    def compare(self, inputs: Array, part: slice, reference: Trace) -> Comparisons:
        """Compare a part of the inputs; with a budget, compare the first samples, once."""
        if self.ended is not None:
            return self.ended
        budgeted = _budget(self.executor, self.given) is not None
        found = self._compared(inputs if budgeted else inputs[part], part, reference)
        if budgeted or any(each.not_run for each in found.comparisons):
            self.ended = replace(found, comparisons=tuple(map(_nothing_more, found.comparisons)))
        if self.ended is not None or part.stop == self.samples:
            self.started.close()
        return found

    def _compared(self, inputs: Array, part: slice, reference: Trace) -> Comparisons:
        executor, given = self.executor, self.given
        shown = self.shown and part.start == 0
        if isinstance(executor, Witness):
            return _compare_witness(executor, given, inputs, reference, shown)
        if _budget(executor, given) is not None:
            return _compare_budgeted(executor, given, inputs, reference, shown)
        if shown:
            announce(f"verify: reference against {executor.name}, {self.samples} samples")
        return _attempt(executor, lambda: self._compare(executor, inputs, reference))

    def _compare(self, executor: Executor, inputs: Array, reference: Trace) -> Comparison:
        if self.run is None:
            self.run = self.started.enter_context(self._opened(executor, len(inputs)))
        return compare(executor.name, reference, self.run(inputs))

    def _opened(self, executor: Executor, samples: int) -> AbstractContextManager[Callable[[Array], Trace]]:
        """Start an executor; raise SimulationError if it cannot express the network."""
        if (obstacle := executor.obstacle(self.given.network)) is not None:
            raise SimulationError(obstacle)
        own_bar = self.shown and samples == self.samples  # otherwise there is one of chunks
        progress = progress_bar(f"{executor.name}, {executor.parts}") if own_bar else no_progress
        return executor.opened(self.given.network, samples, replace(self.given.options, progress=progress))


def _nothing_more(comparison: Comparison) -> Comparison:
    """Return what a comparison that is finished adds with later chunks."""
    return Comparison(execution=comparison.execution, extent=comparison.extent, not_run=comparison.not_run)


def join_executors(parts: Iterable[Comparisons]) -> Comparisons:
    """Return the comparisons of several executors as one result."""
    parts = list(parts)
    return Comparisons(
        comparisons=tuple(comparison for part in parts for comparison in part.comparisons),
        failed=tuple(name for part in parts for name in part.failed),
        overflows=join_overflows(part.overflows for part in parts),
    )


def compare_shard(given: Executions, inputs: Array) -> Comparisons:
    """Run `compare_executions` on a worker of a cluster: without output, and without returning the trace."""
    there = tuple(executor for executor in given.executors if _budget(executor, given) is None)
    return replace(
        compare_executions(replace(given, executors=there, witnesses=()), inputs, shown=False), trace=None
    )


def compare_here(given: Executions, inputs: Array, *, shown: bool = True) -> Comparisons:
    """Compare what has a budget, which workers of a cluster would each take: slow executors, witnesses.

    Also the work of a process beside this one.
    """
    slow = (executor for executor in given.executors if _budget(executor, given) is not None)
    parts = [_compare_budgeted(executor, given, inputs, None, shown) for executor in slow]
    return join_executors(
        [*parts, *(_compare_witness(witness, given, inputs, None, shown) for witness in given.witnesses)]
    )


def _budget(executor: Executor | Witness, given: Executions) -> float | None:
    """Return the time for a slow executor or a witness; None for those that run on all samples."""
    return given.budget if isinstance(executor, Witness) or executor in SHARES else None


def _compare_budgeted(
    executor: Executor, given: Executions, inputs: Array, reference: Trace | None, shown: bool
) -> Comparisons:
    """Compare an executor that runs within a budget; `reference` is the trace of the first samples."""
    budget = _budget(executor, given)
    assert budget is not None
    asked = (executor, given.network, inputs, reference, budget, given.options)
    return _attempt(executor, partial(compare_within_budget, *asked, shown=shown))


def _compare_witness(
    witness: Witness, given: Executions, inputs: Array, reference: Trace | None, shown: bool
) -> Comparisons:
    return _attempt(
        witness,
        lambda: compare_with_witness(witness, given.network, inputs, reference, given.budget, shown=shown),
    )


def _attempt(executor: Executor | Witness, compared: Callable[[], Comparison]) -> Comparisons:
    """Compare, or say why the executor did not run; the emulator runs every network."""
    try:
        return Comparisons(comparisons=(compared(),))
    except (MissingPackageError, SimulationError) as error:
        if executor is EXECUTORS[EMULATOR]:
            raise
        return Comparisons(
            comparisons=(Comparison(execution=executor.name, not_run=str(error)),),
            failed=(executor.name,) if isinstance(error, (LavaFailedError, WitnessFailedError)) else (),
        )


# Compare slow executors in a process beside this one: Lava's own models take most of a verification.


SAME_SECONDS = 2.0  # signals to all processes, and then from the command, are one request
asked: list[float] = []  # when this process was asked to end
ENDING = (signal.SIGTERM, signal.SIGHUP)
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
            for _ in range(3):
                self.process.terminate()  # it then stops Lava's processes, if it has not finished
                self.process.join(STOP_SECONDS / 3)
            self.process.kill()
            self.process.join()
            remove_abandoned_folders()  # its own, if it had to be killed


def _pays(given: Executions) -> bool:
    """Whether there is a second core, Lava, and a budget, without which executors take all samples."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and bool(given.budget) and installed_version("lava-nc") is not None


def _exit(number: int, frame: object) -> None:
    """Clean up at the first signal. A later one ends at once: a destructor may have swallowed the first."""
    now = time.monotonic()
    asked.append(now)
    if len(asked) == 1:
        sys.exit(1)
    if now - asked[0] > SAME_SECONDS:
        os._exit(1)


def _show_unless_exit(
    show: Callable[[sys.UnraisableHookArgs], object], unraisable: sys.UnraisableHookArgs
) -> None:
    """Show an exception that nobody can catch, unless it is the end, which a destructor swallowed."""
    if unraisable.exc_type is not SystemExit:
        show(unraisable)


def _work(answer: Connection, given: Executions, inputs: Array) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    for number in ENDING:
        signal.signal(number, _exit)
    sys.unraisablehook = partial(_show_unless_exit, sys.unraisablehook)
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
