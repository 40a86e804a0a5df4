"""The neuron update, written once for integers and real numbers.

`membrane` returns the parameters of a population in the arithmetic of its network, and `Membrane` computes
with them. The emulator, Lava's layers and the torch network have faster versions, tested against this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from typing import overload

import numpy as np
from typing_extensions import assert_never

from ..base import Array, record
from .graph import Connection, Population, largest_sum
from .networks import FloatPopulation, FoldedNetwork, IntNetwork, IntPopulation
from .neurons import (
    DECAY_ONE,
    STATE_EXPONENT,
    STATE_LIMIT,
    AnyNeuron,
    Delta,
    FiringNeuron,
    FloatFiringNeuron,
    FloatLif,
    FloatNeuron,
    FloatReadout,
    FloatSoftLif,
    FloatXylo,
    IntegratingNeuron,
    Lif,
    Readout,
    Relay,
    Sigma,
    SigmaDelta,
    SigmaDeltaNeuron,
    SoftLif,
    Xylo,
    varies,
)
from .synapses import Conv2d

# The update of sigma-delta neurons, which send the changes of an activation instead of spikes.
#
# `modulator` returns the parameters of a population, and `Modulator` computes with them. The emulator and
# Lava's layers have faster versions, tested against this one.


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


AnyNetwork = IntNetwork | FoldedNetwork  # the networks that can be executed
AnyPopulation = IntPopulation | FloatPopulation
State = tuple[Array, Array]  # current and voltage


@record
class Truncation:
    """state <- trunc(state * (4096 - amount) / 4096), toward zero"""

    amount: int | Array

    @property
    def kept(self) -> float | Array:
        """The factor per step before truncation; a float holds it exactly."""
        return 1 - self.amount / DECAY_ONE

    def selected(self, function: Callable[[Array], Array]) -> Truncation:
        """Return the decay of some neurons."""
        return Truncation(amount=function(self.amount)) if isinstance(self.amount, np.ndarray) else self

    def __call__(self, state: Array) -> Array:
        product = state * (DECAY_ONE - self.amount)
        decayed: Array = np.sign(product) * (np.abs(product) // DECAY_ONE)
        return decayed


@record
class Leak:
    """state <- kept * state"""

    kept: float | Array

    def selected(self, function: Callable[[Array], Array]) -> Leak:
        """Return the decay of some neurons."""
        return Leak(kept=function(self.kept)) if isinstance(self.kept, np.ndarray) else self

    def __call__(self, state: Array) -> Array:
        decayed: Array = self.kept * state
        return decayed


Decay = Truncation | Leak


@record
class Membrane:
    """The parameters of a population. In each time step, in this order:

        current <- decay_current(current) + unit * sum of synapses
        voltage <- decay_voltage(voltage) + (current + bias) / divisor
        spike    = voltage > threshold
        voltage <- 0 where spike; with a subtrahend, voltage - subtrahend

    The state is zero before the first step of each sample. Without a threshold, the neuron never fires. A
    `graded` one sends its voltage in every step, as a graded message, and returns to zero; with `max_spikes`
    it sends instead how often the threshold fits into the voltage, at most so often, and subtracts that.
    """

    unit: int  # a weight of one, in units of the state
    bias: Array
    threshold: Array | None
    decay_current: Decay
    decay_voltage: Decay
    subtrahend: Array | None = None  # of a soft reset
    divisor: int = 1
    graded: bool = False
    max_spikes: int | None = None
    limit: float = inf  # the largest magnitude of a state
    per_step: bool = False  # whether arrays have a first axis of time steps

    def at(self, step: int) -> Membrane:
        """Return the membrane of one time step."""
        return replace(self.selected(lambda values: values[step]), per_step=False) if self.per_step else self

    def in_steps(self, timesteps: int) -> Membrane:
        """Return the membrane with its arrays repeated in each time step, unless they have that axis."""
        if self.per_step:
            return self
        return replace(self.selected(lambda values: np.stack([values] * timesteps)), per_step=True)

    def integrate(self, state: State, arriving: Array) -> State:
        """Return the state before it fires; `arriving` is unit * sum of synapses."""
        current = self.decay_current(state[0]) + arriving
        if self.divisor == 1:  # keep this order: float addition is not associative
            return current, self.decay_voltage(state[1]) + current + self.bias
        return current, self.decay_voltage(state[1]) + (current + self.bias) / self.divisor

    def fire(self, state: State) -> tuple[State, Array]:
        """Return the state after its reset, and the spikes or graded messages."""
        current, voltage = state
        if self.max_spikes is not None:
            counts = np.clip(np.floor(voltage / self.threshold), 0, self.max_spikes)
            return (current, voltage - counts * self.threshold), counts
        if self.graded:
            return (current, np.zeros_like(voltage)), voltage
        if self.threshold is None:
            return state, np.zeros(voltage.shape, dtype=bool)
        spikes = voltage > self.threshold
        return (current, self.reset(voltage, spikes)), spikes

    def reset(self, voltage: Array, spikes: Array) -> Array:
        """Return the voltage after the reset of the neurons that fired."""
        return np.where(spikes, 0 if self.subtrahend is None else voltage - self.subtrahend, voltage)

    def narrow(self, state: State) -> State:
        """Return a state before it fires, as 24 bits hold it in Lava; the same state if it fits."""
        current = wrapped_current(state[0])
        return current, clipped_voltage(state[1] + current - state[0])

    def scaled(self, factor: Array | int) -> Membrane:
        """Return the membrane whose states are `factor` times as large, given inputs `factor` times as large.

        It fires the same spikes, provided that no factor is negative.
        """
        return self.mapped(lambda values: factor * values)

    def mapped(self, function: Callable[[Array], Array]) -> Membrane:
        """Return the membrane with a function applied to its bias, threshold and subtrahend."""
        threshold, subtrahend = (
            None if values is None else function(values) for values in (self.threshold, self.subtrahend)
        )
        return replace(self, bias=function(self.bias), threshold=threshold, subtrahend=subtrahend)

    def selected(self, function: Callable[[Array], Array]) -> Membrane:
        """Return the membrane of some neurons, which a function selects from numbers per neuron."""
        return replace(
            self.mapped(function),
            decay_current=self.decay_current.selected(function),
            decay_voltage=self.decay_voltage.selected(function),
        )


Rule = Membrane | Modulator


def update_rule(neuron: AnyNeuron, timesteps: int) -> Rule:
    """Return the update of a neuron of any kind."""
    match neuron:
        case Lif() | SoftLif() | Readout() | Relay():
            return membrane(neuron, timesteps)
        case FloatLif() | FloatSoftLif() | FloatReadout() | FloatXylo():
            return membrane(neuron, timesteps)
        case Xylo():
            raise TypeError("a network of Xylo neurons has its own updates: shift_rules")
        case Delta() | SigmaDelta() | Sigma():
            return modulator(neuron)
        case _:
            assert_never(neuron)


def membrane(neuron: AnyNeuron, timesteps: int) -> Membrane:
    """Return the membrane of a neuron of a kind that has one.

    A readout of real numbers averages over `timesteps`; with 1, it sums over time as integer readouts do.
    """
    match neuron:
        case Lif():
            return _integer_membrane(neuron, _shifted(neuron.threshold, STATE_EXPONENT))
        case SoftLif():
            rule = _integer_membrane(neuron, _shifted(neuron.threshold, STATE_EXPONENT))
            return replace(rule, subtrahend=_shifted(neuron.subtrahend, STATE_EXPONENT))
        case Readout():
            return _integer_membrane(neuron, None)
        case FloatLif():
            return _real_membrane(neuron, neuron.threshold, 1)
        case FloatSoftLif():
            return replace(_real_membrane(neuron, neuron.threshold, 1), subtrahend=neuron.subtrahend)
        case FloatReadout():
            return _real_membrane(neuron, None, timesteps)
        case FloatXylo():
            rule = _real_membrane(neuron, neuron.threshold, 1)
            return replace(rule, subtrahend=neuron.threshold, graded=True, max_spikes=neuron.max_spikes)
        case Relay():
            return _relay_membrane()
        case Delta() | SigmaDelta() | Sigma() | Xylo():
            raise TypeError(f"a {type(neuron).__name__} neuron has an update of its own, and no membrane")
        case _:
            assert_never(neuron)


def _relay_membrane() -> Membrane:
    """A state of one step, in units of a weight, which the next step does not see."""
    forgotten = Truncation(amount=DECAY_ONE)
    nothing = np.zeros(1, np.int64)
    return Membrane(
        unit=1,
        bias=nothing,
        threshold=None,
        decay_current=forgotten,
        decay_voltage=forgotten,
        graded=True,
        limit=STATE_LIMIT,
    )


def _integer_membrane(neuron: IntegratingNeuron, threshold: Array | None) -> Membrane:
    return Membrane(
        unit=2**STATE_EXPONENT,
        bias=_shifted(neuron.bias, neuron.bias_exponent),
        threshold=threshold,
        decay_current=Truncation(amount=neuron.decay_current),
        decay_voltage=Truncation(amount=neuron.decay_voltage),
        limit=STATE_LIMIT,
        per_step=neuron.per_step,
    )


def _real_membrane(neuron: FloatNeuron, threshold: Array | None, divisor: int) -> Membrane:
    return Membrane(
        unit=1,
        bias=neuron.bias,
        threshold=threshold,
        decay_current=Leak(kept=neuron.current_leak),
        decay_voltage=Leak(kept=neuron.leak),
        divisor=divisor,
        per_step=varies(neuron),
    )


def _shifted(values: Array, exponent: int) -> Array:
    return values.astype(np.int64) << exponent


# ---- populations that fire --------------------------------------------------------------------


@overload
def spiking(population: IntPopulation) -> Population[FiringNeuron] | None: ...
@overload
def spiking(population: FloatPopulation) -> Population[FloatFiringNeuron] | None: ...
def spiking(population: AnyPopulation) -> Population[FiringNeuron] | Population[FloatFiringNeuron] | None:
    """Return the population, typed as one of neurons with a threshold; None if it never fires."""
    match neuron := population.neuron:
        case Lif() | SoftLif() | Xylo():
            return population.with_neuron(neuron)
        case FloatLif() | FloatSoftLif() | FloatXylo():
            return population.with_neuron(neuron)
        case Readout() | FloatReadout() | Relay() | Delta() | SigmaDelta() | Sigma():
            return None
        case _:
            assert_never(neuron)


@overload
def firing(network: IntNetwork) -> Iterator[Population[FiringNeuron]]: ...
@overload
def firing(network: FoldedNetwork) -> Iterator[Population[FloatFiringNeuron]]: ...
def firing(network: AnyNetwork) -> Iterator[Population[FiringNeuron] | Population[FloatFiringNeuron]]:
    """Yield the populations that fire."""
    for population in network.layers:
        if (found := spiking(population)) is not None:
            yield found


# What becomes of numbers that leave their width, as Lava's fixed-point models compute it.
#
# A network that we quantized never overflows: its reference raises instead. A network from elsewhere may, and
# has no better definition than Lava's (lava-nc 0.10, `proc/conv/models.py` and `proc/lif/models.py`):
#
#     sum of a convolution    wraps at 24 bits, in units of the finest weight that enters the population
#     sum of a matrix         32 bits
#     current                 32 bits, and beyond +-2**23 it is moved by 2**24 toward zero, once
#     voltage                 32 bits, and clips at +-(2**23 - 1), again after the subtraction of a soft reset


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
