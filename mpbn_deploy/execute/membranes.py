"""The states of the neurons of a population in torch, updated in place.

`Membranes` repeats `ir.Membrane` for speed, and `modulation` repeats `ir.Modulator`; tests compare them with
the reference.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..base import Array, SimulationError, layer_name
from ..ir import STATE_LIMIT, Membrane, Shape, State
from .layers import DecayInPlace, Layer
from .narrow import NarrowNeurons


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
