"""Stop a training whose parameters are not finite or have run away, before it reports success.

Norms hide the damage: a network whose running variance is 1e23 still classifies, but cannot be deployed.
"""

from __future__ import annotations

import torch

from ..base import OptionError
from ..nn import SpikingNetwork

LARGEST = 1e6  # of weights, gains, offsets and means
LARGEST_VARIANCE = LARGEST**2


def check_health(network: SpikingNetwork) -> None:
    """Raise an error that names the first parameter or statistic that is not finite or too large."""
    state = [*network.body.named_parameters(), *network.body.named_buffers()]
    for name, tensor in state:
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        largest = float(tensor.detach().abs().max())  # nan if any is
        allowed = LARGEST_VARIANCE if name.endswith("running_var") else LARGEST
        if not largest <= allowed:
            raise OptionError(
                f"{name}: {_found(largest)} after this epoch; at most {allowed:g} is sound; training stops. "
                "Train with a lower --learning-rate, a larger --mpbn-epsilon, or --clip-gradient 1."
            )


def _found(largest: float) -> str:
    return f"the largest magnitude is {largest:.3g}" if torch.tensor(largest).isfinite() else "not finite"
