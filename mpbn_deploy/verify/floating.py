"""Compare the folded network in Lava's floating-point models with the reference simulator in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..base import HANG_SECONDS, Array, MissingPackageError, Progress, SimulationError, no_progress, record
from ..execute import lava
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
    folded: FoldedNetwork,
    inputs: Array,
    *,
    patience: float = HANG_SECONDS,
    progress: Progress = no_progress,
    folded_trace: Callable[[], Trace] | None = None,
) -> FloatingCheck:
    """Count the spikes in which Lava's floating-point models differ from `simulate`.

    `folded_trace` returns the trace of `simulate`, to avoid computing it twice.
    """
    try:
        spikes = lava.run(folded, inputs, patience=patience, progress=progress).spikes
    except (MissingPackageError, SimulationError) as error:
        return FloatingCheck(not_run=str(error))
    expected = simulate(folded, inputs) if folded_trace is None else folded_trace()
    return _compare(folded, inputs, expected, spikes)


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
