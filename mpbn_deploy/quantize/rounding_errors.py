"""Report, per population, the scales, what limits them, and the rounding errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor, log2

import numpy as np

from ..base import Array, Report, layer_name, record
from ..ir import (
    AnyNetwork,
    AnyPopulation,
    FloatFiringNeuron,
    FloatPopulation,
    FoldedNetwork,
    IntNetwork,
    Population,
    bounds,
    fires,
    has_current,
    membrane,
    neuron_bias,
    neuron_threshold,
    real_weight,
    scale_channels,
    scaled,
    spiking,
    sum_of_weights,
    varies,
)
from .scales import (
    CLEAR_GAIN,
    NumberFormats,
    bias_limits,
    constant_neurons,
    grid_exponent,
    scale_limits,
    weight_limits,
    widest,
)
from .thresholds import constant_channels
from .voltage_samples import ThresholdLimits, is_memoryless, threshold_range
from .widths import Widths

CLEAR_LEAK_ERROR = 1e-3  # more than 12 bits of a decay give
COARSE_WEIGHT = 7  # the largest weight of a population that is still worth rounding: as many as 4 bits hold


@record
class ThresholdChoices:
    """How the channels of a population got their integer thresholds.

    scaled          exactly, by the choice of the scale
    moved           exactly, by a bias, in memoryless neurons
    approximated    by a bias, in neurons with memory

    Without limits on thresholds, all channels that are not constant count as scaled.
    """

    rule: str
    distinct: int
    smallest: int
    largest: int
    channels: int
    channels_never_firing: int
    channels_always_firing: int
    channels_scaled: int
    channels_moved: int
    channels_approximated: int


@record
class OffsetGain:
    """An offset of the inputs that makes biases small, and at least how much larger scales it allows."""

    offset: int
    times_larger: float  # in the channel in the middle


@record
class RoundingErrors(Report):
    """The scales and rounding errors of a population, and how many channels each limit binds.

    `channels_without_weights` counts channels whose weights were all rounded to zero. A readout has no
    thresholds.
    """

    JSON = """name scale_minimum scale_maximum weight_exponents channels_limited_by weight_error_rms
        channels_without_weights channels_with_weights overflow_proved_absent leak_error current_leak_error?
        thresholds_beyond_reach?? thresholds?? input_bits?? input_offset?? lost notes"""

    name: str
    scale_minimum: float
    scale_maximum: float
    weight_exponents: tuple[int, ...]
    channels_limited_by: Mapping[str, int]
    weight_error_rms: float
    channels_without_weights: int
    channels_with_weights: int  # before rounding
    overflow_proved_absent: bool
    leak_error: float
    current_leak_error: float = 0.0  # largest rounding error of the leak of currents
    thresholds_beyond_reach: int | None = None
    thresholds: ThresholdChoices | None = None
    input_bits: int | None = None  # of inputs that would leave bits for the weights that were lost
    input_offset: OffsetGain | None = None

    @property
    def lost(self) -> bool:
        """Whether rounding left most channels without weights, so that they ignore what they receive."""
        return 2 * self.channels_without_weights > self.channels_with_weights

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the user, a sentence each."""
        return tuple(f"{layer_name(self.name)}: {note}" for note in _notes(self))


@record
class Quantized:
    """The result of quantization: the integer network, and the rounding errors of each population."""

    network: IntNetwork
    errors: tuple[RoundingErrors, ...]
    widths: Widths | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        chosen = () if self.widths is None else (self.widths.text,)
        return (*chosen, *(note for errors in self.errors for note in errors.notes))

    @property
    def lost(self) -> tuple[RoundingErrors, ...]:
        """The populations that rounding left without weights, in most of their channels."""
        return tuple(errors for errors in self.errors if errors.lost)


def with_errors(
    network: IntNetwork, folded: FoldedNetwork, limits: ThresholdLimits, formats: NumberFormats
) -> Quantized:
    """Compare the integers with the real numbers of the folded network."""
    return Quantized(
        network=network,
        errors=tuple(_rounding_errors(folded, network, p, limits, formats) for p in folded.layers),
    )


def _rounding_errors(
    folded: FoldedNetwork,
    network: IntNetwork,
    population: FloatPopulation,
    limits: ThresholdLimits,
    formats: NumberFormats,
) -> RoundingErrors:
    name, lif = population.name, spiking(population)
    scales, formats = network.scales[name], formats.into(name)
    real, integer = (_weight_sums(each, population) for each in (folded, network))
    lost = (real > 0) & (integer == 0)
    return RoundingErrors(
        name=name,
        scale_minimum=float(scales.min()),
        scale_maximum=float(scales.max()),
        weight_exponents=tuple(c.synapse.exponent for c in network.entering(name)),
        channels_limited_by=_binding_limits(folded, network, population, formats),
        weight_error_rms=_weight_error(folded, network, name),
        channels_without_weights=int(np.sum(lost)),
        channels_with_weights=int(np.sum(real > 0)),
        overflow_proved_absent=bounds(network, (name,))[name].fits,
        leak_error=_leak_error(population, network.layer(name)),
        thresholds_beyond_reach=None if lif is None else _beyond_reach(folded, lif),
        thresholds=None if lif is None else _threshold_choices(folded, network, lif, limits),
        input_bits=_fewer_input_bits(folded, network, population, formats) if lost.any() else None,
        input_offset=_offset_gain(folded, network, population, formats),
    )


def _leak_error(real: AnyPopulation, integer: AnyPopulation) -> float:
    """Return the largest rounding error of the factor by which a voltage decays in one time step."""
    kept, wanted = (np.asarray(membrane(p.neuron, 1).decay_voltage.kept) for p in (integer, real))
    error = (kept - wanted).ravel()
    return float(error[np.abs(error).argmax()])


def _binding_limits(
    folded: FoldedNetwork, network: IntNetwork, population: FloatPopulation, formats: NumberFormats
) -> dict[str, int]:
    """Count the channels that each limit keeps from a larger scale."""
    limits = _limits(folded, network, population, formats)
    table = np.array(list(limits.values()))
    if not fires(population.neuron):  # its channels share the smallest scale
        table = np.repeat(table.min(axis=1, keepdims=True), table.shape[1], axis=1)
    binding = np.where(np.isfinite(table.min(axis=0)), table.argmin(axis=0), -1)
    return {key: int((binding == index).sum()) for index, key in enumerate(limits)}


def _limits(
    folded: FoldedNetwork, network: IntNetwork, population: FloatPopulation, formats: NumberFormats
) -> dict[str, Array]:
    """Return the largest scales per channel that each format allows, with the exponents of the network."""
    exponents = [grid_exponent(c.synapse, formats) for c in network.entering(population.name)]
    weight = weight_limits(folded, population, exponents, formats)
    return {"weight": weight, **scale_limits(folded, population, formats)}


def _weight_error(folded: FoldedNetwork, network: IntNetwork, name: str) -> float:
    """Return the RMS of integer * 2**exponent - scale * weight over all synapses of a population."""
    pairs = zip(folded.entering(name), network.entering(name), strict=True)
    errors = [
        (real_weight(got.synapse) - scaled(real.synapse, network.scales[name]).weight).ravel()
        for real, got in pairs
    ]
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def _weight_sums(network: AnyNetwork, population: FloatPopulation) -> Array:
    """Return the sum of weight magnitudes of each channel."""
    rows = [c.synapse.weight.reshape(population.shape[0], -1) for c in network.entering(population.name)]
    sums: Array = np.sum([np.abs(weights).sum(axis=1) for weights in rows], axis=0)
    return sums


def _fewer_input_bits(
    folded: FoldedNetwork, network: IntNetwork, population: FloatPopulation, formats: NumberFormats
) -> int | None:
    """Return the most bits of inputs with which the largest weight would be `COARSE_WEIGHT` steps or more.

    Or as many steps as weights have, if these are fewer. Inputs that are n times smaller leave room for
    weights that are n times larger. None where inputs do not arrive, or have as few bits already.
    """
    scales, taken = network.scales[population.name], folded.input_range
    weights = [
        np.abs(scaled(c.synapse, scales).weight).max()
        for c in folded.entering(population.name)
        if c.source == folded.input.name
    ]
    largest = max(abs(taken.minimum), abs(taken.maximum))
    if not weights or largest < 2 or not max(weights) > 0:
        return None
    needed = min(COARSE_WEIGHT, formats.weight)  # in steps of one, the finest
    bits = max(1, int(floor(log2(1 + largest * max(weights) / needed)) + (taken.minimum < 0)))
    return bits if taken.coarser(bits).divisor > 1 else None


def _offset_gain(
    folded: FoldedNetwork, network: IntNetwork, population: FloatPopulation, formats: NumberFormats
) -> OffsetGain | None:
    """Return the middle of the range of the data, if inputs less that allow clearly larger scales.

    The mean of the inputs is in the bias of the first layer, and its format is narrow. With the offset,
    bias + offset * sum of weights is what remains of it. States may become smaller, too.
    """
    source, entering, taken = folded.input, folded.entering(population.name), folded.input_range
    middle = (taken.minimum + taken.maximum + 1) // 2
    if not middle or has_current(population.neuron) or any(c.source != source.name for c in entering):
        return None
    sums = sum(sum_of_weights(c.synapse, source.shape).reshape(population.shape) for c in entering)
    limits = _limits(folded, network, population, formats)
    remaining = bias_limits(
        widest(neuron_bias(population.neuron) + middle * sums, population.neuron), formats
    )
    scales, larger = (np.min([*each.values()], axis=0) for each in (limits, {**limits, "bias": remaining}))
    limited = np.isfinite(scales)
    times = float(np.median(np.where(limited, larger, 1.0) / np.where(limited, scales, 1.0)))
    offset = taken.offset + middle * taken.divisor
    return OffsetGain(offset=offset, times_larger=times) if times >= CLEAR_GAIN else None


def _beyond_reach(folded: FoldedNetwork, population: Population[FloatFiringNeuron]) -> int:
    """Count the neurons that never, or always, fire."""
    return int(np.sum(np.logical_or(*constant_neurons(folded, population))))


def _threshold_choices(
    folded: FoldedNetwork,
    network: IntNetwork,
    population: Population[FloatFiringNeuron],
    limits: ThresholdLimits,
) -> ThresholdChoices:
    integers = neuron_threshold(network.layer(population.name).neuron)
    assert integers is not None, "quantization keeps the kind of neurons"
    channels = population.shape[0]
    never, always = constant_channels(folded, population)
    low, high = (
        scale_channels(end, network.scales[population.name], per_step=varies(population.neuron))
        for end in threshold_range(folded, population)
    )
    threshold = np.broadcast_to(integers, low.shape)
    slack = 1e-6 * np.maximum(1.0, np.abs(threshold))
    off = (threshold > high + slack) | (threshold <= low - 1)
    off, low = (off.any(axis=0), low[0]) if varies(population.neuron) else (off, low)
    exact = np.isneginf(low) | is_memoryless(folded, population.neuron)
    ordinary = limits.bind & ~never & ~always
    moved, approximated = (
        which.reshape(channels, -1).any(axis=1) & ordinary for which in (off & exact, off & ~exact)
    )
    return ThresholdChoices(
        rule=limits.description,
        distinct=len(np.unique(integers)),
        smallest=int(integers.min()),
        largest=int(integers.max()),
        channels=channels,
        channels_never_firing=int(never.sum()),
        channels_always_firing=int(always.sum()),
        channels_scaled=int((~moved & ~approximated & ~never & ~always).sum()),
        channels_moved=int((moved & ~approximated).sum()),
        channels_approximated=int(approximated.sum()),
    )


def _most_binding(errors: RoundingErrors) -> str:
    """Return the limits that keep channels from larger scales, with how many channels each."""
    binding = sorted(errors.channels_limited_by.items(), key=lambda item: -item[1])
    return ", ".join(f"{limit} {count}" for limit, count in binding if count)


def _notes(found: RoundingErrors) -> Iterator[str]:
    if lost := found.channels_without_weights:
        fewer = (
            ""
            if found.input_bits is None
            else f" --input-bits {found.input_bits} leaves more bits to weights;"
        )
        yield (
            f"all weights of {lost} of {found.channels_with_weights} channels were rounded to zero, because "
            "they are too small compared with the thresholds, biases or states of these channels (limits: "
            f"{_most_binding(found)}).{fewer} --calibration NAME chooses the weights that matter; fewer time "
            "steps make states smaller."
        )
    if (gain := found.input_offset) is not None:
        yield (
            "its biases, which hold the mean of the inputs, limit the resolution of its weights: with "
            f"--input-offset {gain.offset}, the network takes inputs minus {gain.offset}, and weights are "
            f"at least {gain.times_larger:.1f} times finer."
        )
    for label, error in (("membrane", found.leak_error), ("current", found.current_leak_error)):
        if abs(error) > CLEAR_LEAK_ERROR:
            yield (
                f"the leak of its {label} differs by {error:+.4f} from the trained one, which the chip does "
                "not have; this is the nearest (1 - 2^-k on chips that shift). Train with one of those."
            )
    if not found.overflow_proved_absent:
        yield (
            "absence of overflow is not proved, only likely from the calibration inputs "
            "(--overflow measured)."
        )
    if (thresholds := found.thresholds) is None:
        return
    constant = {"never": thresholds.channels_never_firing, "always": thresholds.channels_always_firing}
    for how, count in constant.items():
        if count:
            yield (
                f"{count} of {thresholds.channels} channels {how} fire, for any input; their weights were "
                "removed."
            )
    if count := thresholds.channels_approximated:
        yield (
            f"thresholds of {count} of {thresholds.channels} channels were approximated by biases (limit: "
            f"{thresholds.rule}); `verify` counts the spikes that differ."
        )
