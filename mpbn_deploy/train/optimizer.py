"""The optimizer: SGD or Adam for all parameters, or Muon for the weights with a norm behind them.

Muon (the variant of Jordan's CIFAR-10 speedrun, 2024, which keeps the norms of weights) takes a weight as a
matrix with one row per output. It gives the directions in which gradients are small more of each step:

    momentum  <- mu * momentum + gradient
    direction  = orthogonalized(momentum), or of gradient + mu * momentum (Nesterov), scaled to norm 1
    weight    <- |weight| * unit(weight / |weight| - rate * direction)

The norm of such a weight stays as it is, because the norm behind its layer makes it irrelevant.

`MeanWeights` averages the parameters over the last steps of a training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..base import OptionError
from ..nn import LIF, SpikingNetwork, TemporalNorm
from ..quantize import QuantizedBody
from .settings import NO_MUON_FOR_INTEGERS, Training

MUON_RATE = 0.15  # of the learning rate
# Each step maps a singular value s to a*s + b*s^3 + c*s^5, which brings those in 0..1 closer to 1 (Jordan).
POLYNOMIAL = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 3
ADAM_SECOND = 0.999  # the decay of Adam's second moments, as in torch

LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


def make_optimizer(network: SpikingNetwork, training: Training) -> torch.optim.Optimizer:
    """Return the optimizer; the loop sets a group's rate to `relative_rate` times the learning rate."""
    weights = {id(module.weight) for module in network.modules() if isinstance(module, LAYERS)}
    integers = isinstance(network.body, QuantizedBody)
    if integers and training.optimizer == "muon":
        raise OptionError(NO_MUON_FOR_INTEGERS)
    turned = _normalized_weights(network) if training.optimizer == "muon" else set()
    norm_rate = 1.0 if integers else training.norm_rate  # integers have no norms
    groups = (
        _group(network, turned, relative_rate=MUON_RATE, orthogonal=True),
        _group(network, weights - turned, weight_decay=training.weight_decay),
        _group(network, {id(p) for p in network.parameters()} - weights, relative_rate=norm_rate),
    )
    if training.optimizer == "adam":
        parts = [group for group in groups if group["params"]]
        return torch.optim.Adam(parts, lr=training.learning_rate, betas=(training.momentum, ADAM_SECOND))
    return Muon(
        [group for group in groups if group["params"]],
        lr=training.learning_rate,
        momentum=training.momentum,
        nesterov=training.nesterov,
    )


def _group(
    network: SpikingNetwork,
    chosen: Iterable[int],
    *,
    weight_decay: float = 0.0,
    relative_rate: float = 1.0,
    orthogonal: bool = False,
) -> dict[str, Any]:
    return {
        "params": [parameter for parameter in network.parameters() if id(parameter) in chosen],
        "weight_decay": weight_decay,
        "relative_rate": relative_rate,
        "orthogonal": orthogonal,
    }


def _normalized_weights(network: SpikingNetwork) -> set[int]:
    """Return the ids of weights whose layers have a batch norm or MPBN right behind them in a run."""
    called: list[nn.Module] = []
    kinds = (*LAYERS, LIF, TemporalNorm, nn.modules.batchnorm._BatchNorm)
    hooks = [
        module.register_forward_pre_hook(lambda module, _: called.append(module))
        for module in network.modules()
        if isinstance(module, kinds)
    ]
    was_training, like = network.training, next(network.parameters())
    with torch.no_grad():
        network.eval()(torch.zeros(1, *network.input_format.shape, dtype=like.dtype, device=like.device))
    network.train(was_training)
    for hook in hooks:
        hook.remove()
    # A weight of zeros has no direction to turn from.
    found = {
        id(layer.weight)
        for layer, behind in pairwise(called)
        if isinstance(layer, LAYERS) and _normalizes(behind) and bool(layer.weight.any())
    }
    if not found:
        raise OptionError(
            "--optimizer muon: no layer of this network has a batch norm or MPBN right behind it, and Muon "
            "keeps the norms of weights. Train with --optimizer sgd."
        )
    return found


def _normalizes(module: nn.Module) -> bool:
    return module.mpbn is not None if isinstance(module, LIF) else not isinstance(module, LAYERS)


@dataclass(kw_only=True)
class MeanWeights:
    """mean <- mean + (weight - mean) / steps, for every parameter of a network"""

    steps: int = 0
    means: list[Tensor] = field(default_factory=list)

    @torch.no_grad()
    def add(self, network: nn.Module) -> None:
        """Add the parameters after a step."""
        if not self.means:
            self.means = [torch.zeros_like(parameter) for parameter in network.parameters()]
        self.steps += 1
        for mean, parameter in zip(self.means, network.parameters(), strict=True):
            mean.lerp_(parameter, 1 / self.steps)

    @torch.no_grad()
    def write(self, network: nn.Module) -> None:
        """Make the means the parameters of the network."""
        for mean, parameter in zip(self.means, network.parameters(), strict=True):
            parameter.copy_(mean)


class Muon(torch.optim.SGD):
    """SGD, except that the weights of groups with `orthogonal` are moved as this file says."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move all parameters; return what the closure returns, which computes gradients, if there is one."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for weight in group["params"] if group.get("orthogonal") else ():
                if weight.grad is not None:
                    self._turn(weight, weight.grad, group)
                    weight.grad = None  # SGD passes over what has no gradient
        super().step()
        return loss

    def _turn(self, weight: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        momentum = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        wanted = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        direction = orthogonalized(wanted.flatten(1)).view_as(weight)
        norm, length = weight.norm(), direction.norm()
        if length == 0:
            return
        weight.sub_(direction, alpha=float(group["lr"] * norm / length))
        weight.mul_(norm / weight.norm())


def orthogonalized(matrix: Tensor) -> Tensor:
    """Return u * p(s / |s|) * v for a matrix u * s * v: large singular values come near 1, small ones grow.

    p is an odd polynomial, so it needs no decomposition; it is computed on the smaller Gram matrix.
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
