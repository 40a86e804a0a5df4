"""Choose the grid of each population's integers: FoldedNetwork + number formats -> Grid.

Each channel has a free scale, because a neuron fires the same spikes when its weights, bias, threshold and
what its reset subtracts are multiplied by the same factor (`ir.scale_channels`). Each connection has an
exponent. All connections into a population share its scales:

    scale[channel] * weight  ~  mantissa * step * 2**exponent[connection]

Weights of fewer bits than a target supports have a step above one, and exponents below zero divide it: a
layer whose biases or states allow only small scales can still use all mantissas. The exponents also keep one
large weight of a shortcut from coarsening a kernel of many small weights. They are chosen to minimize the
rounding noise in the current. The scales are the largest for which weights, thresholds, biases and states fit
their formats. The channels of a readout share one scale, because their voltages are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

import numpy as np

from ..base import Array, OptionError, QuantizeError, layer_name, record
from ..fold import offset_inputs
from ..formats.options import Auto
from ..hardware import HardwareProfile
from ..hardware.place import trailing_zeros
from ..ir import (
    STATE_EXPONENT,
    STATE_LIMIT,
    THRESHOLD_LIMIT,
    Connection,
    FloatFiringNeuron,
    FloatNeuron,
    FloatPopulation,
    FoldedNetwork,
    Population,
    Synapse,
    fires,
    has_current,
    largest_per_channel,
    neuron_bias,
    neuron_subtrahend,
    per_channel,
    spiking,
    state_intervals,
    value_range,
    varies,
)

Interval = tuple[Array, Array]

SPIKE_POWER = 0.25  # assumed mean square of a spike train: a spike every fourth step
CLEAR_GAIN = 2.0  # a bit of every weight
LARGEST_SNAP = 1.1  # the largest factor by which a scale is lowered to make a shortcut exact


@record
class NumberFormats:
    """The number formats of a target, as the largest magnitudes of its integers.

    Weights of fewer bits than the target supports are multiples of `step`, a power of two; thresholds and
    biases keep their full resolution. `allowances` are those of `measured_allowances`, by population; weights
    into populations that `narrow` names have so many bits instead.
    """

    weight: int
    step: int
    exponent: int
    threshold: int
    bias: int
    decay: int
    state: int
    lowest_threshold: int = 1 - THRESHOLD_LIMIT
    allowances: Mapping[str, Array] = field(default_factory=dict)
    narrow: Mapping[str, int] = field(default_factory=dict)

    def into(self, name: str) -> NumberFormats:
        """Return the formats of the weights into a population."""
        if name not in self.narrow:
            return self
        whole = (self.weight + 1) * self.step  # the range of the integers, whatever their step
        half = 2 ** (self.narrow[name] - 1)
        return replace(self, weight=half - 1, step=whole // half, narrow={})

    def allowance(self, name: str) -> Array:
        """Return, per channel, the factor by which proved intervals may overestimate reachable states."""
        return self.allowances.get(name, np.ones(1))

    @property
    def weight_bits(self) -> int:
        """The bits of a weight, sign included."""
        return self.weight.bit_length() + 1

    @property
    def finest(self) -> int:
        """The lowest exponent of a grid, -log2(step), at which the step of integer weights is one."""
        return 1 - self.step.bit_length()

    def quantum(self, exponent: int) -> float:
        """Return what a mantissa of one adds to the current per input, on a grid."""
        return self.step * 2.0**exponent

    def weight_step(self, exponent: int) -> int:
        """Return the step of the integer weights on a grid; a negative exponent divides it."""
        return self.step >> max(-exponent, 0)

    @classmethod
    def of(cls, profile: HardwareProfile, weight_bits: int | Auto | None) -> NumberFormats:
        widest = profile.value("formats.weight_bits")
        bits = weight_bits if isinstance(weight_bits, int) else widest
        if not 2 <= bits <= widest:
            raise OptionError(
                f"weight bits {bits}; {profile.name} supports signed weights of 2..{widest} bits; change "
                "--weight-bits."
            )
        exponent = profile.limit("formats.weight_exponent_maximum")
        lowest, highest = (
            profile.limit("formats.threshold_minimum"),
            profile.value("formats.threshold_maximum"),
        )
        return cls(
            weight=2 ** (bits - 1) - 1,
            step=2 ** (widest - bits),
            exponent=0 if exponent is None else exponent.value,
            threshold=highest,
            bias=2 ** (profile.value("formats.bias_mantissa_bits") - 1) - 1,
            decay=2 ** profile.value("formats.decay_bits") - 1,
            # At most the largest threshold less one, so that a threshold can lie above every voltage.
            state=min(STATE_LIMIT, (highest - 1) << STATE_EXPONENT),
            lowest_threshold=-highest if lowest is None else max(lowest.value, -highest),
        )


def grid_exponent(synapse: Synapse, formats: NumberFormats) -> int:
    """Return the exponent of the coarsest grid that holds the weights of a rounded synapse."""
    if not synapse.weight.any():
        return synapse.exponent
    return synapse.exponent + min(formats.finest + trailing_zeros(synapse.weight), 0)


@record
class FixedThresholds:
    """Given integer thresholds, and the bias offsets with which neurons fire as with their own thresholds."""

    thresholds: Array  # shaped as in `Lif`
    offset: Array  # added to the biases before rounding, in integer units
    groups: Array | None  # of the channels; a group shares a threshold. None: calibration must keep all


@record
class Grid:
    """The grid of a population's integers: a scale per channel, an exponent per connection into it.

    Thresholds follow from the scales, unless they are `fixed`.
    """

    scales: Array
    exponents: tuple[int, ...]
    fixed: FixedThresholds | None = None


def choose_grid(folded: FoldedNetwork, population: FloatPopulation, formats: NumberFormats) -> Grid:
    """Choose exponents by coordinate descent on the noise, each with the largest scales it allows.

    Then all are lowered together, where other limits than that of weights keep the scales small.
    """
    entering, formats = folded.entering(population.name), formats.into(population.name)
    limits = scale_limits(folded, population, formats)
    largest = largest_weights(entering, population)
    powers = [noise_power(folded, connection, population) for connection in entering]

    def grid(exponents: Sequence[int]) -> Grid:
        return Grid(
            scales=_scales(population, limits, largest, exponents, formats), exponents=tuple(exponents)
        )

    def noise(exponents: Sequence[int]) -> float:
        return _noise(grid(exponents), powers)

    def noise_with_biases(exponents: Sequence[int]) -> float:
        return _noise(grid(exponents), powers, bias=1 / formats.step)

    best = [0] * len(entering)
    for _ in entering if len(entering) > 1 else ():
        for index in range(len(entering)):
            trials = [[*best[:index], e, *best[index + 1 :]] for e in range(formats.exponent + 1)]
            best = min(trials, key=noise)
    lower = [[exponent + shift for exponent in best] for shift in range(0, formats.finest - 1, -1)]
    best = min(lower, key=noise_with_biases)
    return snap_scales(grid(best), common_magnitudes(entering, population), formats)


def choose_offset(folded: FoldedNetwork, formats: NumberFormats) -> int:
    """Return the middle of the inputs, if inputs less that leave at least a bit more to the first weights.

    The mean of normalized inputs is in the biases of the first layer, whose format is narrow and limits the
    scales. Otherwise 0; always 0 for spikes, whose zeros are no events, and where the offset cannot become a
    bias: it would arrive late, or build up in a current.
    """
    taken, source = folded.input_range, folded.input.name
    first = {c.target: c for c in folded.connections if c.source == source}
    middle = (taken.minimum + taken.maximum + 1) // 2
    becomes_bias = not any(c.delay or has_current(folded.layer(name).neuron) for name, c in first.items())
    if not middle or taken.maximum - taken.minimum < 2 or not becomes_bias:
        return 0
    before, after = (_first_steps(each, first, formats) for each in (folded, offset_inputs(folded, middle)))
    return middle if np.median(before / after) >= CLEAR_GAIN else 0


def _first_steps(folded: FoldedNetwork, first: Iterable[str], formats: NumberFormats) -> Array:
    """Return the step of the weights of inputs in every channel of these populations, in real units."""
    steps = []
    for name in first:
        grid = choose_grid(folded, folded.layer(name), formats)
        sources = [connection.source for connection in folded.entering(name)]
        steps.append(2.0 ** grid.exponents[sources.index(folded.input.name)] / grid.scales)
    return np.concatenate(steps)


@lru_cache(maxsize=1)  # consecutive calls are about the same population
def reachable(folded: FoldedNetwork, population: FloatPopulation) -> tuple[Interval, Interval]:
    """Return the intervals of the current and of the voltage of every neuron."""
    return state_intervals(folded, population)


def scale_limits(
    folded: FoldedNetwork, population: FloatPopulation, formats: NumberFormats
) -> dict[str, Array]:
    """Return the largest scales per channel for which all numbers of neurons fit; infinity for any."""
    (low, high), (lowest, highest) = reachable(folded, population)
    reach = np.max([largest_per_channel(edge) for edge in (low, high, lowest, highest)], axis=0)
    limits = {
        "bias": bias_limits(widest(neuron_bias(population.neuron), population.neuron), formats),
        "state": _ratio(formats.state / 2**STATE_EXPONENT, reach / formats.allowance(population.name)),
    }
    if (lif := spiking(population)) is not None:
        # Thresholds of constant neurons become the extremes of the format and limit no scale.
        threshold = np.broadcast_to(widest(lif.neuron.threshold, lif.neuron), population.shape)
        never, always = constant_neurons(folded, lif)
        within = np.where(never | always, 0.0, threshold)
        limits["threshold"] = _ratio(formats.threshold, largest_per_channel(within))
    if (subtrahend := neuron_subtrahend(population.neuron)) is not None:
        limits["subtrahend"] = _ratio(
            formats.threshold, largest_per_channel(widest(subtrahend, population.neuron))
        )
    return limits


def widest(values: Array, neuron: FloatNeuron) -> Array:
    """Return numbers of a neuron, or their largest magnitudes over time if they depend on the time step."""
    largest: Array = np.abs(values).max(axis=0) if varies(neuron) else values
    return largest


def bias_limits(bias: Array, formats: NumberFormats) -> Array:
    """Return the largest scale per channel for which biases fit their format."""
    return _ratio(formats.bias, largest_per_channel(bias))


def weight_limits(
    folded: FoldedNetwork, population: FloatPopulation, exponents: Sequence[int], formats: NumberFormats
) -> Array:
    """Return the largest scale per channel for which every weight fits its format."""
    largest = largest_weights(folded.entering(population.name), population)
    formats = formats.into(population.name)
    limits: Array = np.min(_weight_ratios(largest, exponents, formats), axis=0)
    return limits


def constant_neurons(folded: FoldedNetwork, population: Population[FloatFiringNeuron]) -> tuple[Array, Array]:
    """Return masks of the neurons that never fire, and of those that fire in every step, for any input.

    In a channel with one threshold for all neurons, either all neurons count as constant or none. If a spike
    returns the whole state to zero, the lowest voltage of a neuron that always fires is that of a first step.
    """
    neuron = population.neuron
    (low, _), (lowest, highest) = reachable(folded, population)
    below, above = (
        np.broadcast_to(each, population.shape)
        for each in (extremes(neuron.threshold) if varies(neuron) else (neuron.threshold,) * 2)
    )
    least = low + neuron.bias if forgets(neuron) else lowest
    constant = highest <= below, least > above
    if neuron.threshold.shape[varies(neuron) :] == population.shape:
        return constant
    never, always = (np.all(each.reshape(len(each), -1), axis=1) for each in constant)
    shape = population.shape
    return np.broadcast_to(per_channel(never, shape), shape), np.broadcast_to(
        per_channel(always, shape), shape
    )


def forgets(neuron: FloatFiringNeuron) -> bool:
    """Whether a spike returns the whole state to zero, so that the next step starts like the first."""
    return not has_current(neuron) and neuron_subtrahend(neuron) is None and not varies(neuron)


def extremes(values: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest number of each neuron over all time steps."""
    return values.min(axis=0), values.max(axis=0)


def _scales(
    population: FloatPopulation,
    limits: dict[str, Array],
    largest: list[Array],
    exponents: Sequence[int],
    formats: NumberFormats,
) -> Array:
    scales = np.min([*limits.values(), *_weight_ratios(largest, exponents, formats)], axis=0)
    if not scales.min() > 0:
        kind = min(limits, key=lambda name: float(limits[name].min()))
        raise QuantizeError(
            f"{layer_name(population.name)}: no scale above zero fits its largest {kind} into the target's "
            f"format of {kind}; choose a target with a wider format, or reduce the {kind}."
        )
    if not fires(population.neuron):
        scales = np.full_like(scales, scales.min())
    return np.where(np.isfinite(scales), scales, 1.0)


def _weight_ratios(largest: list[Array], exponents: Sequence[int], formats: NumberFormats) -> list[Array]:
    limits = [formats.weight * formats.quantum(exponent) for exponent in exponents]
    return [_ratio(limit, values) for limit, values in zip(limits, largest, strict=True)]


def largest_weights(entering: list[Connection], population: FloatPopulation) -> list[Array]:
    """Return, per connection, the largest weight magnitude of each channel."""
    return [largest_per_channel(c.synapse.weight.reshape(population.shape[0], -1)) for c in entering]


def noise_power(folded: FoldedNetwork, connection: Connection, population: FloatPopulation) -> Array:
    """Return, per channel, the number of weights of a neuron times the mean square of their inputs."""
    power = mean_square(folded, connection)
    rows = connection.synapse.weight.reshape(population.shape[0], -1)
    noise: Array = np.count_nonzero(rows, axis=1) * power
    return noise


def mean_square(folded: FoldedNetwork, connection: Connection) -> float:
    """Return the assumed mean square of the inputs of a connection."""
    if connection.source != folded.input.name:
        return SPIKE_POWER
    return max(map(abs, value_range(folded.input_range))) ** 2 / 3


def _noise(grid: Grid, powers: list[Array], bias: float = 0.0) -> float:
    """mean over channels of log((bias / scale)**2 + sum over connections of power * (2**exponent / scale)**2)

    `bias` is the step of biases in steps of weights.
    """
    steps = [2.0**exponent / grid.scales for exponent in grid.exponents]
    noise = np.sum([power * step**2 for power, step in zip(powers, steps, strict=True)], axis=0)
    noise = noise + (bias / grid.scales) ** 2
    noisy = noise > 0
    return float(np.log(noise[noisy]).mean()) if noisy.any() else 0.0


def common_magnitudes(entering: list[Connection], population: FloatPopulation) -> list[Array]:
    """Return, per connection and channel, the magnitude of all weights but zeros; 0 if they have several.

    A single connection, and neurons that do not fire, have nothing to gain: they get an empty list.
    """
    if len(entering) < 2 or not fires(population.neuron):
        return []
    found = []
    for connection in entering:
        magnitudes = np.abs(connection.synapse.weight).reshape(population.shape[0], -1)
        largest = magnitudes.max(axis=1, keepdims=True)
        single = ((magnitudes == 0) | (magnitudes == largest)).all(axis=1)
        found.append(np.where(single, largest[:, 0], 0.0))
    return found


def snap_scales(grid: Grid, magnitudes: list[Array], formats: NumberFormats) -> Grid:
    """Lower scales slightly, so that a shortcut whose weights have one magnitude w needs no rounding.

    scale <- floor(scale * w / quantum) * quantum / w, channel by channel
    """
    scales = grid.scales
    free = np.ones(len(scales), bool)
    for common, exponent in zip(magnitudes, grid.exponents):  # noqa: B905 - or there are no magnitudes
        single = (common > 0) & free
        quantum = formats.quantum(exponent) / np.where(single, common, 1.0)
        lower = np.floor(scales / quantum * (1 + 1e-12)) * quantum
        taken = single & (lower * LARGEST_SNAP >= scales)
        scales, free = np.where(taken, lower, scales), free & ~taken
    return replace(grid, scales=scales)


def _ratio(limit: float, largest: Array) -> Array:
    """Return limit / largest; infinity where `largest` is zero, or too small for the ratio."""
    with np.errstate(over="ignore"):
        ratio: Array = np.divide(limit, largest, out=np.full(largest.shape, np.inf), where=largest > 0)
    return ratio
