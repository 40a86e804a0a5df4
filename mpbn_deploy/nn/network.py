"""SpikingNetwork: normalizes raw inputs, repeats them over time, and averages the body's outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..base import OptionError
from ..ir import InputFormat, shape_for, timestep_problems
from .timed import TimedLayer


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """How the body is built, what the outputs mean, and how the network was trained."""

    architecture: str
    arguments: dict[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    training: dict[str, Any] = field(default_factory=dict)


class SpikingNetwork(nn.Module):
    """logits = mean over time steps of body(normalized inputs) (Eq. 3).

    Inputs are raw values, [batch, *shape] (constant over time) or [batch, timesteps, *shape], and are
    normalized per channel: (x - mean) / deviation. The body sees [timesteps * batch, *shape].
    """

    def __init__(
        self, body: nn.Module, *, timesteps: int, input_format: InputFormat, card: ModelCard | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.input_format = input_format
        self.card = card
        self.timesteps = timesteps

    @property
    def timesteps(self) -> int:
        """The number of time steps per sample; setting it updates every layer of the body."""
        return self._timesteps

    @timesteps.setter
    def timesteps(self, timesteps: int) -> None:
        if problems := timestep_problems(timesteps):
            raise OptionError(f"{problems[0]}.")
        self._timesteps = timesteps
        for module in self.body.modules():
            if isinstance(module, TimedLayer):
                module.timesteps = timesteps

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits, [batch, classes]."""
        shape = self.input_format.shape
        given = shape_for(tuple(inputs.shape[1:]), shape)
        inputs = inputs.reshape(len(inputs), *given)
        if given not in (shape, (self.timesteps, *shape)):
            raise OptionError(
                f"inputs of shape {given} per sample; the network takes {shape}, or "
                f"{(self.timesteps, *shape)} for inputs that change over time."
            )
        if not inputs.is_floating_point():
            parameter = next(self.parameters(), None)
            inputs = inputs.to(torch.get_default_dtype() if parameter is None else parameter.dtype)
        if given == shape:
            steps = self.normalize(inputs).expand(self.timesteps, *inputs.shape)
        else:
            steps = self.normalize(inputs.transpose(0, 1))
        steps = steps.flatten(0, 1)
        if self.training and steps.dim() == 4:  # convolutions and norms train fastest in this layout
            steps = steps.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.body(steps)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # half precision under autocast
        return logits.view(self.timesteps, -1, *logits.shape[1:]).mean(0)

    def normalize(self, inputs: Tensor) -> Tensor:
        """Return (x - mean) / deviation, per channel."""
        ones = [1] * (len(self.input_format.shape) - 1)
        mean = torch.tensor(self.input_format.mean, dtype=inputs.dtype, device=inputs.device)
        deviation = torch.tensor(self.input_format.deviation, dtype=inputs.dtype, device=inputs.device)
        return (inputs - mean.view(-1, *ones)) / deviation.view(-1, *ones)
