"""The base class of layers that separate the time steps in a batch."""

from __future__ import annotations

from torch import nn


class TimedLayer(nn.Module):
    """A layer that takes [timesteps * batch, ...], time first; SpikingNetwork sets `timesteps`."""

    timesteps: int = 0  # not set yet
