"""How much of a verification Lava's own process models can do in a given time.

They take about a thousand times longer than ours: a convolution calls SciPy for each pair of an input and an
output channel. Run as a whole, n samples of T steps take n T + depth steps of every population, because
samples pass the populations one after the other; alone, a population that is fed recorded spikes takes
n T + 1 steps, but Lava must be started for each. lava-dl's reader builds Lava's own processes from a file,
and only as a whole.

The estimate counts work, not the seconds of this machine, so that a verification that is repeated elsewhere
compares as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ...base import record
from ...ir import Connection, Conv2d, IntNetwork
from .plans import pipeline_depths
from .session import products

START_SECONDS = 1.5  # to start Lava's processes, and to stop them
PROCESS_SECONDS = 1.5e-3  # of a population in a time step, whatever its size
PRODUCTS_PER_SECOND = 1.3e8  # of Lava's own synapses
PAIR_SECONDS = 9e-6  # of a call for a pair of channels, besides its products
READER_SHARE = 0.25  # of the budget, for lava-dl's reader


@record
class BudgetShare:
    """What fits the budget: some samples, of the whole network or of populations that run alone."""

    samples: int
    alone: tuple[str, ...] = ()


def stock_share(network: IntNetwork, samples: int, seconds: float) -> BudgetShare:
    """Return the most samples, at most `samples`, that Lava's own models run in about so many seconds.

    If not even one sample of all populations fits, it is one sample of the cheapest ones.
    """
    steps = _step_seconds(network)
    whole = sum(steps.values())
    depth = max(pipeline_depths(network).values())
    together = (seconds - START_SECONDS - depth * whole) / (network.timesteps * whole)
    one_by_one = (seconds - START_SECONDS * len(steps) - whole) / (network.timesteps * whole)
    if together >= min(samples, one_by_one) and together >= 1:
        return BudgetShare(samples=min(samples, int(together)))
    if one_by_one >= 1:
        return BudgetShare(samples=min(samples, int(one_by_one)), alone=tuple(steps))
    alone, left = set(), seconds
    for name in sorted(steps, key=steps.__getitem__):
        left -= START_SECONDS + (network.timesteps + 1) * steps[name]
        alone |= {name} if left >= 0 else set()
    return BudgetShare(samples=min(1, len(alone)), alone=tuple(name for name in steps if name in alone))


def reader_samples(network: IntNetwork, samples: int, seconds: float) -> int:
    """Return how many samples, at most `samples`, lava-dl's reader runs in its share of so many seconds."""
    whole = sum(_step_seconds(network).values())
    left = READER_SHARE * seconds - START_SECONDS - (len(network.layers) + 1) * whole
    return max(0, min(samples, int(left / (network.timesteps * whole))))


def _step_seconds(network: IntNetwork) -> Mapping[str, float]:
    """Return the seconds of a time step of each population."""
    return {
        population.name: PROCESS_SECONDS
        + sum(_synapse_seconds(network, connection) for connection in network.entering(population.name))
        for population in network.layers
    }


def _synapse_seconds(network: IntNetwork, connection: Connection) -> float:
    synapse = connection.synapse
    seconds = products(network, connection) / PRODUCTS_PER_SECOND
    if isinstance(synapse, Conv2d):  # strides are applied after all products
        seconds *= prod(synapse.stride)
        seconds += prod(synapse.weight.shape[:2]) * PAIR_SECONDS
    return seconds
