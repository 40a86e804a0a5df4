"""FoldedNetwork + profile -> IntNetwork

Each output channel carries a free scale: a hard-reset neuron does not change when its weights,
bias and threshold are multiplied alike (`graph.scale_channels`). So each channel gets the largest
scale under which its weights, biases and thresholds fit their formats, and no current or voltage
of the *rounded* network can leave the state, whatever the input (`bounds`). Then weights and biases
are rounded to the nearest integer and thresholds down: right after a reset voltages are whole
numbers, for which v > floor(threshold) decides as v > threshold; later, what is left of a leaking
voltage has fractions, and the threshold is off by less than one unit of weight.

The channels of a readout share one scale, because their voltages are compared with each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import assert_never

from .bounds import neuron_intervals, synapse_interval
from .emulate import emulate
from .errors import OptionError, QuantizeError
from .float_ir import FloatLif, FloatPopulation, FloatReadout, FoldedNetwork
from .graph import (
    Connection,
    Population,
    apply_synapse,
    compact,
    incoming,
    largest_per_channel,
    per_channel,
    scale_channels,
)
from .hardware import HardwareProfile
from .int_ir import (
    DECAY_ONE,
    STATE_EXPONENT,
    STATE_LIMIT,
    Input,
    IntNetwork,
    IntPopulation,
    Lif,
    Neuron,
    Readout,
)
from .records import Array, record

MOST_TRIALS = 20  # of scales; the second nearly always fits


@record
class Formats:
    """The number formats of a target: the largest magnitudes of its integers."""

    weight: int
    threshold: int
    bias: int
    decay: int
    state: int

    @classmethod
    def of(cls, profile: HardwareProfile, weight_bits: int | None) -> Formats:
        widest = profile.value("formats.weight_bits")
        bits = widest if weight_bits is None else weight_bits
        if not 2 <= bits <= widest:
            raise OptionError(f"weight bits {bits}; {profile.name} holds signed weights of 2..{widest} bits.")
        return cls(
            weight=2 ** (bits - 1) - 1,
            threshold=profile.value("formats.threshold_maximum"),
            bias=2 ** (profile.value("formats.bias_mantissa_bits") - 1) - 1,
            decay=2 ** profile.value("formats.decay_bits") - 1,
            # Below the state's own limit, so that a threshold can lie above every voltage.
            state=min(STATE_LIMIT, (profile.value("formats.threshold_maximum") - 1) << STATE_EXPONENT),
        )


def quantize(
    folded: FoldedNetwork,
    profile: HardwareProfile,
    calibration: Array | None = None,
    *,
    weight_bits: int | None = None,
) -> IntNetwork:
    """Integers for every weight, bias and threshold, in the formats of the profile.

    With `calibration` inputs, biases are corrected layer after layer for the mean error that
    rounded weights make on them; without, nothing but the network itself is needed.
    """
    formats = Formats.of(profile, weight_bits)
    scales = {p.name: channel_scales(folded, p, formats) for p in folded.populations[1:]}
    network = _settle_scales(folded, scales, formats)
    if calibration is not None:
        network = _correct_biases(folded, network, calibration, formats)
    return network


# ---- scales -----------------------------------------------------------------------------------


def channel_scales(folded: FoldedNetwork, population: FloatPopulation, formats: Formats) -> Array:
    """The largest scale of each channel that all limits allow; one for all where outputs are compared."""
    scales = np.min(list(scale_limits(folded, population, formats).values()), axis=0)
    if isinstance(population.neuron, FloatReadout):
        scales = np.full_like(scales, scales.min())
    return np.where(np.isfinite(scales), scales, 1.0)


def scale_limits(folded: FoldedNetwork, population: FloatPopulation, formats: Formats) -> dict[str, Array]:
    """For each limit, the largest scale per channel that keeps it; infinite where nothing is limited."""
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    reach = _reach(folded, population)
    limits = {
        "weight": _ratio(formats.weight, _largest_weights(folded, population.name)),
        "bias": _ratio(formats.bias, largest_per_channel(neuron.bias)),
        "state": _ratio(formats.state / 2**STATE_EXPONENT, reach),
    }
    if isinstance(neuron, FloatLif):
        # What lies beyond reach becomes the farthest threshold of the format, and need not be held.
        farthest = per_channel(reach, neuron.threshold.shape)
        within = np.where(np.abs(neuron.threshold) < farthest, neuron.threshold, 0.0)
        limits["threshold"] = _ratio(formats.threshold, largest_per_channel(within))
    return limits


def _settle_scales(folded: FoldedNetwork, scales: dict[str, Array], formats: Formats) -> IntNetwork:
    """Round, bound what was rounded, and lower the scales of channels that could overflow, until none can."""
    for _ in range(MOST_TRIALS):
        network = _round_network(folded, scales, formats)
        excess = {p.name: _excess(network, p, formats) for p in network.populations[1:]}
        if max(float(ratio.max()) for ratio in excess.values()) <= 1:
            return network
        scales = {name: _lowered(scales[name], ratio) for name, ratio in excess.items()}
    worst = max(excess, key=lambda name: float(excess[name].max()))
    raise QuantizeError(
        f"{worst}: even with weights rounded to zero its states could leave the 24-bit state; "
        "lower the range of the input, its bias or the number of time steps."
    )


def _excess(network: IntNetwork, population: IntPopulation, formats: Formats) -> Array:
    """How many times the state's limit a channel could reach."""
    current, voltage = neuron_intervals(network, population)
    edges = [largest_per_channel(edge) for edge in (*current, *voltage)]
    ratio: Array = np.max(edges, axis=0) / formats.state
    return np.full_like(ratio, ratio.max()) if isinstance(population.neuron, Readout) else ratio


def _lowered(scales: Array, excess: Array) -> Array:
    """Scales that would just fit if rounding went as before, and a little less."""
    return np.where(excess > 1, 0.999 * scales / np.maximum(excess, 1), scales)


def _reach(folded: FoldedNetwork, population: FloatPopulation) -> Array:
    """The largest voltage per channel: what can arrive in one step, as it adds up when it does in each"""
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    growth = max(voltage for _, voltage in _growth(neuron, folded.timesteps))
    low, high = synapse_interval(folded, population.name)
    edges = (low, high, low + neuron.bias, high + neuron.bias)
    reach: Array = growth * np.max([largest_per_channel(edge) for edge in edges], axis=0)
    return reach


def _growth(neuron: FloatLif | FloatReadout, timesteps: int) -> list[tuple[float, float]]:
    """(current, voltage) after each step of a neuron that receives one in each and never fires"""
    current_leak, leak = (neuron.current_leak, neuron.leak) if isinstance(neuron, FloatLif) else (0.0, 1.0)
    current = voltage = 0.0
    steps = []
    for _ in range(timesteps):
        current = current_leak * current + 1
        voltage = leak * voltage + current
        steps.append((current, voltage))
    return steps


def _largest_weights(folded: FoldedNetwork, target: str) -> Array:
    weights = [c.synapse.weight for c in incoming(folded.connections, target)]
    channels = next(p.shape[0] for p in folded.populations if p.name == target)
    largest: Array = np.max([largest_per_channel(w.reshape(channels, -1)) for w in weights], axis=0)
    return largest


def _ratio(limit: float, largest: Array) -> Array:
    with np.errstate(over="ignore"):  # by almost nothing: infinite, as by nothing
        return np.divide(limit, largest, out=np.full(largest.shape, np.inf), where=largest > 0)


# ---- rounding ---------------------------------------------------------------------------------


def _round_network(folded: FoldedNetwork, scales: dict[str, Array], formats: Formats) -> IntNetwork:
    return IntNetwork(
        populations=tuple(
            _round_population(folded, p, scales.get(p.name, np.ones(1)), formats) for p in folded.populations
        ),
        connections=tuple(_round_connection(c, scales[c.target]) for c in folded.connections),
        timesteps=folded.timesteps,
        scales=scales,
    )


def _round_connection(connection: Connection, scales: Array) -> Connection:
    weight = np.rint(_scaled(connection, scales)).astype(np.int32)
    return replace(connection, synapse=replace(connection.synapse, weight=weight))


def _scaled(connection: Connection, scales: Array) -> Array:
    """Weights times the scale of their channel."""
    weight = connection.synapse.weight
    # A dense layer onto a picture has a row per neuron; those of a channel have one scale.
    return scale_channels(weight, np.repeat(scales, len(weight) // len(scales)))


def _round_population(
    folded: FoldedNetwork, population: FloatPopulation, scales: Array, formats: Formats
) -> IntPopulation:
    neuron = population.neuron
    match neuron:
        case Input():
            rounded: Neuron = neuron
        case FloatReadout(bias=bias):
            rounded = Readout(bias=_round(bias, scales))
        case FloatLif(bias=bias):
            rounded = Lif(
                threshold=_round_thresholds(folded, population, neuron, scales, formats),
                bias=_round(bias, scales),
                # One more than the register holds, so never zero: a current always leaks a little.
                decay_current=max(1, round((1 - neuron.current_leak) * DECAY_ONE)),
                decay_voltage=min(formats.decay, round((1 - neuron.leak) * DECAY_ONE)),
            )
        case _:
            assert_never(neuron)
    return Population(name=population.name, shape=population.shape, neuron=rounded)


def _round_thresholds(
    folded: FoldedNetwork, population: FloatPopulation, neuron: FloatLif, scales: Array, formats: Formats
) -> Array:
    """Thresholds rounded down; neurons that never (always) fire in float do so in integers too.

    They get the farthest threshold of the format, beyond which `_settle_scales` lets no voltage go.
    """
    never, always = _constants(folded, population)
    lowered = np.floor(scale_channels(np.where(np.isfinite(neuron.threshold), neuron.threshold, 0.0), scales))
    threshold = np.clip(lowered, -formats.threshold, formats.threshold)
    threshold = np.where(never, formats.threshold, np.where(always, -formats.threshold, threshold))
    threshold = threshold.astype(np.int32)
    return compact(threshold) if neuron.threshold.shape != population.shape else threshold


def _round(values: Array, scales: Array) -> Array:
    rounded: Array = np.rint(scale_channels(values, scales)).astype(np.int32)
    return rounded


def _constants(folded: FoldedNetwork, population: FloatPopulation) -> tuple[Array, Array]:
    """Which neurons can never, and which must always fire, by how far their voltage can go."""
    neuron = population.neuron
    assert isinstance(neuron, FloatLif)
    reach = per_channel(_reach(folded, population), population.shape)
    threshold = np.broadcast_to(neuron.threshold, population.shape)
    return threshold >= reach, threshold < -reach


# ---- calibration ------------------------------------------------------------------------------


def _correct_biases(
    folded: FoldedNetwork, network: IntNetwork, calibration: Array, formats: Formats
) -> IntNetwork:
    """bias <- round(scale * (bias + weight . mean input)) - integer weight . mean integer input

    so that the mean current of each channel is that of the float network; layer after layer, each
    seeing the corrected ones before it.
    """
    wanted = _mean_activity(folded, calibration)
    for index, population in enumerate(folded.populations):
        if isinstance(population.neuron, Input):
            continue
        found = _mean_activity(network, calibration)
        float_mean = _mean_current(folded, population.name, wanted)
        integer_mean = _mean_current(network, population.name, found)
        error = scale_channels(float_mean, network.scales[population.name]) - integer_mean
        # A current that leaks slowly keeps what arrives for several steps.
        error *= np.mean([current for current, _ in _growth(population.neuron, folded.timesteps)])
        network = _with_shifted_bias(network, index, error, formats)
    return network


def _mean_activity(network: FoldedNetwork | IntNetwork, inputs: Array) -> dict[str, Array]:
    """The mean of what each neuron sends, over samples and steps."""
    spikes = emulate(network, inputs).spikes
    pictures = np.asarray(inputs, np.float64).reshape(-1, *network.input.shape)
    return {network.input.name: pictures.mean(axis=0)} | {n: s.mean(axis=(0, 1)) for n, s in spikes.items()}


def _mean_current(network: FoldedNetwork | IntNetwork, target: str, activity: dict[str, Array]) -> Array:
    """What arrives at each neuron on average, in the shape of the population."""
    shape = next(p.shape for p in network.populations if p.name == target)
    currents = [
        apply_synapse(connection.synapse, activity[connection.source][None])[0].reshape(shape)
        for connection in incoming(network.connections, target)
    ]
    total: Array = np.sum(currents, axis=0)
    return total


def _with_shifted_bias(network: IntNetwork, index: int, error: Array, formats: Formats) -> IntNetwork:
    population = network.populations[index]
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    if neuron.bias.shape != error.shape:  # one bias per channel: the mean of its neurons
        error = per_channel(error.reshape(len(error), -1).mean(axis=1), error.shape)
    unit = 2.0 ** (STATE_EXPONENT - neuron.bias_exponent)
    bias = np.clip(neuron.bias + np.rint(error * unit), -formats.bias, formats.bias).astype(np.int32)
    shifted = _with_bias(network, index, bias)
    # A correction that could overflow a channel is not made.
    safe = _excess(shifted, shifted.populations[index], formats) <= 1
    return _with_bias(network, index, np.where(per_channel(safe, bias.shape), bias, neuron.bias))


def _with_bias(network: IntNetwork, index: int, bias: Array) -> IntNetwork:
    populations = list(network.populations)
    neuron = populations[index].neuron
    assert not isinstance(neuron, Input)
    populations[index] = replace(populations[index], neuron=replace(neuron, bias=bias))
    return replace(network, populations=tuple(populations))


# ---- what it changed --------------------------------------------------------------------------


def describe(
    folded: FoldedNetwork, network: IntNetwork, profile: HardwareProfile, weight_bits: int | None = None
) -> list[dict[str, Any]]:
    """Per population, in numbers: the scales, what limited them, and what rounding did."""
    formats = Formats.of(profile, weight_bits)
    return [_describe_population(folded, network, p, formats) for p in folded.populations[1:]]


def _describe_population(
    folded: FoldedNetwork, network: IntNetwork, population: FloatPopulation, formats: Formats
) -> dict[str, Any]:
    name, neuron = population.name, population.neuron
    pairs = zip(incoming(folded.connections, name), incoming(network.connections, name), strict=True)
    errors = [integer.synapse.weight - _scaled(real, network.scales[name]) for real, integer in pairs]
    described = {
        "name": name,
        "scale_minimum": float(network.scales[name].min()),
        "scale_maximum": float(network.scales[name].max()),
        "channels_limited_by": _binding_limits(folded, population, formats),
        "weight_error_rms": float(np.sqrt(np.mean(np.concatenate([e.ravel() for e in errors]) ** 2))),
    }
    if isinstance(neuron, FloatLif):
        described["thresholds_beyond_reach"] = int(np.sum(np.logical_or(*_constants(folded, population))))
        described["leak_error"] = (1 - _decay_voltage(network, name) / DECAY_ONE) - neuron.leak
    return described


def _binding_limits(folded: FoldedNetwork, population: FloatPopulation, formats: Formats) -> dict[str, int]:
    """How many channels each limit keeps from a larger scale."""
    limits = scale_limits(folded, population, formats)
    table = np.array(list(limits.values()))
    if isinstance(population.neuron, FloatReadout):  # its channels share the smallest scale
        table = np.repeat(table.min(axis=1, keepdims=True), table.shape[1], axis=1)
    binding = np.where(np.isfinite(table.min(axis=0)), table.argmin(axis=0), -1)
    return {key: int((binding == index).sum()) for index, key in enumerate(limits)}


def _decay_voltage(network: IntNetwork, name: str) -> int:
    neuron = next(p.neuron for p in network.populations if p.name == name)
    assert isinstance(neuron, Lif)
    return neuron.decay_voltage
