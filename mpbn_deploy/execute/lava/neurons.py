"""Neurons in NumPy, all of a population and of all lanes at once, in Lava's axes.

Whole numbers are kept in floats where `bounds` proves that no state leaves its 24 bits: then Lava's
wrapping of currents and clipping of voltages can never act, and float32 holds every state exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...base import Array
from ...ir import DECAY_ONE, STATE_EXPONENT, FloatLif, FloatReadout, Lif, Readout, Shape
from .plans import AnyPopulation, lava_shape

Decay = Callable[[Array], None]  # in place


class Neurons:
    """One time step: decay, integrate, fire, reset; the equations are those of `Lif` and `FloatLif`.

    A decay of None forgets everything within a step, and a threshold of None never fires. What is
    integrated is divided by `divisor`.
    """

    def __init__(
        self,
        shape: Shape,
        kind: type,
        *,
        bias: Array,
        threshold: Array | None,
        decay_current: Decay | None,
        decay_voltage: Decay | None,
        divisor: int = 1,
    ) -> None:
        self.voltage: Array = np.zeros(shape, kind)
        self.current: Array | None = None if decay_current is None else np.zeros(shape, kind)
        self.bias: Array = np.ascontiguousarray(bias, kind)  # per neuron, or per channel, in Lava's axes
        self.threshold: Array | None = None if threshold is None else np.ascontiguousarray(threshold, kind)
        self.decay_current, self.decay_voltage, self.divisor = decay_current, decay_voltage, divisor
        self.silence: Array | None = np.zeros(shape, np.bool_) if threshold is None else None

    def reset(self) -> None:
        self.voltage.fill(0)
        if self.current is not None:
            self.current.fill(0)

    def step(self, synapses: Array) -> Array:
        """Spikes, given the sum of the synapses, which is left as it is."""
        if self.current is not None and self.decay_current is not None:
            self.decay_current(self.current)
            self.current += synapses
            synapses = self.current
        if self.divisor > 1:
            synapses = (synapses + self.bias) / self.divisor
        if self.decay_voltage is None:
            self.voltage[...] = synapses
        else:
            self.decay_voltage(self.voltage)
            self.voltage += synapses
        if self.divisor == 1:
            self.voltage += self.bias
        if self.silence is not None:
            return self.silence
        spikes: Array = self.voltage > self.threshold
        self.voltage *= ~spikes  # many times faster than an assignment where they are
        return spikes


def exact_neurons(population: AnyPopulation, lanes: Shape) -> Neurons:
    """Of an integer population whose states are proven to keep their width."""
    neuron, shape = population.neuron, population.shape
    assert isinstance(neuron, (Lif, Readout))
    keeps = (DECAY_ONE - neuron.decay_current, DECAY_ONE - neuron.decay_voltage)
    return Neurons(
        (*lanes, *lava_shape(shape)),
        np.float32 if all(keep == 0 or DECAY_ONE % keep == 0 for keep in keeps) else np.float64,
        bias=neuron.bias.T * 2.0**neuron.bias_exponent,
        threshold=neuron.threshold.T * 2.0**STATE_EXPONENT if isinstance(neuron, Lif) else None,
        decay_current=_truncated_decay(keeps[0]),
        decay_voltage=_truncated_decay(keeps[1]),
    )


def real_neurons(population: AnyPopulation, lanes: Shape, timesteps: int) -> Neurons:
    """Of a folded population."""
    neuron, shape = population.neuron, population.shape
    assert isinstance(neuron, (FloatLif, FloatReadout))
    return Neurons(
        (*lanes, *lava_shape(shape)),
        np.float64,
        bias=neuron.bias.T,
        threshold=neuron.threshold.T if isinstance(neuron, FloatLif) else None,
        decay_current=_leak(neuron.current_leak),
        decay_voltage=_leak(neuron.leak),
        divisor=timesteps if isinstance(neuron, FloatReadout) else 1,
    )


def _truncated_decay(keep: int) -> Decay | None:
    """state <- trunc(state * keep / 4096), toward zero

    `keep / 4096` is a float without rounding. Its product with a state of 24 bits is one too: in float64
    always, in float32 where it is a power of two, which moves the point and no digit.
    """
    if keep == 0:
        return None

    def decay(state: Array) -> None:
        if keep < DECAY_ONE:
            state *= keep / DECAY_ONE
            np.trunc(state, out=state)

    return decay


def _leak(leak: float) -> Decay | None:
    if leak == 0:
        return None

    def decay(state: Array) -> None:
        state *= leak

    return decay
