"""Stop a training run that has diverged, before it reports success.

Norms hide the damage: a network whose running variance is 1e23 still classifies, but cannot be deployed.
"""

from __future__ import annotations

from math import isfinite

from ..base import OptionError, record
from ..nn import MPBN, SpikingNetwork

LARGEST = 1e6
STATISTICS = {"running_mean": LARGEST, "running_var": LARGEST**2}


@record
class GradientNorms:
    """The norms of the gradients of an epoch's steps."""

    median: float
    largest: float

    @property
    def remedy(self) -> str:
        """The limit that would clip only steps far from usual, if there were any."""
        limit = 10 * self.median
        if not limit < self.largest:
            return ""
        return (
            f", or with --clip-gradient {limit:.2g}: of this epoch's gradients, the largest has a norm of "
            f"{self.largest:.3g}, and half have less than {self.median:.2g}"
        )


def check_health(network: SpikingNetwork, gradients: GradientNorms) -> None:
    """Raise an error that names the first parameter or statistic that is not finite or too large."""
    statistics = [
        (name, buffer) for name, buffer in network.body.named_buffers() if name.endswith(tuple(STATISTICS))
    ]
    has_mpbn = any(isinstance(module, MPBN) for module in network.modules())
    norms = ", a larger --mpbn-epsilon" if has_mpbn else ""
    for name, tensor in [*network.body.named_parameters(), *statistics]:
        largest = float(tensor.detach().abs().max()) if tensor.numel() else 0.0  # nan if any is
        allowed = STATISTICS.get(name.rpartition(".")[2], LARGEST)
        if not largest <= allowed:
            found = f"the largest magnitude is {largest:.3g}" if isfinite(largest) else "not finite"
            raise OptionError(
                f"{name}: {found} after this epoch; above {allowed:g}, training has diverged. "
                f"Train with a lower --learning-rate{norms} or --reset-gradient detached{gradients.remedy}."
            )
