"""Measure activity: count how often each neuron fires on given samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..base import Array, Progress, no_progress
from ..execute.emulator import CHUNK, Emulator
from ..ir import IntNetwork, Trace, as_steps
from .activity import Activity

TRACE_BYTES = 2**30  # limit on the trace of one chunk of samples
BYTES_PER_STATE = 15  # per neuron and step: a spike, and a voltage in two types


def measure(
    network: IntNetwork,
    inputs: Array,
    progress: Progress = no_progress,
    trace: Trace | None = None,
    *,
    random: bool = False,
) -> Activity:
    """Count the spikes of a network on inputs [samples, timesteps, *shape], or [samples, *shape].

    `trace` is an earlier execution on the same inputs. Without one, samples run in chunks of at least one
    sample, whose traces take at most `TRACE_BYTES`, and only sums are kept; `progress` counts the chunks.
    `random` says that the inputs are random.
    """
    inputs = np.asarray(inputs)
    as_steps(inputs[:1], network.input.shape, network.timesteps)
    counts = {p.name: np.zeros(p.shape, np.int64) for p in network.populations}
    for chunk, spikes in _executed(network, inputs, progress) if trace is None else [(inputs, trace.spikes)]:
        for name in spikes:
            counts[name] += np.count_nonzero(spikes[name], axis=(0, 1))
        steps = as_steps(chunk, network.input.shape, network.timesteps)
        counts[network.input.name] += np.count_nonzero(steps, axis=(0, 1))
    return Activity(
        samples=len(inputs),
        timesteps=network.timesteps,
        spikes={name: total / len(inputs) for name, total in counts.items()},
        random=random,
    )


def _executed(
    network: IntNetwork, inputs: Array, progress: Progress
) -> Iterator[tuple[Array, Mapping[str, Array]]]:
    """Yield chunks of the inputs with the resulting spikes."""
    emulator, size = Emulator(network), _samples_at_once(network)
    starts = range(0, len(inputs), size)
    for start in progress(starts):
        chunk = inputs[start : start + size]
        yield chunk, emulator.run(chunk).spikes


def _samples_at_once(network: IntNetwork) -> int:
    states = network.timesteps * sum(population.size for population in network.populations)
    return max(1, min(CHUNK, TRACE_BYTES // (BYTES_PER_STATE * states)))
