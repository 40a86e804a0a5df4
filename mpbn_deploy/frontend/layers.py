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
    Convolution,
    CountingSpike,
    Delay,
    Flatten,
    Linear,
    MaxPool,
    Operation,
    Spike,
    channel_map,
    stacked,
)
from ..nn import (
    LIF,
    Levels,
    RecurrentLIF,
    RepeatChannels,
    SpikeCount,
    SpikePool,
    StepDelay,
    SumChannels,
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


def _levels(module: Levels) -> Spike:
    return stacked(_lif(module), module.edges, module.signs, module.shape)


def _repeat(module: RepeatChannels) -> Linear | Convolution:
    channels = module.shape[0]
    return channel_map(module.shape, np.ones((channels * module.count, 1)), channels)


def _sum(module: SumChannels) -> Linear | Convolution:
    return channel_map(module.shape, np.tile(module.signs, (module.shape[0], 1)), module.shape[0])


def _flatten(module: nn.Flatten) -> Flatten:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise FrontendError(
            f"flattens dimensions {module.start_dim}..{module.end_dim}; only 1..-1 is supported."
        )
    return Flatten()


def _average_pool(module: nn.AvgPool1d | nn.AvgPool2d) -> AveragePool:
    return AveragePool(
        kernel=pair(module.kernel_size),
        stride=pair(module.stride),
        padding=pair(module.padding, 0),
        round_up=module.ceil_mode,
        count_padding=module.count_include_pad,
        divisor=getattr(module, "divisor_override", None),
    )


def _adaptive_pool(module: nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d) -> AdaptivePool:
    size = module.output_size if isinstance(module.output_size, tuple) else (module.output_size,)
    return AdaptivePool(size=(size[0] if isinstance(module, nn.AdaptiveAvgPool2d) else 1, size[-1]))


def _max_pool(module: nn.MaxPool1d | nn.MaxPool2d) -> MaxPool:
    if module.return_indices:
        raise FrontendError("return_indices=True is not supported.")
    if module.ceil_mode:
        raise FrontendError("ceil_mode=True is not supported: its windows extend beyond the image.")
    sizes = [module.kernel_size, module.stride, module.dilation, module.padding]
    if isinstance(module, nn.MaxPool1d):
        sizes = [(size,) if isinstance(size, int) else size for size in sizes]
    kernel, stride, dilation = map(pair, sizes[:3])
    return MaxPool(kernel=kernel, stride=stride, dilation=dilation, padding=pair(sizes[3], 0))


def _nothing(module: nn.Module) -> None:
    """Convert dropout and identity, which do nothing in evaluation mode."""


CONVERTERS: dict[type[nn.Module], Converter] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.Flatten: _flatten,
    nn.AvgPool1d: _average_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool1d: _adaptive_pool,
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.MaxPool1d: _max_pool,
    nn.MaxPool2d: _max_pool,
    SpikePool: _max_pool,
    nn.Identity: _nothing,
    nn.Dropout: _nothing,
    nn.Dropout2d: _nothing,
    LIF: _lif,
    RecurrentLIF: _recurrent_lif,
    XyloLIF: _xylo_lif,
    Levels: _levels,
    RepeatChannels: _repeat,
    SumChannels: _sum,
    StepDelay: lambda module: Delay(),
    SpikeCount: _nothing,  # the folded network sums spikes where this one takes their mean
}
