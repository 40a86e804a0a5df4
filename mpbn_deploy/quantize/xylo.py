"""Quantize for Xylo: FoldedNetwork of `FloatXylo` neurons -> IntNetwork of `Xylo` neurons.

A neuron's weights, bias and threshold may be multiplied by any number, its scale. All weights of one of the
chip's three matrices (inputs, hidden, outputs) share a left shift, so

    integer weight = round(scale * weight / current_leak / 2**shift)        -127..127

where the current leak is divided away because the chip's current decays before it is used. States have 16
bits, and decays round by up to one unit of them: so scales are as large as states allow. With calibration
inputs these are the largest that occur, times `MARGIN`; without, as many thresholds as a neuron can fire in a
step, and at least `USUAL_REACH`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from typing_extensions import assert_never

from ..base import Array, QuantizeError, layer_name
from ..execute.reference import simulate
from ..formats.xylo import part_of
from ..hardware import HardwareProfile
from ..ir import (
    LARGEST_SHIFT,
    XYLO_HIGH,
    Connection,
    FloatLif,
    FloatPopulation,
    FloatReadout,
    FloatSoftLif,
    FloatXylo,
    FoldedNetwork,
    IntNetwork,
    Synapse,
    Xylo,
    counting,
    neuron_kind,
    scale_channels,
    scaled,
)
from .rounding_errors import Quantized, RoundingErrors, ThresholdChoices

MARGIN = 2.0  # 16 bits / the largest state on the calibration inputs
USUAL_REACH = 24  # 16 bits / threshold, without calibration inputs
LARGEST_WEIGHT_SHIFT = 7  # of weights of 8 bits in states of 16
TRAIN_FOR_IT = "Train for it: python -m mpbn_deploy.train --data digits-rows --neuron xylo"
RESETS = {"lif": "resets to zero", "soft lif": "fires at most once in a step", "readout": "never fires"}


def shifts_decays(profile: HardwareProfile) -> bool:
    """Whether a chip's decays are bit shifts, as Xylo's are."""
    return profile.limit("formats.decay_shift_maximum") is not None


def check_neurons(folded: FoldedNetwork, profile: HardwareProfile) -> None:
    """Raise QuantizeError unless the neurons of a network are those of the chip."""
    strangers = [p for p in folded.layers if counting(p.neuron) is None]
    if shifts_decays(profile) and strangers:
        found = RESETS[neuron_kind(strangers[0].neuron)]
        raise QuantizeError(
            f"{layer_name(strangers[0].name)}: {found}; neurons of {profile.name} subtract their threshold, "
            f"up to 31 times in a step, and outputs are spikes. {TRAIN_FOR_IT}"
        )
    if not shifts_decays(profile) and len(strangers) < len(folded.layers):
        raise QuantizeError(
            f"the network has neurons of Xylo, which {profile.name} does not; choose --target xylo-a2, "
            "xylo-a3 or xylo-imu."
        )


def quantize_xylo(
    folded: FoldedNetwork, profile: HardwareProfile, inputs: Array | None, weight_bits: int | None
) -> Quantized:
    """Choose an integer for every number of a network."""
    largest = 2 ** ((weight_bits or profile.value("formats.weight_bits")) - 1) - 1
    reach = _reach(folded, inputs)
    shifts = {part: _weight_shift(folded, part, reach, largest) for part in ("in", "rec", "out")}
    layers, connections, errors, scales = [], [], [], {}
    for population in folded.layers:
        neuron = _of_xylo(population)
        entering = folded.entering(population.name)
        scale = _scale(entering, neuron, {c: shifts[part_of(folded, c)] for c in entering}, reach, largest)
        scales[population.name] = scale
        rounded = [_rounded(c, neuron, scale, shifts[part_of(folded, c)], largest) for c in entering]
        made = _neuron(neuron, scale)
        layers.append(population.with_neuron(made))
        connections += rounded
        errors.append(_errors(population, neuron, made, scale, entering, rounded))
    order = {(c.source, c.target): c for c in connections}
    network = IntNetwork(
        populations=(folded.input, *layers),
        connections=tuple(order[c.source, c.target] for c in folded.connections),
        timesteps=folded.timesteps,
        scales=scales,
    )
    return Quantized(network=network, errors=tuple(errors))


def _of_xylo(population: FloatPopulation) -> FloatXylo:
    match neuron := population.neuron:
        case FloatXylo():
            return neuron
        case FloatLif() | FloatSoftLif() | FloatReadout():
            raise TypeError(f"{population.name}: check_neurons rejects it")
        case _:
            assert_never(neuron)


def nearest_shift(leak: float | Array) -> Array:
    """Return k of the nearest 1 - 2**-k, 0..15."""
    kept = 1 - 2.0 ** -np.arange(LARGEST_SHIFT + 1)
    nearest: Array = np.abs(np.asarray(leak, np.float64)[..., None] - kept).argmin(axis=-1)
    return nearest


def _reach(folded: FoldedNetwork, inputs: Array | None) -> dict[str, Array]:
    """Return what 16 bits must hold of each neuron, in real numbers, by channel."""
    thresholds = {p.name: np.broadcast_to(_of_xylo(p).threshold, p.shape) for p in folded.layers}
    if inputs is None:
        most = {p.name: max(USUAL_REACH, 2 + _of_xylo(p).max_spikes) for p in folded.layers}
        return {name: _per_channel(most[name] * values) for name, values in thresholds.items()}
    trace = simulate(folded, inputs)
    reach = {}
    for name, threshold in thresholds.items():
        charged = np.abs(trace.voltages[name] + trace.spikes[name] * threshold).max(axis=(0, 1))
        reach[name] = _per_channel(MARGIN * np.maximum(charged, threshold))
    return reach


def _per_channel(values: Array) -> Array:
    largest: Array = values.reshape(len(values), -1).max(axis=1)
    return largest


def _before_decay(connection: Connection, neuron: FloatXylo) -> Synapse:
    """Return the real synapse onto a current that decays before it is used."""
    leak = _used(neuron)
    return scaled(connection.synapse, np.full(1, 1 / leak))


def _used(neuron: FloatXylo) -> float:
    """Return what of an arriving weight the chip uses in its step: the leak that its shift gives."""
    return float(1 - 2.0 ** -float(np.max(_current_shift(neuron))))


def _current_shift(neuron: FloatXylo) -> Array:
    """Return the shift of the current; a shift of zero would lose it before it is used."""
    return np.maximum(nearest_shift(neuron.current_leak), 1)


def _row_largest(synapse: Synapse) -> Array:
    rows: Array = np.abs(synapse.weight).reshape(len(synapse.weight), -1).max(axis=1)
    return np.maximum(rows, np.finfo(np.float64).tiny)


def _weight_shift(folded: FoldedNetwork, part: str, reach: Mapping[str, Array], largest: int) -> int:
    """Return the shift at which weights of 8 bits reach as far as states, for the median neuron."""
    ratios = []
    for connection in folded.connections:
        if part_of(folded, connection) == part:
            population = folded.layer(connection.target)
            weights = _row_largest(_before_decay(connection, _of_xylo(population)))
            ratios.append(_states(population, weights) * XYLO_HIGH / reach[population.name] / largest)
    if not ratios:
        return 0
    middle = np.median(np.concatenate(ratios))
    return int(np.clip(np.floor(np.log2(max(middle, 1.0))), 0, LARGEST_WEIGHT_SHIFT))


def _states(population: FloatPopulation, weights: Array) -> Array:
    """Return the largest weight of each channel, from those of each row of a synapse."""
    largest: Array = weights.reshape(population.shape[0], -1).max(axis=1)
    return largest


def _scale(
    entering: list[Connection],
    neuron: FloatXylo,
    shifts: Mapping[Connection, int],
    reach: Mapping[str, Array],
    largest: int,
) -> Array:
    """Return the largest scale of each channel with which states, weights, biases and thresholds fit."""
    name = entering[0].target
    scale = XYLO_HIGH / reach[name]
    channels = len(scale)
    for connection in entering:
        rows = _row_largest(_before_decay(connection, neuron)).reshape(channels, -1).max(axis=1)
        scale = np.minimum(scale, (largest + 0.49) * 2.0 ** shifts[connection] / rows)
    for values in (neuron.threshold, np.abs(neuron.bias)):
        widest = np.maximum(values.reshape(channels, -1).max(axis=1), np.finfo(np.float64).tiny)
        scale = np.minimum(scale, XYLO_HIGH / widest)
    return scale


def _rounded(connection: Connection, neuron: FloatXylo, scale: Array, shift: int, largest: int) -> Connection:
    real = scaled(_before_decay(connection, neuron), scale)
    weight = np.clip(np.rint(real.weight / 2.0**shift), -largest, largest).astype(np.int32)
    return replace(connection, synapse=replace(real, weight=weight, exponent=shift))


def _neuron(neuron: FloatXylo, scale: Array) -> Xylo:
    threshold, bias = (np.rint(scale_channels(each, scale)) for each in (neuron.threshold, neuron.bias))
    shift_current, shift_voltage = _current_shift(neuron), nearest_shift(neuron.leak)
    return Xylo(
        threshold=np.clip(threshold, 1, XYLO_HIGH).astype(np.int32),
        bias=bias.astype(np.int32),
        shift_current=shift_current if shift_current.ndim else int(shift_current),
        shift_voltage=shift_voltage if shift_voltage.ndim else int(shift_voltage),
        max_spikes=neuron.max_spikes,
    )


def _errors(
    population: FloatPopulation,
    neuron: FloatXylo,
    made: Xylo,
    scale: Array,
    entering: list[Connection],
    rounded: list[Connection],
) -> RoundingErrors:
    """Compare the integers of a population with its real numbers."""
    pairs = [
        (scaled(_before_decay(real, neuron), scale).weight, got.synapse.weight * 2.0**got.synapse.exponent)
        for real, got in zip(entering, rounded, strict=True)
    ]
    errors = np.concatenate([(got - real).ravel() for real, got in pairs])
    real, integer = (
        np.sum([np.abs(pair[side]).reshape(population.shape[0], -1).sum(axis=1) for pair in pairs], axis=0)
        for side in (0, 1)
    )
    return RoundingErrors(
        name=population.name,
        scale_minimum=float(scale.min()),
        scale_maximum=float(scale.max()),
        weight_exponents=tuple(c.synapse.exponent for c in rounded),
        channels_limited_by={},
        weight_error_rms=float(np.sqrt(np.mean(errors**2))),
        channels_without_weights=int(((real > 0) & (integer == 0)).sum()),
        channels_with_weights=int((real > 0).sum()),
        overflow_proved_absent=True,  # sums saturate; `verify` counts where
        leak_error=float(np.max(np.abs(1 - 2.0 ** -np.asarray(made.shift_voltage, float) - neuron.leak))),
        current_leak_error=float(
            np.max(np.abs(1 - 2.0 ** -np.asarray(made.shift_current, float) - neuron.current_leak))
        ),
        thresholds=ThresholdChoices(
            rule="one for each neuron",
            distinct=len(np.unique(made.threshold)),
            smallest=int(made.threshold.min()),
            largest=int(made.threshold.max()),
            channels=population.shape[0],
            channels_never_firing=0,
            channels_always_firing=0,
            channels_scaled=population.shape[0],
            channels_moved=0,
            channels_approximated=0,
        ),
    )
