"""The states of the neurons of a population in torch, updated in place.

`Membranes` repeats `ir.Membrane` for speed, and `modulation` repeats `ir.Modulator`; tests compare them with
the reference.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..base import Array, SimulationError, layer_name
from ..ir import (
    STATE_LIMIT,
    XYLO_HIGH,
    XYLO_LOW,
    IntNetwork,
    Membrane,
    Modulator,
    Shape,
    Shifting,
    State,
    Trace,
    as_steps,
    delivered_counts,
    delivered_weights,
    saturated,
)
from .layers import DecayInPlace, Layer
from .reference import NarrowNeurons, outputs_of


class States:
    """Voltages of the neurons of a population for some samples, and what they send in the current step."""

    advice = "Quantize with --overflow proved, or calibrate on such inputs."

    def __init__(self, layer: Layer, samples: int) -> None:
        self.layer = layer
        self.voltage = channels_last((samples, *layer.shape), layer.state_type)
        self.spikes = torch.empty_like(self.voltage)
        self.largest = torch.zeros_like(self.voltage) if layer.watched else None  # magnitudes so far
        if layer.threshold is None:
            self.spikes.zero_()

    @property
    def overflows(self) -> Array:
        """Per neuron, the steps in which its numbers left their width."""
        return np.zeros(0)

    def step(self, step: int, synapses: Tensor, exact: Tensor | None = None) -> Tensor:
        """Run one time step; return what is sent, in memory that the next step overwrites.

        `exact` are the currents before they wrapped, None if they did not. States are zero before step 0.
        """
        raise NotImplementedError

    def watch(self, *states: Tensor) -> None:
        """Record the largest magnitudes, if the layer is watched."""
        if self.largest is not None:
            for state in states:
                torch.maximum(self.largest, state.abs(), out=self.largest)

    def peaks(self) -> Array | None:
        """Return the largest magnitude of each channel's states so far, and raise if it exceeds the limit.

        None if the layer is not watched.
        """
        if self.largest is None:
            return None
        found: Array = self.largest.transpose(0, 1).flatten(1).amax(dim=1).double().numpy()
        if found.max() > self.layer.limit:
            raise SimulationError(
                f"{layer_name(self.layer.name)}: a state of magnitude {int(found.max())} overflows the "
                f"24-bit state (at most {STATE_LIMIT}). {self.advice}"
            )
        return found


class Membranes(States):
    """Neurons that decay, integrate, fire and reset."""

    def __init__(self, layer: Layer, samples: int) -> None:
        super().__init__(layer, samples)
        self.current = torch.empty_like(self.voltage) if layer.keeps_current else None

    def step(self, step: int, synapses: Tensor, exact: Tensor | None = None) -> Tensor:
        layer = self.layer.at(step)
        self._charge(layer, step, synapses)
        if layer.graded:
            self.spikes.copy_(self.voltage)
            self.voltage.zero_()
        elif layer.threshold is not None:
            torch.gt(self.voltage, layer.threshold, out=self.spikes)
            # voltage <- voltage - voltage * spike: zero after a spike, and faster than a masked fill.
            subtrahend = self.voltage if layer.subtrahend is None else layer.subtrahend
            self.voltage.addcmul_(subtrahend, self.spikes, value=-1)
            if layer.subtrahend is not None:
                self.watch(self.voltage)  # a subtraction can overflow too
        return self.spikes

    def _charge(self, layer: Layer, step: int, synapses: Tensor) -> None:
        if self.current is not None:
            synapses = charged(self.current, layer.decay_current, synapses, step)
        if layer.divisor > 1:
            synapses = (synapses + layer.bias) / layer.divisor
        charged(self.voltage, layer.decay_voltage, synapses, step)
        if layer.divisor == 1:
            self.voltage.add_(layer.bias)
        self.watch(synapses, self.voltage)


def charged(state: Tensor, decay: DecayInPlace | None, arriving: Tensor, step: int) -> Tensor:
    """state <- decay(state) + arriving, in place; the state is zero before the first step"""
    return state.copy_(arriving) if step == 0 or decay is None else decay(state).add_(arriving)


class NarrowMembranes(States):
    """Neurons whose states may leave their width; `ir.Membrane` itself computes them, in NumPy."""

    def __init__(self, layer: Layer, samples: int) -> None:
        super().__init__(layer, samples)
        assert isinstance(layer.rule, Membrane)
        self.neurons = NarrowNeurons(layer.rule, layer.shape)
        self.state: State = (np.zeros(self.voltage.shape, np.int64),) * 2

    @property
    def overflows(self) -> Array:
        return self.neurons.overflows

    def step(self, step: int, synapses: Tensor, exact: Tensor | None = None) -> Tensor:
        kept, sums = (
            each.numpy() / self.layer.rule.unit for each in (synapses, synapses if exact is None else exact)
        )
        self.state, spikes = self.neurons.step(self.state, sums, kept, step)
        self.voltage.copy_(torch.from_numpy(self.state[1]))
        return torch.from_numpy(spikes)


def channels_last(size: Shape, kind: torch.dtype) -> Tensor:
    """Return memory for [..., channels, height, width], channels last, which speeds up convolutions."""
    if len(size) < 4:
        return torch.empty(size, dtype=kind)
    *others, channels, height, width = size
    return torch.empty(*others, height, width, channels, dtype=kind).movedim(-1, -3)


# Sigma-delta neurons in torch, for the emulator: `ir.Modulator` on integers stored as float64.


class Modulations(States):
    """Neurons that send the changes of an activation; their voltage is sigma."""

    advice = "Give inputs of a smaller range."

    def __init__(self, layer: Layer, samples: int) -> None:
        super().__init__(layer, samples)
        self.encoded, self.change, self.sends = (torch.zeros_like(self.voltage) for _ in range(3))

    def step(self, step: int, synapses: Tensor, exact: Tensor | None = None) -> Tensor:
        """Sum, and send; floats of 53 bits hold every state and its change."""
        rule, threshold = self.layer.rule, self.layer.threshold
        assert isinstance(rule, Modulator)
        if rule.accumulates and step:
            self.voltage.add_(synapses)
        else:
            self.voltage.copy_(synapses)
        if threshold is not None:
            self._send(rule, threshold)
        self.watch(synapses, self.voltage, self.encoded)
        return self.spikes

    def _send(self, rule: Modulator, threshold: Tensor) -> None:
        activation = self.voltage if self.layer.bias is None else self.voltage + self.layer.bias
        if rule.rectified:
            activation = activation.clamp_min(0)
        torch.sub(activation, self.encoded, out=self.change)
        torch.ge(torch.abs(self.change, out=self.sends), threshold, out=self.sends)
        self.encoded.add_(self.change.mul_(self.sends))
        torch.div(self.change, 2**rule.shift, rounding_mode="floor", out=self.spikes)


# Networks of Xylo's neurons, fast, for the emulator: matrix products in place of synapse after synapse.
#
# A sum that is limited to 16 bits after each term depends on the order of its terms only if some partial sum
# can leave 16 bits. The sums of all positive and of all negative terms tell where that is possible; only
# there are the synapses added one after the other.


class _Neurons:
    """A population on some samples; states are whole numbers in float64, [samples, neurons]."""

    def __init__(self, rule: Shifting, weights: Array, samples: int) -> None:
        self.rule, self.weights = rule, weights.astype(np.float64)
        self.rising, self.falling = np.maximum(self.weights.T, 0), np.minimum(self.weights.T, 0)
        self.current, self.voltage = (np.zeros((samples, len(rule.bias))) for _ in range(2))
        self.keep_current, self.keep_voltage = 0.5**rule.shift_current, 0.5**rule.shift_voltage
        self.limited = np.zeros(len(rule.bias), np.int64)  # in how many steps a sum reached its limits

    def step(self, counts: Array) -> Array:
        """Return the number of spikes, given those of all sources [samples, sources]."""
        limited = self._deliver(counts)
        self.current -= _decay(self.current, self.keep_current)
        change = -_decay(self.voltage, self.keep_voltage)
        change[change > XYLO_HIGH] = XYLO_LOW
        for term in (self.current, self.rule.bias, self.voltage):
            exact = change + term
            change = saturated(exact)
            limited |= change != exact
        self.voltage = change
        self.limited += limited.sum(axis=0)
        fired: Array = np.clip(np.floor(self.voltage / self.rule.threshold), 0, self.rule.max_spikes)
        self.voltage -= fired * self.rule.threshold
        return fired

    def _deliver(self, counts: Array) -> Array:
        """Add what arrives to the currents; return where a sum was limited."""
        highest, lowest = self.current + counts @ self.rising, self.current + counts @ self.falling
        doubtful: Array = (highest > XYLO_HIGH) | (lowest < XYLO_LOW)
        before, self.current = self.current, highest + lowest - self.current
        if doubtful.any():
            sample, neuron = np.nonzero(doubtful)
            pairs = counts[sample], self.weights[neuron]
            self.current[doubtful], doubtful[doubtful] = _in_turn(before[doubtful], *pairs)
        return doubtful


def _in_turn(start: Array, counts: Array, weights: Array) -> tuple[Array, Array]:
    """Add count * weight [pairs, sources] one after the other, each sum limited; return where any was."""
    total, limited = start, np.zeros(start.shape, bool)
    for count, weight in zip(counts.T, weights.T, strict=True):
        exact = total + count * weight
        total = saturated(exact)
        limited = limited | (total != exact)
    return total, limited


def _decay(values: Array, factor: Array) -> Array:
    shifted: Array = np.floor(values * factor)
    shifted[(shifted == 0) & (values > 0)] = 1
    return shifted


def emulate_shifts(
    network: IntNetwork, rules: Mapping[str, Shifting], inputs: Array, *, keep_trace: bool
) -> Trace:
    """Run a network of Xylo neurons on one chunk of inputs."""
    steps = as_steps(inputs, network.input.shape, network.timesteps).astype(np.float64)
    samples, timesteps = steps.shape[:2]
    neurons = {
        name: _Neurons(rule, delivered_weights(network, name), samples) for name, rule in rules.items()
    }
    spikes = {p.name: np.zeros((samples, timesteps, *p.shape), np.int64) for p in network.layers}
    voltages = {name: np.zeros_like(counts) for name, counts in spikes.items() if keep_trace}
    sent = {network.input.name: steps, **spikes}
    for step in range(timesteps):
        for name, each in neurons.items():
            shape = (samples, *network.shapes[name])
            counts = delivered_counts(network, name, sent, step).astype(np.float64)
            spikes[name][:, step] = each.step(counts).reshape(shape)
            if keep_trace:
                voltages[name][:, step] = each.voltage.reshape(shape)
    limited = {p.name: neurons[p.name].limited.reshape(p.shape) for p in network.layers}
    return Trace(
        spikes=spikes if keep_trace else {},
        voltages=voltages,
        outputs=outputs_of(network, spikes, voltages),
        overflows={name: steps for name, steps in limited.items() if steps.any()},
    )
