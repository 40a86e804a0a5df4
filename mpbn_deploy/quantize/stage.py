"""FoldedNetwork + profile -> IntNetwork

thresholds  constant channels without weights; thresholds that a chip's limits, or the user, hold fast
scales      which grid the integers of each population lie on: a scale per channel, an exponent per connection
rounding    real numbers to the nearest integers; the proof that no state can overflow
calibrate   with data: rounding, biases and thresholds that flip the fewest spikes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Array, OptionError, QuantizeError, SimulationError, did_you_mean
from ..execute.emulator import peaks
from ..hardware import HardwareProfile
from ..ir import (
    DECAY_ONE,
    FloatLif,
    FloatPopulation,
    FloatReadout,
    FoldedNetwork,
    Input,
    IntNetwork,
    IntPopulation,
    Lif,
    Readout,
    as_steps,
    bounds,
    check_input_values,
    float_intervals,
    incoming,
    largest_per_channel,
)
from .calibrate import calibrate
from .evidence import gather_evidence
from .options import OVERFLOW_CHOICES
from .rounding import round_without_overflow, scaled_weight
from .scales import Formats, Grid, choose_grid, constant_neurons, scale_limits, weight_limits
from .thresholds import (
    ThresholdLimits,
    cores_of_channels,
    describe_thresholds,
    few_enough,
    hold_thresholds,
    one_core,
    silence_constants,
)

MARGIN = 1.25  # of measured states, above what calibration inputs reach


def quantize(
    folded: FoldedNetwork,
    profile: HardwareProfile,
    calibration: Array | None = None,
    *,
    weight_bits: int | None = None,
    thresholds: str = "own",
    overflow: str = "proved",
) -> IntNetwork:
    """Integers for every weight, bias and threshold, in the formats of the profile.

    With `calibration` inputs, weights are rounded, biases and thresholds shifted, and channels scaled so
    that the fewest spikes differ from those of the float network on them; without, nothing but the
    network itself is needed. That no state overflows is proved for every input, or, with
    `overflow="measured"`, only made likely: scales leave a margin above what calibration inputs reach.
    """
    formats = Formats.of(profile, weight_bits)
    if overflow not in OVERFLOW_CHOICES:
        raise OptionError(f"overflow {overflow!r}. {did_you_mean(overflow, OVERFLOW_CHOICES)}")
    limits = ThresholdLimits.of(profile, thresholds, formats)
    if calibration is not None:
        calibration = check_calibration(folded, calibration)
    folded = silence_constants(folded)
    if overflow == "measured":
        if calibration is None:
            raise OptionError("overflow measured: on what? Give calibration inputs (--calibration).")
        formats = replace(formats, allowances=measured_allowances(folded, calibration))
    grids = {p.name: choose_grid(folded, p, formats) for p in folded.populations[1:]}
    network, grids = round_without_overflow(folded, grids, formats)

    def calibrated(network: IntNetwork, grids: Mapping[str, Grid]) -> IntNetwork:
        return network if calibration is None else calibrate(folded, network, grids, calibration, formats)

    if not limits.bind:
        return calibrated(network, grids)
    evidence = gather_evidence(folded, calibration)
    # Other weights may sit on other cores; a population whose channels all share a few is safe anywhere.
    for whole in (False, False, True):
        cores = one_core(network) if whole or limits.shared else cores_of_channels(network, profile)
        network = calibrated(*hold_thresholds(folded, grids, evidence, cores, limits, formats))
        if few_enough(network, profile, limits):
            break
    return network


def measured_allowances(folded: FoldedNetwork, inputs: Array) -> dict[str, Array]:
    """How many times the intervals of each channel exceed what its states reach on inputs, with a margin.

    allowance = interval / (1.25 * largest state on the inputs), and at least one; readouts stay proved
    """
    reached = peaks(folded, inputs)
    allowances = {}
    for population in folded.populations[1:]:
        if isinstance(population.neuron, FloatLif):
            current, voltage = float_intervals(folded, population)
            widest = np.max([largest_per_channel(edge) for edge in (*current, *voltage)], axis=0)
            likely = MARGIN * reached[population.name]
            room = np.divide(widest, likely, out=np.ones_like(widest), where=likely > 0)
            allowances[population.name] = np.maximum(room, 1.0)
    return allowances


def check_calibration(folded: FoldedNetwork, inputs: Array) -> Array:
    """Calibration inputs that the network can take; refused, with the reason, where it cannot."""
    inputs = np.asarray(inputs)
    try:
        as_steps(inputs, folded.input.shape, folded.timesteps)
        check_input_values(folded, inputs)
    except SimulationError as error:
        raise QuantizeError(f"calibration: {error}") from error
    return inputs


# ---- what it changed --------------------------------------------------------------------------


def describe(
    folded: FoldedNetwork,
    network: IntNetwork,
    profile: HardwareProfile,
    weight_bits: int | None = None,
    thresholds: str = "own",
    measured: Array | None = None,
) -> list[dict[str, Any]]:
    """Per population, in numbers: the scales, what limited them, and what rounding did.

    `measured` are the inputs on which states were, where they were not proved.
    """
    formats = Formats.of(profile, weight_bits)
    limits = ThresholdLimits.of(profile, thresholds, formats)
    folded = silence_constants(folded)
    if measured is not None:
        formats = replace(formats, allowances=measured_allowances(folded, measured))
    return [_describe_population(folded, network, p, limits, formats) for p in folded.populations[1:]]


def _describe_population(
    folded: FoldedNetwork,
    network: IntNetwork,
    population: FloatPopulation,
    limits: ThresholdLimits,
    formats: Formats,
) -> dict[str, Any]:
    name, neuron = population.name, population.neuron
    integer = incoming(network.connections, name)
    errors = [
        (got.synapse.weight * 2.0**got.synapse.exponent - scaled_weight(real, network.scales[name])).ravel()
        for real, got in zip(incoming(folded.connections, name), integer, strict=True)
    ]
    described = {
        "name": name,
        "scale_minimum": float(network.scales[name].min()),
        "scale_maximum": float(network.scales[name].max()),
        "weight_exponents": [c.synapse.exponent for c in integer],
        "channels_limited_by": _binding_limits(folded, network, population, formats),
        "weight_error_rms": float(np.sqrt(np.mean(np.concatenate(errors) ** 2))),
        "channels_without_weights": _lost_channels(folded, network, population),
        "overflow_proved_absent": bounds(network, (name,))[name].fits,
    }
    if not isinstance(neuron, Input):
        described["leak_error"] = (1 - _decay_voltage(network, name) / DECAY_ONE) - neuron.leak
    if isinstance(neuron, FloatLif):
        described["thresholds_beyond_reach"] = int(
            np.sum(np.logical_or(*constant_neurons(folded, population)))
        )
        described["thresholds"] = describe_thresholds(folded, network, population, limits)
    described["notes"] = [f"{name}: {note}" for note in _notes(described)]
    return described


def _lost_channels(folded: FoldedNetwork, network: IntNetwork, population: FloatPopulation) -> int:
    """How many channels had weights, all of which were rounded to zero."""
    channels = population.shape[0]
    real, integer = (
        sum(
            np.abs(c.synapse.weight).reshape(channels, -1).sum(axis=1)
            for c in incoming(entering, population.name)
        )
        for entering in (folded.connections, network.connections)
    )
    return int(np.sum((np.asarray(real) > 0) & (np.asarray(integer) == 0)))


def _notes(described: dict[str, Any]) -> Iterator[str]:
    """What a user should know beside the numbers, a sentence each."""
    if lost := described["channels_without_weights"]:
        yield (
            f"all weights of {lost} channels were rounded to zero; "
            "their thresholds, biases or states are too large beside them."
        )
    if not described["overflow_proved_absent"]:
        yield (
            "that none of its states can overflow is not proved, only made likely by calibration inputs "
            "(--overflow measured)."
        )
    told = described.get("thresholds")
    if told is None:  # a readout has none
        return
    for which in ("never", "always"):
        if count := told[f"channels_{which}_firing"]:
            yield (
                f"{count} of {told['channels']} channels {which} fire, whatever the input; "
                "they need no weights and have none."
            )
    if count := told["channels_approximated"]:
        yield (
            f"thresholds of {count} of {told['channels']} channels approximated by biases, to be "
            f"{told['rule']}; `verify` counts the spikes that differ."
        )


def _binding_limits(
    folded: FoldedNetwork, network: IntNetwork, population: FloatPopulation, formats: Formats
) -> dict[str, int]:
    """How many channels each limit keeps from a larger scale."""
    exponents = [c.synapse.exponent for c in incoming(network.connections, population.name)]
    limits = {"weight": weight_limits(folded, population, exponents, formats)}
    limits |= scale_limits(folded, population, formats)
    table = np.array(list(limits.values()))
    if isinstance(population.neuron, FloatReadout):  # its channels share the smallest scale
        table = np.repeat(table.min(axis=1, keepdims=True), table.shape[1], axis=1)
    binding = np.where(np.isfinite(table.min(axis=0)), table.argmin(axis=0), -1)
    return {key: int((binding == index).sum()) for index, key in enumerate(limits)}


def _decay_voltage(network: IntNetwork, name: str) -> int:
    neuron = _integer(network, name).neuron
    assert isinstance(neuron, (Lif, Readout))
    return neuron.decay_voltage


def _integer(network: IntNetwork, name: str) -> IntPopulation:
    return next(population for population in network.populations if population.name == name)
