"""Neurons, norms and pools in training by the compiled loops of kernels.py, where Numba is installed.

They compute what scan.py, norm.py and pool.py compute with torch's operations, in fewer passes over memory.
They serve training on a CPU in one process, with channel-wise or no MPBN, on large tensors whose channels are
next to each other in memory (channels_last). Everything else, and evaluation, is left to torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..base import MissingPackageError, OptionError, record
from .norm import Norm, check_batch, norm_of
from .surrogate import Surrogate, rectangle, scaled_tanh, wide_rectangle

if TYPE_CHECKING:
    from .kernels import Affine, Interval
    from .parameters import LIFParameters

Array = NDArray[Any]
WIDEST = 512  # numbers in a row of several pixels
SMALLEST = 1 << 18  # numbers in a tensor; for fewer, calling a loop may take longer than it saves
PRECISIONS = (torch.float32, torch.bfloat16)  # and in tests float64, whose tanh is better left to torch
ZERO = np.float32(0)
BFLOAT16_ONE = np.uint16(0x3F80)

# Where each surrogate has a slope, ends included
INTERVALS: dict[Surrogate, tuple[float, float]] = {
    rectangle: (0.0, 1.0),
    scaled_tanh: (0.0, 1.0),
    wide_rectangle: (float(np.nextafter(np.float32(-0.5), ZERO)), float(np.nextafter(np.float32(1.5), ZERO))),
}


@cache
def kernels() -> Any:
    """Return the module of the loops, or None where Numba does not work, or is told not to compile."""
    try:
        from . import kernels
    except ImportError:  # it is not installed, or too old for this NumPy; `doctor` says which
        return None
    return kernels if kernels.MAY_COMPILE else None


def check_compiled() -> str:
    """Compile a loop and try it; return Numba's version."""
    if find_spec("numba") is None:
        raise MissingPackageError("Numba is not installed")
    from . import kernels

    if not kernels.MAY_COMPILE:
        raise OptionError("NUMBA_DISABLE_JIT is set: Numba does not compile")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    two, y = np.full(2, 2, np.float32), np.empty_like(x)
    kernels.normalize(x, kernels.Affine(two, two, two, two), y, 1)
    if not np.array_equal(y, 2 * x + 2):
        raise RuntimeError("a compiled norm is not the norm")
    return version("numba")


def serves(x: Tensor, norm: Norm | None) -> bool:
    """Return whether the loops can take inputs and the norm of a layer, and are worth it."""
    return (
        torch.is_grad_enabled()
        and x.requires_grad
        and x.device.type == "cpu"
        and x.dtype in PRECISIONS
        and x.numel() >= SMALLEST
        and _channels_are_last(x)
        and (norm is None or not (norm.per_element or norm.synchronized or norm.observe))
        and kernels() is not None
    )


def _channels_are_last(x: Tensor) -> bool:
    if x.dim() == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.dim() == 2 and x.is_contiguous()


# ---- tensors as arrays --------------------------------------------------------------------------


def _pixels(x: Tensor) -> Array:
    """Return [samples, channels], or [samples, height, width, channels], in the same memory."""
    x = x.detach()
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1)
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()


def _rows(x: Tensor, timesteps: int = 1) -> Array:
    """Return [timesteps, rows, width] in the same memory; a row has the channels of a few pixels."""
    channels = x.shape[1]
    pixels = x.numel() // channels // timesteps
    together = gcd(pixels, 1 << max(0, (WIDEST // channels).bit_length() - 1))
    return _pixels(x).reshape(timesteps, pixels // together, together * channels)


def _alike(values: Tensor, model: Tensor) -> Tensor:
    """Return values in the memory layout of `model`."""
    if values.stride() == model.stride():
        return values
    return torch.empty_like(model, dtype=values.dtype).copy_(values)


def _working_type(x: Tensor) -> type[np.floating[Any]]:
    return np.float64 if x.dtype == torch.float64 else np.float32


def _threads() -> int:
    """Return how many threads kernels have: as many as torch."""
    threads: int = kernels().use_threads(torch.get_num_threads())
    return threads


# ---- norms --------------------------------------------------------------------------------------


class _Room:
    """Room for sums per thread and place in a row, of a block of rows and of all."""

    def __init__(self, width: int, kind: type[np.floating[Any]]) -> None:
        self.threads = _threads()
        self.width = width
        self.block = np.empty((self.threads, 2, width), kind)
        self.sums = np.empty((self.threads, 2, width))


def _norm(norm: Norm | None, gain: Tensor | None, offset: Tensor | None, room: _Room, rows: int) -> Affine:
    """Return the norm of one step; in training mode, that of the moments in the room."""
    found: Affine
    if norm is None or gain is None or offset is None:
        ones, zeros = (np.full(room.width, number, room.block.dtype) for number in (1, 0))
        found = kernels().Affine(ones, zeros, ones, zeros)
        return found
    mean, variance = norm.running_mean.numpy(), norm.running_var.numpy()
    parameters = gain.detach().numpy(), offset.detach().numpy(), norm.epsilon
    if norm.training:
        found = kernels().norm_of_batch(room.sums, rows, *parameters, norm.momentum, mean, variance)
    else:
        found = kernels().known_norm(mean, variance, *parameters, room.width)
    return found


def _backward_step(
    gradient: Array,
    membrane: Array,
    after: Array | None,
    by_input: Array,
    totals: Array,
    affine: Affine,
    neuron: _Constants | None,
    *,
    average: bool | None,
) -> None:
    """Write the gradient by the inputs of one step; add those by offset and gain to totals, [2, channels].

    `average` is whether the norm's moments are those of the batch, None if there is no norm; `neuron` is None
    for a norm without neurons.
    """
    room = _Room(membrane.shape[1], affine.scale.dtype.type)
    zero = room.block.dtype.type(0)
    n = neuron or _Constants(
        leak=zero, by_reset=zero, subtrahend=None, threshold=zero, inside=None, curve=None
    )
    averages = np.zeros_like(room.block[0])
    if average is not None:
        kernels().gradient_sums(
            gradient, membrane, after, affine, n.by_reset, n.subtrahend, n.inside, n.curve,
            room.block, room.sums, totals, averages,
        )  # fmt: skip
    if not average:
        averages[:] = 0
    kernels().gradient_inputs(
        gradient, membrane, after, affine, n.leak, n.by_reset, n.subtrahend, n.threshold, n.inside, n.curve,
        averages, by_input, room.threads,
    )  # fmt: skip


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, offset: Tensor, norm: Norm) -> Tensor:
        (rows,), y = _rows(x), torch.empty_like(x)
        room = _Room(rows.shape[1], _working_type(x))
        kernels().moments(rows, room.block, room.sums)
        ctx.affine = _norm(norm, gain, offset, room, len(rows))
        kernels().normalize(rows, ctx.affine, _rows(y)[0], room.threads)
        ctx.save_for_backward(x, gain)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, gain = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        (given,), (rows,), (by_x,) = (_rows(each) for each in (_alike(gradients[0], x), x, grad_x))
        totals = np.zeros((2, len(gain)))
        _backward_step(given, rows, None, by_x, totals, ctx.affine, None, average=True)
        grad_offset, grad_gain = torch.from_numpy(totals).to(gain.dtype)
        return grad_x, grad_gain, grad_offset, None


def batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Apply a batch norm module, by compiled loops where these serve it."""
    complete = module.affine and module.track_running_stats and module.momentum is not None
    if not (complete and module.training and serves(x, None)):
        return type(module).forward(module, x)
    norm = norm_of(module, training=True)
    check_batch(x, norm)
    assert module.num_batches_tracked is not None
    module.num_batches_tracked.add_(1)
    y: Tensor = _BatchNorm.apply(x, module.weight, module.bias, norm)  # type: ignore[no-untyped-call]
    return y


@contextmanager
def compiled_norms(network: nn.Module) -> Iterator[None]:
    """Let every batch norm of a network train by compiled loops."""
    norms = [each for each in network.modules() if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d))]
    for norm in norms:
        norm.forward = partial(batch_norm, norm)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


# ---- neurons ------------------------------------------------------------------------------------


@record
class _Constants:
    """The numbers of a neuron as kernels take them."""

    leak: Any
    by_reset: Any
    subtrahend: Any
    threshold: Any
    inside: Interval | None
    curve: tuple[Any, ...] | None


def _constants(lif: LIFParameters, kind: type[np.floating[Any]]) -> _Constants:
    return _Constants(
        leak=kind(lif.leak),
        by_reset=kind(0 if lif.reset_is_constant else lif.leak),
        subtrahend=None if lif.subtrahend is None else kind(lif.subtrahend),
        threshold=kind(lif.threshold),
        inside=kernels().Interval(*(kind(end) for end in INTERVALS[lif.surrogate])),
        curve=tuple(kind(each) for each in kernels().TANH_CURVE) if lif.surrogate is scaled_tanh else None,
    )


class CompiledScan(torch.autograd.Function):
    """`scan` by compiled loops; spikes have the precision of x, membranes at least single precision."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gain: Tensor | None, offset: Tensor | None, lif: LIFParameters
    ) -> Tensor:
        kind, steps = _working_type(x), lif.timesteps
        if lif.norm is not None:
            check_batch(x[: len(x) // steps], lif.norm)
        neuron = _constants(lif, kind)
        spikes = torch.empty_like(x)
        spike = (np.uint16(0), BFLOAT16_ONE) if x.dtype == torch.bfloat16 else (kind(0), kind(1))
        membranes = x
        if steps > 1:  # those of a single step are its inputs, which need no copy
            membranes = torch.empty_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
            membranes[: len(x) // steps].copy_(x[: len(x) // steps])
        arriving, v, fired = (_rows(each, steps) for each in (x, membranes, spikes))
        room = _Room(v.shape[2], kind)
        if lif.norm is not None and lif.norm.training:
            kernels().moments(v[0], room.block, room.sums)
        norms = [_norm(lif.norm, gain, offset, room, v.shape[1])]
        for step in range(1, steps):
            kernels().integrate(
                arriving[step], v[step - 1], norms[-1], neuron.threshold, neuron.leak, neuron.subtrahend,
                spike, fired[step - 1], v[step], room.block, room.sums,
            )  # fmt: skip
            norms.append(_norm(lif.norm, gain, offset, room, v.shape[1]))
        kernels().fire(v[-1], norms[-1], neuron.threshold, spike, fired[-1], room.threads)
        ctx.save_for_backward(membranes, gain)
        ctx.norms, ctx.lif, ctx.precision = norms, lif, x.dtype
        return spikes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        membranes, gain = ctx.saved_tensors
        lif: LIFParameters = ctx.lif
        grad_x = torch.empty_like(membranes, dtype=ctx.precision)
        given, v, by_x = (
            _rows(each, lif.timesteps) for each in (_alike(gradients[0], membranes), membranes, grad_x)
        )
        neuron = _constants(lif, _working_type(membranes))
        average = None if lif.norm is None else lif.norm.training
        totals = np.zeros((2, membranes.shape[1]))
        after = None
        for step in reversed(range(lif.timesteps)):
            _backward_step(
                given[step], v[step], after, by_x[step], totals, ctx.norms[step], neuron, average=average
            )
            after = by_x[step]
        if gain is None:
            return grad_x, None, None, None
        grad_offset, grad_gain = torch.from_numpy(totals).to(gain.dtype)
        return grad_x, grad_gain, grad_offset, None


def normalized_membranes(node: Any) -> Tensor:
    """Return the membranes of all time steps that a node of CompiledScan compared with the threshold."""
    membranes, _ = node.saved_tensors
    steps = membranes.view(len(node.norms), -1, *membranes.shape[1:])
    shape = membranes.shape[1], *[1] * (membranes.dim() - 2)
    normalized = []
    for step, norm in zip(steps, node.norms, strict=True):
        scale, shift = (torch.from_numpy(each[: shape[0]]).view(shape) for each in (norm.scale, norm.shift))
        normalized.append(step * scale + shift)
    return torch.cat(normalized)


# ---- pools --------------------------------------------------------------------------------------


def pool(spikes: Tensor) -> Tensor:
    """Return the largest spike of each window of 2 x 2 pixels."""
    samples, channels, height, width = spikes.shape
    size = samples, channels, height // 2, width // 2
    pooled = torch.empty(size, dtype=spikes.dtype, memory_format=torch.channels_last)
    kernels().pool(_pixels(spikes), _pixels(pooled), _threads())
    return pooled


def pool_gradient(gradient: Tensor, node: Any) -> Tensor:
    """Return the gradient by spikes of a node of CompiledScan from that by their pool of 2 x 2 pixels."""
    membranes, _ = node.saved_tensors
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    odd = any(size % 2 for size in membranes.shape[2:])
    by_spike = (torch.zeros_like if odd else torch.empty_like)(membranes, dtype=gradient.dtype)
    threads, steps = _threads(), len(node.norms)
    parts = zip(*(np.split(_pixels(each), steps) for each in (gradient, membranes, by_spike)), strict=True)
    for (given, v, result), norm in zip(parts, node.norms, strict=True):
        kernels().pool_gradient(given, v, norm, result, threads)
    return by_spike
