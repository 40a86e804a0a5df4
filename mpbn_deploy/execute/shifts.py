"""Networks of Xylo's neurons, fast, for the emulator: matrix products in place of synapse after synapse.

A sum that is limited to 16 bits after each term depends on the order of its terms only if some partial sum
can leave 16 bits. The sums of all positive and of all negative terms tell where that is possible; only there
are the synapses added one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..base import Array
from ..ir import (
    XYLO_HIGH,
    XYLO_LOW,
    IntNetwork,
    Shifting,
    Trace,
    as_steps,
    delivered_counts,
    delivered_weights,
    saturated,
)
from .traces import outputs_of


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
