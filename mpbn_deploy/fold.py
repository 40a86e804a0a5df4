"""TrainedNetwork -> FoldedNetwork: every normalization gone, one threshold per channel or neuron.

Paper Eq. 10, with what it leaves out. A neuron with MPBN fires when

    gain * (v - mean) / sqrt(variance + epsilon) + offset > threshold

which for gain > 0 is v > folded, with

    folded = (threshold - offset) * sqrt(variance + epsilon) / gain + mean.

For gain < 0 dividing flips the comparison to v < folded; negating the channel's weights, bias and
threshold flips it back, exactly, because leak and reset to zero are odd in v. For gain = 0 the
neuron fires always or never, by offset > threshold.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from .errors import FoldError
from .float_ir import (
    INPUT_NAME,
    BatchNorm,
    Convolution,
    Flatten,
    FloatLif,
    FloatPopulation,
    FloatReadout,
    FoldedNetwork,
    InputFormat,
    Linear,
    Spike,
    Step,
    TrainedNetwork,
)
from .frontend import as_synapse
from .graph import (
    Connection,
    Dense,
    Input,
    Population,
    Shape,
    Synapse,
    apply_synapse,
    compact,
    per_channel,
    scale_channels,
)
from .records import Array, record

OUTPUT_NAME = "output"


@record
class Sent:
    """What a population sends, seen as scale * values + shift (spikes: scale 1, shift 0)."""

    population: str
    scale: Array
    shift: Array


@record
class Current:
    """What arrives at neurons: one synapse from a population, plus a bias."""

    population: str
    synapse: Synapse
    bias: Array


Value = Sent | Current


def fold(trained: TrainedNetwork) -> FoldedNetwork:
    """Fold input normalization, batch norms and MPBN away.

    Spikes stay the same, up to decisions closer to the threshold than float64 resolves.
    """
    _refuse_taken_name(trained)
    populations = [_input_population(trained.input)]
    connections: list[Connection] = []
    values: dict[str, Value] = {INPUT_NAME: _normalized_input(trained.input)}
    for step in trained.steps:
        value = values[step.source]
        if isinstance(step.operation, Spike):
            current = _arriving(step.name, value)
            population, synapse = _fold_neuron(step, step.operation, current)
            populations.append(population)
            connections.append(Connection(source=current.population, target=step.name, synapse=synapse))
            values[step.name] = Sent(
                population=step.name, scale=np.ones(step.shape), shift=np.zeros(step.shape)
            )
        else:
            values[step.name] = _follow(step, step.operation, value)
    last = trained.steps[-1]
    current = _arriving(f"{last.name} (the last layer)", values[last.name])
    readout = FloatReadout(bias=compact(current.bias))
    populations.append(Population(name=OUTPUT_NAME, shape=last.shape, neuron=readout))
    connections.append(Connection(source=current.population, target=OUTPUT_NAME, synapse=current.synapse))
    return FoldedNetwork(
        populations=tuple(populations), connections=tuple(connections), timesteps=trained.timesteps
    )


def rescale(synapse: Synapse, bias: Array, threshold: Array, factor: Array) -> tuple[Synapse, Array, Array]:
    """Multiply each channel's weights, bias and threshold by its factor; see `graph.scale_channels`."""
    scaled = replace(synapse, weight=scale_channels(synapse.weight, factor))
    return scaled, scale_channels(bias, factor), scale_channels(threshold, factor)


def _refuse_taken_name(trained: TrainedNetwork) -> None:
    if any(isinstance(step.operation, Spike) and step.name == OUTPUT_NAME for step in trained.steps):
        raise FoldError(f"{OUTPUT_NAME}: a LIF of this name, which the readout bears. Rename the module.")


# ---- between neurons: linear maps -------------------------------------------------------------


def _input_population(given: InputFormat) -> FloatPopulation:
    neuron = Input(minimum=given.minimum, maximum=given.maximum)
    return Population(name=INPUT_NAME, shape=given.shape, neuron=neuron)


def _normalized_input(given: InputFormat) -> Sent:
    """(x - mean) / deviation = scale * x + shift, per channel"""
    ones = np.ones(given.shape)
    scale = ones / per_channel(given.deviation, given.shape)
    return Sent(population=INPUT_NAME, scale=scale, shift=-per_channel(given.mean, given.shape) * scale)


def _follow(step: Step, operation: Linear | Convolution | BatchNorm | Flatten, value: Value) -> Value:
    """What a linear operation makes of a value."""
    match operation:
        case Flatten():
            sent = _sent(step, value)
            return replace(sent, scale=sent.scale.ravel(), shift=sent.shift.ravel())
        case Linear(weight=weight, bias=bias):
            sent = _sent(step, value)
            return _through(sent, Dense(weight=weight * sent.scale), Dense(weight=weight), bias)
        case Convolution(weight=weight, bias=bias):
            sent = _sent(step, value)
            synapse = as_synapse(operation)
            scaled = replace(synapse, weight=weight * _channel_scales(sent, operation))
            return _through(sent, scaled, synapse, per_channel(bias, step.shape))
        case BatchNorm():
            return _normalize(operation, _arriving(step.name, value))
        case _:
            assert_never(operation)


def _through(sent: Sent, scaled: Synapse, synapse: Synapse, bias: Array) -> Current:
    """The shift of the input passes through the synapse into the bias.

    Zero padding comes after normalization, so a neuron at the border gets less of the shift: the
    bias is one per neuron.
    """
    shifted = apply_synapse(synapse, sent.shift[None])[0]
    return Current(population=sent.population, synapse=scaled, bias=shifted + bias)


def _channel_scales(sent: Sent, operation: Convolution) -> Array:
    """The scale of each input channel, laid out as the weight [output, input of the group, y, x]."""
    scales = sent.scale[:, 0, 0].reshape(operation.groups, -1)  # one row per group
    per_output = np.repeat(scales, operation.weight.shape[0] // operation.groups, axis=0)
    return per_output[:, :, None, None]


def _normalize(norm: BatchNorm, current: Current) -> Current:
    factor = norm.gain / np.sqrt(norm.variance + norm.epsilon)
    shape = current.bias.shape
    synapse = replace(current.synapse, weight=scale_channels(current.synapse.weight, factor))
    bias = scale_channels(current.bias, factor) + per_channel(norm.offset - norm.mean * factor, shape)
    return replace(current, synapse=synapse, bias=bias)


def _sent(step: Step, value: Value) -> Sent:
    if isinstance(value, Sent):
        return value
    raise FoldError(
        f"{step.name}: a {type(step.operation).__name__} on currents; it can take only spikes or the input. "
        "Put a LIF before it."
    )


def _arriving(name: str, value: Value) -> Current:
    if isinstance(value, Current):
        return value
    raise FoldError(f"{name}: reads spikes or the input directly; a Linear or Conv2d must lie before it.")


# ---- neurons: Eq. 10 --------------------------------------------------------------------------


def _fold_neuron(step: Step, spike: Spike, current: Current) -> tuple[FloatPopulation, Synapse]:
    synapse, bias = current.synapse, current.bias
    threshold = np.full(step.shape, spike.threshold)
    if spike.norm is not None:
        gain = _spread(spike.norm.gain, step.shape)
        threshold = folded_threshold(spike.threshold, spike.norm, step.shape)
        synapse, bias, threshold = rescale(synapse, bias, threshold, _signs(step.name, gain))
        always = _spread(spike.norm.offset, step.shape) > spike.threshold
        synapse, bias, threshold = _express_constants(gain == 0, always, synapse, bias, threshold)
    neuron = FloatLif(threshold=compact(threshold), bias=compact(bias), leak=spike.leak)
    return Population(name=step.name, shape=step.shape, neuron=neuron), synapse


def folded_threshold(threshold: float, norm: BatchNorm, shape: Shape) -> Array:
    """Eq. 10: (threshold - offset) * sqrt(variance + epsilon) / gain + mean, one per neuron.

    Zero where the gain is zero: such a neuron compares nothing, see `_express_constants`.
    """
    gain, offset, mean = (_spread(values, shape) for values in (norm.gain, norm.offset, norm.mean))
    deviation = np.sqrt(_spread(norm.variance, shape) + norm.epsilon)
    divisor = np.where(gain == 0, np.inf, gain)
    return np.where(gain == 0, 0.0, (threshold - offset) * deviation / divisor + mean)


def _spread(values: Array, shape: Shape) -> Array:
    """Channel-wise or element-wise parameters as one value per neuron."""
    return np.broadcast_to(
        values.reshape(shape) if values.size > shape[0] else per_channel(values, shape), shape
    )


def _signs(name: str, gain: Array) -> Array:
    """+1 or -1 per channel. Neurons of one channel share a kernel, so their gains must agree in sign."""
    rows = gain.reshape(len(gain), -1)
    mixed = (rows.min(axis=1) < 0) & (rows.max(axis=1) > 0)
    if mixed.any():
        raise FoldError(
            f"{name}: {int(mixed.sum())} of {len(rows)} channels have MPBN gains of both signs; their "
            "neurons share a kernel, which cannot be negated for only some. Train with --mpbn channel."
        )
    return np.where(rows.min(axis=1) < 0, -1.0, 1.0)


def _express_constants(
    constant: Array, always: Array, synapse: Synapse, bias: Array, threshold: Array
) -> tuple[Synapse, Array, Array]:
    """Neurons of gain zero fire `always` or never, whatever arrives.

    A channel of such neurons needs no input: a bias of 2 (always) or 0 (never) against a threshold
    of 1, which a chip that wants positive thresholds can hold too. Single ones among others keep
    their kernel and get an infinite threshold.
    """
    threshold = np.where(constant, np.where(always, -np.inf, np.inf), threshold)
    whole = constant.reshape(len(constant), -1).all(axis=1)
    if not whole.any():
        return synapse, bias, threshold
    weight = np.where(per_channel(whole, synapse.weight.shape), 0.0, synapse.weight)
    rows = per_channel(whole, threshold.shape)
    bias = np.where(rows, np.where(always, 2.0, 0.0), bias)
    return replace(synapse, weight=weight), bias, np.where(rows, 1.0, threshold)
