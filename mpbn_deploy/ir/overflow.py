"""What becomes of numbers that leave their width, as Lava's fixed-point models compute it.

A network that we quantized never overflows: its reference raises instead. A network from elsewhere may, and
has no better definition than Lava's (lava-nc 0.10, `proc/conv/models.py` and `proc/lif/models.py`):

    sum of a convolution    wraps at 24 bits, in units of the finest weight that enters the population
    sum of a matrix         32 bits
    current                 32 bits, and beyond +-2**23 it is moved by 2**24 toward zero, once
    voltage                 32 bits, and clips at +-(2**23 - 1), again after the subtraction of a soft reset
"""

from __future__ import annotations

import numpy as np

from ..base import Array
from .exact_floats import largest_sum
from .graph import Connection
from .integer import IntNetwork
from .neurons import STATE_LIMIT
from .synapses import Conv2d

HALF = STATE_LIMIT + 1  # 2**23
WORD = 2**32


def wrapped(values: Array, size: float) -> Array:
    """Return the values, changed by multiples of `size` to at least -size / 2 and below size / 2."""
    kept: Array = (values + size // 2) % size - size // 2
    return kept


def wrapped_current(current: Array) -> Array:
    """Return a current after Lava's single wrap, which leaves those beyond 3 * 2**23 too large."""
    held = wrapped(current, WORD)
    lowered = np.where(held > HALF, held - 2 * HALF, held)
    return np.where(held <= -HALF, held + 2 * HALF, lowered)


def clipped_voltage(voltage: Array) -> Array:
    """Return a voltage within its limits."""
    return np.clip(wrapped(voltage, WORD), -STATE_LIMIT, STATE_LIMIT)


def wide_sums(network: IntNetwork, population: str) -> dict[Connection, float]:
    """Return the convolutions into a population whose sums may leave 24 bits, and the modulus of each."""
    if not network.foreign:
        return {}
    entering = network.entering(population)
    finest = 2.0 ** min((connection.synapse.exponent for connection in entering), default=0)
    return {
        connection: 2 * HALF * finest
        for connection in entering
        if isinstance(connection.synapse, Conv2d)
        and largest_sum(connection, network.population(connection.source)) * 2.0**connection.synapse.exponent
        >= HALF * finest
    }
