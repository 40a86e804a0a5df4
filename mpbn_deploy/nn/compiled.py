"""Train neurons, norms and pools with the compiled loops of kernels.py, if Numba is installed.

They compute what scan.py, norm.py and neuron.py compute with torch's operations, in fewer passes over memory.
They serve training on a CPU, with channel-wise or no MPBN, on large tensors whose channels are neighbors in
memory (channels_last). Everything else, and evaluation, is left to torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from math import gcd
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..base import MissingPackageError, OptionError
from .norm import Norm, Surrogate, check_batch, norm_of, rectangle, scaled_tanh, wide_rectangle

if TYPE_CHECKING:
    from .kernels import Affine, Neuron
    from .norm import LIFParameters


Array = NDArray[Any]
Float = type[np.floating[Any]]
MIN_NUMBERS = 1 << 18  # in a tensor; for fewer, compiling would take longer than it saves in a short training
MAX_WIDTH = 512  # numbers in a row of several pixels
PRECISIONS = (torch.float32, torch.bfloat16)  # and in tests float64, whose tanh is better left to torch
BFLOAT16_ONE = np.uint16(0x3F80)

# Where each surrogate has a slope; those of OPEN exclude the ends.
INTERVALS: dict[Surrogate, tuple[float, float]] = {
    rectangle: (0.0, 1.0),
    scaled_tanh: (0.0, 1.0),
    wide_rectangle: (-0.5, 1.5),
}
OPEN = (wide_rectangle,)


def load_kernels() -> Any:
    """Return the module of the loops, or None where they cannot be used.

    That is where Numba is not installed, or told not to compile, and in forks of a process that used it: they
    have none of its threads, and Numba would end them.
    """
    kernels, process = _start_kernels()
    return kernels if process == os.getpid() else None


@cache
def _start_kernels() -> tuple[Any, int]:
    """Import the loops and start their threads; return them, and the process that they are for."""
    try:
        from . import kernels
    except ImportError:  # it is not installed, or too old for this NumPy; `doctor` says which
        return None, os.getpid()
    if not kernels.MAY_COMPILE:
        return None, os.getpid()
    threads = torch.get_num_threads()
    kernels.use_threads(threads)
    torch.set_num_threads(threads)  # starting Numba's threads sets it to the number of processors
    return kernels, os.getpid()


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


def serves(x: Tensor, gain: Tensor | None, norm: Norm | None) -> bool:
    """Return whether the loops support this input and norm, and the input is large enough to gain."""
    return (
        torch.is_grad_enabled()
        and x.requires_grad
        and x.device.type == "cpu"
        and x.dtype in PRECISIONS
        and x.numel() >= MIN_NUMBERS
        and has_channels_last(x)
        and (gain is None or gain.dtype == _membrane_precision(x))
        and (norm is None or not (norm.per_element or norm.synchronized or norm.observe))
        and load_kernels() is not None
    )


# ---- tensors as arrays --------------------------------------------------------------------------


def _membrane_precision(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _pixels(x: Tensor) -> Array:
    """Return [samples, channels], or [samples, height, width, channels], in the same memory."""
    x = x.detach()
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1)
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()


def _rows(x: Tensor, timesteps: int = 1) -> Array:
    """Return [timesteps, rows, width] in the same memory; a row has the channels of a few pixels.

    Their number is the largest power of two that divides that of all pixels and keeps a row within MAX_WIDTH.
    """
    channels = x.shape[1]
    pixels = x.numel() // channels // timesteps
    together = gcd(pixels, 1 << max(0, (MAX_WIDTH // channels).bit_length() - 1))
    return _pixels(x).reshape(timesteps, pixels // together, together * channels)


def _working_type(x: Tensor) -> Float:
    return np.float64 if x.dtype == torch.float64 else np.float32


def _threads() -> int:
    """Return how many threads kernels have: as many as torch."""
    threads: int = load_kernels().use_threads(torch.get_num_threads())
    return threads


class _Workspace:
    """Room for sums [threads, 2, width], over one block of rows and over all rows of a thread."""

    def __init__(self, width: int, kind: Float) -> None:
        self.threads = _threads()
        self.width = width
        self.block = np.empty((self.threads, 2, width), kind)
        self.sums = np.empty((self.threads, 2, width))


# ---- norms --------------------------------------------------------------------------------------


def _affine_of_step(
    norm: Norm | None, gain: Tensor | None, offset: Tensor | None, space: _Workspace, rows: int
) -> Affine:
    """Return the affine map of one step's norm, the identity if there is none.

    In training mode its moments are those in the workspace, and the running statistics move toward them.
    """
    kernels = load_kernels()
    if norm is None or gain is None or offset is None:
        ones, zeros = (np.full(space.width, number, space.block.dtype) for number in (1, 0))
        return cast("Affine", kernels.Affine(ones, zeros, ones, zeros))
    mean, variance = norm.running_mean.numpy(), norm.running_var.numpy()
    parameters = gain.detach().numpy(), offset.detach().numpy(), norm.epsilon
    if norm.training:
        found = kernels.affine_of_batch(space.sums, rows, *parameters, norm.momentum, mean, variance)
    else:
        found = kernels.affine_of_moments(mean, variance, *parameters, space.width)
    return cast("Affine", found)


def _backward_step(
    gradient: Array,
    membrane: Array,
    after: Array | None,
    by_input: Array,
    totals: Array,
    affine: Affine,
    neuron: Neuron | None,
    curve: tuple[Any, ...] | None,
    *,
    has_norm: bool,
    batch_statistics: bool,
) -> None:
    """Write the gradient by the inputs of one step; add those by offset and gain to totals, [2, channels].

    Other arguments are those of the kernels; `neuron` and `curve` are None for a norm without neurons.
    """
    kernels, space = load_kernels(), _Workspace(membrane.shape[1], affine.scale.dtype.type)
    averages = np.zeros_like(space.block[0])
    given = gradient, membrane, after, affine, neuron, curve
    if has_norm:
        kernels.gradient_sums(*given, space.block, space.sums, totals, averages)
    if not batch_statistics:  # running statistics do not depend on the inputs
        averages[:] = 0
    kernels.gradient_inputs(*given, averages, by_input, space.threads)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, offset: Tensor, norm: Norm) -> Tensor:
        kernels, (rows,), y = load_kernels(), _rows(x), torch.empty_like(x)
        space = _Workspace(rows.shape[1], _working_type(x))
        kernels.moments(rows, space.block, space.sums)
        ctx.affine = _affine_of_step(norm, gain, offset, space, len(rows))
        kernels.normalize(rows, ctx.affine, _rows(y)[0], space.threads)
        ctx.save_for_backward(x, gain)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, gain = ctx.saved_tensors
        grad_x, totals = torch.empty_like(x), np.zeros((2, len(gain)))
        (given,), (rows,), (by_x,) = (_rows(each) for each in (in_layout_of(x, gradients[0]), x, grad_x))
        _backward_step(
            given, rows, None, by_x, totals, ctx.affine, None, None, has_norm=True, batch_statistics=True
        )
        grad_offset, grad_gain = torch.from_numpy(totals).to(gain.dtype)
        return grad_x, grad_gain, grad_offset, None


def batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Apply a batch norm module, by compiled loops where these serve it."""
    complete = module.affine and module.track_running_stats and module.momentum is not None
    fitting = (
        x.dim() == (4 if isinstance(module, nn.BatchNorm2d) else 2) and x.shape[1] == module.num_features
    )
    if not (complete and fitting and module.training and serves(x, module.weight, None)):
        return type(module).forward(module, x)
    norm = norm_of(module, training=True)
    check_batch(x, norm)
    assert module.num_batches_tracked is not None
    module.num_batches_tracked.add_(1)
    y: Tensor = _BatchNorm.apply(x, module.weight, module.bias, norm)  # type: ignore[no-untyped-call]
    return y


@contextmanager
def compiled_norms(network: nn.Module) -> Iterator[None]:
    """Let the batch norms of a network train by compiled loops; subclasses keep their own forward."""
    exactly = (nn.BatchNorm1d, nn.BatchNorm2d)
    norms = [
        each
        for each in network.modules()
        if isinstance(each, exactly) and type(each) in exactly and "forward" not in vars(each)
    ]
    for norm in norms:
        norm.forward = partial(batch_norm, norm)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


# ---- neurons ------------------------------------------------------------------------------------


def _neuron(lif: LIFParameters, kind: Float) -> Neuron:
    low, high = (kind(end) for end in INTERVALS[lif.surrogate])
    if lif.surrogate in OPEN:
        low, high = np.nextafter(low, high), np.nextafter(high, low)
    found: Neuron = load_kernels().Neuron(
        leak=kind(lif.leak),
        reset_leak=kind(0 if lif.reset_is_constant else lif.leak),
        subtrahend=None if lif.subtrahend is None else kind(lif.subtrahend),
        threshold=kind(lif.threshold),
        low=low,
        high=high,
    )
    return found


class CompiledScan(torch.autograd.Function):
    """`scan` by compiled loops.

    Spikes and gradients have the precision of x, and membranes at least single precision. In bfloat16, the
    gradient is rounded in each time step.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gain: Tensor | None, offset: Tensor | None, lif: LIFParameters
    ) -> Tensor:
        kernels, kind, timesteps = load_kernels(), _working_type(x), lif.timesteps
        if lif.norm is not None:
            check_batch(steps_of(x, timesteps)[0], lif.norm)
        neuron, spikes = _neuron(lif, kind), torch.empty_like(x)
        spike = (np.uint16(0), BFLOAT16_ONE) if x.dtype == torch.bfloat16 else (kind(0), kind(1))
        membranes = x
        if timesteps > 1:  # those of a single step are its inputs, which need no copy
            membranes = torch.empty_like(x, dtype=_membrane_precision(x))
            steps_of(membranes, timesteps)[0].copy_(steps_of(x, timesteps)[0])
        arriving, v, fired = (_rows(each, timesteps) for each in (x, membranes, spikes))
        rows, space = v.shape[1], _Workspace(v.shape[2], kind)
        if lif.norm is not None and lif.norm.training:
            kernels.moments(v[0], space.block, space.sums)
        norms = [_affine_of_step(lif.norm, gain, offset, space, rows)]
        for step in range(1, timesteps):
            before, now = step - 1, step
            kernels.integrate(
                arriving[now], v[before], norms[before], neuron, spike, fired[before], v[now],
                space.block, space.sums,
            )  # fmt: skip
            norms.append(_affine_of_step(lif.norm, gain, offset, space, rows))
        kernels.fire(v[-1], norms[-1], neuron, spike, fired[-1], space.threads)
        ctx.save_for_backward(membranes, gain)  # also for normalized_membranes and pool_gradient
        ctx.norms, ctx.lif, ctx.precision = norms, lif, x.dtype
        return spikes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        membranes, gain = ctx.saved_tensors
        lif: LIFParameters = ctx.lif
        grad_x = torch.empty_like(membranes, dtype=ctx.precision)
        given, v, by_x = (
            _rows(each, lif.timesteps) for each in (in_layout_of(membranes, gradients[0]), membranes, grad_x)
        )
        kind, totals = _working_type(membranes), np.zeros((2, membranes.shape[1]))
        neuron, curve = _neuron(lif, kind), None
        if lif.surrogate is scaled_tanh:
            curve = tuple(kind(each) for each in load_kernels().TANH_CURVE)
        after = None
        for step in reversed(range(lif.timesteps)):
            _backward_step(
                given[step], v[step], after, by_x[step], totals, ctx.norms[step], neuron, curve,
                has_norm=lif.norm is not None,
                batch_statistics=lif.norm is not None and lif.norm.training,
            )  # fmt: skip
            after = by_x[step]
        if gain is None:
            return grad_x, None, None, None
        grad_offset, grad_gain = torch.from_numpy(totals).to(gain.dtype)
        return grad_x, grad_gain, grad_offset, None


def normalized_membranes(node: Any) -> Tensor:
    """Return the membranes of all time steps that a node of CompiledScan compared with the threshold."""
    membranes, _ = node.saved_tensors
    shape = membranes.shape[1], *[1] * (membranes.dim() - 2)
    normalized = []
    for step, norm in zip(steps_of(membranes, len(node.norms)), node.norms, strict=True):
        scale, shift = (torch.from_numpy(each[: shape[0]]).view(shape) for each in (norm.scale, norm.shift))
        normalized.append(step * scale + shift)
    return torch.cat(normalized)


# ---- pools --------------------------------------------------------------------------------------


def pool(spikes: Tensor) -> Tensor:
    """Return the largest spike of each window of 2 x 2 pixels."""
    samples, channels, height, width = spikes.shape
    size = samples, channels, height // 2, width // 2
    pooled = torch.empty(size, dtype=spikes.dtype, memory_format=torch.channels_last)
    load_kernels().pool(_pixels(spikes), _pixels(pooled), _threads())
    return pooled


def pool_gradient(gradient: Tensor, node: Any) -> Tensor:
    """Return the gradient by spikes of a node of CompiledScan from that by their pool of 2 x 2 pixels."""
    membranes, _ = node.saved_tensors
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    odd = any(size % 2 for size in membranes.shape[2:])
    by_spike = (torch.zeros_like if odd else torch.empty_like)(membranes, dtype=gradient.dtype)
    threads, timesteps = _threads(), len(node.norms)
    parts = (np.split(_pixels(each), timesteps) for each in (gradient, membranes, by_spike))
    for norm, given, v, result in zip(node.norms, *parts, strict=True):
        load_kernels().pool_gradient(given, v, norm, result, threads)
    return by_spike


# Memory layouts of activations, [timesteps * batch, ...].


def steps_of(values: Tensor, timesteps: int) -> Tensor:
    """Reshape [timesteps * batch, ...] to [timesteps, batch, ...]."""
    return values.view(timesteps, -1, *values.shape[1:])


def has_channels_last(x: Tensor) -> bool:
    """Return whether the channels of a pixel, or of a sample without pixels, are neighbors in memory."""
    if x.dim() == 4:
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.dim() == 2 and x.is_contiguous()


def dense(x: Tensor) -> Tensor:
    """Return x contiguous, in whichever of torch's two memory formats it has."""
    return x if has_channels_last(x) else x.contiguous()


def in_layout_of(model: Tensor, values: Tensor) -> Tensor:
    """Copy values to the memory layout of `model`; the next layer may return gradients in another."""
    if values.stride() == model.stride():
        return values
    return torch.empty_like(model, dtype=values.dtype).copy_(values)
