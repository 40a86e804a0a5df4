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

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeVar

import numpy as np
from typing_extensions import assert_never

from ..base import Array, FoldError, NetworkError, record
from ..ir import (
    INPUT_NAME,
    AdaptivePool,
    Add,
    AveragePool,
    BatchNorm,
    Connection,
    Conv2d,
    Convolution,
    Dense,
    Flatten,
    FloatLif,
    FloatPopulation,
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
    Synapse,
    Synapses,
    TrainedNetwork,
    add,
    any_synapse,
    apply_synapse,
    as_synapse,
    average_synapse,
    compact,
    diagonal_synapse,
    matrix,
    per_channel,
    scale_channels,
    through,
)

OUTPUT_NAME = "output"
Result = TypeVar("Result")
ANY_SPIKE = 0.5  # the threshold of a neuron that fires when at least one of its inputs does


@record
class Diagonal:
    """What a population sends, each channel (or, flattened, each neuron) times its factor."""

    factors: Array


Map = Diagonal | Synapses


@record
class Value:
    """What flows between neurons: the sum of linear maps of what populations send, plus a constant.

        value = sum over populations of map(sent) + constant

    One map per population, in as few synapses as can be: they are composed and added as they come. The
    constant is one number per neuron, because zero padding lets less of it through at the borders.
    """

    maps: Mapping[str, Map]
    constant: Array


def fold(trained: TrainedNetwork) -> FoldedNetwork:
    """Fold input normalization, batch norms, pooling and MPBN away.

    Spikes stay the same, up to decisions closer to the threshold than float64 resolves.
    """
    _refuse_taken_name(trained)
    folding = _Folding(trained.input)
    for step in trained.steps:
        folding.take(step)
    folding.finish(trained.steps[-1])
    return FoldedNetwork(
        populations=tuple(folding.populations),
        connections=tuple(folding.connections),
        timesteps=trained.timesteps,
    )


class _Folding:
    """The network as far as it is folded: neurons so far, and the value of every step."""

    def __init__(self, given: InputFormat) -> None:
        neuron = Input(minimum=given.minimum, maximum=given.maximum)
        self.populations: list[FloatPopulation] = [
            Population(name=INPUT_NAME, shape=given.shape, neuron=neuron)
        ]
        self.connections: list[Connection] = []
        self.shapes = {INPUT_NAME: given.shape}
        self.values = {INPUT_NAME: _normalized_input(given)}

    def take(self, step: Step) -> None:
        """Fold one operation: neurons become a population, all else flows into values."""
        values = [self.values[source] for source in step.sources]
        match step.operation:
            case Spike():
                neuron, synapses = _fold_neuron(step, step.operation, *self.arriving(step, values[0]))
                self.populate(step.name, step.shape, neuron, synapses)
            case MaxPool():
                neuron, synapses = _any_neuron(step, step.operation, values[0])
                self.populate(step.name, step.shape, neuron, synapses)
            case Add():
                self.values[step.name] = _sum(step, values, self.shapes)
            case _:
                self.values[step.name] = _follow(step, step.operation, values[0], self.shapes)

    def finish(self, last: Step) -> None:
        """The last value is integrated and never fires (Eq. 3)."""
        synapses, bias = self.arriving(last, self.values[last.name])
        self.populate(OUTPUT_NAME, last.shape, FloatReadout(bias=compact(bias)), synapses)

    def populate(
        self, name: str, shape: Shape, neuron: FloatLif | FloatReadout, synapses: dict[str, Synapses]
    ) -> None:
        self.populations.append(Population(name=name, shape=shape, neuron=neuron))
        for source, parts in synapses.items():
            self.connections += (Connection(source=source, target=name, synapse=part) for part in parts)
        self.shapes[name] = shape
        self.values[name] = Value(maps={name: Diagonal(factors=np.ones(shape[0]))}, constant=np.zeros(shape))

    def arriving(self, step: Step, value: Value) -> tuple[dict[str, Synapses], Array]:
        """The value as synapses onto neurons of the step's shape, and a bias for each."""
        synapses = {source: _onto(step, map_, self.shapes[source]) for source, map_ in value.maps.items()}
        return synapses, np.broadcast_to(value.constant, step.shape)


def _refuse_taken_name(trained: TrainedNetwork) -> None:
    if any(isinstance(step.operation, Spike) and step.name == OUTPUT_NAME for step in trained.steps):
        raise FoldError(f"{OUTPUT_NAME}: a LIF of this name, which the readout bears. Rename the module.")


# ---- between neurons: linear maps -------------------------------------------------------------


Linearity = Linear | Convolution | BatchNorm | Flatten | AveragePool | AdaptivePool
Shapes = Mapping[str, Shape]


def _normalized_input(given: InputFormat) -> Value:
    """(x - mean) / deviation = scale * x + shift, per channel"""
    scale = 1 / given.deviation
    shift = np.broadcast_to(per_channel(-given.mean * scale, given.shape), given.shape)
    return Value(maps={INPUT_NAME: Diagonal(factors=scale)}, constant=shift)


def _follow(step: Step, operation: Linearity, value: Value, shapes: Shapes) -> Value:
    """What a linear operation makes of a value."""
    match operation:
        case Flatten():
            return replace(value, constant=value.constant.ravel())
        case Linear(weight=weight, bias=bias):
            return _through(step, Dense(weight=weight), bias, value, shapes)
        case Convolution(bias=bias):
            return _through(step, as_synapse(operation), per_channel(bias, step.shape), value, shapes)
        case AveragePool() | AdaptivePool():
            synapse = average_synapse(step.name, operation, value.constant.shape)
            return _through(step, synapse, np.zeros(1), value, shapes)
        case BatchNorm():
            return _normalize(step, operation, value, shapes)
        case _:
            assert_never(operation)


def _through(step: Step, synapse: Synapse, bias: Array, value: Value, shapes: Shapes) -> Value:
    """synapse(value) + bias: the maps are composed, and the constant passes through as a picture does."""
    maps = {source: _after(step, map_, synapse, shapes[source], value) for source, map_ in value.maps.items()}
    passed = apply_synapse(synapse, value.constant[None])[0].reshape(step.shape)
    return Value(maps=maps, constant=passed + bias)


def _after(step: Step, first: Map, second: Synapse, source: Shape, value: Value) -> Synapses:
    """target = second(first(source))"""
    if isinstance(first, Diagonal):
        return (replace(second, weight=second.weight * _input_factors(first, second, source)),)
    return _named(step.name, partial(through, between=value.constant.shape), first, second, source)


def _input_factors(diagonal: Diagonal, synapse: Synapse, source: Shape) -> Array:
    """One factor per input, laid out as the weight: [output, input] or [output, input of group, y, x]."""
    factors = diagonal.factors
    match synapse:
        case Dense():
            return np.repeat(factors, prod(source) // len(factors))
        case Conv2d():
            per_group = factors.reshape(synapse.groups, -1)
            return np.repeat(per_group, len(synapse.weight) // synapse.groups, axis=0)[:, :, None, None]
        case _:
            assert_never(synapse)


def _normalize(step: Step, norm: BatchNorm, value: Value, shapes: Shapes) -> Value:
    factor = norm.gain / np.sqrt(norm.variance + norm.epsilon)
    shift = per_channel(norm.offset - norm.mean * factor, step.shape)
    maps = {source: _scaled_map(step, map_, factor, shapes[source]) for source, map_ in value.maps.items()}
    return Value(maps=maps, constant=scale_channels(value.constant, factor) + shift)


def _scaled_map(step: Step, map_: Map, factor: Array, source: Shape) -> Map:
    if isinstance(map_, Diagonal):
        return Diagonal(factors=np.repeat(map_.factors, len(factor) // len(map_.factors)) * factor)
    return _all_scaled(_onto(step, map_, source), factor)


def scaled(synapse: Synapse, factor: Array) -> Synapse:
    """Each output channel times its factor; a dense map has a row for each neuron of a channel."""
    rows = np.repeat(factor, len(synapse.weight) // len(factor))
    return replace(synapse, weight=scale_channels(synapse.weight, rows))


def _all_scaled(synapses: Synapses, factor: Array) -> Synapses:
    return tuple(scaled(synapse, factor) for synapse in synapses)


def _onto(step: Step, map_: Map, source: Shape) -> Synapses:
    """The map as synapses onto the step's shape; onto a flattened picture only a matrix can lead."""
    if isinstance(map_, Diagonal):
        map_ = (_named(step.name, diagonal_synapse, map_.factors, source),)
    flattened = isinstance(map_[0], Conv2d) and len(step.shape) == 1
    return (_named(step.name, matrix, map_, source),) if flattened else map_


def _sum(step: Step, values: list[Value], shapes: Shapes) -> Value:
    """A residual add; a population that both values read keeps one map."""
    first, second = values
    maps = dict(first.maps)
    for source, map_ in second.maps.items():
        maps[source] = _added(step, maps[source], map_, shapes[source]) if source in maps else map_
    return Value(maps=maps, constant=first.constant + second.constant)


def _added(step: Step, first: Map, second: Map, source: Shape) -> Map:
    if isinstance(first, Diagonal) and isinstance(second, Diagonal):
        return Diagonal(factors=first.factors + second.factors)
    return _named(step.name, add, _onto(step, first, source), _onto(step, second, source), source)


def _named(name: str, function: Callable[..., Result], *arguments: Any) -> Result:
    """The algebra of synapses knows no names of layers; its messages get them here."""
    try:
        return function(*arguments)
    except NetworkError as error:
        raise FoldError(f"{name}: {'; '.join(error.problems)}") from error


# ---- neurons: Eq. 10 --------------------------------------------------------------------------


def _fold_neuron(
    step: Step, spike: Spike, synapses: dict[str, Synapses], bias: Array
) -> tuple[FloatLif, dict[str, Synapses]]:
    threshold = np.full(step.shape, spike.threshold)
    if spike.norm is not None:
        gain = _spread(spike.norm.gain, step.shape)
        signs = _signs(step.name, gain)
        threshold = scale_channels(folded_threshold(spike.threshold, spike.norm, step.shape), signs)
        bias = scale_channels(bias, signs)
        synapses = {source: _all_scaled(parts, signs) for source, parts in synapses.items()}
        always = _spread(spike.norm.offset, step.shape) > spike.threshold
        synapses, bias, threshold = _express_constants(gain == 0, always, synapses, bias, threshold)
    return FloatLif(threshold=compact(threshold), bias=compact(bias), leak=spike.leak), synapses


def _any_neuron(step: Step, operation: MaxPool, value: Value) -> tuple[FloatLif, dict[str, Synapses]]:
    """The largest of spikes is 1 where any is: a neuron without memory counts them."""
    source = _spiking_source(value)
    if source is None:
        raise FoldError(
            f"{step.name}: a MaxPool2d of something else than spikes; put it right after a LIF, or pool with "
            "AvgPool2d."
        )
    channels = step.shape[0]
    one = np.ones((channels, *(1 for _ in step.shape[1:])))
    neuron = FloatLif(threshold=ANY_SPIKE * one, bias=0 * one, leak=0.0)
    return neuron, {source: (any_synapse(operation, channels),)}


def _spiking_source(value: Value) -> str | None:
    """The population whose spikes the value is, if it is nothing else."""
    (source, map_), *others = value.maps.items()
    as_sent = isinstance(map_, Diagonal) and np.all(map_.factors == 1) and not value.constant.any()
    return source if as_sent and not others and source != INPUT_NAME else None


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
            "neurons share a kernel, which cannot be negated for only some. Train with --mpbn-gain positive, "
            "or --mpbn channel."
        )
    return np.where(rows.min(axis=1) < 0, -1.0, 1.0)


def _express_constants(
    constant: Array, always: Array, synapses: dict[str, Synapses], bias: Array, threshold: Array
) -> tuple[dict[str, Synapses], Array, Array]:
    """Neurons of gain zero fire `always` or never, whatever arrives.

    A channel of such neurons needs no input: a bias of 2 (always) or 0 (never) against a threshold
    of 1, which a chip that wants positive thresholds can hold too. Single ones among others keep
    their kernel and get an infinite threshold.
    """
    threshold = np.where(constant, np.where(always, -np.inf, np.inf), threshold)
    whole = constant.reshape(len(constant), -1).all(axis=1)
    if not whole.any():
        return synapses, bias, threshold
    synapses = {source: _all_scaled(parts, np.where(whole, 0.0, 1.0)) for source, parts in synapses.items()}
    rows = per_channel(whole, threshold.shape)
    bias = np.where(rows, np.where(always, 2.0, 0.0), bias)
    return synapses, bias, np.where(rows, 1.0, threshold)
