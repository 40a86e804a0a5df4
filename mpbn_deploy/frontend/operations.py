"""The graph of torch.fx, and the operations of a TrainedNetwork that its nodes become."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch import fx, nn
from torch.nn import functional

from ..base import FrontendError, layer_name
from ..ir import INPUT_NAME, Add, Gate, Operation, Shape, TracedOperation, product_of_spikes
from .arithmetic import channel_numbers, norm_of, scale_and_shift, scaling
from .foreign import foreign_converters, foreign_layers
from .handwritten import Threshold
from .hints import hint_for
from .layers import CONVERTERS, Converter, Converters
from .shapes import shape_after

# Functions that forward may call, each with the module that computes the same from the same arguments.
FUNCTIONS: dict[Any, Callable[..., nn.Module]] = {
    torch.flatten: nn.Flatten,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    functional.max_pool2d: nn.MaxPool2d,
}
ADDITIONS = (operator.add, operator.iadd, torch.add)
PRODUCTS = (operator.mul, operator.imul, torch.mul)


def known_converters(converters: Converters | None = None) -> dict[type[nn.Module], Converter]:
    """Return all converters; those of the caller take precedence."""
    layers = {kind: CONVERTERS[base] for kind, base in foreign_layers(tuple(CONVERTERS)).items()}
    return {**CONVERTERS, **layers, **foreign_converters(), **(converters or {})}


class _Tracer(fx.Tracer):
    """Treats modules with a converter, and torch's own, as leaves."""

    def __init__(self, known: Converters) -> None:
        super().__init__()
        self.known = known

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return converter_of(m, self.known) is not None or super().is_leaf_module(m, module_qualified_name)


SAME_NUMBERS = {"__init__", "__repr__", "extra_repr", "reset_parameters"}  # methods that compute no spikes


def converter_of(module: nn.Module, known: Converters) -> Converter | None:
    """Return the converter of the module's class, or of the class whose methods it inherits.

    A subclass with its own `forward`, or a neuron with any method of its own in place of its parent's (as
    SpikingJelly's ILIFNode), may compute something else and needs its own converter.
    """
    classes = type(module).__mro__
    for depth, kind in enumerate(classes):
        if kind in known:
            own = {name for each in classes[:depth] for name, value in vars(each).items() if callable(value)}
            changed = own - SAME_NUMBERS if not kind.__module__.startswith("torch.") else own & {"forward"}
            return None if any(hasattr(kind, name) for name in changed) else known[kind]
    return None


def operations_of(
    graph: fx.Graph, body: nn.Module, shape: Shape, known: Converters
) -> tuple[TracedOperation, ...]:
    """Return the operations of a TrainedNetwork that the nodes of a graph become."""
    modules = dict(body.named_modules())
    shapes: dict[str, Shape] = {INPUT_NAME: shape}
    names: dict[fx.Node, str] = {}  # name of each node in the TrainedNetwork
    constants: dict[fx.Node, Constant] = {}
    operations: list[TracedOperation] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = INPUT_NAME
        elif node.op == "output":
            _check_output(type(body).__name__, node, names, operations)
        elif (constant := _constant(node, body, constants)) is not None:
            constants[node] = constant
        else:
            given = {each: shapes[names[each]] for each in node.all_input_nodes if each in names}
            scaled = _scaled(node, constants, given)
            label, operation = scaled or _operation(node, modules, constants, known)
            where = layer_name(label, type(modules[label]).__name__ if label in modules else "")
            sources = tuple(names[source] for source in _inputs(where, node, operation, constants))
            if operation is None:
                names[node] = sources[0]
                continue
            *before, last = operation if isinstance(operation, tuple) else (operation,)
            for number, part in enumerate(before, 1):
                sources = (_append(f"{label}.{number}", where, part, sources, shapes, operations),)
            names[node] = _append(label, where, last, sources, shapes, operations)
    return tuple(operations)


def _append(
    label: str,
    where: str,
    operation: Operation,
    sources: tuple[str, ...],
    shapes: dict[str, Shape],
    operations: list[TracedOperation],
) -> str:
    """Add an operation; return its name."""
    name = _unique(label, shapes)
    shapes[name] = shape_after(where, operation, [shapes[source] for source in sources])
    operations.append(TracedOperation(name=name, kind=operation, sources=sources, shape=shapes[name]))
    return name


class UntraceableError(FrontendError):
    """A module of which torch.fx has no graph."""


def fx_graph(body: nn.Module, known: Converters) -> fx.Graph:
    """Trace a module with torch.fx."""
    if converter_of(body, known) is not None:
        body = nn.Sequential(body)
    try:
        return _Tracer(known).trace(body)
    except Exception as error:  # forward of a user's module can raise anything
        found = f"{type(error).__name__}: {error}"
        raise UntraceableError(
            f"{type(body).__name__}: torch.fx cannot trace it ({found}). Write forward without branches that "
            "depend on data, or pass a converter for the module to trace()."
        ) from error


Constant = tuple[str, Any]  # the parameter or buffer that it comes from, and its value


def _constant(node: fx.Node, body: nn.Module, known: Mapping[fx.Node, Constant]) -> Constant | None:
    """Return the value of a node that depends on parameters and buffers alone."""
    if node.op == "get_attr":
        value: Any = body
        for name in str(node.target).split("."):
            value = getattr(value, name)
        return str(node.target), value
    inputs = node.all_input_nodes
    if node.op == "call_module" or not inputs or any(each not in known for each in inputs):
        return None
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: known[each][1])
    function = node.target if callable(node.target) else getattr(args[0], str(node.target))
    value = function(*(args if callable(node.target) else args[1:]), **kwargs)
    return known[inputs[0]][0], value


def _scaled(
    node: fx.Node, constants: Mapping[fx.Node, Constant], shapes: Mapping[fx.Node, Shape]
) -> tuple[str, Operation] | None:
    """Return the norm of a node that multiplies a value by a constant, or adds one; None for another node."""
    inputs = [each for each in _values(node) if each not in constants]
    if node.op == "call_module" or node.kwargs or len(inputs) != 1:
        return None
    arguments = [constants[a][1] if isinstance(a, fx.Node) and a in constants else a for a in node.args]
    found = scaling(node.target, arguments, node.args.index(inputs[0]))
    if found is None:
        return None
    name = _name_of_call(node)
    return name, norm_of(*channel_numbers(layer_name(name), found, shapes[inputs[0]]))


def _operation(
    node: fx.Node,
    modules: Mapping[str, nn.Module],
    constants: Mapping[fx.Node, Constant],
    known: Converters,
) -> tuple[str, Operation | tuple[Operation, ...] | None]:
    if node.op == "call_module":
        path = str(node.target)
        module = modules.get(path, modules[""])
        return path, converted(path, module, known)
    if used := next((constants[each] for each in node.all_input_nodes if each in constants), None):
        raise FrontendError(_unsupported(used[0], "a parameter that forward uses directly", known))
    name = _name_of_call(node)
    if isinstance(node.target, Threshold):
        return node.target.neuron.name, node.target.neuron.spike()
    if node.target is scale_and_shift:
        gain, offset = node.args[1:]
        return name, norm_of(cast(Sequence[float], gain), cast(Sequence[float], offset))
    where = layer_name(name)
    if _combines(node, ADDITIONS, "add"):
        return name, Add()
    if _combines(node, PRODUCTS, "mul"):
        return name, product_of_spikes(2)
    if (same := _module_of_call(node)) is not None:
        try:
            return name, CONVERTERS[type(same)](same)
        except FrontendError as error:
            raise FrontendError(f"{where}: {error}") from error
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
    raise FrontendError(_unsupported(where, f"operation {target!r}", known, str(target)))


def converted(path: str, module: nn.Module, known: Converters) -> Operation | tuple[Operation, ...] | None:
    """Return the operation of a layer; errors name the layer."""
    where, converter = layer_name(path, type(module).__name__), converter_of(module, known)
    if converter is None:
        raise FrontendError(_unsupported(where, "this class of layer", known, type(module).__name__))
    try:
        return converter(module)
    except FrontendError as error:
        raise FrontendError(f"{where}: {error}") from error


def _name_of_call(node: fx.Node) -> str:
    """Name a function call in `forward`: the path of the module, then the name of the node."""
    inside = list(node.meta.get("nn_module_stack", {}).values())  # (path, class), the innermost last
    path = inside[-1][0] if inside else ""
    return f"{path}.{node.name}" if path else node.name


def _combines(node: fx.Node, functions: tuple[Any, ...], method: str) -> bool:
    """Return whether a node computes from two values, no number: a + b, a += b, a.add(b), torch.add."""
    called = node.target in (functions if node.op == "call_function" else (method, f"{method}_"))
    return called and len(node.args) == 2 and not node.kwargs and len(_values(node)) == 2


def _module_of_call(node: fx.Node) -> nn.Module | None:
    """Return the module equivalent to a function or method: x.flatten(1), functional.avg_pool2d(x, 2)."""
    function = torch.flatten if (node.op, node.target) == ("call_method", "flatten") else node.target
    if function not in FUNCTIONS or len(_values(node)) != 1:
        return None
    defaults = {"start_dim": 0} if function is torch.flatten and len(node.args) < 2 else {}
    return FUNCTIONS[function](*node.args[1:], **{**defaults, **node.kwargs})


def _unsupported(where: str, what: str, known: Converters, name: str = "") -> str:
    if hint := hint_for(name):
        return f"{where}: {what} is not supported. {hint}"
    names = ", ".join(sorted({kind.__name__ for kind in known}))
    if any(word in what for word in ("'size'", "'view'", "'reshape'")):
        hint = " Use x.flatten(1)."
    elif what.startswith("operation"):
        hint = " A neuron must be a module, such as mpbn_deploy.nn.LIF (examples/own_loop.py)."
    return (
        f"{where}: {what} is not supported.{hint} Supported layers: {names}. Replace it, or pass a "
        "converter to trace()."
    )


def _values(node: fx.Node) -> list[fx.Node]:
    """Return the values that a node reads, with repetition."""
    return [argument for argument in node.args if isinstance(argument, fx.Node)]


def _inputs(
    where: str,
    node: fx.Node,
    operation: Operation | tuple[Operation, ...] | None,
    constants: Mapping[fx.Node, Constant],
) -> list[fx.Node]:
    values = [each for each in _values(node) if each not in constants]
    read, wanted = set(node.all_input_nodes) - set(constants), 2 if isinstance(operation, (Add, Gate)) else 1
    if set(values) != read:
        raise FrontendError(f"{where}: takes values by keyword or in a list; pass them by position.")
    if len(values) != wanted:
        raise FrontendError(f"{where}: takes {len(values)} values; only {wanted} is supported.")
    return values


def _unique(label: str, taken: Mapping[str, Shape]) -> str:
    """Return the label, or label@2, label@3 and so on if a module is called repeatedly."""
    numbered = (f"{label}@{count}" for count in range(2, len(taken) + 2))
    return next(name for name in chain([label], numbered) if name not in taken)


def _check_output(
    where: str, node: fx.Node, names: Mapping[fx.Node, str], operations: list[TracedOperation]
) -> None:
    returned = node.args[0]
    if not operations or not isinstance(returned, fx.Node) or names.get(returned) != operations[-1].name:
        raise FrontendError(f"{where}: must return exactly one value, the output of its last layer.")
