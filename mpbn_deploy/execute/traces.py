"""Operations on traces that several executors share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..base import Array
from ..ir import AnyNetwork, Trace, join_overflows, sends

VALUES_AT_ONCE = 2**23  # neurons * time steps * samples whose traces are in memory: some 30 bytes each


def chunks(network: AnyNetwork, samples: int) -> list[slice]:
    """Divide samples into chunks of at least one, whose traces fit in memory."""
    neurons = sum(population.size for population in network.populations)
    size = max(1, VALUES_AT_ONCE // (neurons * network.timesteps))
    return [slice(start, min(start + size, samples)) for start in range(0, samples, size)]


def outputs_of(network: AnyNetwork, spikes: Mapping[str, Array], voltages: Mapping[str, Array]) -> Array:
    """Return the sums of what the last population sent, its spike counts; else its last voltages."""
    last = network.output
    return spikes[last.name].sum(axis=1) if sends(last.neuron) else voltages[last.name][:, -1]


def join_traces(traces: Sequence[Trace]) -> Trace:
    """Concatenate traces of consecutive samples."""

    def joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return Trace(
        spikes=joined([trace.spikes for trace in traces]),
        voltages=joined([trace.voltages for trace in traces]),
        outputs=np.concatenate([trace.outputs for trace in traces]),
        overflows=join_overflows([trace.overflows for trace in traces]),
    )
