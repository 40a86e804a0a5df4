"""FoldedNetwork + profile -> IntNetwork

Each output channel carries a free scale: a hard-reset neuron does not change when its weights,
bias and threshold are multiplied alike (`graph.scale_channels`). So each channel gets the largest scale
under which

    its weights fit the weight format,
    its thresholds and biases fit theirs,
    no current or voltage can leave the state, whatever the input (with rounding accounted for),

and then weights and biases are rounded to the nearest integer and thresholds down: with whole
numbers on both sides, v > floor(threshold) is the same decision as v > threshold. The channels of
a readout share one scale, because their voltages are compared with each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import assert_never

from .bounds import bounds, synapse_interval, value_range
from .emulate import emulate
from .errors import OptionError, QuantizeError
from .float_ir import FloatLif, FloatPopulation, FloatReadout, FoldedNetwork
from .graph import (
    Connection,
    Population,
    apply_synapse,
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
    Readout,
)
from .records import Array, record

# A threshold so far above (below) what a voltage can reach never (always) fires just as well, and a
# finite number leaves the scale to the weights. Rounding moves a voltage by far less than a quarter.
BEYOND_REACH = 1.25


@record
class Formats:
    """The number formats of a target: the largest magnitudes of its integers."""

    weight: int
    threshold: int
    bias: int
    decay: int

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
    network = IntNetwork(
        populations=tuple(_round_population(folded, p, scales, formats) for p in folded.populations),
        connections=tuple(_round_connection(c, scales[c.target]) for c in folded.connections),
        timesteps=folded.timesteps,
        scales=scales,
    )
    if calibration is not None:
        network = _correct_biases(folded, network, calibration, formats)
    _refuse_overflow(network)
    return network


# ---- scales -----------------------------------------------------------------------------------


def channel_scales(folded: FoldedNetwork, population: FloatPopulation, formats: Formats) -> Array:
    """The largest scale of each channel that all limits allow; one for all where outputs are compared."""
    scales = np.min(list(scale_limits(folded, population, formats).values()), axis=0)
    if isinstance(population.neuron, FloatReadout):
        scales = np.full_like(scales, scales.min())
    if not (scales > 0).all():
        raise QuantizeError(
            f"{population.name}: with so many inputs, rounding alone could fill the 24-bit state; "
            "reduce the fan-in or the range of the input."
        )
    return np.where(np.isfinite(scales), scales, 1.0)


def scale_limits(folded: FoldedNetwork, population: FloatPopulation, formats: Formats) -> dict[str, Array]:
    """For each limit, the largest scale per channel that keeps it; infinite where nothing is limited."""
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    reach, slack = _reach(folded, population)
    limits = {
        "weight": _ratio(formats.weight, _largest_weights(folded, population.name)),
        "bias": _ratio(formats.bias, largest_per_channel(neuron.bias)),
        "state": _ratio(STATE_LIMIT / 2**STATE_EXPONENT - slack, reach),
    }
    if isinstance(neuron, FloatLif):
        limits["threshold"] = _ratio(
            formats.threshold, largest_per_channel(_reachable_threshold(neuron, reach))
        )
    return limits


def _reach(folded: FoldedNetwork, population: FloatPopulation) -> tuple[Array, Array]:
    """The largest voltage per channel, and by how much rounding could raise it (in integer units).

    A voltage is at most (1 + leak + leak^2 + ...) times what arrives in one step.
    """
    neuron = population.neuron
    assert not isinstance(neuron, Input)
    leak = neuron.leak if isinstance(neuron, FloatLif) else 1.0
    growth = sum(leak**step for step in range(folded.timesteps))
    low, high = synapse_interval(folded, population.name)
    arriving = np.maximum(np.abs(low + neuron.bias), np.abs(high + neuron.bias))
    currents = np.maximum(np.abs(low), np.abs(high))
    rounding = 0.5 * growth * (_input_sum(folded, population.name) + 1)
    return growth * largest_per_channel(np.maximum(arriving, currents)), np.full(
        population.shape[0], rounding
    )


def _input_sum(folded: FoldedNetwork, target: str) -> float:
    """The largest sum of input magnitudes that one neuron can see."""
    neurons = {population.name: population.neuron for population in folded.populations}
    total = 0.0
    for connection in incoming(folded.connections, target):
        fan_in = connection.synapse.weight[0].size
        total += fan_in * max(map(abs, value_range(neurons[connection.source])))
    return total


def _reachable_threshold(neuron: FloatLif, reach: Array) -> Array:
    farthest = BEYOND_REACH * per_channel(np.where(reach > 0, reach, 1.0), neuron.threshold.shape)
    return np.clip(neuron.threshold, -farthest, farthest)


def _largest_weights(folded: FoldedNetwork, target: str) -> Array:
    weights = [c.synapse.weight for c in incoming(folded.connections, target)]
    largest: Array = np.max([largest_per_channel(weight) for weight in weights], axis=0)
    return largest


def _ratio(limit: float | Array, largest: Array) -> Array:
    return np.divide(limit, largest, out=np.full(largest.shape, np.inf), where=largest > 0)


# ---- rounding ---------------------------------------------------------------------------------


def _round_connection(connection: Connection, scales: Array) -> Connection:
    weight = _round(connection.synapse.weight, scales)
    return replace(connection, synapse=replace(connection.synapse, weight=weight))


def _round_population(
    folded: FoldedNetwork, population: FloatPopulation, scales: dict[str, Array], formats: Formats
) -> IntPopulation:
    neuron, name, shape = population.neuron, population.name, population.shape
    match neuron:
        case Input():
            rounded: Input | Lif | Readout = neuron
        case FloatReadout(bias=bias):
            rounded = Readout(bias=_round(bias, scales[name]))
        case FloatLif(bias=bias):
            reach, _ = _reach(folded, population)
            threshold = _reachable_threshold(neuron, reach)
            rounded = Lif(
                # Down, because voltage > threshold has whole numbers on both sides.
                threshold=np.floor(scale_channels(threshold, scales[name])).astype(np.int32),
                bias=_round(bias, scales[name]),
                decay_voltage=min(formats.decay, round((1 - neuron.leak) * DECAY_ONE)),
            )
        case _:
            assert_never(neuron)
    return Population(name=name, shape=shape, neuron=rounded)


def _round(values: Array, scales: Array) -> Array:
    rounded: Array = np.rint(scale_channels(values, scales)).astype(np.int32)
    return rounded


def _refuse_overflow(network: IntNetwork) -> None:
    for name, bound in bounds(network).items():
        if not bound.fits:
            raise QuantizeError(
                f"{name}: states up to {bound.magnitude} could leave the 24-bit state ({STATE_LIMIT})."
            )


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
        error: Array = (
            float_mean * per_channel(network.scales[population.name], population.shape) - integer_mean
        )
        network = _with_shifted_bias(network, index, error, formats)
    return network


def _mean_activity(network: FoldedNetwork | IntNetwork, inputs: Array) -> dict[str, Array]:
    """The mean of what each neuron sends, over samples and steps."""
    spikes = emulate(network, inputs).spikes
    pictures = np.asarray(inputs, np.float64).reshape(-1, *network.input.shape)
    return {network.input.name: pictures.mean(axis=0)} | {n: s.mean(axis=(0, 1)) for n, s in spikes.items()}


def _mean_current(network: FoldedNetwork | IntNetwork, target: str, activity: dict[str, Array]) -> Array:
    currents = [
        apply_synapse(connection.synapse, activity[connection.source][None])[0]
        for connection in incoming(network.connections, target)
    ]
    total: Array = np.sum(currents, axis=0)
    return total


def _with_shifted_bias(network: IntNetwork, index: int, error: Array, formats: Formats) -> IntNetwork:
    populations = list(network.populations)
    neuron = populations[index].neuron
    assert not isinstance(neuron, Input)
    if neuron.bias.shape != error.shape:  # one bias per channel: the mean of its neurons
        error = per_channel(error.reshape(len(error), -1).mean(axis=1), error.shape)
    unit = 2.0 ** (STATE_EXPONENT - neuron.bias_exponent)
    bias = np.clip(neuron.bias + np.rint(error * unit), -formats.bias, formats.bias).astype(np.int32)
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
    limits = scale_limits(folded, population, formats)
    binding = np.argmin(list(limits.values()), axis=0)
    pairs = zip(incoming(folded.connections, name), incoming(network.connections, name), strict=True)
    errors = [
        integer.synapse.weight - scale_channels(real.synapse.weight, network.scales[name])
        for real, integer in pairs
    ]
    described = {
        "name": name,
        "scale_minimum": float(network.scales[name].min()),
        "scale_maximum": float(network.scales[name].max()),
        "channels_limited_by": {key: int((binding == i).sum()) for i, key in enumerate(limits)},
        "weight_error_rms": float(np.sqrt(np.mean(np.concatenate([e.ravel() for e in errors]) ** 2))),
    }
    if isinstance(neuron, FloatLif):
        reach, _ = _reach(folded, population)
        beyond = _reachable_threshold(neuron, reach) != neuron.threshold
        described["thresholds_beyond_reach"] = int(np.broadcast_to(beyond, population.shape).sum())
        described["leak_error"] = (1 - _decay_voltage(network, name) / DECAY_ONE) - neuron.leak
    return described


def _decay_voltage(network: IntNetwork, name: str) -> int:
    neuron = next(p.neuron for p in network.populations if p.name == name)
    assert isinstance(neuron, Lif)
    return neuron.decay_voltage
