"""The kinds of neurons. Each is a frozen record whose docstring is its update, computed by `membrane`.

`Neuron` is the union of the kinds in an integer network, `FloatNeuron` of those in a folded network. Code
that depends on the kind matches on the union and ends with `assert_never`, so that mypy lists every place to
extend for a new kind. The functions at the end of the file take neurons of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, overload

import numpy as np
from typing_extensions import assert_never

from ..base import Array, array_record, record

STATE_EXPONENT = 6  # a weight or threshold of 1 is 2**6 units of current or voltage
DECAY_ONE = 4096  # a decay of 4096 clears the state within one step
ONE_FOR_ALL = ("decay_current", "decay_voltage", "leak", "current_leak")  # numbers that may be scalars
LARGEST_GROWTH = 8  # what a state of numbers per step may be multiplied by in one step
STATE_LIMIT = 2**23 - 1  # the largest magnitude of a current or voltage
LARGEST_EXPONENT = 23  # shifts a one beyond the largest state
XYLO_LOW, XYLO_HIGH = -(2**15), 2**15 - 1  # the limits of Xylo's states
LARGEST_SHIFT = 15  # of a decay of Xylo
XYLO_INPUT_SPIKES, XYLO_HIDDEN_SPIKES, XYLO_OUTPUT_SPIKES = 15, 31, 1  # the most in a time step
THRESHOLD_LIMIT = 2**17  # times 2**6 this exceeds every voltage, so larger thresholds are equivalent


@record
class Input:
    """Presents the sample itself: integers from minimum to maximum, as graded spikes.

    They are values of the data, or, with an offset or a divisor, round((value - offset) / divisor).
    """

    minimum: int
    maximum: int
    divisor: int = 1
    offset: int = 0

    def shifted(self, offset: int) -> Input:
        """Return the input that presents x - offset in place of x."""
        return replace(
            self, minimum=self.minimum - offset, maximum=self.maximum - offset, offset=self.offset + offset
        )

    def coarser(self, bits: int) -> Input:
        """Return the input of `bits` bits that presents round(x / divisor), with the smallest such divisor.

        Zero stays zero, so that silence stays silence.
        """
        signed = self.minimum < 0
        lowest, highest = -(2 ** (bits - 1)) if signed else 0, max(1, 2 ** (bits - signed) - 1)
        divisor = max(1, -(-self.maximum // highest), -(self.minimum // -lowest) if signed else 1)
        lowest, highest = (_rounded_quotient(end, divisor) for end in (self.minimum, self.maximum))
        return replace(self, minimum=lowest, maximum=highest, divisor=divisor)

    @property
    def takes_raw_values(self) -> bool:
        """Whether it presents the values of the data as they are."""
        return self.divisor == 1 and self.offset == 0

    @property
    def conversion(self) -> str:
        """What is done to the values of the data, for messages."""
        shift = f" minus {self.offset}" if self.offset > 0 else f" plus {-self.offset}" if self.offset else ""
        return shift + (f", divided by {self.divisor} and rounded" if self.divisor > 1 else "")

    def presented(self, values: Array) -> Array:
        """Return round((value - offset) / divisor), halves up."""
        if self.takes_raw_values:
            return values
        wide: Array = _rounded_quotient(values.astype(np.int64) - self.offset, self.divisor)
        return wide.astype(np.promote_types(values.dtype, np.int32) if self.offset else values.dtype)


def _rounded_quotient(value: Any, divisor: int) -> Any:
    """Return round(value / divisor), halves up, of an integer or an array of integers."""
    return (2 * value + divisor) // (2 * divisor)


# ---- in integers ------------------------------------------------------------------------------


@array_record
class Lif:
    """A leaky integrate-and-fire neuron with a hard reset. In each time step, in this order:

        current <- trunc(current * (4096 - decay_current) / 4096) + 2**6 * sum of synapses
        voltage <- trunc(voltage * (4096 - decay_voltage) / 4096) + current + bias * 2**bias_exponent
        spike    = voltage > threshold * 2**6
        voltage <- 0 where spike

    `trunc` rounds toward zero. The state is zero before the first step of each sample. `threshold`
    and `bias` have one value per neuron, or one per channel as (channels, 1, 1); decays may too.

    With `per_step`, here and in the other kinds that have it, every array has a first axis of time steps, and
    each step has its own numbers. Decays may then be negative: a state may grow.
    """

    threshold: Array
    bias: Array
    bias_exponent: int = STATE_EXPONENT
    decay_current: int | Array = DECAY_ONE
    decay_voltage: int | Array = DECAY_ONE
    per_step: bool = False


@array_record
class SoftLif:
    """A leaky integrate-and-fire neuron with a soft reset: `Lif`, except for the last line,

        voltage <- voltage - subtrahend * 2**6 where spike

    so that a voltage far above the threshold fires in several steps. `subtrahend` may be negative, and is
    shaped like the threshold.
    """

    threshold: Array
    subtrahend: Array
    bias: Array
    bias_exponent: int = STATE_EXPONENT
    decay_current: int | Array = DECAY_ONE
    decay_voltage: int | Array = DECAY_ONE
    per_step: bool = False


@array_record
class Readout:
    """Integrates and never fires; current and voltage are updated as in `Lif`.

    By default it sums without a leak (paper, Eq. 3). The output is the voltage after the last step.
    """

    bias: Array
    bias_exponent: int = STATE_EXPONENT
    decay_current: int | Array = DECAY_ONE
    decay_voltage: int | Array = 0
    per_step: bool = False


@record
class Relay:
    """Passes sums on. In each time step, in this order:

        message = sum of synapses
        the sum is forgotten

    The message is graded: a whole number from `minimum` to `maximum`, a range that contains zero and every
    sum that can arrive. A message of zero is not sent.
    """

    minimum: int
    maximum: int


@array_record
class Delta:
    """Encodes the changes of its input (Lava's `Delta`). In each time step, in this order:

        activation = sum of synapses * 2**(message_exponent + state_exponent)
        change     = activation - encoded
        sends      = |change| >= threshold * 2**(message_exponent + state_exponent)
        message    = floor(change / 2**state_exponent) where it sends, else none
        encoded   <- activation where it sends

    `encoded` is zero before the first step of each sample. What the division drops is not sent later. A
    message of zero is not sent. Thresholds are one per neuron, or one per channel as (channels, 1, 1).
    """

    threshold: Array
    message_exponent: int = STATE_EXPONENT
    state_exponent: int = STATE_EXPONENT


@array_record
class SigmaDelta:
    """Sums the changes that it receives, and encodes those of its activation (Lava's `SigmaDelta`):

        sigma     <- sigma + sum of synapses
        activation = max(0, sigma + bias * 2**(message_exponent + state_exponent))

    and then as in `Delta`. `sigma` is zero before the first step of each sample.
    """

    threshold: Array
    bias: Array
    message_exponent: int = STATE_EXPONENT
    state_exponent: int = STATE_EXPONENT


@record
class Sigma:
    """Sums the changes that it receives and sends nothing (Lava's `Sigma`): sigma <- sigma + sum of synapses

    The output is sigma after the last step.
    """


@array_record
class Xylo:
    """The neuron of SynSense's Xylo, in units of a weight. In each time step, in this order:

        current <- current + weight * count, synapse by synapse
        current <- current - decay(current, shift_current)
        change   = current - decay(voltage, shift_voltage) + bias
        voltage <- voltage + change
        count    = how often the threshold fits into the voltage, 0..max_spikes
        voltage <- voltage - count * threshold

        decay(x, k) = x >> k, but 1 if that is 0 and x > 0

    Every sum saturates at 16 bits, after each synapse and each term; only -decay(-32768, 0) wraps, and is
    -32768. So the order of the synapses matters: that of the sources in the network, and of their neurons.
    The state is zero before the first step of each sample. All numbers are one per neuron, or one per
    channel as (channels, 1, 1); shifts may also be one for all neurons.
    """

    threshold: Array
    bias: Array
    shift_current: int | Array
    shift_voltage: int | Array
    max_spikes: int


FiringNeuron = Lif | SoftLif | Xylo
IntegratingNeuron = Lif | SoftLif | Readout  # neurons with a membrane: bias, current, voltage, decays
SigmaDeltaNeuron = Delta | SigmaDelta | Sigma
Neuron = Lif | SoftLif | Readout | Relay | Delta | SigmaDelta | Sigma | Xylo

# ---- in real numbers --------------------------------------------------------------------------


@array_record
class FloatLif:
    """A leaky integrate-and-fire neuron with a hard reset. In each time step, in this order:

        current <- current_leak * current + sum of synapses
        voltage <- leak * voltage + current + bias
        spike    = voltage > threshold
        voltage <- 0 where spike

    With a threshold of plus (minus) infinity, a neuron never (always) fires. With a current leak of zero, the
    current does not outlast its time step. Leaks are one for all neurons, or shaped like thresholds.
    """

    threshold: Array
    bias: Array
    leak: float | Array
    current_leak: float | Array = 0.0
    per_step: bool = False


@array_record
class FloatSoftLif:
    """A leaky integrate-and-fire neuron with a soft reset: `FloatLif`, except for the last line,

    voltage <- voltage - subtrahend where spike
    """

    threshold: Array
    subtrahend: Array
    bias: Array
    leak: float | Array
    current_leak: float | Array = 0.0
    per_step: bool = False


@array_record
class FloatReadout:
    """Integrates and never fires. In each time step, in this order:

        current <- current_leak * current + sum of synapses
        voltage <- leak * voltage + (current + bias) / timesteps

    Networks trained by this package have a leak of one and a current leak of zero: the mean over time
    (Eq. 3). The output is the voltage after the last step.
    """

    bias: Array
    leak: float | Array = 1.0
    current_leak: float | Array = 0.0
    per_step: bool = False


@array_record
class FloatXylo:
    """The neuron of Xylo in real numbers: `FloatSoftLif` that subtracts its threshold as often as it can,

        count    = how often the threshold, which is positive, fits into the voltage, 0..max_spikes
        voltage <- voltage - count * threshold

    A current that decays before it is used, as Xylo's does, is this one with weights times its leak.
    """

    threshold: Array
    bias: Array
    leak: float | Array
    current_leak: float | Array
    max_spikes: int


FloatFiringNeuron = FloatLif | FloatSoftLif | FloatXylo
FloatNeuron = FloatLif | FloatSoftLif | FloatReadout | FloatXylo

# ---- functions of any kind --------------------------------------------------------------------

AnyNeuron = Neuron | FloatNeuron
NeuronT = TypeVar("NeuronT", bound=AnyNeuron)
OtherT = TypeVar("OtherT", bound=AnyNeuron)


def neuron_kind(neuron: Input | AnyNeuron) -> str:
    """Return the name of a kind, the same for its integer and its real version."""
    match neuron:
        case Input():
            return "input"
        case Lif() | FloatLif():
            return "lif"
        case SoftLif() | FloatSoftLif():
            return "soft lif"
        case Readout() | FloatReadout():
            return "readout"
        case Relay():
            return "relay"
        case Delta():
            return "delta"
        case SigmaDelta():
            return "sigma delta"
        case Sigma():
            return "sigma"
        case Xylo() | FloatXylo():
            return "xylo"
        case _:
            assert_never(neuron)


def fires(neuron: Input | AnyNeuron) -> bool:
    """Whether a neuron sends spikes; others send graded messages, or nothing."""
    match neuron:
        case Lif() | SoftLif() | Xylo() | FloatLif() | FloatSoftLif() | FloatXylo():
            return True
        case Input() | Relay() | Readout() | FloatReadout() | Delta() | SigmaDelta() | Sigma():
            return False
        case _:
            assert_never(neuron)


def sends(neuron: Input | AnyNeuron) -> bool:
    """Whether other populations can receive from a neuron; readouts only have a voltage."""
    match neuron:
        case Input() | Lif() | SoftLif() | FloatLif() | FloatSoftLif() | Relay() | Delta() | SigmaDelta():
            return True
        case Xylo() | FloatXylo():
            return True
        case Readout() | FloatReadout() | Sigma():
            return False
        case _:
            assert_never(neuron)


def is_graded(neuron: Input | AnyNeuron) -> bool:
    """Whether what a neuron sends is a graded message, a whole number in `value_range`, and not a spike."""
    match neuron:
        case Input() | Relay() | Delta() | SigmaDelta():
            return True
        case Lif() | SoftLif() | FloatLif() | FloatSoftLif() | Readout() | FloatReadout() | Sigma():
            return False
        case Xylo() | FloatXylo():  # the number of its spikes
            return True
        case _:
            assert_never(neuron)


def varies(neuron: Input | AnyNeuron) -> bool:
    """Whether the numbers of a neuron depend on the time step."""
    return bool(getattr(neuron, "per_step", False))


def at_step(neuron: NeuronT, step: int) -> NeuronT:
    """Return the neuron with the numbers of one time step."""
    if not varies(neuron):
        return neuron
    numbers: dict[str, Any] = {
        f.name: v[step] for f in fields(neuron) if isinstance(v := getattr(neuron, f.name), np.ndarray)
    }
    return replace(neuron, **{**numbers, "per_step": False})


def map_steps(neuron: NeuronT, function: Callable[[NeuronT], OtherT]) -> OtherT:
    """Apply a function to a neuron, or to that of each time step, which must give neurons of one kind."""
    if not varies(neuron):
        return function(neuron)
    return in_steps([function(at_step(neuron, step)) for step in range(len(neuron_bias(neuron)))])


def in_steps(neurons: Sequence[NeuronT]) -> NeuronT:
    """Return the neuron that is each of these in its time step, or the first one if all are equal."""
    first = neurons[0]
    ones = np.ones((len(neuron_bias(first)), *[1] * (neuron_bias(first).ndim - 1)), np.int32)
    found: dict[str, Any] = {}
    varying = False
    for name in (field.name for field in fields(first)):
        values = [getattr(each, name) for each in neurons]
        if not all(np.array_equal(value, values[0]) for value in values):
            found[name], varying = np.stack(np.broadcast_arrays(*values, ones)[:-1]), True
        elif name in ONE_FOR_ALL and np.ptp(values[0]) == 0:
            found[name] = np.ravel(values[0])[0].item()
        elif isinstance(values[0], np.ndarray):
            found[name] = np.stack(values)
    return replace(first, **{**found, "per_step": True}) if varying else first


def neuron_threshold(neuron: AnyNeuron) -> Array | None:
    """Return the threshold, in units of a weight; None for a neuron that never fires."""
    match neuron:
        case Lif() | SoftLif() | Xylo() | FloatLif() | FloatSoftLif() | FloatXylo():
            return neuron.threshold
        case Readout() | FloatReadout() | Relay() | Delta() | SigmaDelta() | Sigma():
            return None
        case _:
            assert_never(neuron)


def neuron_subtrahend(neuron: AnyNeuron) -> Array | None:
    """Return what a spike subtracts from the voltage, in units of a weight; None without a soft reset."""
    match neuron:
        case SoftLif() | FloatSoftLif():
            return neuron.subtrahend
        case Xylo() | FloatXylo():
            return neuron.threshold
        case Lif() | FloatLif() | Readout() | FloatReadout() | Relay() | Delta() | SigmaDelta() | Sigma():
            return None
        case _:
            assert_never(neuron)


def has_current(neuron: AnyNeuron) -> bool:
    """Whether some synaptic current outlasts its time step."""
    match neuron:
        case Lif() | SoftLif() | Readout():
            return bool(np.min(neuron.decay_current) < DECAY_ONE)
        case FloatLif() | FloatSoftLif() | FloatReadout():
            return bool(np.max(neuron.current_leak) > 0)
        case Xylo() | FloatXylo():
            return True
        case Relay() | Delta() | SigmaDelta() | Sigma():
            return False
        case _:
            assert_never(neuron)


def neuron_bias(neuron: AnyNeuron) -> Array:
    """Return the bias, which is added to the voltage in each step; for integer neurons its mantissa."""
    match neuron:
        case Lif() | SoftLif() | Readout() | SigmaDelta() | FloatLif() | FloatSoftLif() | FloatReadout():
            return neuron.bias
        case Xylo() | FloatXylo():
            return neuron.bias
        case Relay() | Delta() | Sigma():
            return np.zeros(1, np.int32)
        case _:
            assert_never(neuron)


def integrating(neuron: Neuron) -> IntegratingNeuron | None:
    """Return the neuron, typed as one with a membrane; None for any other kind."""
    match neuron:
        case Lif() | SoftLif() | Readout():
            return neuron
        case Relay() | Delta() | SigmaDelta() | Sigma() | Xylo():
            return None
        case _:
            assert_never(neuron)


def modulating(neuron: Neuron) -> SigmaDeltaNeuron | None:
    """Return the neuron, typed as a sigma-delta one; None for any other kind."""
    match neuron:
        case Delta() | SigmaDelta() | Sigma():
            return neuron
        case Lif() | SoftLif() | Readout() | Relay() | Xylo():
            return None
        case _:
            assert_never(neuron)


def counting(neuron: AnyNeuron) -> Xylo | FloatXylo | None:
    """Return the neuron, typed as one of Xylo, which sends how often it fired; None for any other kind."""
    match neuron:
        case Xylo() | FloatXylo():
            return neuron
        case Lif() | SoftLif() | Readout() | Relay() | Delta() | SigmaDelta() | Sigma():
            return None
        case FloatLif() | FloatSoftLif() | FloatReadout():
            return None
        case _:
            assert_never(neuron)


@overload
def with_values(
    neuron: Neuron, bias: Array, threshold: Array | None, subtrahend: Array | None = None
) -> Neuron: ...
@overload
def with_values(
    neuron: FloatNeuron, bias: Array, threshold: Array | None, subtrahend: Array | None = None
) -> FloatNeuron: ...
def with_values(
    neuron: AnyNeuron, bias: Array, threshold: Array | None, subtrahend: Array | None = None
) -> AnyNeuron:
    """Return a neuron with another bias and, if it has them and they are not None, the other numbers."""
    match neuron:
        case Lif() | FloatLif() | Xylo() | FloatXylo():
            return replace(neuron, bias=bias, threshold=_or(threshold, neuron.threshold))
        case SoftLif() | FloatSoftLif():
            return replace(
                neuron,
                bias=bias,
                threshold=_or(threshold, neuron.threshold),
                subtrahend=_or(subtrahend, neuron.subtrahend),
            )
        case Readout() | FloatReadout():
            return replace(neuron, bias=bias)
        case Delta():
            return replace(neuron, threshold=_or(threshold, neuron.threshold))
        case SigmaDelta():
            return replace(neuron, bias=bias, threshold=_or(threshold, neuron.threshold))
        case Relay() | Sigma():
            return neuron
        case _:
            assert_never(neuron)


def _or(values: Array | None, otherwise: Array) -> Array:
    return otherwise if values is None else values


def soft_reset(neuron: FloatLif, subtrahend: Array) -> FloatSoftLif:
    """Return the neuron with a soft reset in place of the reset to zero."""
    numbers = {field.name: getattr(neuron, field.name) for field in fields(neuron)}
    return FloatSoftLif(subtrahend=subtrahend, **numbers)


def xylo_reset(neuron: FloatLif, max_spikes: int) -> FloatXylo:
    """Return the neuron with the resets of Xylo in place of the reset to zero."""
    numbers = {field.name: getattr(neuron, field.name) for field in fields(neuron)}
    del numbers["per_step"]  # one set for all steps is all that a Xylo has
    return FloatXylo(max_spikes=max_spikes, **numbers)


def integer_neuron(
    kind: FloatNeuron, threshold: Array | None, subtrahend: Array | None, **numbers: Any
) -> Neuron:
    """Return the integer version of a kind of neuron; `numbers` are the fields that all kinds have."""
    match kind:
        case FloatLif():
            assert threshold is not None, "a neuron that fires has a threshold"
            return Lif(threshold=threshold, **numbers)
        case FloatSoftLif():
            assert threshold is not None and subtrahend is not None, "a soft reset needs both numbers"
            return SoftLif(threshold=threshold, subtrahend=subtrahend, **numbers)
        case FloatReadout():
            return Readout(**numbers)
        case FloatXylo():
            raise TypeError("a Xylo neuron has shifts in place of these numbers; see quantize.xylo")
        case _:
            assert_never(kind)


def value_range(neuron: Input | AnyNeuron) -> tuple[int, int]:
    """Return the smallest and the largest value that a neuron can send."""
    match neuron:
        case Input(minimum=minimum, maximum=maximum) | Relay(minimum=minimum, maximum=maximum):
            return minimum, maximum
        case Lif() | SoftLif() | FloatLif() | FloatSoftLif():
            return 0, 1
        case Delta(state_exponent=exponent) | SigmaDelta(state_exponent=exponent):
            return -2 * STATE_LIMIT >> exponent, 2 * STATE_LIMIT >> exponent  # of two activations
        case Xylo(max_spikes=most) | FloatXylo(max_spikes=most):
            return 0, most
        case Readout() | FloatReadout() | Sigma():
            return 0, 0
        case _:
            assert_never(neuron)
