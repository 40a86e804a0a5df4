"""Compare the folded network in Lava's floating-point models with the reference simulator in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from ..base import HANG_SECONDS, Array, MissingPackageError, Progress, SimulationError, no_progress, record
from ..execute import ExecutionOptions, lava
from ..execute.reference import close_calls, simulate
from ..ir import FoldedNetwork, Trace

COUNTS = ("spikes_compared", "spikes_mismatched", "spikes_mismatched_in_doubt", "close_calls")


@record
class FloatingCheck:
    """Counts of differing spikes; `not_run` gives the reason if none were compared.

    A close call is a voltage so close to its threshold that the rounding of float64 decides. Two summation
    orders may then give different spikes, also later in that sample, so the differences in samples with
    close calls are counted separately.
    """

    spikes_compared: int = 0
    spikes_mismatched: int = 0
    spikes_mismatched_in_doubt: int = 0
    close_calls: int = 0
    not_run: str | None = None

    def __str__(self) -> str:
        label = "Lava (floating point), against the folded network"
        if self.not_run is not None:
            return f"{label}: not run, {self.not_run}"
        counts = f"{self.spikes_mismatched} of {self.spikes_compared} spikes different"
        if self.spikes_mismatched_in_doubt:
            counts += f", and {self.spikes_mismatched_in_doubt} in samples with close calls"
        return f"{label}: {counts} ({self.close_calls} close calls)"


def check_floating_point(
    folded: FoldedNetwork, inputs: Array, *, patience: float = HANG_SECONDS, progress: Progress = no_progress
) -> FloatingCheck:
    """Count the spikes in which Lava's floating-point models differ from `simulate`."""
    with FloatingRun(folded, len(inputs), patience, progress) as lava_run:
        return lava_run.check(inputs, lambda: simulate(folded, inputs))


class FloatingRun:
    """Lava's floating-point models, started once, to check one part of the samples after the other."""

    def __init__(
        self, folded: FoldedNetwork, samples: int, patience: float, progress: Progress = no_progress
    ) -> None:
        self.folded, self.samples = folded, samples
        self.options = ExecutionOptions(patience=patience, progress=progress)
        self.started = ExitStack()
        self.run: Callable[[Array], Trace] | None = None
        self.broken: FloatingCheck | None = None

    def __enter__(self) -> FloatingRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.started.close()

    def check(self, inputs: Array, folded_trace: Callable[[], Trace]) -> FloatingCheck:
        """Check some samples; `folded_trace` returns the trace of `simulate`."""
        if self.broken is not None:
            return self.broken
        try:
            if self.run is None:
                self.run = self.started.enter_context(lava.opened(self.folded, self.samples, self.options))
            spikes = self.run(inputs).spikes
        except (MissingPackageError, SimulationError) as error:
            self.broken = FloatingCheck(not_run=str(error))
            return self.broken
        return _compare(self.folded, inputs, folded_trace(), spikes)


def _compare(
    folded: FoldedNetwork, inputs: Array, expected: Trace, got: Mapping[str, Array]
) -> FloatingCheck:
    close = close_calls(folded, inputs, expected)
    samples = len(expected.outputs)
    doubtful = np.zeros(samples, np.bool_)
    for where in close.values():
        doubtful |= where.reshape(samples, -1).any(axis=1)
    different = {name: expected.spikes[name] != spikes for name, spikes in got.items()}
    return FloatingCheck(
        spikes_compared=sum(spikes.size for spikes in got.values()),
        spikes_mismatched=sum(int(np.count_nonzero(where[~doubtful])) for where in different.values()),
        spikes_mismatched_in_doubt=sum(
            int(np.count_nonzero(where[doubtful])) for where in different.values()
        ),
        close_calls=sum(int(np.count_nonzero(where)) for where in close.values()),
    )


def join_floating_checks(parts: Sequence[FloatingCheck]) -> FloatingCheck:
    """Add up the counts of all parts; if one of them did not run, the whole counts as not run."""
    if broken := [part for part in parts if part.not_run is not None]:
        return broken[0]
    return FloatingCheck(**{count: sum(getattr(part, count) for part in parts) for count in COUNTS})
