"""The update of sigma-delta neurons, which send the changes of an activation instead of spikes.

`modulator` returns the parameters of a population, and `Modulator` computes with them. The emulator and
Lava's layers have faster versions, tested against this one.
"""

from __future__ import annotations

import numpy as np
from typing_extensions import assert_never

from ..base import Array, record
from .neurons import STATE_LIMIT, Delta, Sigma, SigmaDelta, SigmaDeltaNeuron

NOTHING = np.zeros(1, np.int64)


@record
class Modulator:
    """The parameters of a population. In each time step, in this order:

        sigma     <- sigma + unit * sum of synapses; or without sigma, if it does not accumulate
        activation = sigma + bias, at least zero if it is rectified
        change     = activation - encoded
        message    = floor(change / 2**shift) where |change| >= threshold, else 0
        encoded   <- activation where |change| >= threshold

    The state (encoded, sigma) is zero before the first step of each sample. Without a threshold, nothing is
    sent.
    """

    unit: int  # a weight of one, in units of the state
    accumulates: bool
    bias: Array
    rectified: bool
    threshold: Array | None
    shift: int
    limit: int = STATE_LIMIT  # the largest magnitude of a state

    def at(self, step: int) -> Modulator:
        """Return the modulator of one time step: the same in all."""
        return self

    @property
    def graded(self) -> bool:
        return self.threshold is not None

    def integrate(self, state: tuple[Array, Array], arriving: Array) -> tuple[Array, Array]:
        """Return the state before it sends; `arriving` is unit * sum of synapses."""
        encoded, sigma = state
        return encoded, sigma + arriving if self.accumulates else arriving

    def fire(self, state: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        """Return the state after it has sent, and the messages; zeros are not sent."""
        encoded, sigma = state
        if self.threshold is None:
            return state, np.zeros_like(sigma)
        activation = sigma + self.bias
        if self.rectified:
            activation = np.maximum(activation, 0)
        change: Array = activation - encoded
        sends = np.abs(change) >= self.threshold
        messages: Array = np.where(sends, change >> self.shift, 0)
        return (np.where(sends, activation, encoded), sigma), messages


def modulator(neuron: SigmaDeltaNeuron) -> Modulator:
    """Return the modulator of a neuron."""
    match neuron:
        case Delta():
            exponent = neuron.message_exponent + neuron.state_exponent
            return Modulator(
                unit=2**exponent,
                accumulates=False,
                bias=NOTHING,
                rectified=False,
                threshold=neuron.threshold.astype(np.int64) << exponent,
                shift=neuron.state_exponent,
            )
        case SigmaDelta():
            exponent = neuron.message_exponent + neuron.state_exponent
            return Modulator(
                unit=1,
                accumulates=True,
                bias=neuron.bias.astype(np.int64) << exponent,
                rectified=True,
                threshold=neuron.threshold.astype(np.int64) << exponent,
                shift=neuron.state_exponent,
            )
        case Sigma():
            return Modulator(unit=1, accumulates=True, bias=NOTHING, rectified=False, threshold=None, shift=0)
        case _:
            assert_never(neuron)
