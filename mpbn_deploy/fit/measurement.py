"""Measure activity: count how often each neuron fires on given samples."""

from __future__ import annotations

import numpy as np

from ..base import Array, Progress, no_progress
from ..execute import chunks
from ..execute.emulator import Emulator
from ..ir import IntNetwork, SpikeCounts, as_steps, count_spikes, join_counts
from .activity import Activity


def measure(
    network: IntNetwork,
    inputs: Array,
    progress: Progress = no_progress,
    counted: SpikeCounts | None = None,
    *,
    random: bool = False,
) -> Activity:
    """Count the spikes of a network on inputs [samples, timesteps, *shape], or [samples, *shape].

    `counted` are the spikes of an earlier execution on the same inputs. Without them, samples run in chunks,
    and only sums are kept; `progress` counts the chunks. `random` says that the inputs are random.
    """
    inputs = np.asarray(inputs)
    as_steps(inputs[:1], network.input.shape, network.timesteps)
    parts = [inputs[part] for part in chunks(network, len(inputs))]
    if counted is None:
        emulator = Emulator(network)
        counted = join_counts([count_spikes(emulator.run(parts[i])) for i in progress(range(len(parts)))])
    given = (
        np.count_nonzero(as_steps(part, network.input.shape, network.timesteps), axis=(0, 1))
        for part in parts
    )
    counts = {network.input.name: sum(given), **counted.per_neuron}
    return Activity(
        samples=len(inputs),
        timesteps=network.timesteps,
        spikes={name: total / len(inputs) for name, total in counts.items()},
        random=random,
    )
