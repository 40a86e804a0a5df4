"""Choose the narrowest float type that computes every sum of a connection, or of a population, exactly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..base import Array, remembered
from .graph import Connection, Population
from .neurons import AnyNeuron, Input, value_range

EXACT_FLOAT32, EXACT_FLOAT64 = 2**24, 2**53  # below these, floats hold every integer

Source = Population[Input | AnyNeuron]


@remembered
def ends(values: Array) -> tuple[Any, Any]:
    """Return the smallest and the largest of some numbers and zero."""
    return values.min(initial=0), values.max(initial=0)


def magnitude(values: Array) -> int:
    """Return the largest magnitude of integers; `np.abs` would leave the lowest one negative."""
    least, most = ends(values)
    return max(int(most), -int(least))


def largest_sum(connection: Connection, source: Source) -> float:
    """Return the largest sum of |weight * value| over the inputs of any neuron.

    It bounds every partial sum, in any order of summation.
    """
    largest_value = max(map(abs, value_range(source.neuron)))
    return largest_row(connection.synapse.weight) * largest_value


@remembered
def largest_row(weight: Array) -> float:
    """Return the largest sum of |weight| over the inputs of any neuron."""
    return float(np.abs(weight.astype(np.float64)).reshape(len(weight), -1).sum(axis=1).max())


def largest_total(arrivals: Iterable[tuple[Connection, Source]]) -> float:
    """Return the sum of the largest sums of all connections into a population, in the finest unit of them.

    It bounds every partial sum of their currents too. Bounds of the state do not: currents of two connections
    may be large and cancel each other, if no input is zero.
    """
    sums = [(connection.synapse.exponent, largest_sum(connection, source)) for connection, source in arrivals]
    finest = min(exponent for exponent, _ in sums)
    return sum(total * 2.0 ** (exponent - finest) for exponent, total in sums)


def exact_float(largest: float) -> type[np.floating[Any]]:
    """Return the narrowest float type that holds every integer up to a sum; `IntNetwork` has none beyond."""
    return np.float32 if largest < EXACT_FLOAT32 else np.float64
