"""The optimizer: SGD for all parameters, or Muon for the weights of hidden layers.

Muon (Jordan et al., 2024) moves a weight, seen as a matrix with one row per output, in all directions by
the same distance, also in those in which the gradient is small:

    momentum  <- mu * momentum + gradient
    direction  = orthogonalized(momentum), or of gradient + mu * momentum (Nesterov), of norm 1
    weight    <- |weight| * unit(weight / |weight| - rate * direction)

The norm of a weight stays as it is: the batch norm behind a layer makes it irrelevant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..base import OptionError
from ..nn import SpikingNetwork
from ..quantize import QuantizedBody
from .settings import Training

MUON_RATE = 0.15  # of the learning rate
# Each step maps a singular value s to a*s + b*s^3 + c*s^5, which brings those in 0..1 close to 1 (Jordan).
POLYNOMIAL = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 3


def make_optimizer(network: SpikingNetwork, training: Training) -> torch.optim.SGD:
    """Return the optimizer; each group has a `relative_rate`, that of its parameters to the learning rate."""
    weights = [
        module.weight
        for module in network.modules()
        if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd))
    ]
    known = {id(weight) for weight in weights}
    others = [p for p in network.parameters() if id(p) not in known]
    integers = isinstance(network.body, QuantizedBody)
    if integers and training.optimizer == "muon":
        raise OptionError("--optimizer muon keeps the norms of weights; integers are trained with sgd.")
    hidden = weights[:-1] if training.optimizer == "muon" else []  # the last one is the readout's
    groups = (
        _group(hidden, relative_rate=MUON_RATE, orthogonal=True),
        _group(weights[len(hidden) :], weight_decay=training.weight_decay),
        _group(others, relative_rate=1.0 if integers else training.norm_rate),  # integers have no norms
    )
    return Muon(
        [group for group in groups if group["params"]],
        lr=training.learning_rate,
        momentum=training.momentum,
        nesterov=training.nesterov,
    )


def _group(
    parameters: Sequence[Tensor],
    *,
    weight_decay: float = 0.0,
    relative_rate: float = 1.0,
    orthogonal: bool = False,
) -> dict[str, Any]:
    return {
        "params": list(parameters),
        "weight_decay": weight_decay,
        "relative_rate": relative_rate,
        "orthogonal": orthogonal,
    }


class Muon(torch.optim.SGD):
    """SGD, which moves the weights of groups with `orthogonal` as this file says."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move all parameters."""
        for group in self.param_groups:
            for weight in group["params"] if group["orthogonal"] else ():
                if weight.grad is not None:
                    self._turn(weight, weight.grad, group)
                    weight.grad = None  # SGD passes over what has no gradient
        return super().step(closure)

    def _turn(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        momentum = self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
        momentum.mul_(group["momentum"]).add_(gradient)
        wanted = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        direction = orthogonalized(wanted.flatten(1)).view_as(weight)
        norm, length = weight.norm(), direction.norm()
        if length > 0:
            weight.sub_(direction, alpha=float(group["lr"] * norm / length))
            weight.mul_(norm / weight.norm())


def orthogonalized(matrix: Tensor) -> Tensor:
    """Return u * p(s) * v for a matrix u * s * v: its singular values, as far as they are not tiny, near one.

    p is a polynomial, so p(s) needs no decomposition; it is computed on the smaller Gram matrix.
    """
    if len(matrix) > matrix.shape[1]:
        return orthogonalized(matrix.T).T
    matrix = matrix / matrix.norm().clamp_min(torch.finfo(matrix.dtype).tiny)
    gram, factor = matrix @ matrix.T, torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    linear, cubic, quintic = POLYNOMIAL
    for _ in range(NEWTON_SCHULZ_STEPS):
        step = torch.addmm(gram, gram, gram, beta=cubic, alpha=quintic)
        step.diagonal().add_(linear)
        factor, gram = step @ factor, step @ gram @ step
    return factor @ matrix
