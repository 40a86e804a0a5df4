"""Convert torch's layers, and the neurons of this package: module -> operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..base import FrontendError
from ..ir import (
    AdaptivePool,
    AveragePool,
    BatchNorm,
    CountingSpike,
    Delay,
    Flatten,
    MaxPool,
    Operation,
    Spike,
)
from ..nn import (
    BNTT,
    LIF,
    PSPBN,
    TAB,
    TDBN,
    TEBN,
    RecurrentLIF,
    SpikeCount,
    SpikePool,
    StepDelay,
    TemporalNorm,
    XyloLIF,
)
from .synapses import array, bias, convolution, linear, pair

Converter = Callable[[Any], Operation | tuple[Operation, ...] | None]
Converters = Mapping[type[nn.Module], Converter]


def _batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, gain: Tensor | None = None) -> BatchNorm:
    if module.running_mean is None or module.running_var is None:
        raise FrontendError(
            "no running statistics, so it cannot be folded exactly; train with track_running_stats=True."
        )
    count = module.num_features
    gain = module.weight if gain is None else gain
    return BatchNorm(
        gain=np.ones(count) if gain is None else array(gain),
        offset=bias(module.bias, count),
        mean=array(module.running_mean),
        variance=array(module.running_var),
        epsilon=module.eps,
    )


def _temporal_norm(module: TemporalNorm) -> BatchNorm:
    numbers = module.numbers()
    per_step = numbers.gain.dim() > 1
    shape = numbers.gain.shape
    return BatchNorm(
        gain=array(numbers.gain),
        offset=array(numbers.offset),
        mean=array(numbers.mean.expand(shape)),
        variance=array(numbers.variance.expand(shape)),
        epsilon=numbers.epsilon,
        per_step=per_step,
    )


def _lif(module: LIF) -> Spike:
    norm = None if module.mpbn is None else _batch_norm(module.mpbn.bn, module.mpbn.gain)
    subtrahend = None if module.subtrahend is None else np.array([module.subtrahend])
    return Spike(
        leak=module.leak,
        threshold=module.threshold,
        norm=norm,
        subtrahend=subtrahend,
        current_leak=module.current_leak,
    )


def _recurrent_lif(module: RecurrentLIF) -> Spike:
    synapse = module.recurrent
    recurrent = linear(synapse) if isinstance(synapse, nn.Linear) else convolution(synapse)
    return replace(_lif(module), recurrent=recurrent)


def _xylo_lif(module: XyloLIF) -> CountingSpike:
    return CountingSpike(
        leak=module.leak,
        current_leak=module.current_leak,
        threshold=module.threshold,
        least_threshold=module.least_threshold,
        norm=None if module.mpbn is None else _batch_norm(module.mpbn.bn, module.mpbn.gain),
        bias=array(module.bias),
        max_spikes=module.max_spikes,
        recurrent=None if module.recurrent is None else linear(module.recurrent),
    )


def _flatten(module: nn.Flatten) -> Flatten:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise FrontendError(
            f"flattens dimensions {module.start_dim}..{module.end_dim}; only 1..-1 is supported."
        )
    return Flatten()


def _average_pool(module: nn.AvgPool2d) -> AveragePool:
    return AveragePool(
        kernel=pair(module.kernel_size),
        stride=pair(module.stride),
        padding=pair(module.padding),
        round_up=module.ceil_mode,
        count_padding=module.count_include_pad,
        divisor=module.divisor_override,
    )


def _adaptive_pool(module: nn.AdaptiveAvgPool2d) -> AdaptivePool:
    height, width = module.output_size if isinstance(module.output_size, tuple) else (module.output_size,) * 2
    return AdaptivePool(size=(height, width))


def _max_pool(module: nn.MaxPool2d) -> MaxPool:
    if module.return_indices:
        raise FrontendError("return_indices=True is not supported.")
    if module.ceil_mode:
        raise FrontendError("ceil_mode=True is not supported: its windows extend beyond the image.")
    return MaxPool(
        kernel=pair(module.kernel_size),
        stride=pair(module.stride),
        padding=pair(module.padding),
        dilation=pair(module.dilation),
    )


def _nothing(module: nn.Module) -> None:
    """Convert dropout and identity, which do nothing in evaluation mode."""


CONVERTERS: dict[type[nn.Module], Converter] = {
    nn.Linear: linear,
    nn.Conv2d: convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    **dict.fromkeys((BNTT, PSPBN, TAB, TDBN, TEBN), _temporal_norm),
    nn.Flatten: _flatten,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.MaxPool2d: _max_pool,
    SpikePool: _max_pool,
    nn.Identity: _nothing,
    nn.Dropout: _nothing,
    nn.Dropout2d: _nothing,
    LIF: _lif,
    RecurrentLIF: _recurrent_lif,
    XyloLIF: _xylo_lif,
    StepDelay: lambda module: Delay(),
    SpikeCount: _nothing,  # the folded network sums spikes where this one takes their mean
}
