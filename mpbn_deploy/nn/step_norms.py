"""Norms of currents that know the time step, to train with in place of batch norm, alone or before MPBN.

In each, x is [timesteps * batch, ...], time first, and hat is x less its mean, divided by its deviation. In
evaluation all of them are gain_t * x + offset_t per channel, which folds into neurons whose numbers depend on
the time step, or, where nothing depends on it, into the weights. `numbers` says which.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..base import OptionError, record
from .neuron import SpikingNetwork
from .norm import TimedLayer

BNTT_EPSILON = 1e-4  # as in the official code; the others have torch's
BatchNormLayer = nn.BatchNorm1d | nn.BatchNorm2d


@record
class NormNumbers:
    """y = gain * (x - mean) / sqrt(variance + epsilon) + offset, [channels] or [timesteps, channels] each."""

    gain: Tensor
    offset: Tensor
    mean: Tensor
    variance: Tensor
    epsilon: float


class TemporalNorm(TimedLayer):
    """Base class: `shape` is the number of features, or (channels, height, width) of a sample."""

    def __init__(self, shape: int | tuple[int, ...], timesteps: int) -> None:
        super().__init__()
        sizes = (shape,) if isinstance(shape, int) else shape
        self.channels, self.images = sizes[0], len(sizes) > 1
        self.timesteps = self.steps = timesteps

    def batch_norm(self, epsilon: float = 1e-5) -> BatchNormLayer:
        """Return an ordinary batch norm for this shape."""
        kind: type[BatchNormLayer] = nn.BatchNorm2d if self.images else nn.BatchNorm1d
        return kind(self.channels, eps=epsilon)

    def check_steps(self) -> None:
        """Reject more time steps than there are numbers for."""
        if self.timesteps > self.steps:
            raise OptionError(
                f"{type(self).__name__}: {self.timesteps} time steps; it was built, and has numbers, for "
                f"{self.steps}. Run the network for at most {self.steps} steps, or train it for more."
            )

    def numbers(self) -> NormNumbers:
        """Return what it computes in evaluation, in double precision."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.channels}, timesteps={self.steps}"


class TDBN(TemporalNorm):
    """Threshold-dependent batch norm (Zheng et al., AAAI 2021), over batch and time:

    y = gain * (alpha * threshold * hat) + offset
    """

    def __init__(
        self, shape: int | tuple[int, ...], timesteps: int, threshold: float = 0.5, alpha: float = 1.0
    ) -> None:
        super().__init__(shape, timesteps)
        self.scale = alpha * threshold
        self.bn = self.batch_norm()

    def forward(self, x: Tensor) -> Tensor:
        """Return normalized currents."""
        return torch.lerp(_wide(self.bn.bias, x), self.bn(x), self.scale)  # offset + scale * (gain * hat)

    def numbers(self) -> NormNumbers:
        """Return what it computes in evaluation; nothing depends on the time step."""
        return _numbers(self.bn, self.bn.weight.double() * self.scale, self.bn.bias.double())


class TEBN(TemporalNorm):
    """Temporal effective batch norm (Duan et al., NeurIPS 2022), over batch and time, p_t per time step:

    y_t = p_t * (gain * hat_t + offset)
    """

    def __init__(self, shape: int | tuple[int, ...], timesteps: int) -> None:
        super().__init__(shape, timesteps)
        self.bn = self.batch_norm()
        self.p = nn.Parameter(torch.ones(timesteps))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalized currents."""
        self.check_steps()
        y: Tensor = self.bn(x) * _of_samples(self.p[: self.timesteps], x)
        return y

    def numbers(self) -> NormNumbers:
        """Return what it computes in evaluation."""
        self.check_steps()
        weights = self.p[: self.timesteps, None].double()
        return _numbers(self.bn, weights * self.bn.weight, weights * self.bn.bias)


class BNTT(TemporalNorm):
    """Batch norm through time (Kim and Panda, 2021): statistics and gain of each time step, no offset:

    y_t = gain_t * hat_t
    """

    def __init__(self, shape: int | tuple[int, ...], timesteps: int) -> None:
        super().__init__(shape, timesteps)
        self.norms = nn.ModuleList(self.batch_norm(BNTT_EPSILON) for _ in range(timesteps))
        for norm in self.norms:
            norm.bias.requires_grad_(False)  # zero

    def forward(self, x: Tensor) -> Tensor:
        """Return normalized currents."""
        self.check_steps()
        steps = x.chunk(self.timesteps)
        return torch.cat([norm(step) for norm, step in zip(self.norms, steps, strict=False)])

    def numbers(self) -> NormNumbers:
        """Return what it computes in evaluation."""
        self.check_steps()
        return _of_steps([_numbers(norm) for norm in self.norms[: self.timesteps]])


class TAB(TemporalNorm):
    """Temporal accumulated batch norm (Jiang et al., ICLR 2024): statistics over the steps up to t:

    y_t = p_t^2 * (gain_t * hat_t + offset_t),   mean_t, variance_t over x_1 .. x_t
    """

    def __init__(self, shape: int | tuple[int, ...], timesteps: int) -> None:
        super().__init__(shape, timesteps)
        self.norms = nn.ModuleList(self.batch_norm() for _ in range(timesteps))
        self.p = nn.Parameter(torch.ones(timesteps))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalized currents."""
        self.check_steps()
        batch, weights = len(x) // self.timesteps, self.p**2
        parts = []
        for step, norm in enumerate(self.norms[: self.timesteps]):
            start = 0 if self.training else step * batch  # statistics are not computed in evaluation
            parts.append(norm(x[start : (step + 1) * batch])[-batch:] * weights[step])
        return torch.cat(parts)

    def numbers(self) -> NormNumbers:
        """Return what it computes in evaluation."""
        self.check_steps()
        weights = self.p.double() ** 2
        return _of_steps(
            [
                _numbers(norm, weight * norm.weight, weight * norm.bias)
                for norm, weight in zip(self.norms[: self.timesteps], weights, strict=False)
            ]
        )


class PSPBN(TemporalNorm):
    """Postsynaptic potential norm (Ikegawa et al., 2022): the second moment, and nothing is subtracted:

    y = gain * x / sqrt(average of x^2 over batch and time + epsilon)
    """

    moment: Tensor

    def __init__(
        self, shape: int | tuple[int, ...], timesteps: int, epsilon: float = 1e-5, momentum: float = 0.1
    ) -> None:
        super().__init__(shape, timesteps)
        self.epsilon, self.momentum = epsilon, momentum
        self.weight = nn.Parameter(torch.ones(self.channels))
        self.register_buffer("moment", torch.ones(self.channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalized currents."""
        moment = self.moment
        if self.training:
            moment = x.square().transpose(0, 1).flatten(1).mean(1)
            self.moment.lerp_(moment.detach(), self.momentum)
        return x * _wide(self.weight * torch.rsqrt(moment + self.epsilon), x)

    def numbers(self) -> NormNumbers:
        """Return what it computes in evaluation; nothing depends on the time step."""
        zero = torch.zeros_like(self.moment).double()
        gain, variance = self.weight.double(), self.moment.double()
        return NormNumbers(gain=gain, offset=zero, mean=zero, variance=variance, epsilon=self.epsilon)


TEMPORAL_NORMS: dict[str, type[TemporalNorm]] = {
    "tdbn": TDBN,
    "tebn": TEBN,
    "bntt": BNTT,
    "tab": TAB,
    "psp": PSPBN,
}


def norm_layer(shape: int | tuple[int, ...], neuron: dict[str, Any]) -> nn.Module:
    """Return the norm of currents that the arguments of neurons name: `norm`, for `norm_steps` time steps."""
    sizes = (shape,) if isinstance(shape, int) else shape
    kind = neuron.get("norm", "batch")
    if kind == "batch":
        return nn.BatchNorm2d(sizes[0]) if len(sizes) > 1 else nn.BatchNorm1d(sizes[0])
    if kind not in TEMPORAL_NORMS or not isinstance(neuron.get("norm_steps"), int):
        raise OptionError(
            f"norm {kind!r} for {neuron.get('norm_steps')} time steps; allowed are batch, and "
            f"{', '.join(TEMPORAL_NORMS)} with a number of steps in norm_steps."
        )
    threshold = {"threshold": neuron["threshold"]} if kind == "tdbn" and "threshold" in neuron else {}
    return TEMPORAL_NORMS[kind](shape, neuron["norm_steps"], **threshold)


def static_steps(network: SpikingNetwork) -> SpikingNetwork:
    """Return a copy whose norms have one gain and offset for all time steps: the mean of those of each step.

    They are batch norms then, which can be trained further.
    """
    found = copy.deepcopy(network)
    norms = {path: module for path, module in found.body.named_modules() if isinstance(module, TemporalNorm)}
    if not any(norm.numbers().gain.dim() > 1 for norm in norms.values()):
        raise OptionError("--static-steps: the network has no norms per time step; drop it.")
    for path, norm in norms.items():
        parent, _, name = path.rpartition(".")
        setattr(found.body.get_submodule(parent), name, _static_norm(norm))
    if found.card is not None:
        found.card = replace(found.card, arguments=without_norm(found.card.arguments))
    return found


def _static_norm(norm: TemporalNorm) -> BatchNormLayer:
    """Return the batch norm with the mean gain and offset: gain_t * (x - mean_t) / deviation_t + offset_t"""
    numbers, bn = norm.numbers(), norm.batch_norm()

    def over_steps(values: Tensor) -> Tensor:
        return values.mean(0) if values.dim() > 1 else values

    gain = numbers.gain / (numbers.variance + numbers.epsilon).sqrt()
    factor, shift = over_steps(gain), over_steps(numbers.offset - numbers.mean * gain)
    mean, variance = over_steps(numbers.mean), over_steps(numbers.variance)
    like = next(norm.parameters())
    bn.to(device=like.device, dtype=like.dtype)
    assert bn.running_mean is not None and bn.running_var is not None
    with torch.no_grad():
        bn.weight.copy_(factor * (variance + bn.eps).sqrt())
        bn.bias.copy_(shift + mean * factor)
        bn.running_mean.copy_(mean)
        bn.running_var.copy_(variance)
    return bn.train(norm.training)


def without_norm(neuron: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of neurons that LIF takes."""
    return {name: value for name, value in neuron.items() if name not in ("norm", "norm_steps")}


def _numbers(bn: Any, gain: Tensor | None = None, offset: Tensor | None = None) -> NormNumbers:
    """Return the running statistics of a batch norm, with its own or another gain and offset."""
    return NormNumbers(
        gain=bn.weight.double() if gain is None else gain,
        offset=bn.bias.double() if offset is None else offset,
        mean=bn.running_mean.double(),
        variance=bn.running_var.double(),
        epsilon=bn.eps,
    )


def _of_steps(steps: list[NormNumbers]) -> NormNumbers:
    def stacked(name: str) -> Tensor:
        return torch.stack([getattr(each, name) for each in steps])

    return NormNumbers(
        gain=stacked("gain"),
        offset=stacked("offset"),
        mean=stacked("mean"),
        variance=stacked("variance"),
        epsilon=steps[0].epsilon,
    )


def _wide(values: Tensor, x: Tensor) -> Tensor:
    """Reshape one number per channel to broadcast over x."""
    return values.view(-1, *[1] * (x.dim() - 2))


def _of_samples(values: Tensor, x: Tensor) -> Tensor:
    """Repeat one number per time step for its samples, to broadcast over x."""
    return values.repeat_interleave(len(x) // len(values)).view(-1, *[1] * (x.dim() - 1))
