"""Batch norm in the two granularities of the paper, forward and backward, on one machine or several.

    mean, variance = over the batch (and the image, channel-wise)
    hat            = (x - mean) / sqrt(variance + eps)
    y              = gain * hat + offset

    dL/dgain   = sum(dL/dy * hat)           dL/doffset = sum(dL/dy)
    dL/dx      = gain / sqrt(variance + eps) * (dL/dy - average(dL/dy) - hat * average(dL/dy * hat))

torch's own kernels do the channel-wise norm on one machine. Element-wise, and where the batch is
shared out over processes, the equations above do it: torch's synchronized norm wants a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable

from ..base import OptionError, record


@record
class Norm:
    """A batch norm without its gain and offset. Element-wise, buffers have the shape of a sample."""

    running_mean: Tensor
    running_var: Tensor
    momentum: float
    epsilon: float
    training: bool
    per_element: bool
    synchronized: bool

    @property
    def by_torch(self) -> bool:
        """Whether torch's kernels can do it."""
        return not self.per_element and not (self.synchronized and self.training)


@record
class Moments:
    """With what a batch was normalized; shaped to be broadcast over it, unless torch's kernels did it."""

    mean: Tensor
    inverse_deviation: Tensor


def normalize(x: Tensor, gain: Tensor, offset: Tensor, norm: Norm) -> tuple[Tensor, Moments]:
    """y, and the moments that backward needs; in training the running statistics move."""
    if norm.training and x.numel() // norm.running_mean.numel() < 2 and not norm.synchronized:
        raise OptionError("a batch norm cannot train on a single value; give it more samples at once.")
    if norm.by_torch:
        y, mean, inverse = torch.native_batch_norm(
            x, gain, offset, norm.running_mean, norm.running_var, norm.training, norm.momentum, norm.epsilon
        )
        if not norm.training:  # torch returns none then
            return y, _remembered(norm)
        return y, Moments(mean=mean, inverse_deviation=inverse)
    moments = _moments(x, norm)
    return normalize_again(x, gain, offset, moments, norm), moments


def normalize_again(x: Tensor, gain: Tensor, offset: Tensor, moments: Moments, norm: Norm) -> Tensor:
    """gain * hat + offset, as one multiplication and one addition"""
    like = _like(x, norm)
    inverse, mean = like(moments.inverse_deviation), like(moments.mean)
    scale = like(gain) * inverse
    return torch.addcmul(like(offset) - mean * scale, x, scale)


def normalize_backward(
    gradient: Tensor, x: Tensor, gain: Tensor, moments: Moments, norm: Norm
) -> tuple[Tensor, Tensor, Tensor]:
    """dL/dx, dL/dgain and dL/doffset."""
    if norm.by_torch and norm.training:  # out of training, torch would take statistics that have moved since
        by_x, by_gain, by_offset = torch.ops.aten.native_batch_norm_backward(
            gradient,
            x,
            gain,
            norm.running_mean,
            norm.running_var,
            moments.mean,
            moments.inverse_deviation,
            norm.training,
            norm.epsilon,
            [True, True, True],
        )
        return by_x, by_gain, by_offset
    like = _like(x, norm)
    inverse = like(moments.inverse_deviation)
    hat = (x - like(moments.mean)).mul_(inverse)
    average_gradient, average_product = _average(gradient, norm), _average(gradient * hat, norm)
    count = x.numel() // average_gradient.numel()
    by_offset, by_gain = average_gradient * count, average_product * count
    by_x = gradient
    if norm.training:
        everywhere = _over_processes(torch.stack([average_gradient, average_product]), norm)
        by_x = (gradient - like(everywhere[0])).addcmul_(hat, like(everywhere[1]), value=-1)
    return by_x * (like(gain) * inverse), by_gain.reshape(gain.shape), by_offset.reshape(gain.shape)


def _remembered(norm: Norm) -> Moments:
    """The running statistics; a copy of the mean, because training may move it before backward."""
    inverse = torch.rsqrt(norm.running_var + norm.epsilon)
    return Moments(mean=norm.running_mean.clone(), inverse_deviation=inverse)


def _moments(x: Tensor, norm: Norm) -> Moments:
    if not norm.training:
        return _remembered(norm)
    mean = _over_processes(_average(x, norm), norm)
    variance = _over_processes(_average((x - _like(x, norm)(mean)).square_(), norm), norm)
    count = x.numel() // mean.numel() * (distributed.get_world_size() if norm.synchronized else 1)
    norm.running_mean.lerp_(mean.view_as(norm.running_mean), norm.momentum)
    # As torch does: normalize with the variance of the batch, remember the unbiased one.
    unbiased = variance.view_as(norm.running_var) * (count / max(count - 1, 1))
    norm.running_var.lerp_(unbiased, norm.momentum)
    return Moments(mean=mean, inverse_deviation=torch.rsqrt(variance + norm.epsilon))


def _average(x: Tensor, norm: Norm) -> Tensor:
    """Over the batch, [*shape] in the layout of x; or over batch and image, [channels]."""
    last = x.movedim(1, -1)  # the order in memory of channels_last images, where sums are quick
    if norm.per_element:
        return last.flatten(1).mean(0).view(last.shape[1:]).movedim(-1, 0)
    return last.flatten(0, -2).mean(0)


def _like(x: Tensor, norm: Norm) -> Any:
    """A function that lays out one number per channel, or per element, to be broadcast over x."""
    sample = tuple(x.shape[1:])
    shape = sample if norm.per_element else (sample[0], *(1 for _ in sample[1:]))
    image = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)

    def lay_out(values: Tensor) -> Tensor:
        wide = values.view(1, *shape) if values.is_contiguous() else values.unsqueeze(0)
        return wide.contiguous(memory_format=torch.channels_last) if image else wide

    return lay_out


def _over_processes(values: Tensor, norm: Norm) -> Tensor:
    """The average over processes, each of which holds an equal share of the batch."""
    if norm.synchronized:
        distributed.all_reduce(values)
        values /= distributed.get_world_size()
    return values


class _BatchNorm(torch.autograd.Function):
    """The equations of this file, for layers outside of neurons."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, offset: Tensor, norm: Norm) -> Tensor:
        y, moments = normalize(x, gain, offset, norm)
        ctx.save_for_backward(x, gain)
        ctx.moments, ctx.norm = moments, norm
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, gain = ctx.saved_tensors
        return *normalize_backward(gradients[0], x, gain, ctx.moments, ctx.norm), None


def synchronized_batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """What the module computes, with the statistics of the batches of all processes together."""
    if module.training and module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
    norm = norm_of(module, training=module.training, synchronized=True)
    y: Tensor = _BatchNorm.apply(x, module.weight, module.bias, norm)  # type: ignore[no-untyped-call]
    return y


def norm_of(
    module: nn.BatchNorm1d | nn.BatchNorm2d,
    *,
    training: bool,
    synchronized: bool = False,
    element_shape: tuple[int, ...] | None = None,
) -> Norm:
    """The norm that a module of torch stands for; its buffers are shared."""
    if module.running_mean is None or module.running_var is None or module.momentum is None:
        raise OptionError("a batch norm of membranes needs running statistics and a momentum.")
    mean, variance = module.running_mean, module.running_var
    return Norm(
        running_mean=mean if element_shape is None else mean.view(element_shape),
        running_var=variance if element_shape is None else variance.view(element_shape),
        momentum=module.momentum,
        epsilon=module.eps,
        training=training,
        per_element=element_shape is not None,
        synchronized=synchronized,
    )
