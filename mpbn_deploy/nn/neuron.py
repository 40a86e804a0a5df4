"""The paper's neuron: leaky integrate-and-fire, with batch norm on a copy of the membrane."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from ..errors import OptionError, did_you_mean
from .surrogate import SURROGATES

MPBN_KINDS = ("channel", "element", "none")


class MPBN(nn.Module):
    """Membrane-potential batch norm (Eq. 7): gain * (membrane - mean) / sqrt(variance + eps) + offset

    `channel` has one gain, offset, mean and variance per channel; `element` one per neuron (Eq. 13).
    Statistics are those of one time step; the running ones see all steps in turn.
    """

    def __init__(self, shape: tuple[int, ...], kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.shape = shape
        self.bn = nn.BatchNorm1d(prod(shape) if kind == "element" else shape[0])

    def forward(self, membrane: Tensor) -> Tensor:
        """Normalize membranes [batch, *shape]."""
        if self.kind == "element" or membrane.dim() == 2:
            normalized: Tensor = self.bn(membrane.flatten(1))
        else:
            normalized = self.bn(membrane.flatten(2))
        return normalized.view_as(membrane)

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}"


class LIF(nn.Module):
    """Leaky integrate-and-fire neurons (Eq. 1, 2 and 8). In each time step:

        membrane <- leak * membrane + x
        spike     = MPBN(membrane) > threshold          (strictly)
        membrane <- membrane * (1 - spike)              (the un-normalized membrane is reset)

    `shape` is the number of channels or features, or (for `mpbn="element"`) the whole shape of a
    sample. Takes and gives [timesteps * batch, ...]; SpikingNetwork sets `timesteps`.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        *,
        mpbn: str = "channel",
        leak: float = 0.25,
        threshold: float = 0.5,
        surrogate: str = "rectangle",
    ) -> None:
        super().__init__()
        if mpbn not in MPBN_KINDS:
            raise OptionError(f"LIF: no MPBN of kind {mpbn!r}. {did_you_mean(mpbn, MPBN_KINDS)}")
        if surrogate not in SURROGATES:
            raise OptionError(f"LIF: no surrogate {surrogate!r}. {did_you_mean(surrogate, SURROGATES)}")
        if not 0 <= leak <= 1:
            raise OptionError(f"LIF: leak {leak}; allowed are 0 (forget at once) to 1 (never forget).")
        self.leak = leak
        self.threshold = threshold
        self.surrogate = surrogate
        self.timesteps: int | None = None
        sizes = (shape,) if isinstance(shape, int) else shape
        self.mpbn: MPBN | None = MPBN(sizes, mpbn) if mpbn != "none" else None

    def forward(self, x: Tensor) -> Tensor:
        """Spikes, [timesteps * batch, ...], of inputs of the same shape."""
        if self.timesteps is None:
            raise OptionError(
                "LIF: how many time steps lie in the batch? Put the body into a SpikingNetwork."
            )
        spike_function = SURROGATES[self.surrogate]
        membrane: Tensor | None = None
        spikes = []
        for step in x.view(self.timesteps, -1, *x.shape[1:]):
            membrane = step if membrane is None else self.leak * membrane + step
            normalized = membrane if self.mpbn is None else self.mpbn(membrane)
            spike = spike_function(normalized, self.threshold)
            membrane = membrane * (1 - spike)
            spikes.append(spike)
        return torch.stack(spikes).flatten(0, 1)

    def extra_repr(self) -> str:
        return f"leak={self.leak}, threshold={self.threshold}, surrogate={self.surrogate!r}"
