"""TrainedNetwork -> FoldedNetwork: no normalizations, one threshold per channel or neuron.

This is Eq. 10 of the paper, extended to gains of any sign. A neuron with MPBN fires when

    gain * (v - mean) / sqrt(variance + epsilon) + offset > threshold

which for gain > 0 is v > folded, with

    folded = (threshold - offset) * sqrt(variance + epsilon) / gain + mean.

For gain < 0, dividing flips the comparison to v < folded; negating the channel's weights, bias and
threshold flips it back, exactly, because leak and reset to zero are odd functions of v. For gain = 0, the
neuron always fires if offset > threshold, and otherwise never.

A soft reset, v <- v - subtrahend, acts on the membrane before normalization: MPBN changes the threshold and
leaves the subtrahend; negating a channel negates both.

A recurrent synapse is a connection from the neurons to themselves that takes one time step.

A synaptic current is a linear function of what arrives, and the membrane of the current, so norms before the
current scale its synapses, and MPBN folds as above. But their shifts, and biases, enter the current and build
up in it, which no bias of a voltage does: they become the spikes of neurons that always fire
(`ir.constant_source`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

import numpy as np
from typing_extensions import assert_never

from ..base import Array, FoldError, NetworkError, layer_name
from ..ir import (
    INPUT_NAME,
    AdaptivePool,
    Add,
    Affine,
    Algebra,
    AveragePool,
    BatchNorm,
    Connection,
    Convolution,
    Dense,
    Flatten,
    FloatFiringNeuron,
    FloatLif,
    FloatNeuron,
    FloatReadout,
    FoldedNetwork,
    Input,
    InputFormat,
    Linear,
    MaxPool,
    Population,
    Shape,
    Spike,
    Step,
    Synapses,
    TrainedNetwork,
    Value,
    any_synapse,
    average_synapse,
    compact,
    constant_source,
    per_channel,
    scale_channels,
    scaled,
    soft_reset,
)

OUTPUT_NAME = "output"
ANY_SPIKE = 0.5  # the threshold of a neuron that fires when at least one of its inputs does


def fold(trained: TrainedNetwork) -> FoldedNetwork:
    """Fold input normalization, batch norms, pooling and MPBN into weights, biases and thresholds.

    Spikes stay the same, except where a voltage is closer to the threshold than float64 resolves.
    """
    _check_output_name(trained)
    folding = _Folding(trained.input)
    for step in trained.steps:
        with _named(step.name):
            folding.take(step)
    with _named(trained.steps[-1].name):
        folding.finish(trained)
    return FoldedNetwork(
        populations=tuple(folding.populations),
        connections=tuple(folding.connections),
        timesteps=trained.timesteps,
    )


class _Folding:
    """Builds the folded network step by step: its populations so far, and the value of every step."""

    def __init__(self, given: InputFormat) -> None:
        self.driver = Population(
            name=INPUT_NAME,
            shape=given.shape,
            neuron=Input(minimum=given.minimum, maximum=given.maximum),
        )
        self.populations: list[Population[Input | FloatNeuron]] = [self.driver]
        self.connections: list[Connection] = []
        self.shapes = {INPUT_NAME: given.shape}
        self.algebra = Algebra(shapes=self.shapes)
        self.values = {INPUT_NAME: self.algebra.through(_normalization(given), self.algebra.sent(INPUT_NAME))}

    def take(self, step: Step) -> None:
        """Fold one operation: neurons become a population, everything else a value."""
        values = [self.values[source] for source in step.sources]
        match step.operation:
            case Spike(current_leak=current_leak, recurrent=recurrent):
                arriving = self.arriving(step, values[0])
                if recurrent is not None:
                    arriving = _recurring(step, recurrent, *arriving)
                if np.any(current_leak):
                    arriving = self.accumulating(step, *arriving)
                neuron, synapses = _fold_neuron(step, step.operation, *arriving)
                self.populate(step.name, step.shape, neuron, synapses)
            case MaxPool():
                neuron, synapses = _any_neuron(step, step.operation, values[0])
                self.populate(step.name, step.shape, neuron, synapses)
            case Add():
                self.values[step.name] = reduce(self.algebra.sum, values)
            case _:
                affine = _affine(step, step.operation, values[0].shape)
                self.values[step.name] = self.algebra.through(affine, values[0])

    def finish(self, trained: TrainedNetwork) -> None:
        """Add the readout, which integrates the last value and never fires (Eq. 3)."""
        last, leak = trained.steps[-1], trained.readout_leak
        value = self.values[last.name]
        if leak is not None:  # a membrane sums, and readouts divide by the time steps
            times = np.full(last.shape, float(trained.timesteps))
            value = self.algebra.through(Affine(source=last.shape, shape=last.shape, factor=times), value)
        synapses, bias = self.arriving(last, value)
        readout = FloatReadout(bias=compact(bias), leak=1.0 if leak is None else leak)
        self.populate(OUTPUT_NAME, last.shape, readout, synapses)

    def populate(self, name: str, shape: Shape, neuron: FloatNeuron, synapses: dict[str, Synapses]) -> None:
        self.populations.append(Population(name=name, shape=shape, neuron=neuron))
        for source, parts in synapses.items():
            delay = 1 if source == name else 0  # a layer receives its own spikes in the next step
            self.connections += (
                Connection(source=source, target=name, synapse=part, delay=delay) for part in parts
            )
        self.shapes[name] = shape
        self.values[name] = self.algebra.sent(name)

    def accumulating(
        self, step: Step, synapses: dict[str, Synapses], bias: Array
    ) -> tuple[dict[str, Synapses], Array]:
        """Return synapses with neurons that always fire in place of a bias, which would not build up."""
        if not bias.any():
            return synapses, bias
        name = f"{step.name}_constant"
        while name in self.values:
            name += "_"
        source, (silent, constant) = constant_source(name, step.name, bias, self.driver)
        self.populate(name, source.shape, source.neuron, {INPUT_NAME: (silent.synapse,)})
        return {**synapses, name: (constant.synapse,)}, np.zeros_like(bias)

    def arriving(self, step: Step, value: Value) -> tuple[dict[str, Synapses], Array]:
        """Return a value as synapses onto neurons of the step's shape, and a bias for each neuron."""
        arriving = self.algebra.onto(value, step.shape)
        bias = np.zeros(step.shape) if value.constant is None else value.constant
        return {source: synapses for (source, _), synapses in arriving.items()}, bias


def _check_output_name(trained: TrainedNetwork) -> None:
    if any(isinstance(step.operation, Spike) and step.name == OUTPUT_NAME for step in trained.steps):
        raise FoldError(f"{OUTPUT_NAME}: a LIF has the name reserved for the readout. Rename the module.")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of a step to errors of the algebra of values, which does not know it."""
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
    step: Step,
    operation: Linear | Convolution | BatchNorm | Flatten | AveragePool | AdaptivePool,
    source: Shape,
) -> Affine:
    """Return an operation without neurons as an affine map of values of shape `source`."""
    same = Affine(source=source, shape=step.shape)
    match operation:
        case Flatten():
            return same
        case Linear(weight=weight, bias=bias):
            return replace(same, synapse=Dense(weight=weight), bias=bias)
        case Convolution(synapse=synapse, bias=bias):
            return replace(same, synapse=synapse, bias=per_channel(bias, step.shape))
        case AveragePool() | AdaptivePool():
            return replace(same, synapse=average_synapse(step.name, operation, source))
        case BatchNorm(gain=gain, offset=offset, mean=mean):
            factor = gain / np.sqrt(operation.variance + operation.epsilon)
            factor, shift = (per_channel(values, step.shape) for values in (factor, offset - mean * factor))
            return replace(same, factor=factor, bias=shift)
        case _:
            assert_never(operation)


def _recurring(
    step: Step, recurrent: Linear | Convolution, synapses: dict[str, Synapses], bias: Array
) -> tuple[dict[str, Synapses], Array]:
    """Add a synapse from the neurons to themselves; its bias counts from the first step on."""
    loop = _affine(step, recurrent, step.shape)
    assert loop.synapse is not None, "linear layers and convolutions have one"
    added = np.zeros(1) if loop.bias is None else loop.bias
    return {**synapses, step.name: (loop.synapse,)}, bias + added


def _all_scaled(synapses: Synapses, factor: Array) -> Synapses:
    return tuple(scaled(synapse, factor) for synapse in synapses)


# ---- neurons: Eq. 10 --------------------------------------------------------------------------


def _fold_neuron(
    step: Step, spike: Spike, synapses: dict[str, Synapses], bias: Array
) -> tuple[FloatFiringNeuron, dict[str, Synapses]]:
    threshold = np.full(step.shape, spike.threshold)
    subtrahend = np.zeros(step.shape) if spike.subtrahend is None else _spread(spike.subtrahend, step.shape)
    if spike.norm is not None:
        gain = _spread(spike.norm.gain, step.shape)
        signs = _signs(step.name, gain)
        threshold = scale_channels(folded_threshold(spike.threshold, spike.norm, step.shape), signs)
        bias, subtrahend = scale_channels(bias, signs), scale_channels(subtrahend, signs)
        synapses = {source: _all_scaled(parts, signs) for source, parts in synapses.items()}
        always = _spread(spike.norm.offset, step.shape) > spike.threshold
        synapses, bias, threshold = _express_constants(gain == 0, always, synapses, bias, threshold)
        subtrahend = np.where(gain == 0, 0.0, subtrahend)  # their voltage does not matter, and stays small
    leak, current_leak = (
        compact(_spread(each, step.shape)) if isinstance(each, np.ndarray) else each
        for each in (spike.leak, spike.current_leak)
    )
    neuron = FloatLif(threshold=compact(threshold), bias=compact(bias), leak=leak, current_leak=current_leak)
    return neuron if spike.subtrahend is None else soft_reset(neuron, compact(subtrahend)), synapses


def _any_neuron(step: Step, operation: MaxPool, value: Value) -> tuple[FloatLif, dict[str, Synapses]]:
    """Return a max pool of spikes as neurons without memory that fire if any of their inputs does."""
    sent = value.as_sent()
    if sent is None or sent[0] == INPUT_NAME:
        raise FoldError(
            f"{layer_name(step.name)}: MaxPool2d is supported on spikes only; put it right after a LIF, or "
            "use AvgPool2d."
        )
    channels = step.shape[0]
    one = np.ones((channels, *(1 for _ in step.shape[1:])))
    neuron = FloatLif(threshold=ANY_SPIKE * one, bias=0 * one, leak=0.0)
    return neuron, {sent[0]: (any_synapse(operation, channels),)}


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


def _signs(name: str, gain: Array) -> Array:
    """Return +1 or -1 per channel. Neurons of a channel share a kernel, so their gains must agree in sign."""
    rows = gain.reshape(len(gain), -1)
    mixed = (rows.min(axis=1) < 0) & (rows.max(axis=1) > 0)
    if mixed.any():
        raise FoldError(
            f"{layer_name(name)}: {int(mixed.sum())} of {len(rows)} channels have MPBN gains of both signs; "
            "their neurons share a kernel, which cannot be negated for only some. Train with --mpbn-gain "
            "positive, or --mpbn channel."
        )
    return np.where(rows.min(axis=1) < 0, -1.0, 1.0)


def _express_constants(
    constant: Array, always: Array, synapses: dict[str, Synapses], bias: Array, threshold: Array
) -> tuple[dict[str, Synapses], Array, Array]:
    """Make neurons of gain zero fire `always` or never, independent of their input.

    If all neurons of a channel have gain zero, the channel gets zero weights and a bias of 2 (always) or
    0 (never) with a threshold of 1, which also suits chips that need positive thresholds. Single neurons in
    other channels keep their kernel and get an infinite threshold.
    """
    threshold = np.where(constant, np.where(always, -np.inf, np.inf), threshold)
    whole = constant.reshape(len(constant), -1).all(axis=1)
    if not whole.any():
        return synapses, bias, threshold
    synapses = {source: _all_scaled(parts, np.where(whole, 0.0, 1.0)) for source, parts in synapses.items()}
    rows = per_channel(whole, threshold.shape)
    bias = np.where(rows, np.where(always, 2.0, 0.0), bias)
    return synapses, bias, np.where(rows, 1.0, threshold)
