"""Sigma-delta neurons in torch, for the emulator: `ir.Modulator` on integers stored as float64."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ir import Modulator


class Modulation:
    """State of the sigma-delta neurons of a population; `sigma` is given, and changed in place."""

    def __init__(self, rule: Modulator, sigma: Tensor, bias: Tensor, threshold: Tensor | None) -> None:
        self.rule, self.sigma, self.bias, self.threshold = rule, sigma, bias, threshold
        self.encoded = torch.zeros_like(sigma)

    def step(self, arriving: Tensor, messages: Tensor) -> None:
        """Sum, and write the messages to send; floats of 53 bits hold every state and its change."""
        if self.rule.accumulates:
            self.sigma.add_(arriving)
        else:
            self.sigma.copy_(arriving)
        if self.threshold is None:
            return
        activation = self.sigma + self.bias
        if self.rule.rectified:
            activation.clamp_(min=0)
        change = activation - self.encoded
        sends = change.abs() >= self.threshold
        torch.floor(change.mul_(2.0**-self.rule.shift), out=messages)
        messages.mul_(sends)
        self.encoded = torch.where(sends, activation, self.encoded)
