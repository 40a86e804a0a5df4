"""torch module -> TrainedNetwork

A module is traced with torch.fx; what a leaf module means is looked up in a dictionary from
module class to converter. Your own entries win over ours:

    trace(network, converters={MyNeuron: lambda module: Spike(leak=0.5, threshold=1.0, norm=None)})

A converter may return None: the module passes its input on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from typing_extensions import assert_never

from .errors import FrontendError
from .float_ir import (
    INPUT_NAME,
    BatchNorm,
    Convolution,
    Flatten,
    InputFormat,
    Linear,
    Operation,
    Spike,
    Step,
    TrainedNetwork,
)
from .graph import Conv2d, Pair, Shape, output_shape
from .nn import LIF, SpikingNetwork
from .records import Array

Converter = Callable[[Any], Operation | None]


def trace(
    module: nn.Module,
    input_shape: Shape | None = None,
    timesteps: int | None = None,
    *,
    converters: Mapping[type[nn.Module], Converter] | None = None,
) -> TrainedNetwork:
    """What a module computes, operation by operation.

    A SpikingNetwork brings its own input shape and time steps. Any other module is taken as the
    body of one: it maps [timesteps * batch, *input_shape] to outputs, of raw values 0..255.
    """
    if isinstance(module, SpikingNetwork):
        given, body = module.input_format, module.body
        timesteps = module.timesteps if timesteps is None else timesteps
    elif input_shape is None or timesteps is None:
        raise FrontendError(
            f"{type(module).__name__}: say its input_shape and timesteps, or give a SpikingNetwork."
        )
    else:
        given, body = _format_of_shape(input_shape), module
    if input_shape is not None and tuple(input_shape) != given.shape:
        raise FrontendError(f"input_shape {tuple(input_shape)}; the network was made for {given.shape}.")
    known = {**CONVERTERS, **(converters or {})}
    return TrainedNetwork(input=given, steps=_steps(body, given.shape, known), timesteps=timesteps)


def _format_of_shape(shape: Shape) -> InputFormat:
    channels = shape[0]
    return InputFormat(
        shape=tuple(shape), minimum=0, maximum=255, mean=np.zeros(channels), deviation=np.ones(channels)
    )


# ---- converters: what a module means ----------------------------------------------------------


def _linear(module: nn.Linear) -> Linear:
    return Linear(weight=_array(module.weight), bias=_bias(module.bias, module.out_features))


def _convolution(module: nn.Conv2d) -> Convolution:
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise FrontendError(f"padding {module.padding!r}, {module.padding_mode!r}; give a number of zeros.")
    return Convolution(
        weight=_array(module.weight),
        bias=_bias(module.bias, module.out_channels),
        stride=_pair(module.stride),
        padding=_pair(module.padding),
        dilation=_pair(module.dilation),
        groups=module.groups,
    )


def _batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, gain: Tensor | None = None) -> BatchNorm:
    if module.running_mean is None or module.running_var is None:
        raise FrontendError("no running statistics, so no exact fold; train with track_running_stats=True.")
    count = module.num_features
    gain = module.weight if gain is None else gain
    return BatchNorm(
        gain=np.ones(count) if gain is None else _array(gain),
        offset=_bias(module.bias, count),
        mean=_array(module.running_mean),
        variance=_array(module.running_var),
        epsilon=module.eps,
    )


def _lif(module: LIF) -> Spike:
    norm = None if module.mpbn is None else _batch_norm(module.mpbn.bn, module.mpbn.gain)
    return Spike(leak=module.leak, threshold=module.threshold, norm=norm)


def _flatten(module: nn.Flatten) -> Flatten:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise FrontendError(f"flattens dimensions {module.start_dim}..{module.end_dim}; known is 1..-1.")
    return Flatten()


def _nothing(module: nn.Module) -> None:
    """Dropout and identity do nothing after training."""


CONVERTERS: dict[type[nn.Module], Converter] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.Flatten: _flatten,
    nn.Identity: _nothing,
    nn.Dropout: _nothing,
    nn.Dropout2d: _nothing,
    LIF: _lif,
}


def _array(tensor: Tensor) -> Array:
    values: Array = tensor.detach().cpu().numpy().astype(np.float64)
    return values


def _bias(tensor: Tensor | None, count: int) -> Array:
    return np.zeros(count) if tensor is None else _array(tensor)


def _pair(values: Any) -> Pair:
    first, second = values if isinstance(values, tuple) else (values, values)
    return int(first), int(second)


# ---- tracing ----------------------------------------------------------------------------------


class _Tracer(fx.Tracer):
    """Stops at the modules that a converter knows, and at torch's own."""

    def __init__(self, known: Mapping[type[nn.Module], Converter]) -> None:
        super().__init__()
        self.known = known

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _converter(m, self.known) is not None or super().is_leaf_module(m, module_qualified_name)


def _converter(module: nn.Module, known: Mapping[type[nn.Module], Converter]) -> Converter | None:
    """The converter of the module's class, or of a class from which it inherits what it computes.

    A subclass with a `forward` of its own may compute anything; it needs a converter of its own.
    """
    for kind in type(module).__mro__:
        if kind in known:
            inherits = getattr(type(module), "forward", None) is getattr(kind, "forward", None)
            return known[kind] if inherits else None
    return None


def _steps(body: nn.Module, shape: Shape, known: Mapping[type[nn.Module], Converter]) -> tuple[Step, ...]:
    modules = dict(body.named_modules())
    shapes: dict[str, Shape] = {INPUT_NAME: shape}
    names: dict[fx.Node, str] = {}  # what each node of the trace is called in the TrainedNetwork
    steps: list[Step] = []
    for node in _graph(body, known).nodes:
        if node.op == "placeholder":
            names[node] = INPUT_NAME
        elif node.op == "output":
            _check_output(node, names, steps)
        else:
            label, operation = _operation(node, modules, known)
            source = names[_only_input(label, node)]
            if operation is None:
                names[node] = source
                continue
            names[node] = name = _unique(label, shapes)
            shapes[name] = _shape(label, operation, shapes[source])
            steps.append(Step(name=name, operation=operation, source=source, shape=shapes[name]))
    return tuple(steps)


def _graph(body: nn.Module, known: Mapping[type[nn.Module], Converter]) -> fx.Graph:
    if _converter(body, known) is not None:
        body = nn.Sequential(body)
    try:
        return _Tracer(known).trace(body)
    except (TypeError, fx.proxy.TraceError, RuntimeError) as error:
        raise FrontendError(
            f"{type(body).__name__}: torch.fx cannot trace it ({error}). Write forward without branches on "
            "data, or give a converter for the module."
        ) from error


def _operation(
    node: fx.Node, modules: Mapping[str, nn.Module], known: Mapping[type[nn.Module], Converter]
) -> tuple[str, Operation | None]:
    if node.op == "call_module":
        path = str(node.target)
        module = modules.get(path, modules[""])
        converter = _converter(module, known)
        if converter is None:
            raise FrontendError(_unknown(path, f"layer of class {type(module).__name__}", known))
        try:
            return path, converter(module)
        except FrontendError as error:
            raise FrontendError(f"{path} ({type(module).__name__}): {error}") from error
    if _is_flatten(node):
        return node.name, Flatten()
    if node.op == "get_attr":
        raise FrontendError(_unknown(str(node.target), "a parameter that forward uses directly", known))
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
    raise FrontendError(_unknown(node.name, f"operation {target!r}", known))


def _is_flatten(node: fx.Node) -> bool:
    """x.flatten(1) or torch.flatten(x, 1)"""
    called = (node.op, node.target) in (("call_method", "flatten"), ("call_function", torch.flatten))
    dimensions = {
        "start_dim": 0,
        "end_dim": -1,
        **dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)),
    }
    return called and {**dimensions, **node.kwargs} == {"start_dim": 1, "end_dim": -1}


def _unknown(where: str, what: str, known: Mapping[type[nn.Module], Converter]) -> str:
    names = ", ".join(sorted(kind.__name__ for kind in known))
    return f"{where}: {what} is not known. Known are {names}. Replace it, or give a converter to trace()."


def _only_input(label: str, node: fx.Node) -> fx.Node:
    if len(node.all_input_nodes) != 1:
        raise FrontendError(f"{label}: takes {len(node.all_input_nodes)} values; one is known.")
    return node.all_input_nodes[0]


def _unique(label: str, taken: Mapping[str, Shape]) -> str:
    """The label itself, or label@2, label@3 where a module is called again."""
    names = [label, *(f"{label}@{count}" for count in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)


def _check_output(node: fx.Node, names: Mapping[fx.Node, str], steps: list[Step]) -> None:
    if not steps or not isinstance(node.args[0], fx.Node) or names[node.args[0]] != steps[-1].name:
        raise FrontendError("the module must return one value, the result of its last layer.")


# ---- shapes -----------------------------------------------------------------------------------


def _shape(label: str, operation: Operation, source: Shape) -> Shape:
    """The shape an operation gives, or a message when it cannot take its source."""
    match operation:
        case Linear(weight=weight):
            _expect(label, source, len(source) == 1 and source[0] == weight.shape[1], f"({weight.shape[1]},)")
            return (weight.shape[0],)
        case Convolution():
            channels = operation.groups * operation.weight.shape[1]
            _expect(label, source, len(source) == 3 and source[0] == channels, f"({channels}, height, width)")
            shape = output_shape(as_synapse(operation), source)
            _expect(label, source, min(shape) > 0, "at least as large as the kernel")
            return shape
        case BatchNorm(gain=gain):
            _expect(label, source, source[0] == len(gain), f"{len(gain)} channels")
            return source
        case Flatten():
            return (int(np.prod(source)),)
        case Spike(norm=norm):
            size = 0 if norm is None else len(norm.gain)
            _expect(label, source, size in (0, source[0], np.prod(source)), f"{size} channels or neurons")
            return source
        case _:
            assert_never(operation)


def _expect(label: str, found: Shape, holds: bool, wanted: str) -> None:
    if not holds:
        raise FrontendError(f"{label}: its input has shape {found}; it takes {wanted}.")


def as_synapse(operation: Convolution) -> Conv2d:
    """The convolution without its bias."""
    return Conv2d(
        weight=operation.weight,
        stride=operation.stride,
        padding=operation.padding,
        dilation=operation.dilation,
        groups=operation.groups,
    )
