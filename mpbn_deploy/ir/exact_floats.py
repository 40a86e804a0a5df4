"""Choose the narrowest float type that computes every sum of a connection exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from .graph import Connection, Population
from .neurons import AnyNeuron, Input, value_range

EXACT_FLOAT32, EXACT_FLOAT64 = 2**24, 2**53  # below these, floats hold every integer


def largest_sum(connection: Connection, source: Population[Input | AnyNeuron]) -> float:
    """Return the largest sum of |weight * value| over the inputs of any neuron.

    It bounds every partial sum, in any order of summation.
    """
    weight = np.abs(connection.synapse.weight.astype(np.float64))
    largest_value = max(map(abs, value_range(source.neuron)))
    return float(weight.reshape(len(weight), -1).sum(axis=1).max()) * largest_value


def exact_float(largest: float) -> type[np.floating[Any]] | None:
    """Return the narrowest float type that holds every integer up to this sum; None if float64 does not."""
    if largest < EXACT_FLOAT32:
        return np.float32
    return np.float64 if largest < EXACT_FLOAT64 else None
