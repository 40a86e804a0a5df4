"""Layers that know that there is time."""

from __future__ import annotations

from torch import nn


class Timed(nn.Module):
    """A layer that sees [timesteps * batch, ...], time first, and must know how many steps that is.

    The network around it says so whenever its number of time steps is set.
    """

    timesteps: int = 0  # not told yet
