"""Batch norm per channel or per element, forward and backward, in one process or several.

    mean, variance = over the batch (channel-wise: and over the image)
    hat            = (x - mean) / sqrt(variance + eps)
    y              = gain * hat + offset

    dL/dgain   = sum(dL/dy * hat)           dL/doffset = sum(dL/dy)
    dL/dx      = gain / sqrt(variance + eps) * (dL/dy - average(dL/dy) - hat * average(dL/dy * hat))

torch's kernels compute the channel-wise norm in one process. The equations above compute the element-wise
norm and the norm of a batch that is split over processes, for which torch's own needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable

from ..base import OptionError, record

Observer = Callable[[Tensor], None]


@record
class Norm:
    """A batch norm without its gain and offset; element-wise, buffers have the shape of a sample.

    `observe` is called with what is normalized, of every time step.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float
    epsilon: float
    training: bool
    per_element: bool
    synchronized: bool
    observe: Observer | None = None

    @property
    def uses_torch_kernel(self) -> bool:
        """Whether torch's kernels can compute this norm."""
        return not self.per_element and not (self.synchronized and self.training)


@record
class Moments:
    """The statistics that normalized a batch; broadcastable over it unless torch's kernels computed them."""

    mean: Tensor
    inverse_deviation: Tensor


def check_batch(x: Tensor, norm: Norm) -> None:
    """Reject a batch that has no variance."""
    if norm.training and x.numel() // norm.running_mean.numel() < 2 and not norm.synchronized:
        raise OptionError("batch norm cannot train on a single value per channel; use a larger batch.")


def normalize(x: Tensor, gain: Tensor, offset: Tensor, norm: Norm) -> tuple[Tensor, Moments]:
    """Return y and the moments that backward needs; in training mode, update the running statistics."""
    check_batch(x, norm)
    if norm.observe is not None:
        norm.observe(x)
    if norm.uses_torch_kernel:
        y, mean, inverse = torch.native_batch_norm(
            x, gain, offset, norm.running_mean, norm.running_var, norm.training, norm.momentum, norm.epsilon
        )
        if not norm.training:  # torch returns no moments in evaluation mode
            return y, _running_moments(norm)
        return y, Moments(mean=mean, inverse_deviation=inverse)
    moments = _moments(x, norm)
    return normalize_with(x, gain, offset, moments, norm), moments


def normalize_with(x: Tensor, gain: Tensor, offset: Tensor, moments: Moments, norm: Norm) -> Tensor:
    """Return gain * hat + offset for known moments, as one multiplication and one addition."""
    like = _broadcaster(x, norm)
    inverse, mean = like(moments.inverse_deviation), like(moments.mean)
    scale = like(gain) * inverse
    return torch.addcmul(like(offset) - mean * scale, x, scale)


def normalize_backward(
    gradient: Tensor, x: Tensor, gain: Tensor, moments: Moments, norm: Norm
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dL/dx, dL/dgain and dL/doffset."""
    # In evaluation mode torch would use the running statistics, which may have changed since forward.
    if norm.uses_torch_kernel and norm.training:
        grad_x, grad_gain, grad_offset = torch.ops.aten.native_batch_norm_backward(
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
        return grad_x, grad_gain, grad_offset
    like = _broadcaster(x, norm)
    inverse = like(moments.inverse_deviation)
    hat = (x - like(moments.mean)).mul_(inverse)
    average_gradient, average_product = _average(gradient, norm), _average(gradient * hat, norm)
    count = x.numel() // average_gradient.numel()
    grad_offset, grad_gain = average_gradient * count, average_product * count
    grad_x = gradient
    if norm.training:
        everywhere = _mean_over_processes(torch.stack([average_gradient, average_product]), norm)
        grad_x = (gradient - like(everywhere[0])).addcmul_(hat, like(everywhere[1]), value=-1)
    return grad_x * (like(gain) * inverse), grad_gain.reshape(gain.shape), grad_offset.reshape(gain.shape)


def _running_moments(norm: Norm) -> Moments:
    """Return the running statistics; the mean is copied, because training may update it before backward."""
    inverse = torch.rsqrt(norm.running_var + norm.epsilon)
    return Moments(mean=norm.running_mean.clone(), inverse_deviation=inverse)


def _moments(x: Tensor, norm: Norm) -> Moments:
    if not norm.training:
        return _running_moments(norm)
    mean = _mean_over_processes(_average(x, norm), norm)
    variance = _mean_over_processes(_average((x - _broadcaster(x, norm)(mean)).square_(), norm), norm)
    count = x.numel() // mean.numel() * (distributed.get_world_size() if norm.synchronized else 1)
    norm.running_mean.lerp_(mean.view_as(norm.running_mean), norm.momentum)
    # As in torch: normalize with the biased variance, accumulate the unbiased one.
    unbiased = variance.view_as(norm.running_var) * (count / max(count - 1, 1))
    norm.running_var.lerp_(unbiased, norm.momentum)
    return Moments(mean=mean, inverse_deviation=torch.rsqrt(variance + norm.epsilon))


def _average(x: Tensor, norm: Norm) -> Tensor:
    """Return the mean over the batch, [*shape] in the layout of x, or over batch and image, [channels]."""
    last = x.movedim(1, -1)  # the memory order of channels_last images, in which sums are fast
    if norm.per_element:
        return last.flatten(1).mean(0).view(last.shape[1:]).movedim(-1, 0)
    return last.flatten(0, -2).mean(0)


def _broadcaster(x: Tensor, norm: Norm) -> Any:
    """Return a function that reshapes one number per channel, or per element, to broadcast over x."""
    sample = tuple(x.shape[1:])
    shape = sample if norm.per_element else (sample[0], *(1 for _ in sample[1:]))
    image = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)

    def lay_out(values: Tensor) -> Tensor:
        wide = values.view(1, *shape) if values.is_contiguous() else values.unsqueeze(0)
        return wide.contiguous(memory_format=torch.channels_last) if image else wide

    return lay_out


def _mean_over_processes(values: Tensor, norm: Norm) -> Tensor:
    """Return the mean over processes, each of which holds an equal share of the batch."""
    if norm.synchronized:
        distributed.all_reduce(values)
        values /= distributed.get_world_size()
    return values


class _BatchNorm(torch.autograd.Function):
    """The equations of this file, for autograd."""

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
    """Apply a batch norm module with statistics over the batches of all processes."""
    if module.training and module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
    norm = norm_of(module, training=module.training, synchronized=True)
    return batch_norm(x, module.weight, module.bias, norm)


def batch_norm(x: Tensor, gain: Tensor, offset: Tensor, norm: Norm) -> Tensor:
    """Return y of the equations of this file, for autograd."""
    y: Tensor = _BatchNorm.apply(x, gain, offset, norm)  # type: ignore[no-untyped-call]
    return y


def norm_of(
    module: nn.BatchNorm1d | nn.BatchNorm2d,
    *,
    training: bool,
    synchronized: bool = False,
    element_shape: tuple[int, ...] | None = None,
    observe: Observer | None = None,
) -> Norm:
    """Return a torch module's norm; it shares the module's buffers."""
    if module.running_mean is None or module.running_var is None or module.momentum is None:
        raise OptionError("membrane-potential batch norm needs running statistics and a momentum.")
    mean, variance = module.running_mean, module.running_var
    return Norm(
        running_mean=mean if element_shape is None else mean.view(element_shape),
        running_var=variance if element_shape is None else variance.view(element_shape),
        momentum=module.momentum,
        epsilon=module.eps,
        training=training,
        per_element=element_shape is not None,
        synchronized=synchronized,
        observe=observe,
    )
