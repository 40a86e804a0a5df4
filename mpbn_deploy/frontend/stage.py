"""torch module -> TrainedNetwork

A module is traced with torch.fx; what a leaf module means is looked up in a dictionary from
module class to converter. Your own entries win over ours:

    trace(network, converters={MyNeuron: lambda module: Spike(leak=0.5, threshold=1.0, norm=None)})

A converter may return None: the module passes its input on unchanged.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from typing_extensions import assert_never

from ..base import Array, FrontendError
from ..ir import (
    INPUT_NAME,
    AdaptivePool,
    Add,
    AveragePool,
    BatchNorm,
    Convolution,
    Flatten,
    InputFormat,
    Linear,
    MaxPool,
    Operation,
    Pair,
    Shape,
    Spike,
    Step,
    TrainedNetwork,
    as_synapse,
    output_shape,
    pooled_shape,
)
from ..nn import LIF, SpikingNetwork
from .foreign import foreign_converters

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
    known = {**CONVERTERS, **foreign_converters(), **(converters or {})}
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


def _average_pool(module: nn.AvgPool2d) -> AveragePool:
    return AveragePool(
        kernel=_pair(module.kernel_size),
        stride=_pair(module.stride),
        padding=_pair(module.padding),
        round_up=module.ceil_mode,
        count_padding=module.count_include_pad,
        divisor=module.divisor_override,
    )


def _adaptive_pool(module: nn.AdaptiveAvgPool2d) -> AdaptivePool:
    height, width = module.output_size if isinstance(module.output_size, tuple) else (module.output_size,) * 2
    return AdaptivePool(size=(height, width))


def _max_pool(module: nn.MaxPool2d) -> MaxPool:
    if module.return_indices:
        raise FrontendError("return_indices; only the values are known.")
    if module.ceil_mode:
        raise FrontendError("ceil_mode; windows that leave the image are not known. Use ceil_mode=False.")
    return MaxPool(
        kernel=_pair(module.kernel_size),
        stride=_pair(module.stride),
        padding=_pair(module.padding),
        dilation=_pair(module.dilation),
    )


def _nothing(module: nn.Module) -> None:
    """Dropout and identity do nothing after training."""


CONVERTERS: dict[type[nn.Module], Converter] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.Flatten: _flatten,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.MaxPool2d: _max_pool,
    nn.Identity: _nothing,
    nn.Dropout: _nothing,
    nn.Dropout2d: _nothing,
    LIF: _lif,
}

# What forward may call without a module: a module that does the same, from the same arguments.
FUNCTIONS: dict[Any, Callable[..., nn.Module]] = {
    torch.flatten: nn.Flatten,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    functional.max_pool2d: nn.MaxPool2d,
}
ADDITIONS = (operator.add, operator.iadd, torch.add)


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
            sources = tuple(names[source] for source in _inputs(label, node, operation))
            if operation is None:
                names[node] = sources[0]
                continue
            names[node] = name = _unique(label, shapes)
            shapes[name] = _shape(label, operation, [shapes[source] for source in sources])
            steps.append(Step(name=name, operation=operation, sources=sources, shape=shapes[name]))
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
    if node.op == "get_attr":
        raise FrontendError(_unknown(str(node.target), "a parameter that forward uses directly", known))
    name = _name_of_call(node)
    if _is_addition(node):
        return name, Add()
    if (same := _module_of_call(node)) is not None:
        try:
            return name, CONVERTERS[type(same)](same)
        except FrontendError as error:
            raise FrontendError(f"{name}: {error}") from error
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
    raise FrontendError(_unknown(name, f"operation {target!r}", known))


def _name_of_call(node: fx.Node) -> str:
    """Of what forward calls without a module: behind the path of the module whose forward it is."""
    inside = list(node.meta.get("nn_module_stack", {}).values())  # (path, class), the innermost last
    path = inside[-1][0] if inside else ""
    return f"{path}.{node.name}" if path else node.name


def _is_addition(node: fx.Node) -> bool:
    """a + b, a += b, torch.add(a, b), a.add(b): of two values, and not of a value and a number"""
    called = node.target in ADDITIONS if node.op == "call_function" else node.target in ("add", "add_")
    return called and len(node.args) == 2 and not node.kwargs and len(_values(node)) == 2


def _module_of_call(node: fx.Node) -> nn.Module | None:
    """The module that does what a function or method does: x.flatten(1), functional.avg_pool2d(x, 2)"""
    function = torch.flatten if (node.op, node.target) == ("call_method", "flatten") else node.target
    if function not in FUNCTIONS or len(_values(node)) != 1:
        return None
    defaults = {"start_dim": 0} if function is torch.flatten and len(node.args) < 2 else {}
    return FUNCTIONS[function](*node.args[1:], **{**defaults, **node.kwargs})


def _unknown(where: str, what: str, known: Mapping[type[nn.Module], Converter]) -> str:
    names = ", ".join(sorted(kind.__name__ for kind in known))
    hint = " Use x.flatten(1)." if any(word in what for word in ("'size'", "'view'", "'reshape'")) else ""
    return (
        f"{where}: {what} is not known.{hint} Known are {names}. Replace it, or give a converter to trace()."
    )


def _values(node: fx.Node) -> list[fx.Node]:
    """What a node reads, twice where it reads a value twice."""
    return [argument for argument in node.args if isinstance(argument, fx.Node)]


def _inputs(label: str, node: fx.Node, operation: Operation | None) -> list[fx.Node]:
    values, wanted = _values(node), 2 if isinstance(operation, Add) else 1
    if len(values) != wanted or len(set(values)) != len(node.all_input_nodes):
        raise FrontendError(f"{label}: takes {len(values)} values; {wanted} is known.")
    return values


def _unique(label: str, taken: Mapping[str, Shape]) -> str:
    """The label itself, or label@2, label@3 where a module is called again."""
    names = [label, *(f"{label}@{count}" for count in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)


def _check_output(node: fx.Node, names: Mapping[fx.Node, str], steps: list[Step]) -> None:
    if not steps or not isinstance(node.args[0], fx.Node) or names[node.args[0]] != steps[-1].name:
        raise FrontendError("the module must return one value, the result of its last layer.")


# ---- shapes -----------------------------------------------------------------------------------


def _shape(label: str, operation: Operation, sources: list[Shape]) -> Shape:
    """The shape an operation gives, or a message when it cannot take its sources."""
    source = sources[0]
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
        case AveragePool() | AdaptivePool() | MaxPool():
            _expect(label, source, len(source) == 3, "(channels, height, width)")
            shape = pooled_shape(operation, source)
            _expect(label, source, min(shape) > 0, "at least as large as the window")
            return shape
        case Add():
            _expect(label, sources[1], sources[1] == source, f"{source}, as its other input")
            return source
        case Spike(norm=norm):
            size = 0 if norm is None else len(norm.gain)
            _expect(label, source, size in (0, source[0], np.prod(source)), f"{size} channels or neurons")
            return source
        case _:
            assert_never(operation)


def _expect(label: str, found: Shape, holds: bool, wanted: str) -> None:
    if not holds:
        raise FrontendError(f"{label}: its input has shape {found}; it takes {wanted}.")
