"""TrainedNetwork: the operations of a trained model in order of execution, before folding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Array, NetworkError, array_record, freeze_arrays, record
from .synapses import Conv2d, Pair, Shape, picture_shape


@record
class InputFormat:
    """The input: integers from minimum to maximum, normalized as (x - mean) / deviation per channel.

    `mean` and `deviation` accept any sequence of one number, or of one number per channel.
    """

    shape: Shape
    minimum: int
    maximum: int
    mean: Array
    deviation: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if problems := _format_problems(self):
            raise NetworkError("InputFormat", problems)
        for name in ("mean", "deviation"):
            values = np.asarray(getattr(self, name), np.float64).ravel()
            object.__setattr__(self, name, np.broadcast_to(values, (self.shape[0],)).copy())
        freeze_arrays(self)

    def as_picture(self) -> InputFormat:
        """Return the format of the traced network, in which a signal is a picture one pixel high."""
        return replace(self, shape=picture_shape(self.shape))


def _format_problems(given: InputFormat) -> list[str]:
    shape = given.shape
    if len(shape) not in (1, 2, 3) or not all(isinstance(size, int) and size > 0 for size in shape):
        allowed = "(features,), (channels, length) or (channels, height, width)"
        return [f"shape {shape}; {allowed} is needed"]
    problems = []
    if not all(isinstance(edge, (int, np.integer)) for edge in (given.minimum, given.maximum)):
        problems.append(f"range {given.minimum}..{given.maximum}; whole numbers are needed")
    elif given.minimum > given.maximum:
        problems.append(f"range {given.minimum}..{given.maximum} is empty; give the lowest value first")
    for name in ("mean", "deviation"):
        problems += _numbers_problems(name, getattr(given, name), shape[0])
    if not problems and np.min(given.deviation) <= 0:
        problems.append(f"deviation {given.deviation}; must be above zero")
    return problems


def _numbers_problems(name: str, given: Any, channels: int) -> list[str]:
    try:
        values = np.asarray(given, np.float64).ravel()
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.size in (1, channels) and np.isfinite(values).all():
        return []
    return [f"{name} {given}; one finite number, or one per channel, is needed"]


@array_record
class Linear:
    """y = weight x + bias"""

    weight: Array
    bias: Array


@array_record
class Convolution:
    """y = synapse(x) + bias"""

    synapse: Conv2d
    bias: Array


@array_record
class BatchNorm:
    """y = gain * (x - mean) / sqrt(variance + epsilon) + offset, with the running statistics.

    Parameters have shape (channels,), or the shape of x when they are element-wise. With `per_step`, they
    have a first axis of time steps: (timesteps, channels), or (timesteps, *shape).
    """

    gain: Array
    offset: Array
    mean: Array
    variance: Array
    epsilon: float
    per_step: bool = False

    def at(self, step: int) -> BatchNorm:
        """Return the norm of one time step."""
        if not self.per_step:
            return self
        numbers = {name: getattr(self, name)[step] for name in ("gain", "offset", "mean", "variance")}
        return BatchNorm(**numbers, epsilon=self.epsilon)


@record
class Flatten:
    """(channels, height, width) -> (features,)"""


@record
class AveragePool:
    """y = mean over each window, as torch's AvgPool2d computes it

    The sum of a window that extends beyond the picture is divided by the number of its pixels inside the
    padded picture (`count_padding`) or inside the picture; `divisor`, if given, replaces that number.
    """

    kernel: Pair
    stride: Pair
    padding: Pair
    round_up: bool
    count_padding: bool
    divisor: int | None


@record
class AdaptivePool:
    """y[i] = mean of x[floor(i * size / n) .. ceil((i + 1) * size / n) - 1], n outputs in each direction"""

    size: tuple[int | None, int | None]  # None: the size of the source


@record
class MaxPool:
    """y = max over each window; for spikes, whether any neuron in the window fires"""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair


@record
class Add:
    """y = sum of all sources"""


@record
class Gate:
    """y = 1 where sum(weight * source) > threshold, and 0 elsewhere: a function of spikes of the same step

    A product of n spikes has weights of 1 and the threshold n - 0.5; x * (1 - y) weights of 1 and -1 and the
    threshold 0.5; a maximum weights of 1 and the threshold 0.5. A source with one position per channel
    counts at every position.
    """

    weights: tuple[float, ...]  # one per source
    threshold: float


@array_record
class Spike:
    """The paper's neuron, Eq. 1, 2 and 7: leak, integrate, normalize a copy, fire, reset.

        current  <- current_leak * current + x + recurrent(spike of the step before)
        membrane <- leak * membrane + current
        spike     = norm(membrane) > threshold
        membrane <- 0 where spike; with a subtrahend, membrane - subtrahend

    The subtrahend has shape (1,) or (channels,). Leaks that differ have one value per channel or neuron.
    """

    leak: float | Array
    threshold: float
    norm: BatchNorm | None
    subtrahend: Array | None = None
    current_leak: float | Array = 0.0  # zero: the current does not outlast its time step
    recurrent: Linear | Convolution | None = None


def channel_map(shape: Shape, weight: Array, groups: int) -> Linear | Convolution:
    """Return a map of channels, weight [target, source of the group], as a layer on values of a shape."""
    if len(shape) > 1:
        synapse = Conv2d(weight=weight[:, :, None, None], groups=groups)
        return Convolution(synapse=synapse, bias=np.zeros(len(weight)))
    blocks = np.einsum("gts,gh->gths", weight.reshape(groups, -1, weight.shape[1]), np.eye(groups))
    return Linear(weight=blocks.reshape(len(weight), -1), bias=np.zeros(len(weight)))


def stacked(spike: Spike, edges: Sequence[float], signs: Sequence[float], shape: Shape) -> Spike:
    """Return neurons that send the sum of sign * (sign * (norm(membrane) - edge) > 0) over their levels.

    Each level is a channel, those of one neuron side by side; all get what the neuron gets. What one of them
    subtracts from its membrane, the others lose in the step after it, by a recurrent synapse.
    """
    channels, count = shape[0], len(edges)
    ones, zeros = np.ones(channels), np.zeros(channels)
    norm = spike.norm or BatchNorm(gain=ones, offset=zeros, mean=zeros, variance=ones, epsilon=0.0)

    def repeated(values: Array) -> Array:
        return np.repeat(values.reshape(channels, -1), count, axis=0)

    sign, edge = (np.tile(each, channels)[:, None] for each in (signs, edges))
    numbers = {
        "gain": sign * repeated(norm.gain),
        "offset": sign * (repeated(norm.offset) - edge),
        "mean": repeated(norm.mean),
        "variance": repeated(norm.variance),
    }
    levels = replace(norm, **{name: each.ravel() for name, each in numbers.items()})
    if spike.subtrahend is None or count == 1:
        return replace(spike, threshold=0.0, norm=levels)
    lost = np.broadcast_to(spike.subtrahend, (channels,))
    between = -spike.leak * np.asarray(signs) * (1 - np.eye(count))
    kernel = np.repeat(lost, count)[:, None] * np.tile(between, (channels, 1))
    return replace(
        spike,
        threshold=0.0,
        norm=levels,
        subtrahend=np.repeat(lost, count) * sign[:, 0],
        recurrent=channel_map(shape, kernel, channels) if np.any(between) else None,
    )


@array_record
class CountingSpike:
    """The neuron of Xylo in real numbers (`FloatXylo`), with a norm of the membrane before its threshold:

        current  <- current_leak * current + x + recurrent(count of the step before)
        membrane <- leak * membrane + current + bias
        count     = how often the folded threshold fits into the membrane, 0..max_spikes
        membrane <- membrane - count * folded threshold

    Folded is the threshold at which norm(membrane) reaches `threshold`, but at least `least_threshold`.
    """

    leak: float
    current_leak: float
    threshold: float
    least_threshold: float
    norm: BatchNorm | None
    bias: Array
    max_spikes: int
    recurrent: Linear | None = None


def counting_threshold(spike: CountingSpike) -> Array:
    """Return the folded threshold of each channel (Eq. 10), or of all together without a norm."""
    if spike.norm is None:
        return np.full(spike.bias.shape, spike.threshold)
    deviation = np.sqrt(spike.norm.variance + spike.norm.epsilon)
    folded = (spike.threshold - spike.norm.offset) * deviation / spike.norm.gain + spike.norm.mean
    positive: Array = np.maximum(folded, spike.least_threshold)
    return positive


@record
class Delay:
    """y at step t = x at step t - 1, and zero in the first step"""


OverTime = Spike | CountingSpike | Delay  # operations that see several time steps
Pool = AveragePool | AdaptivePool | MaxPool
Operation = Linear | Convolution | BatchNorm | Flatten | Pool | Gate | Add | OverTime


@record
class TracedOperation:
    """One operation of a trained network: name in the module, kind, sources, and shape of the result.

    Only `Add` and `Gate` have more than one source.
    """

    name: str
    kind: Operation
    sources: tuple[str, ...]
    shape: Shape


@record
class TrainedNetwork:
    """Operations in order of execution; the first reads "input", the last is averaged over time (Eq. 3).

    With a readout leak, the last is instead integrated by a membrane that never fires, membrane <- leak *
    membrane + x, and the output is the membrane after the last step.
    """

    input: InputFormat
    operations: tuple[TracedOperation, ...]
    timesteps: int
    readout_leak: float | None = None


INPUT_NAME = "input"


def product_of_spikes(factors: int) -> Gate:
    """Return the gate that multiplies spikes."""
    return Gate(weights=(1.0,) * factors, threshold=factors - 0.5)
