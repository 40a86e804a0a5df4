"""One training on several processes, GPUs or machines, started by torchrun.

    torchrun --nproc-per-node 2 -m mpbn_deploy.train --data cifar10 ...

Every process takes an equal share of each batch. DistributedDataParallel averages the gradients, and every
batch norm, including MPBN, uses the statistics of the whole batch. The losses therefore equal those of one
process with the same --batch, up to rounding. Only the first process prints and writes files.
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
from ..nn import MPBN, PSPBN, SpikingNetwork, compiled_norms, synchronized_batch_norm
from .norms import norms_outside_neurons


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
