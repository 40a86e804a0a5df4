"""Modules that are read as a whole: the neurons of this package, and those with a converter of the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..base import Array, FrontendError, layer_name
from ..ir import (
    BatchNorm,
    Conv2d,
    Convolution,
    CountingSpike,
    Delay,
    Linear,
    Operation,
    Spike,
    channel_map,
    stacked,
)
from ..nn import (
    BNTT,
    LIF,
    PSPBN,
    TAB,
    TDBN,
    TEBN,
    Levels,
    RecurrentLIF,
    RepeatChannels,
    StepDelay,
    SumChannels,
    TemporalNorm,
    XyloLIF,
)

Converter = Callable[[Any], Operation | tuple[Operation, ...] | None]
Converters = Mapping[type[nn.Module], Converter]


def _lif(module: LIF) -> Spike:
    subtrahend = None if module.subtrahend is None else np.array([module.subtrahend])
    return Spike(
        leak=module.leak,
        threshold=module.threshold,
        norm=None if module.mpbn is None else _norm(module.mpbn.bn, module.mpbn.gain),
        subtrahend=subtrahend,
        current_leak=module.current_leak,
    )


def _norm(module: nn.BatchNorm1d | nn.BatchNorm2d, gain: Tensor) -> BatchNorm:
    offset, mean, variance = (_array(each) for each in (module.bias, module.running_mean, module.running_var))
    return BatchNorm(gain=_array(gain), offset=offset, mean=mean, variance=variance, epsilon=module.eps)


def _recurrent_lif(module: RecurrentLIF) -> Spike:
    synapse, weight = module.recurrent, _array(module.recurrent.weight)
    bias = np.zeros(len(weight))
    if isinstance(synapse, nn.Linear):
        return replace(_lif(module), recurrent=Linear(weight=weight, bias=bias))
    padding = synapse.padding
    assert isinstance(padding, tuple), "made so by RecurrentLIF"
    kernel = Conv2d(weight=weight, padding=(padding[0], padding[1]))
    return replace(_lif(module), recurrent=Convolution(synapse=kernel, bias=bias))


def _temporal_norm(module: TemporalNorm) -> BatchNorm:
    numbers = module.numbers()
    fields = {"gain": numbers.gain, "offset": numbers.offset, "mean": numbers.mean}
    arrays = {name: _array(each.expand(numbers.gain.shape)) for name, each in fields.items()}
    variance, per_step = _array(numbers.variance.expand(numbers.gain.shape)), numbers.gain.dim() > 1
    return BatchNorm(**arrays, variance=variance, epsilon=numbers.epsilon, per_step=per_step)


def _xylo_lif(module: XyloLIF) -> CountingSpike:
    looped = None if module.recurrent is None else _array(module.recurrent.weight)
    return CountingSpike(
        leak=module.leak,
        current_leak=module.current_leak,
        threshold=module.threshold,
        least_threshold=module.least_threshold,
        norm=None if module.mpbn is None else _norm(module.mpbn.bn, module.mpbn.gain),
        bias=_array(module.bias),
        max_spikes=module.max_spikes,
        recurrent=None if looped is None else Linear(weight=looped, bias=np.zeros(len(looped))),
    )


def _array(tensor: Tensor | None) -> Array:
    assert tensor is not None, "MPBN has running statistics"
    values: Array = tensor.detach().cpu().numpy().astype(np.float64)
    return values


def _levels(module: Levels) -> Spike:
    return stacked(_lif(module), module.edges, module.signs, module.shape)


def _repeat(module: RepeatChannels) -> Linear | Convolution:
    channels = module.shape[0]
    return channel_map(module.shape, np.ones((channels * module.count, 1)), channels)


def _sum(module: SumChannels) -> Linear | Convolution:
    return channel_map(module.shape, np.tile(module.signs, (module.shape[0], 1)), module.shape[0])


OWN: dict[type[nn.Module], Converter] = {
    LIF: _lif,
    RecurrentLIF: _recurrent_lif,
    XyloLIF: _xylo_lif,
    Levels: _levels,
    RepeatChannels: _repeat,
    SumChannels: _sum,
    StepDelay: lambda module: Delay(),
    **dict.fromkeys((BNTT, PSPBN, TAB, TDBN, TEBN), _temporal_norm),
}


def converter_of(module: nn.Module, known: Converters) -> Converter | None:
    """Return the converter of the module's class, or of the class whose `forward` it inherits.

    A subclass with its own `forward` may compute something else and needs its own converter.
    """
    for kind in type(module).__mro__:
        if kind in known:
            return known[kind]
        if "forward" in vars(kind):
            return None
    return None


def convert(path: str, module: nn.Module, known: Converters) -> tuple[Operation, ...]:
    """Return the operations of a module with a converter; errors get its name."""
    converter = converter_of(module, known)
    assert converter is not None, "modules without one are not converted"
    try:
        found = converter(module)
    except FrontendError as error:
        raise FrontendError(f"{layer_name(path, type(module).__name__)}: {error}") from error
    return () if found is None else found if isinstance(found, tuple) else (found,)


def foreign_neurons(module: nn.Module) -> list[str]:
    """Return the paths of the neurons of other libraries in a module."""
    return [path for path, part in module.named_modules() if type(part).__module__.startswith(LIBRARIES)]


LIBRARIES = ("snntorch._neurons", "spikingjelly.activation_based.neuron", "norse.torch.module")


# What to do about layers and operations that no spiking chip computes, by their names in torch.


SOFTMAXES = frozenset({"softmax", "softmin", "logsoftmax", "softmax2d"})
ACTIVATIONS = frozenset(
    {"relu", "relu6", "leakyrelu", "prelu", "rrelu", "elu", "celu", "selu", "gelu", "silu", "mish", "sigmoid"}
    | {"logsigmoid", "tanh", "softplus", "softsign", "hardswish", "hardsigmoid", "hardtanh"}
)
SOFTMAX = (
    "Softmax divides by a sum over all outputs, which no neuron of a chip computes. After the readout, it "
    "does not change which output is the largest: take it out of forward, and apply it to the outputs on "
    "the host."
)
ACTIVATION = (
    "Layers of a spiking network send spikes, and no graded activations: take it out where a neuron follows, "
    "put a neuron such as mpbn_deploy.nn.LIF in its place where none does, and train again."
)
ADAPTIVE_THRESHOLD = (
    "Adaptive thresholds, and other states that change with spikes, are not supported: a neuron has one "
    "membrane and, at most, one synaptic current. Train with a constant threshold, which may be learned."
)


def hint_for(name: str) -> str:
    """Return what to do about a function of torch, or a class of its layers; nothing if it has no hint."""
    plain = name.strip("'_").lower().replace("_", "")
    if plain in SOFTMAXES:
        return SOFTMAX
    return ACTIVATION if plain in ACTIVATIONS else ""
