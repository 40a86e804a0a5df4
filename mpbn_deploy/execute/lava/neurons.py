"""Neurons in NumPy, for all neurons of a population and all lanes at once, in Lava's axes.

`Neurons` repeats `ir.Membrane` in place, for speed; tests compare it with the reference and with Lava's own
neurons.

Integers are stored in floats if it is proved that no state overflows 24 bits. Lava's wrapping of currents and
clipping of voltages then never happens, and float32 holds every state exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ...base import Array, SimulationError, layer_name
from ...ir import DECAY_ONE, Decay, Leak, Membrane, Modulator, Shape, Truncation

DecayInPlace = Callable[[Array], None]


class Neurons:
    """Decays, integrates, fires and resets; integers are stored in floats that hold all states."""

    def __init__(self, rule: Membrane, shape: Shape, kind: type | None = None) -> None:
        kind = kind or _state_type(rule)
        self.voltage: Array = np.zeros(shape, kind)
        self.decay_current, self.decay_voltage = map(_in_place, (rule.decay_current, rule.decay_voltage))
        self.current: Array | None = None if self.decay_current is None else np.zeros(shape, kind)
        self.bias = _laid_out(rule.bias, kind)
        self.threshold, self.subtrahend = (
            None if values is None else _laid_out(values, kind)
            for values in (rule.threshold, rule.subtrahend)
        )
        self.divisor = rule.divisor
        self.graded = rule.graded
        self.silence: Array | None = np.zeros(shape, np.bool_) if rule.threshold is None else None

    def reset(self) -> None:
        self.voltage.fill(0)
        if self.current is not None:
            self.current.fill(0)

    def step(self, synapses: Array) -> Array:
        """Return the spikes or graded messages, given the synaptic current, which is not modified."""
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
        if self.graded:
            messages: Array = self.voltage.astype(np.int32)
            self.voltage.fill(0)
            return messages
        if self.silence is not None:
            return self.silence
        spikes: Array = self.voltage > self.threshold
        if self.subtrahend is None:
            self.voltage *= ~spikes  # many times faster than a masked assignment
        else:
            self.voltage -= spikes * self.subtrahend
        return spikes


class SteppedNeurons:
    """Neurons with numbers per time step: those of each step, on the same states."""

    def __init__(self, rule: Membrane, shape: Shape, timesteps: int) -> None:
        rules, kind = [rule.at(step) for step in range(timesteps)], _state_type(rule)
        self.each = [Neurons(each, shape, kind) for each in rules]
        self.voltage, self.steps_taken = self.each[0].voltage, 0
        current = next((each.current for each in self.each if each.current is not None), None)
        for neurons in self.each:
            neurons.voltage, neurons.current = self.voltage, current
            neurons.decay_current = neurons.decay_current or _forget

    def reset(self) -> None:
        self.steps_taken = 0
        self.each[0].reset()

    def step(self, synapses: Array) -> Array:
        """Return the spikes; before the first sample arrives, neurons run as in the steps of a sample."""
        neurons = self.each[self.steps_taken % len(self.each)]
        self.steps_taken += 1
        return neurons.step(synapses)


def _forget(state: Array) -> None:
    state.fill(0)


class ModulatedNeurons:
    """Sigma-delta neurons: `ir.Modulator` itself, which raises where states would overflow 24 bits."""

    def __init__(self, name: str, rule: Modulator, shape: Shape) -> None:
        self.name, self.shape = name, shape
        threshold = None if rule.threshold is None else rule.threshold.T
        self.rule = replace(rule, bias=rule.bias.T, threshold=threshold)
        self.reset()

    @property
    def voltage(self) -> Array:
        return self.state[1]

    def reset(self) -> None:
        self.state: tuple[Array, Array] = (np.zeros(self.shape, np.int64), np.zeros(self.shape, np.int64))

    def step(self, synapses: Array) -> Array:
        """Return the graded messages, given the sums of synapses."""
        arriving = synapses.astype(np.int64)
        self.state, messages = self.rule.fire(self.rule.integrate(self.state, arriving))
        largest = max(int(np.abs(values).max()) for values in (arriving, *self.state))
        if largest > self.rule.limit:
            raise SimulationError(f"{layer_name(self.name)}: a sum of magnitude {largest} overflows 24 bits.")
        return messages


def _laid_out(values: Array, kind: type) -> Array:
    """Return numbers per neuron, or per channel, in Lava's axes."""
    return np.ascontiguousarray(values.T, kind)


def _state_type(rule: Membrane) -> type:
    """Return float32 if all decays are exact in it, else float64."""
    return np.float32 if all(map(_exact_in_float32, (rule.decay_current, rule.decay_voltage))) else np.float64


def _exact_in_float32(decay: Decay) -> bool:
    """Return whether a decay multiplies integers by zero or a power of two."""
    match decay:
        case Truncation(amount=amount):
            return all(each == DECAY_ONE or DECAY_ONE % (DECAY_ONE - each) == 0 for each in np.unique(amount))
        case Leak():
            return False
        case _:
            assert_never(decay)


def _in_place(decay: Decay) -> DecayInPlace | None:
    """Return the decay as an in-place function, or None if it keeps no state.

    The fraction that a truncation keeps is exact as a float. So is its product with a 24-bit state: always in
    float64, and in float32 if the fraction is a power of two.
    """
    if not np.any(decay.kept):
        return None
    kept = np.ascontiguousarray(np.transpose(decay.kept))  # in Lava's axes
    match decay:
        case Truncation():
            return lambda state: _truncate(state, kept)
        case Leak():
            return lambda state: _multiply(state, kept)
        case _:
            assert_never(decay)


def _truncate(state: Array, kept: Array) -> None:
    if (kept != 1).any():
        state *= kept
        np.trunc(state, out=state)


def _multiply(state: Array, kept: Array) -> None:
    state *= kept
