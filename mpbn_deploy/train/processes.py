"""One training shared out over processes, machines or GPUs, as torchrun starts them.

    torchrun --nproc-per-node 2 -m mpbn_deploy.train --data cifar10 ...

Every process takes an equal share of each batch. Gradients are averaged by DistributedDataParallel,
and all batch norms, those of membranes too, use the statistics of the whole batch: so the losses are
those of one process with the same --batch, up to the rounding of sums. The first process writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ..base import OptionError, record
from ..nn import MPBN, SpikingNetwork, synchronized_batch_norm


@record
class Processes:
    """Which of how many processes this is."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.rank == 0

    def share(self, indices: Tensor) -> Tensor:
        """This process's part of a batch."""
        size = len(indices) // self.count
        return indices[self.rank * size : (self.rank + 1) * size] if self.count > 1 else indices

    def total(self, values: Tensor) -> Tensor:
        """The sum over processes."""
        if self.count > 1:
            distributed.all_reduce(values)
        return values


ALONE = Processes()
LONGEST_REASON = 100  # letters of what torch says about a device


@contextmanager
def started_by_torchrun(device: torch.device) -> Iterator[Processes]:
    """Join the other processes that torchrun started; alone where it started none."""
    if not _several():
        yield ALONE
        return
    # The sums of a log are numbers of the CPU, also where the network is on GPUs.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(rank=distributed.get_rank(), count=distributed.get_world_size())
        distributed.barrier()  # one that leaves while another still writes its files may crash on the way
    finally:
        distributed.destroy_process_group()


def _several() -> bool:
    return distributed.is_available() and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first_process() -> bool:
    """Whether this process may speak, also before it has joined the others."""
    return not _several() or int(os.environ.get("RANK", "0")) == 0


def own_device(name: str) -> torch.device:
    """The device that --device names; of several GPUs, each process takes its own."""
    local = os.environ.get("LOCAL_RANK")
    name = f"cuda:{local}" if name == "cuda" and local is not None else name
    # Without it, matrix products on GPUs are not the same twice, and older releases of torch refuse them.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
        if device.type == "cuda":
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # whatever a device of torch raises
        reason = str(error).splitlines()[0][:LONGEST_REASON].rstrip(". ")
        raise OptionError(f"device {name!r} cannot be used ({reason}); 'cpu' always can.") from error
    return device


@contextmanager
def shared_out(network: SpikingNetwork, processes: Processes) -> Iterator[nn.Module]:
    """What computes the loss in each process; parameters and buffers are those of the network."""
    if processes.count == 1:
        yield network
        return
    norms = _norms(network)
    membrane_norms = [module for module in network.modules() if isinstance(module, MPBN)]
    for norm in norms:
        norm.forward = partial(synchronized_batch_norm, norm)  # type: ignore[method-assign]
    for membrane_norm in membrane_norms:
        membrane_norm.synchronized = True
    try:
        # Statistics are equal in all processes as they are; nothing needs to be sent around.
        names = signature(DistributedDataParallel).parameters
        option = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
        nothing_sent: dict[str, Any] = {option: False}
        yield DistributedDataParallel(network, **nothing_sent)
    finally:
        for norm in norms:
            del norm.forward
        for membrane_norm in membrane_norms:
            membrane_norm.synchronized = False


def _norms(network: SpikingNetwork) -> list[nn.BatchNorm1d | nn.BatchNorm2d]:
    """Every batch norm outside of neurons."""
    norms = []
    inside = {module.bn for module in network.modules() if isinstance(module, MPBN)}
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module not in inside:
            if not module.affine or not module.track_running_stats or module.momentum is None:
                raise OptionError(f"{name}: only a plain BatchNorm can be shared out over processes.")
            if not isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                raise OptionError(f"{name}: a {type(module).__name__} cannot be shared out over processes.")
            norms.append(module)
    return norms
