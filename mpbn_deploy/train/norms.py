"""Batch norms outside neurons."""

from __future__ import annotations

from torch import nn

from ..nn import MPBN, SpikingNetwork

AnyNorm = nn.modules.batchnorm._NormBase
BatchNorm = nn.modules.batchnorm._BatchNorm


def norms_outside_neurons(network: SpikingNetwork) -> dict[str, AnyNorm]:
    """Return every batch or instance norm that is not MPBN's, by its path in the network."""
    inside = {module.bn for module in network.modules() if isinstance(module, MPBN)}
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, AnyNorm) and module not in inside
    }
