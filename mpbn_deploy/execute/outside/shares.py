"""How much of a network a witness can run in a given time.

As for Lava's own models, the estimate counts work, not the seconds of this machine, so that a verification
that is repeated elsewhere compares as much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ...base import Array, record
from ...ir import Connection, Dense, IntNetwork, count_synapses
from .pieces import LARGEST_PIECE


@record
class Costs:
    """Seconds that a witness takes."""

    piece: float  # to start
    synapse: float  # to build
    step: float  # of a piece, without spikes
    arrival: float  # of a spike at a piece


@record
class Share:
    """What fits a budget: some samples of some populations."""

    samples: int
    populations: tuple[str, ...]


def share(
    network: IntNetwork,
    populations: Collection[str],
    sent: Mapping[str, Array],
    costs: Costs,
    seconds: float | None,
) -> Share:
    """Return the most samples of all these populations that take about so many seconds (None: all samples).

    If not even one sample of all populations fits, it is one sample of the cheapest ones.
    """
    samples = len(next(iter(sent.values())))
    if seconds is None:
        return Share(samples=samples, populations=tuple(populations))
    build = {name: _build_seconds(network, name, costs) for name in populations}
    run = {name: _sample_seconds(network, name, sent, costs) for name in populations}
    fitting = int((seconds - sum(build.values())) / max(sum(run.values()), 1e-9))
    if fitting >= 1:
        return Share(samples=min(samples, fitting), populations=tuple(populations))
    chosen, left = set(), seconds
    for name in sorted(populations, key=lambda name: build[name] + run[name]):
        left -= build[name] + run[name]
        chosen |= {name} if left >= 0 else set()
    return Share(samples=min(1, len(chosen)), populations=tuple(n for n in populations if n in chosen))


def _pieces(network: IntNetwork, name: str) -> int:
    return -(-network.layer(name).size // LARGEST_PIECE)


def _build_seconds(network: IntNetwork, name: str, costs: Costs) -> float:
    shapes = network.shapes
    synapses = sum(
        count_synapses(c.synapse, shapes[c.source], shapes[c.target]) for c in network.entering(name)
    )
    return _pieces(network, name) * costs.piece + synapses * costs.synapse


def _sample_seconds(network: IntNetwork, name: str, sent: Mapping[str, Array], costs: Costs) -> float:
    arrivals = sum(
        _spikes_per_sample(sent[c.source]) * _pieces_reached(network, c) for c in network.entering(name)
    )
    return _pieces(network, name) * network.timesteps * costs.step + arrivals * costs.arrival


def _spikes_per_sample(values: Array) -> float:
    """Return the spikes of a sample; a graded value counts as many as it may have binary digits."""
    digits = 1 if values.dtype == np.bool_ else int(np.abs(values).max(initial=0)).bit_length()
    return float(np.count_nonzero(values)) * digits / len(values)


def _pieces_reached(network: IntNetwork, connection: Connection) -> float:
    """Estimate how many pieces a spike reaches: each row of a kernel is a run of neurons."""
    synapse, most = connection.synapse, _pieces(network, connection.target)
    if isinstance(synapse, Dense):
        return most
    channels, _, height, width = synapse.weight.shape
    return float(min(most, height * (1 + width * channels / LARGEST_PIECE)))
