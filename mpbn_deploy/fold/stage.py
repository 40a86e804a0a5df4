"""TrainedNetwork -> FoldedNetwork: no normalizations, one threshold per channel or neuron.

This is Eq. 10 of the paper, extended to gains of any sign. A neuron with MPBN fires when

    gain * (v - mean) / sqrt(variance + epsilon) + offset > threshold

which for gain > 0 is v > folded, with

    folded = (threshold - offset) * sqrt(variance + epsilon) / gain + mean.

For gain < 0, dividing flips the comparison to v < folded; negating the channel's weights, bias and
threshold flips it back, exactly, because leak and reset to zero are odd functions of v. A convolution channel
with gains of both signs gets a second, negated copy (`inputs.py`). For gain = 0, the neuron always fires if
offset > threshold, and otherwise never.

A soft reset, v <- v - subtrahend, acts on the membrane before normalization: MPBN changes the threshold and
leaves the subtrahend; negating a channel negates both.

A recurrent synapse is a connection from the neurons to themselves that takes one time step.

A synaptic current is a linear function of what arrives, and the membrane of the current, so norms before the
current scale its synapses, and MPBN folds as above. But their shifts, and biases, enter the current and build
up in it, which no bias of a voltage does: they become the spikes of neurons that always fire
(`ir.constant_source`).

A norm per time step (`BatchNorm.per_step`; TEBN, BNTT, TAB) gives a neuron currents g_t * (W x_t) + b_t. Its
membrane u_t divided by the gain, w_t = u_t / g_t, has constant weights and numbers that depend on the step:

    w_t <- leak * (g_(t-1) / g_t) * w_(t-1) + W x_t + b_t / g_t,    spike = w_t > threshold / g_t

and a spike subtracts subtrahend / g_t. So the neuron gets numbers per step (`FloatLif.per_step`), exactly.
Gains that are negative in all steps negate the weights first. A gain that changes its sign from step to step,
or is zero in one, would reverse or lose the comparison in some steps, whatever the leak: such a network is
rejected. The offsets of a current that outlasts its step become what they add up to in the voltage, one bias
per step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from typing_extensions import assert_never

from ..base import Array, FoldError, NetworkError, layer_name, same_records
from ..ir import (
    INPUT_NAME,
    AdaptivePool,
    Add,
    Affine,
    Algebra,
    Arrival,
    AveragePool,
    BatchNorm,
    Connection,
    Convolution,
    CountingSpike,
    Delay,
    Dense,
    Diagonal,
    Flatten,
    FloatFiringNeuron,
    FloatLif,
    FloatNeuron,
    FloatReadout,
    FloatXylo,
    FoldedNetwork,
    Gate,
    Input,
    InputFormat,
    Linear,
    MaxPool,
    Population,
    Shape,
    Spike,
    Synapses,
    TracedOperation,
    TrainedNetwork,
    Value,
    any_synapse,
    average_synapse,
    compact,
    constant_source,
    counting_threshold,
    firing,
    in_steps,
    per_channel,
    scaled,
    soft_reset,
    spread_synapse,
    state_intervals,
    value_range,
    varies,
)
from .inputs import Copies, copies

OUTPUT_NAME = "output"
ANY_SPIKE = 0.5  # the threshold of a neuron that fires when at least one of its inputs does


def fold(trained: TrainedNetwork) -> FoldedNetwork:
    """Fold input normalization, batch norms, pooling and MPBN into weights, biases and thresholds.

    Spikes stay the same, except where a voltage is closer to the threshold than float64 resolves.
    """
    _check_output_name(trained)
    folding = _Folding(trained.input, trained.timesteps)
    for operation in trained.operations:
        with _named(operation.name):
            folding.take(operation)
    with _named(trained.operations[-1].name):
        folding.finish(trained)
    return _with_finite_thresholds(
        FoldedNetwork(
            populations=tuple(folding.populations),
            connections=tuple(folding.connections),
            timesteps=trained.timesteps,
        )
    )


class _Folding:
    """Builds the folded network: its populations so far, and the value of every operation."""

    def __init__(self, given: InputFormat, timesteps: int) -> None:
        self.timesteps = timesteps
        self.driver = Population(
            name=INPUT_NAME,
            shape=given.shape,
            neuron=Input(minimum=given.minimum, maximum=given.maximum),
        )
        self.populations: list[Population[Input | FloatNeuron]] = [self.driver]
        self.binary: set[str] = set()  # populations that send 0 or 1
        self.connections: list[Connection] = []
        self.shapes = {INPUT_NAME: given.shape}
        self.algebra = Algebra(shapes=self.shapes)
        self.values = {INPUT_NAME: self.algebra.through(_normalization(given), self.algebra.sent(INPUT_NAME))}

    def take(self, operation: TracedOperation) -> None:
        """Fold one operation: neurons become a population, everything else a value."""
        values = [self.values[source] for source in operation.sources]
        match operation.kind:
            case Spike():
                self.fire(operation, operation.kind, self.positive(values[0]))
            case CountingSpike():
                self.count(operation, operation.kind, values[0])
            case MaxPool():
                self.pool(operation, operation.kind, values[0])
            case Gate():
                self.gate(operation, operation.kind, values)
            case Add():
                self.values[operation.name] = reduce(self.algebra.sum, values)
            case _:
                affine = _affine(operation, operation.kind, values[0].shape)
                self.values[operation.name] = self.algebra.through(affine, values[0])

    def fire(self, operation: TracedOperation, spike: Spike, value: Value) -> None:
        """Add neurons, which send the sum over the copies of each channel."""
        name, shape = operation.name, operation.shape
        made = copies(spike, shape)
        self.shapes[name] = made.shape(shape)
        sent = self.algebra.sent(name)
        if not made.single:
            sums = Affine(source=sent.shape, shape=shape, synapse=made.sums())
            sent = self.algebra.through(sums, sent)
        synapses, bias = self.arriving(shape, value)
        if spike.recurrent is not None and value.gain is not None:
            raise FoldError(
                f"{layer_name(name)}: recurrent, behind a norm per time step: its recurrent weights would "
                "have to change from step to step. Train with --norm batch or tdbn."
            )
        if spike.recurrent is not None:  # its bias counts from the first step on
            loop = _affine(operation, spike.recurrent, shape)
            again, _ = self.arriving(shape, self.algebra.through(replace(loop, bias=None, delay=1), sent))
            synapses, bias = {**synapses, **again}, bias if loop.bias is None else bias + loop.bias
        if np.any(spike.current_leak) and value.gain is None:
            synapses, bias = self.accumulating(name, synapses, bias)
        if value.gain is not None or (spike.norm is not None and spike.norm.per_step):
            neuron, synapses = self.fold_steps(spike, made, synapses, bias, value)
        else:
            neuron, synapses = _fold_neuron(shape, spike, made, synapses, bias)
        self.populate(name, made.shape(shape), neuron, synapses)
        self.values[name] = sent

    def fold_steps(
        self, spike: Spike, made: Copies, synapses: dict[Arrival, Synapses], bias: Array, value: Value
    ) -> tuple[FloatFiringNeuron, dict[Arrival, Synapses]]:
        """Fold a neuron with the numbers of each time step, and divide them by the gain of its currents."""
        shape, steps = value.shape, self.timesteps
        gain = np.ones((steps, *shape)) if value.gain is None else np.asarray(value.gain)
        biases = np.broadcast_to(bias, (steps, *shape))
        if value.gain is not None and np.any(spike.current_leak):
            biases = _accumulated(biases, _spread(np.asarray(spike.current_leak), shape))
        found = []
        for step in range(steps):
            norm = None if spike.norm is None else spike.norm.at(step)
            neuron, kept = _fold_neuron(shape, replace(spike, norm=norm), made, synapses, biases[step])
            before, now = made.of(gain[max(step - 1, 0)]), made.of(gain[step])
            found.append((_divided(neuron, now, before / now), kept))
        neurons, entering = zip(*found, strict=True)
        if any(not same_records(entering[0], each) for each in entering[1:]):
            raise FoldError(
                "neurons that are constant in some time steps only; train with --mpbn-gain positive."
            )
        return in_steps(_in_compact_steps(neurons)), entering[0]

    def positive(self, value: Value) -> Value:
        """Return the value with a positive gain in all steps; raise if its sign changes, or it is zero."""
        if value.gain is None or (value.gain > 0).all():
            return value
        sign = np.sign(value.gain[0])
        if not (value.gain * sign > 0).all():
            wrong = ~(value.gain * sign > 0).reshape(len(value.gain), value.shape[0], -1).all(axis=(0, 2))
            raise FoldError(
                f"{wrong.sum()} of {len(wrong)} channels have a gain that changes its sign from time step to "
                f"time step, or is zero in one (channel {wrong.argmax()}): no weights that all steps share "
                "can do that. Train with --norm tdbn, tab or batch, or with a lower --norm-rate."
            )
        return replace(self.algebra.scaled(value, sign), gain=value.gain * sign)

    def count(self, operation: TracedOperation, spike: CountingSpike, value: Value) -> None:
        """Add neurons of Xylo, whose norm is part of their threshold and of what a spike subtracts."""
        name, shape = operation.name, operation.shape
        if value.gain is not None or (spike.norm is not None and spike.norm.per_step):
            raise FoldError(
                f"{layer_name(name)}: a norm per time step; Xylo has one set of numbers for all steps."
            )
        self.shapes[name] = shape
        if value.constant is not None and value.constant.any():
            raise FoldError(
                f"{layer_name(name)}: a bias, or the mean of a norm or of the inputs, enters its current and "
                "would build up there; Xylo adds biases to the voltage only. Use Linear(bias=False) without "
                "batch norm: XyloLIF has a bias of its own, and MPBN."
            )
        synapses, _ = self.arriving(shape, value)
        if spike.recurrent is not None:
            loop = replace(_affine(operation, spike.recurrent, shape), bias=None, delay=1)
            synapses |= self.arriving(shape, self.algebra.through(loop, self.algebra.sent(name)))[0]
        threshold, bias = (per_channel(each, shape) for each in (counting_threshold(spike), spike.bias))
        neuron = FloatXylo(
            threshold=threshold,
            bias=bias,
            leak=spike.leak,
            current_leak=spike.current_leak,
            max_spikes=spike.max_spikes,
        )
        self.populate(name, shape, neuron, synapses)

    def pool(self, operation: TracedOperation, pool: MaxPool, value: Value) -> None:
        """Add a max pool of spikes: neurons without memory that fire if any of their inputs does."""
        if not self.is_spikes(value):
            raise FoldError(
                f"{layer_name(operation.name)}: MaxPool2d is supported on spikes only; put it right "
                "after a LIF, or use AvgPool2d."
            )
        counting = any_synapse(pool, operation.shape[0])
        affine = Affine(source=value.shape, shape=operation.shape, synapse=counting)
        self.compare(operation, self.algebra.through(affine, value), ANY_SPIKE)

    def gate(self, operation: TracedOperation, gate: Gate, values: list[Value]) -> None:
        """Add neurons without memory that compute a function of spikes, such as their product."""
        if not all(map(self.is_spikes, values)):
            raise FoldError(
                f"{layer_name(operation.name)}: multiplies values that are not spikes. A product of spikes "
                "is a neuron; a product of sums, as (q @ k.T) @ v, is none, because synapses only add. Put a "
                "LIF behind each sum before it is multiplied, as the Spike-Driven Transformer does."
            )
        shape = operation.shape
        parts = [
            Affine(
                source=value.shape,
                shape=shape,
                synapse=spread_synapse(value.shape, shape),
                factor=np.full(shape, weight),
            )
            for weight, value in zip(gate.weights, values, strict=True)
        ]
        weighted = [self.algebra.through(part, value) for part, value in zip(parts, values, strict=True)]
        self.compare(operation, reduce(self.algebra.sum, weighted), gate.threshold)

    def compare(self, operation: TracedOperation, value: Value, least: float) -> None:
        """Add neurons without memory, which fire where a value of this step exceeds `least`."""
        shape = operation.shape
        synapses, constant = self.arriving(shape, value)
        threshold = compact(least - constant.reshape(shape))
        neuron = FloatLif(threshold=threshold, bias=np.zeros_like(threshold), leak=0.0)
        self.populate(operation.name, shape, neuron, synapses)

    def is_spikes(self, value: Value) -> bool:
        """Whether a value is what neurons of one layer send, 0 or 1, or is one minus that."""
        inverse = Affine(
            source=value.shape, shape=value.shape, factor=-np.ones(value.shape), bias=np.ones(value.shape)
        )
        return self.is_sent(value) or self.is_sent(self.algebra.through(inverse, value))

    def is_sent(self, value: Value) -> bool:
        (arrival, map_), *others = value.maps.items()
        changed = value.gain is not None or (value.constant is not None and value.constant.any())
        if others or changed or arrival[0] not in self.binary:
            return False
        if isinstance(map_, Diagonal):
            return map_.is_identity
        sums = self.values[arrival[0]].maps.get(arrival)  # over the copies of each channel
        return isinstance(sums, tuple) and all(
            np.array_equal(one.weight, other.weight) for one, other in zip(map_, sums, strict=True)
        )

    def finish(self, trained: TrainedNetwork) -> None:
        """Add the readout, which integrates the last value and never fires (Eq. 3)."""
        last, leak = trained.operations[-1], trained.readout_leak
        if isinstance(last.kind, CountingSpike):  # whose spikes are counted
            return
        value = self.values[last.name]
        if leak is not None:  # a membrane sums, and readouts divide by the time steps
            times = np.full(last.shape, float(trained.timesteps))
            value = self.algebra.through(Affine(source=last.shape, shape=last.shape, factor=times), value)
        kept = 1.0 if leak is None else leak
        if value.gain is None:
            synapses, bias = self.arriving(last.shape, value)
            readout = FloatReadout(bias=compact(bias), leak=kept)
        else:  # in units of the gain of the last step, after which the voltage is read
            synapses, bias = self.arriving(last.shape, self.algebra.scaled(value, value.gain[-1]))
            gain = self.weights_of_steps(last.name, value.gain)
            before, biases = np.concatenate([gain[:1], gain[:-1]]), np.broadcast_to(bias, gain.shape)
            divisor = np.where(gain == 0, 1.0, gain)  # a readout that starts late forgets what came before
            leaks = kept * before / divisor
            readout = in_steps(
                [FloatReadout(bias=b / g, leak=a) for b, g, a in zip(biases, divisor, leaks, strict=True)]
            )
        self.populate(OUTPUT_NAME, last.shape, readout, synapses)

    def weights_of_steps(self, name: str, gain: Array) -> Array:
        """Return the weights of the steps in a readout; the first ones may be zero."""
        used = (gain != 0).all(axis=tuple(range(1, gain.ndim)))
        if not used[np.argmax(used) :].all() or gain[~used].any():
            raise FoldError(
                f"{layer_name(name)}: the readout skips time steps between others; it can start late, but "
                "then reads every step. Give no step after the first that counts a weight of zero."
            )
        weights: Array = gain / gain[-1]
        return weights

    def populate(
        self, name: str, shape: Shape, neuron: FloatNeuron, synapses: dict[Arrival, Synapses]
    ) -> None:
        self.populations.append(Population(name=name, shape=shape, neuron=neuron))
        for (source, delay), parts in synapses.items():
            self.connections += (
                Connection(source=source, target=name, synapse=part, delay=delay) for part in parts
            )
        if value_range(neuron) == (0, 1):
            self.binary.add(name)
        self.shapes[name] = shape
        self.values[name] = self.algebra.sent(name)

    def accumulating(
        self, target: str, synapses: dict[Arrival, Synapses], bias: Array
    ) -> tuple[dict[Arrival, Synapses], Array]:
        """Return synapses with neurons that always fire in place of a bias, which would not build up."""
        if not bias.any():
            return synapses, bias
        name = f"{target}_constant"
        while name in self.values:
            name += "_"
        source, (silent, constant) = constant_source(name, target, bias, self.driver)
        self.populate(name, source.shape, source.neuron, {(INPUT_NAME, 0): (silent.synapse,)})
        return {**synapses, (name, 0): (constant.synapse,)}, np.zeros_like(bias)

    def arriving(self, shape: Shape, value: Value) -> tuple[dict[Arrival, Synapses], Array]:
        """Return a value as synapses onto neurons of a shape, and a bias for each neuron."""
        bias = np.zeros(shape) if value.constant is None else value.constant
        return self.algebra.onto(value, shape), bias


def _check_output_name(trained: TrainedNetwork) -> None:
    if any(isinstance(each.kind, Spike) and each.name == OUTPUT_NAME for each in trained.operations):
        raise FoldError(f"{OUTPUT_NAME}: a LIF has the name reserved for the readout. Rename the module.")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of an operation to errors of the algebra of values, which does not know it."""
    try:
        yield
    except NetworkError as error:
        raise FoldError(f"{layer_name(name)}: {'; '.join(error.problems)}") from error


# ---- between neurons: affine maps -------------------------------------------------------------


def _normalization(given: InputFormat) -> Affine:
    """(x - mean) / deviation = scale * x + shift, per channel"""
    shape, scale = given.shape, 1 / given.deviation
    shift = per_channel(-given.mean * scale, shape)
    return Affine(source=shape, shape=shape, factor=per_channel(scale, shape), bias=shift)


def _affine(
    operation: TracedOperation,
    kind: Linear | Convolution | BatchNorm | Flatten | AveragePool | AdaptivePool | Delay,
    source: Shape,
) -> Affine:
    """Return an operation without neurons as an affine map of values of shape `source`."""
    same = Affine(source=source, shape=operation.shape)
    match kind:
        case Flatten():
            return same
        case Delay():
            return replace(same, delay=1)
        case Linear(weight=weight, bias=bias):
            return replace(same, synapse=Dense(weight=weight), bias=bias)
        case Convolution(synapse=synapse, bias=bias):
            return replace(same, synapse=synapse, bias=per_channel(bias, operation.shape))
        case AveragePool() | AdaptivePool():
            return replace(same, synapse=average_synapse(operation.name, kind, source), channelwise=True)
        case BatchNorm(per_step=True):
            norms = [kind.at(step) for step in range(len(kind.gain))]
            steps = [_affine(operation, norm, source) for norm in norms]
            factor, bias = (
                np.stack([np.asarray(getattr(each, name)) for each in steps]) for name in ("factor", "bias")
            )
            if (factor == factor[0]).all() and (bias == bias[0]).all():
                return steps[0]
            return replace(same, factor=factor, bias=bias, per_step=True)
        case BatchNorm(gain=gain, offset=offset, mean=mean):
            factor = gain / np.sqrt(kind.variance + kind.epsilon)
            factor, shift = (
                values.reshape(source) if values.size > source[0] else per_channel(values, source)
                for values in (factor, offset - mean * factor)
            )
            return replace(same, factor=factor, bias=shift)
        case _:
            assert_never(kind)


# ---- neurons: Eq. 10 --------------------------------------------------------------------------


def _fold_neuron(
    trained: Shape, spike: Spike, made: Copies, synapses: dict[Arrival, Synapses], bias: Array
) -> tuple[FloatFiringNeuron, dict[Arrival, Synapses]]:
    shape = made.shape(trained)
    threshold = np.full(shape, spike.threshold)
    bias = made.signed(np.broadcast_to(bias, trained))
    subtrahend = np.zeros(shape)
    if spike.subtrahend is not None:
        subtrahend = made.signed(_spread(spike.subtrahend, trained))
    if spike.norm is not None:
        gain, offset = (_spread(each, trained) for each in (spike.norm.gain, spike.norm.offset))
        threshold = made.signed(folded_threshold(spike.threshold, spike.norm, trained))
        synapses = {source: tuple(map(made.entering, parts)) for source, parts in synapses.items()}
        constant = made.constant(gain)
        always = constant & (made.of(offset) > spike.threshold)
        synapses, bias, threshold = _express_constants(~made.live(gain), always, synapses, bias, threshold)
        subtrahend = np.where(constant, 0.0, subtrahend)  # their voltage does not matter, and stays small
    leak, current_leak = (
        compact(made.of(_spread(each, trained))) if isinstance(each, np.ndarray) else each
        for each in (spike.leak, spike.current_leak)
    )
    neuron = FloatLif(threshold=compact(threshold), bias=compact(bias), leak=leak, current_leak=current_leak)
    return neuron if spike.subtrahend is None else soft_reset(neuron, compact(subtrahend)), synapses


def _accumulated(offsets: Array, current_leak: Array) -> Array:
    """sum_t <- current_leak * sum_(t-1) + offset_t: what they add to the voltage in each step"""
    sums, total = [], np.zeros(offsets.shape[1:])
    for offset in offsets:
        total = current_leak * total + offset
        sums.append(total)
    return np.stack(sums)


def _divided(neuron: FloatFiringNeuron, gain: Array, ratio: Array) -> FloatFiringNeuron:
    """Return the neuron of w = u / gain, given that of u; `ratio` is the gain of the step before / gain."""
    numbers: dict[str, Any] = {
        name: np.broadcast_to(getattr(neuron, name), gain.shape) / gain
        for name in ("threshold", "bias", "subtrahend")
        if hasattr(neuron, name)
    }
    leaks = {name: getattr(neuron, name) for name in ("leak", "current_leak")}
    changed = (
        {} if (ratio == 1).all() else {name: leak * ratio for name, leak in leaks.items() if np.any(leak)}
    )
    return replace(neuron, **numbers, **changed)


def _with_number(neuron: FloatFiringNeuron, name: str, values: Array) -> FloatFiringNeuron:
    numbers: dict[str, Any] = {name: values}
    return replace(neuron, **numbers)


def _in_compact_steps(neurons: Sequence[FloatFiringNeuron]) -> list[FloatFiringNeuron]:
    """Return neurons with one number per channel, where all neurons of each channel agree in all steps."""
    found = list(neurons)
    for name in ("threshold", "bias", "subtrahend", "leak", "current_leak"):
        values = [getattr(each, name, 0.0) for each in neurons]
        if isinstance(values[-1], np.ndarray):
            channels = [compact(np.broadcast_to(each, neurons[0].bias.shape)) for each in values]
            if all(each.size == len(each) for each in channels):
                found = [_with_number(each, name, few) for each, few in zip(found, channels, strict=True)]
    return found


def folded_threshold(threshold: float, norm: BatchNorm, shape: Shape) -> Array:
    """Eq. 10: (threshold - offset) * sqrt(variance + epsilon) / gain + mean, one per neuron.

    Zero where the gain is zero: such neurons do not depend on their voltage, see `_express_constants`.
    """
    gain, offset, mean = (_spread(values, shape) for values in (norm.gain, norm.offset, norm.mean))
    deviation = np.sqrt(_spread(norm.variance, shape) + norm.epsilon)
    divisor = np.where(gain == 0, np.inf, gain)
    return np.where(gain == 0, 0.0, (threshold - offset) * deviation / divisor + mean)


def _spread(values: Array, shape: Shape) -> Array:
    """Broadcast channel-wise or element-wise parameters to one value per neuron."""
    return np.broadcast_to(
        values.reshape(shape) if values.size > shape[0] else per_channel(values, shape), shape
    )


def _express_constants(
    constant: Array, always: Array, synapses: dict[Arrival, Synapses], bias: Array, threshold: Array
) -> tuple[dict[Arrival, Synapses], Array, Array]:
    """Make constant neurons fire `always` or never, independent of their input.

    If all neurons of a channel are constant, the channel gets zero weights and a bias of 2 (always) or
    0 (never) with a threshold of 1, which also suits chips that need positive thresholds. Single neurons in
    other channels keep their kernel and get an infinite threshold, see `_with_finite_thresholds`.
    """
    threshold = np.where(constant, np.where(always, -np.inf, np.inf), threshold)
    whole = np.all(constant.reshape(len(constant), -1), axis=1)
    if not whole.any():
        return synapses, bias, threshold
    kept = np.where(whole, 0.0, 1.0)
    synapses = {source: tuple(scaled(each, kept) for each in parts) for source, parts in synapses.items()}
    rows = per_channel(whole, threshold.shape)
    bias = np.where(rows, np.where(always, 2.0, 0.0), bias)
    return synapses, bias, np.where(rows, 1.0, threshold)


def _with_finite_thresholds(network: FoldedNetwork) -> FoldedNetwork:
    """Replace infinite thresholds, which files cannot hold, by ones beyond all voltages.

    With |v| <= reach for all inputs in range, v > 2 * reach + 1 never holds, and v > -(2 * reach + 1) always.
    """
    finite = {}
    for population in firing(network):
        steps = (network.timesteps,) if varies(population.neuron) else ()
        threshold = np.broadcast_to(population.neuron.threshold, (*steps, *population.shape))
        if np.isinf(threshold).any():
            _, (lowest, highest) = state_intervals(network, population)
            beyond = np.sign(threshold) * (2 * np.maximum(-lowest, highest) + 1)
            chosen = np.where(np.isinf(threshold), beyond, threshold)
            finite[population.name] = population.with_neuron(replace(population.neuron, threshold=chosen))
    populations = tuple(finite.get(population.name, population) for population in network.populations)
    return replace(network, populations=populations)
