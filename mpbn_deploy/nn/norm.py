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
from math import tanh
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from ..base import OptionError, record

# The base class of layers that separate the time steps in a batch, and what torch.compile leaves to them.


def run_eagerly(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Call a function that torch.compile must not trace; it compiles the layers before and after it.

    Neurons have a handwritten backward, and a SpikePool looks for its node in the autograd graph.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.disable(function)(*arguments)  # type: ignore[no-any-return, no-untyped-call]
    return function(*arguments)


class TimedLayer(nn.Module):
    """A layer that takes [timesteps * batch, ...], time first; SpikingNetwork sets `timesteps`."""

    timesteps: int = 0  # not set yet


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


# Surrogate gradients: backward replaces the derivative of a spike, which is zero almost everywhere.
#
# Each function takes the gradient with respect to the spikes and the normalized membranes, and returns the
# gradient with respect to these membranes.


Surrogate = Callable[[Tensor, Tensor], Tensor]

TEMPERATURE = 3.0  # of the tanh in the paper's code


def rectangle(gradient: Tensor, membrane: Tensor) -> Tensor:
    """gradient * (1 where 0 <= membrane <= 1, else 0): the surrogate of the paper (Eq. 12)"""
    limits = torch.finfo(membrane.dtype)
    # hardtanh's kernel needs one pass over memory but excludes 0 and 1, which the paper includes.
    below_zero, above_one = -limits.tiny * limits.eps, 1 + limits.eps
    inside: Tensor = torch.ops.aten.hardtanh_backward(gradient, membrane, below_zero, above_one)
    return inside


def wide_rectangle(gradient: Tensor, membrane: Tensor) -> Tensor:
    """gradient * (1 where -1/2 < membrane < 3/2, else 0)

    Of normalized membranes, 62% lie in that interval, and 34% in that of the paper: more neurons learn.
    """
    inside: Tensor = torch.ops.aten.hardtanh_backward(gradient, membrane, -0.5, 1.5)
    return inside


def scaled_tanh(gradient: Tensor, membrane: Tensor) -> Tensor:
    """gradient * (d/dm [tanh(k (m - 1/2)) / (2 tanh(k / 2))] where 0 <= m <= 1, else 0): the paper's code

    tanh(x) = 2 sigmoid(2 x) - 1, and torch computes a sigmoid six times as fast.
    """
    curve = (membrane - 0.5).mul_(2 * TEMPERATURE).sigmoid_()
    slope = torch.ops.aten.sigmoid_backward(gradient, curve).mul_(2 * TEMPERATURE / tanh(TEMPERATURE / 2))
    return rectangle(slope, membrane)


SURROGATES: dict[str, Surrogate] = {"rectangle": rectangle, "tanh": scaled_tanh, "wide": wide_rectangle}


# What crosses time steps in a recurrent layer, forward and backward.
#
#     current = current_leak * current + x + weight * (spike of the step before)
#
# `Feedback` is the synapse, a matrix or a convolution that keeps the shape; `Loop` follows the equation.


@record
class Feedback:
    """drive = weight * spikes of the step before; `padding` is that of a convolution, None for a matrix"""

    padding: tuple[int, int] | None
    groups: int = 1

    def drive(self, weight: Tensor, spikes: Tensor) -> Tensor:
        """Return what arrives one step after the spikes."""
        if self.padding is None:
            return functional.linear(spikes, weight)
        return functional.conv2d(spikes, weight, padding=self.padding, groups=self.groups)

    def by_spikes(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient by the spikes, given that by the drive."""
        if self.padding is None:
            return gradient @ weight
        return functional.conv_transpose2d(gradient, weight, padding=self.padding, groups=self.groups)

    def by_weight(self, weight: Tensor, gradient: Tensor, spikes: Tensor) -> Tensor:
        """Return the gradient by the weight, over all steps at once."""
        if self.padding is None:
            return gradient.T @ spikes
        found: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
            spikes, weight.shape, gradient, padding=self.padding, groups=self.groups
        )
        return found


class Loop:
    """The states of a recurrent layer that cross time steps; without feedback it changes nothing.

    `decay` replaces the multiplication by the leak, and may change its argument, a copy.
    """

    def __init__(
        self,
        weight: Tensor | None,
        feedback: Feedback | None,
        leak: float,
        decay: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.weight, self.feedback, self.leak, self.decay = weight, feedback, leak, decay
        self.spike: Tensor | None = None  # of the step before
        self.charge: Tensor | None = None  # the current of the step before
        self.later: Tensor | None = None  # the gradient by the current of the step after

    def current(self, arriving: Tensor) -> Tensor:
        """Return the current, and remember it if it outlasts the step."""
        if self.feedback is None or self.weight is None:
            return arriving
        if self.spike is not None:
            arriving = arriving + self.feedback.drive(self.weight, self.spike)
        if self.charge is not None:
            if self.decay is None:
                arriving = torch.add(arriving, self.charge, alpha=self.leak)
            else:
                arriving = arriving + self.decay(self.charge.clone())
        self.charge = arriving if self.leak else None
        return arriving

    def by_spike(self, gradient: Tensor) -> Tensor:
        """Return dL/dspike with what the spike causes in the step after."""
        if self.feedback is None or self.weight is None or self.later is None:
            return gradient
        return gradient + self.feedback.by_spikes(self.weight, self.later)

    def by_membrane(self, gradient: Tensor) -> Tensor:
        """Return the gradient by a membrane, after changing it in place to that by the current."""
        if self.feedback is None:
            return gradient
        kept = gradient
        if self.leak and self.later is not None:
            kept = gradient.clone()
            gradient.add_(self.later, alpha=self.leak)
        self.later = gradient
        return kept

    def by_weight(self, by_current: Tensor, spikes: Tensor) -> Tensor | None:
        """Return dL/dweight, from all steps [timesteps, batch, ...]."""
        if self.feedback is None or self.weight is None:
            return None
        if len(spikes) == 1:
            return torch.zeros_like(self.weight)
        later, sooner = by_current[1:].flatten(0, 1), spikes[:-1].flatten(0, 1)
        return self.feedback.by_weight(self.weight, later, sooner)


# What `scan` needs to know of neurons.


@record
class LIFParameters:
    """The constants of LIF neurons over all time steps."""

    timesteps: int
    leak: float
    current_leak: float
    threshold: float
    subtrahend: float | None  # of a soft reset
    reset_is_constant: bool  # in backward
    surrogate: Surrogate
    norm: Norm | None
    feedback: Feedback | None = None  # of a recurrent layer
