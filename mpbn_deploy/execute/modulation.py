"""Sigma-delta neurons in torch, for the emulator: `ir.Modulator` on integers stored as float64."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ir import Modulator
from .layers import Layer
from .membranes import States


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
