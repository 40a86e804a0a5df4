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

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ..base import OptionError, record
from ..nn import LIF, MPBN, PSPBN, SpikingNetwork, TemporalNorm, compiled_norms, synchronized_batch_norm
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


# Choose the arithmetic of convolutions in training: single precision, or bfloat16 where it is faster.
#
# In bfloat16, spikes (0 and 1) are exact and weights have eight bits; membranes, norms' statistics, the loss
# and the stored weights stay in single precision. Evaluation and export always use single precision.


CLEAR_GAIN = 1.2  # bfloat16 must be faster by this factor to be chosen
ROUNDS = 3


def fastest_precision(device: torch.device) -> str:
    """Return the faster of bfloat16 and float32, by a trial, because processors differ widely.

    Several processes must agree, and GPUs run asynchronously: both use float32.
    """
    if device.type != "cpu" or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return "float32"
    seconds = {name: _convolution_seconds(name, device) for name in ("float32", "bfloat16")}
    return "bfloat16" if seconds["float32"] > CLEAR_GAIN * seconds["bfloat16"] else "float32"


def _convolution_seconds(precision: str, device: torch.device) -> float:
    """Return the shortest time of one convolution, forward and backward."""
    convolution = nn.Conv2d(64, 64, 3, padding=1, bias=False).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = torch.ones(32, 64, 16, 16, device=device, requires_grad=True)
    inputs = inputs.contiguous(memory_format=torch.channels_last)
    shortest = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            result = convolution(inputs).float().sum()
        result.backward()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


# Batch norms outside neurons.


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


# One training on several processes, GPUs or machines, started by torchrun.
#
#     torchrun --nproc-per-node 2 -m mpbn_deploy.train --data cifar10 ...
#
# Every process takes an equal share of each batch. DistributedDataParallel averages the gradients, and every
# batch norm, including MPBN, uses the statistics of the whole batch. The losses therefore equal those of one
# process with the same --batch, up to rounding. Only the first process prints and writes files.


@record
class ProcessGroup:
    """The rank of this process and the number of processes."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process prints and writes files."""
        return self.rank == 0

    def share(self, indices: Tensor) -> Tensor:
        """Return this process's part of a batch."""
        size = len(indices) // self.count
        return indices[self.rank * size : (self.rank + 1) * size] if self.count > 1 else indices

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over all processes."""
        if self.count > 1:
            distributed.all_reduce(values)
        return values


SINGLE_PROCESS = ProcessGroup()
LONGEST_REASON = 100  # characters of torch's message about a device


@contextmanager
def join_process_group(device: torch.device) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started; without torchrun, yield SINGLE_PROCESS."""
    if not _is_distributed():
        yield SINGLE_PROCESS
        return
    # gloo sums the losses, which are on the CPU even if the network is on GPUs.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield ProcessGroup(rank=distributed.get_rank(), count=distributed.get_world_size())
        distributed.barrier()  # a process that exits while another still writes files may crash
    finally:
        distributed.destroy_process_group()


def _is_distributed() -> bool:
    return distributed.is_available() and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first_process() -> bool:
    """Return whether this process prints and writes files; works before join_process_group."""
    return not _is_distributed() or int(os.environ.get("RANK", "0")) == 0


def select_device(name: str) -> torch.device:
    """Return the device of --device; with `cuda` and several processes, each takes its own GPU."""
    local = os.environ.get("LOCAL_RANK")
    name = f"cuda:{local}" if name == "cuda" and local is not None else name
    # Makes matrix products on GPUs deterministic; older releases of torch raise an error without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
        if device.type == "cuda":
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # depends on the kind of device
        reason = str(error).splitlines()[0][:LONGEST_REASON].rstrip(". ")
        raise OptionError(f"device {name!r} cannot be used ({reason}); use --device cpu.") from error
    return device


@contextmanager
def model_to_train(network: SpikingNetwork, processes: ProcessGroup) -> Iterator[nn.Module]:
    """Yield the model to train in this process; it shares the network's parameters and buffers.

    Norms are compiled in one process, and synchronized in several.
    """
    if processes.count == 1:
        with compiled_norms(network):
            yield network
        return
    norms = _batch_norms(network)
    membrane_norms = [module for module in network.modules() if isinstance(module, MPBN)]
    for norm in norms:
        norm.forward = partial(synchronized_batch_norm, norm)  # type: ignore[method-assign]
    for membrane_norm in membrane_norms:
        membrane_norm.synchronized = True
    try:
        # Statistics are already equal in all processes, so buffers need no broadcast.
        names = signature(DistributedDataParallel).parameters
        option = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
        no_broadcast: dict[str, Any] = {option: False}
        yield DistributedDataParallel(network, **no_broadcast)
    finally:
        for norm in norms:
            del norm.forward
        for membrane_norm in membrane_norms:
            membrane_norm.synchronized = False


def _batch_norms(network: SpikingNetwork) -> list[nn.BatchNorm1d | nn.BatchNorm2d]:
    """Return every batch norm outside neurons."""
    norms = []
    if any(isinstance(module, PSPBN) for module in network.modules()):
        raise OptionError("--norm psp averages over the batch of one process; train it in a single process.")
    for name, module in norms_outside_neurons(network).items():
        if not module.affine or not module.track_running_stats or module.momentum is None:
            raise OptionError(
                f"{name}: training on several processes supports only batch norms with affine=True, "
                "track_running_stats=True and a momentum."
            )
        if not isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            raise OptionError(
                f"{name}: {type(module).__name__} is not supported on several processes; "
                "use BatchNorm1d or BatchNorm2d."
            )
        norms.append(module)
    return norms
