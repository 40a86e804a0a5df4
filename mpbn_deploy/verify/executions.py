"""Run the executors of a network and compare each with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from ..base import (
    Array,
    MissingPackageError,
    SimulationError,
    announce,
    no_progress,
    progress_bar,
    record,
)
from ..execute import EXECUTORS, ExecutionOptions, Executor, ListedExecutor
from ..execute.lava import LavaFailedError
from ..execute.outside import Witness, WitnessFailedError
from ..execute.reference import simulate
from ..ir import IntNetwork, Trace, join_overflows
from .comparison import Comparison, Comparisons, compare
from .lava_models import SHARES, compare_within_budget
from .outside import compare_with_witness

REFERENCE, EMULATOR = "reference", "emulator"


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


def chosen_executors(*, slow: bool, netx: bool) -> tuple[ListedExecutor, ...]:
    """Return all executors but the reference; slow ones only with `slow`, file readers only with `netx`."""
    return tuple(
        executor
        for key, executor in EXECUTORS.items()
        if key != REFERENCE and (slow or not executor.slow) and (netx or not executor.reads_file)
    )


def compare_executions(given: Executions, inputs: Array, *, shown: bool = True) -> Comparisons:
    """Run the reference and all executors on some samples, and compare them.

    With `shown`, messages and progress bars are printed.
    """
    show: Callable[[str], None] = announce if shown else lambda text: None
    show(f"verify: the reference, {len(inputs)} samples of {given.network.timesteps} steps")
    reference = simulate(given.network, inputs)
    compared = [_compare_one(executor, given, inputs, reference, shown) for executor in given.executors]
    compared += [_compare_witness(witness, given, inputs, reference, shown) for witness in given.witnesses]
    return replace(
        join_executors(compared), overflows=reference.overflows, trace=reference.without_voltages()
    )


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


def compare_here(given: Executions, inputs: Array) -> Comparisons:
    """Compare what has a budget, which workers of a cluster would each take: slow executors, witnesses."""
    slow = (executor for executor in given.executors if _budget(executor, given) is not None)
    parts = [_compare_one(executor, given, inputs, None, True) for executor in slow]
    return join_executors(
        [*parts, *(_compare_witness(witness, given, inputs, None, True) for witness in given.witnesses)]
    )


def _budget(executor: Executor, given: Executions) -> float | None:
    """Return the time for a slow executor; None for those that run on all samples."""
    return given.budget if executor in SHARES else None


def _compare_one(
    executor: Executor, given: Executions, inputs: Array, reference: Trace | None, shown: bool
) -> Comparisons:
    """Compare an executor; only those that run within a budget do without the trace of the reference."""
    if (budget := _budget(executor, given)) is not None:
        asked = (executor, given.network, inputs, reference, budget, given.options)
        return _attempt(executor, partial(compare_within_budget, *asked, shown=shown))
    assert reference is not None
    expected = reference
    if shown:
        announce(f"verify: reference against {executor.name}, {len(inputs)} samples")
    return _attempt(executor, lambda: compare(executor.name, expected, _run(executor, given, inputs, shown)))


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


def _run(executor: Executor, given: Executions, inputs: Array, shown: bool) -> Trace:
    """Run an executor with a progress bar; raise SimulationError if it cannot express the network."""
    if (obstacle := executor.obstacle(given.network)) is not None:
        raise SimulationError(obstacle)
    progress = progress_bar(f"{executor.name}, {executor.parts}") if shown else no_progress
    return executor.run(given.network, inputs, replace(given.options, progress=progress))
