"""The base class of layers that separate the time steps in a batch, and what torch.compile leaves to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def run_eagerly(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Call a function that torch.compile must not trace; it compiles the layers before and after it.

    Neurons have a handwritten backward, and a SpikePool looks for its node in the autograd graph.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.disable(function)(*arguments)  # type: ignore[no-any-return, no-untyped-call]
    return function(*arguments)


class TimedLayer(nn.Module):
    """A layer that takes [timesteps * batch, ...], time first; SpikingNetwork sets `timesteps`."""

    timesteps: int = 0  # not set yet
