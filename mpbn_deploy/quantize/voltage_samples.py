"""Sample voltages and spikes of the float network; they are used to choose thresholds.

With calibration data, they are measured at some places of some samples. Without, they are simulated:
currents are drawn from normal distributions with the mean and variance that independent inputs would give.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from ..base import Array, OptionError, record
from ..execute.emulator import respond
from ..formats.options import Thresholds
from ..hardware import HardwareProfile
from ..ir import (
    FloatFiringNeuron,
    FloatPopulation,
    FoldedNetwork,
    Population,
    compact,
    firing,
    membrane,
    per_channel,
    spiking,
    value_range,
    varies,
)
from .calibrate import drop_unused, recurrent_spikes
from .joint_rounding import (
    at_places,
    current,
    draw_places,
    growth,
    has_places,
    inputs_at,
    neurons_at,
    voltages,
)
from .scales import SPIKE_POWER, NumberFormats, constant_neurons, forgets, reachable

ROWS = 1024  # voltages per channel
SAMPLES = 64  # calibration samples used


@record
class VoltageSamples:
    """Voltages and spikes of the neurons of a population; every tensor is [rows, channels].

    With any threshold from `lowest` to `highest`, a neuron would fire the same spikes. The two are equal,
    except for neurons that never, or always, fire.
    """

    voltage: Tensor  # before the reset
    growth: Tensor  # what a bias of one adds to the voltage
    fires: Tensor
    lowest: Tensor
    highest: Tensor

    def at(self, channels: Array) -> VoltageSamples:
        """Select some channels."""
        names = ("voltage", "growth", "fires", "lowest", "highest")
        return replace(self, **{name: getattr(self, name)[:, channels] for name in names})


def sample_voltages(folded: FoldedNetwork, inputs: Array | None) -> dict[str, VoltageSamples]:
    """Sample every population that fires: measured on `inputs`, or simulated."""
    if inputs is None:
        return {population.name: simulated_voltages(folded, population) for population in firing(folded)}
    return _measure(folded, np.asarray(inputs)[:SAMPLES])


def threshold_range(folded: FoldedNetwork, population: Population[FloatFiringNeuron]) -> tuple[Array, Array]:
    """Return, per neuron, the lowest and the highest threshold with which it fires the same spikes.

    Both are its own threshold, with two exceptions. A neuron that never fires may have any threshold from
    the highest voltage it can reach; one that always fires, any threshold below the lowest voltage it
    reaches in a step that starts from zero.
    """
    neuron = population.neuron
    steps = (folded.timesteps,) if varies(neuron) else ()
    own = np.broadcast_to(neuron.threshold, (*steps, *population.shape))
    never, always = constant_neurons(folded, population)
    (low, _), (lowest, reached) = reachable(folded, population)
    least = low + neuron.bias if forgets(neuron) else lowest
    below = np.nextafter(least, -np.inf)  # strictly below, because a voltage at the threshold does not fire
    return (
        np.where(never, reached, np.where(always, -np.inf, own)),
        np.where(never, np.inf, np.where(always, below, own)),
    )


# ---- measured ---------------------------------------------------------------------------------


def _measure(folded: FoldedNetwork, inputs: Array) -> dict[str, VoltageSamples]:
    sent = {folded.input.name: inputs, **recurrent_spikes(folded, inputs)}
    found = {}
    for population in folded.layers:
        name = population.name
        spikes = respond(folded, name, sent)[0]
        if (lif := spiking(population)) is not None:
            found[name] = _measure_population(folded, lif, sent, spikes)
        sent[name] = spikes
        drop_unused(folded, name, sent)
    return found


def _measure_population(
    folded: FoldedNetwork, population: Population[FloatFiringNeuron], sent: dict[str, Array], spikes: Array
) -> VoltageSamples:
    entering, neuron = folded.entering(population.name), population.neuron
    if not has_places(population.shape, entering):
        return simulated_voltages(folded, population)
    places = draw_places(len(spikes), folded.timesteps, population.shape[1:], ROWS)
    fires = at_places(spikes, places)
    currents = torch.zeros(fires.shape[0] * fires.shape[1], fires.shape[2], dtype=torch.float64)
    for c in entering:
        arriving = inputs_at(c, sent[c.source], folded.shapes[c.source], places, folded.timesteps)
        currents += current(torch.tensor(c.synapse.weight).flatten(1), arriving)
    lowest, highest = (
        neurons_at(end, population.shape, places) for end in threshold_range(folded, population)
    )
    voltage = voltages(currents.reshape(1, *fires.shape), fires, population, places)[0]
    leak = neurons_at(np.asarray(neuron.leak), population.shape, places)
    return _as_rows(neuron, leak, voltage, fires, [lowest, highest])


def _as_rows(
    neuron: FloatFiringNeuron, leak: Tensor, voltage: Tensor, fires: Tensor, ends: list[Tensor]
) -> VoltageSamples:
    """Flatten voltages and spikes [places, timesteps, channels], with threshold ranges [places, channels]."""
    lowest, highest = (end[:, None].expand(voltage.shape).flatten(0, 1) for end in ends)
    return VoltageSamples(
        voltage=voltage.flatten(0, 1),
        growth=growth(fires, neuron, leak).flatten(0, 1),
        fires=fires.flatten(0, 1),
        lowest=lowest,
        highest=highest,
    )


# ---- simulated --------------------------------------------------------------------------------


def simulated_voltages(folded: FoldedNetwork, population: Population[FloatFiringNeuron]) -> VoltageSamples:
    """Run neurons of each channel on normally distributed currents, drawn with a fixed seed."""
    neuron = population.neuron
    generator, channels = np.random.default_rng(0), population.shape[0]
    places, timesteps = max(1, ROWS // folded.timesteps), folded.timesteps
    pixels = generator.integers(population.size // channels, size=places)

    def at_pixels(values: Array) -> Array:
        return np.broadcast_to(values, population.shape).reshape(channels, -1)[:, pixels].T.copy()

    ends = map(at_pixels, threshold_range(folded, population))
    currents = np.zeros((places, timesteps, channels))
    for still, mean, deviation in _currents(folded, population):
        drawn = generator.standard_normal((places, 1 if still else timesteps, channels))
        currents += mean + deviation * drawn
    rule = membrane(neuron, timesteps).selected(at_pixels)
    voltage, fires = np.empty(currents.shape), np.empty(currents.shape, bool)
    state = np.zeros_like(rule.bias), np.zeros_like(rule.bias)
    for step in range(timesteps):
        state = rule.integrate(state, currents[:, step])
        voltage[:, step] = state[1]
        state, fires[:, step] = rule.fire(state)
    leak, voltages, fired = (
        torch.tensor(each) for each in (at_pixels(np.asarray(neuron.leak)), voltage, fires)
    )
    return _as_rows(neuron, leak, voltages, fired, [torch.tensor(end) for end in ends])


def _currents(folded: FoldedNetwork, population: FloatPopulation) -> Iterator[tuple[bool, Array, Array]]:
    """Yield, per connection, whether its current is constant in time, its mean and its deviation."""
    channels = population.shape[0]
    for connection in folded.entering(population.name):
        weight, still = connection.synapse.weight, connection.source == folded.input.name
        low, high = value_range(folded.input_range)
        mean, variance = SPIKE_POWER, SPIKE_POWER * (1 - SPIKE_POWER)
        if still:
            mean, variance = (low + high) / 2, (high - low) ** 2 / 12
        rows = len(weight) // channels  # a dense layer onto rows and columns has one per neuron
        flat = weight.reshape(channels, -1)
        yield still, mean * flat.sum(axis=1) / rows, np.sqrt(variance * (flat**2).sum(axis=1) / rows)


# The threshold limits of a target, and the thresholds and biases with which a population keeps its spikes.
#
# The equations are in `thresholds`.


ROUND_UP = 0.5 - 1e-9  # added before rounding to the nearest integer, it rounds up
FIRING_MARGIN = 1.5  # integer units by which a neuron that always fires exceeds its threshold


@record
class ThresholdLimits:
    """The limits that the target and the user set on thresholds."""

    shared: bool
    lowest: int
    highest: int
    per_core: int | None

    @classmethod
    def of(cls, profile: HardwareProfile, thresholds: Thresholds, formats: NumberFormats) -> ThresholdLimits:
        if thresholds not in get_args(Thresholds):
            raise OptionError(f"thresholds {thresholds!r}; allowed are {', '.join(get_args(Thresholds))}.")
        shared, per_core = thresholds == "shared", profile.limit("core.thresholds")
        few = None if shared or per_core is None else per_core.value
        few = 1 if thresholds == "core" else few
        lowest = formats.lowest_threshold if few is None and not shared else max(1, formats.lowest_threshold)
        return cls(shared=shared, lowest=lowest, highest=formats.threshold, per_core=few)

    @property
    def bind(self) -> bool:
        """Whether rounded thresholds could violate the limits."""
        return self.shared or self.per_core is not None or self.lowest > -self.highest

    @property
    def description(self) -> str:
        if self.shared:
            return "shared by the population"
        if self.per_core is not None:
            return f"at most {self.per_core} per core"
        return f"own, at least {self.lowest}" if self.bind else "own"


def is_memoryless(folded: FoldedNetwork, neuron: FloatFiringNeuron) -> bool:
    """Whether no voltage is kept from one time step to the next."""
    return not np.any(neuron.leak) or folded.timesteps == 1


@record
class ThresholdRanges:
    """Biases and threshold ranges of a population; every array is [channels, neurons].

    If the neurons of each channel are all alike, there is one neuron per channel.
    """

    bias: Array
    lowest: Array  # as in `threshold_range`
    highest: Array
    share: Array  # the bias that makes up for a threshold higher by one: see `thresholds`
    memoryless: bool

    @property
    def constant(self) -> Array:
        return self.lowest < self.highest

    @property
    def typical(self) -> Array:
        """The median threshold of each channel; NaN if all its neurons are constant."""
        values = np.where(self.constant, np.nan, self.lowest)
        some = ~self.constant.all(axis=1)
        typical = np.full(len(values), np.nan)
        typical[some] = np.nanmedian(values[some], axis=1)
        return typical

    def offset(self, scales: Array, thresholds: Array) -> Array:
        """Return the offsets of the integer biases, [channels, neurons]; see `thresholds`."""
        low, high = scales[:, None] * self.lowest, scales[:, None] * self.highest
        offset: Array = self.share * (thresholds - np.clip(thresholds, low, high))
        margin = np.where(self.constant & (offset > 0), FIRING_MARGIN, 0.0)
        offset += np.where(self.constant, margin, ROUND_UP) if self.memoryless else margin
        return offset

    def bias_limits(self, thresholds: Array, most: int) -> Array:
        """Return the largest scales for which |scale * bias + offset| <= most, given integer thresholds."""
        towards = np.where(self.constant, np.clip(0.0, self.lowest, self.highest), self.lowest)
        rest = self.bias - self.share * towards
        moved = self.share * thresholds
        with np.errstate(divide="ignore", over="ignore"):  # a tiny `rest` sets no limit
            above = np.where(rest > 0, (most - FIRING_MARGIN - 1 - moved) / rest, np.inf)
            below = np.where(rest < 0, (most - FIRING_MARGIN - 1 + moved) / -rest, np.inf)
        limits: Array = np.minimum(above, below).min(axis=1)
        return limits

    def at(self, channels: Array) -> ThresholdRanges:
        """Select some channels."""
        parts = {name: getattr(self, name)[channels] for name in ("bias", "lowest", "highest", "share")}
        return replace(self, **parts)


def threshold_ranges(
    folded: FoldedNetwork, population: Population[FloatFiringNeuron], samples: VoltageSamples
) -> ThresholdRanges:
    neuron, shape = population.neuron, population.shape
    lowest, highest = threshold_range(folded, population)
    growth = samples.growth.numpy()
    fitted = per_channel(growth.sum(axis=0) / (growth**2).sum(axis=0), shape)
    # A share of one is exact for a neuron that always fires, and on the safe side for one that never does.
    share = np.where(lowest < highest, 1.0, fitted)
    whole = [np.broadcast_to(values, shape) for values in (neuron.bias, lowest, highest, share)]
    if all(compact(values).size == shape[0] for values in whole):
        whole = [compact(values) for values in whole]
    bias, lowest, highest, share = (values.reshape(shape[0], -1) for values in whole)
    return ThresholdRanges(
        bias=bias,
        lowest=lowest,
        highest=highest,
        share=share,
        memoryless=is_memoryless(folded, neuron),
    )


def as_population(values: Array, population: FloatPopulation) -> Array:
    """Reshape [channels, neurons] to the shape of a population's parameters."""
    whole = values.shape[1] > 1 or len(population.shape) == 1
    return compact(values.reshape(population.shape)) if whole else per_channel(values, population.shape)
