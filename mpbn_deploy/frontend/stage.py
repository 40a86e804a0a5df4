"""`trace`: torch module -> TrainedNetwork.

torch.fx traces the module; a dictionary from module class to converter gives the meaning of each leaf
module. Your own entries take precedence:

    trace(network, converters={MyNeuron: lambda module: Spike(leak=0.5, threshold=1.0, norm=None)})

A converter returns None for a module that passes its input on unchanged.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional
from typing_extensions import assert_never

from ..base import Array, FrontendError, layer_name
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
    Shape,
    Spike,
    Step,
    TrainedNetwork,
    output_shape,
    pooled_shape,
)
from ..nn import LIF, SpikingNetwork
from .arithmetic import channel_numbers, norm_of, scale_and_shift, scaling
from .foreign import check_supported, foreign_converters, foreign_layers, is_foreign
from .handwritten import HandwrittenError, Threshold
from .layers import CONVERTERS, Converter
from .recording import ForwardError, copy_to_run, record_step
from .rehearsal import Player, ready_copy, rehearse, sending


def trace(
    module: nn.Module,
    input_shape: Shape | None = None,
    timesteps: int | None = None,
    *,
    converters: Mapping[type[nn.Module], Converter] | None = None,
) -> TrainedNetwork:
    """Return the operations of a module as a TrainedNetwork.

    A SpikingNetwork has its own input shape and time steps. Any other module is treated as the body of one:
    it maps [timesteps * batch, *input_shape], raw values 0..255, to outputs. Modules with neurons of
    snnTorch, SpikingJelly or norse may be written in any of the styles of `recording`.
    """
    if isinstance(module, SpikingNetwork):
        given, body = module.input_format, module.body
        timesteps = module.timesteps if timesteps is None else timesteps
    elif input_shape is None or timesteps is None:
        raise FrontendError(
            f"{type(module).__name__}: give input_shape and timesteps, or pass a SpikingNetwork."
        )
    else:
        given, body = _format_of_shape(input_shape), module
    if input_shape is not None and tuple(input_shape) != given.shape:
        raise FrontendError(f"input_shape {tuple(input_shape)}; the network was built for {given.shape}.")
    known = _known(converters)
    if is_foreign(body):
        return _followed(body, given, timesteps, known)[1]
    try:
        traced = _to_trace(body)
        steps = _steps(_graph(traced, known), traced, given.shape, known)
    except FrontendError as error:
        if not _may_compute_neurons(body):
            raise
        try:
            return _followed(body, given, timesteps, known)[1]
        except HandwrittenError as found:
            raise found from error
        except FrontendError:
            raise error from None
    return TrainedNetwork(input=given, steps=steps, timesteps=timesteps)


def _may_compute_neurons(body: nn.Module) -> bool:
    """Whether forward may compute neurons by itself: there are none of ours."""
    return not any(isinstance(part, LIF) for part in body.modules())


def _to_trace(body: nn.Module) -> nn.Module:
    """Return a module that torch.fx may trace: a copy, if forward may keep states, which then are proxies."""
    return copy_to_run(body) if _may_compute_neurons(body) else body


def computes_steps(network: SpikingNetwork) -> bool:
    """Whether the body computes time steps by itself, with neurons of other libraries or of its own."""
    body, known = network.body, _known()
    if is_foreign(body) or not _may_compute_neurons(body):
        return is_foreign(body)
    try:
        traced = _to_trace(body)
        _steps(_graph(traced, known), traced, network.input_format.shape, known)
    except FrontendError:
        return True
    return False


def foreign_spikes(network: SpikingNetwork, inputs: Array) -> dict[str, Array] | None:
    """Run a network of another library; return its neurons' spikes [samples, timesteps, *shape] by path.

    None if it loops over a constant input and the inputs change over time.
    """
    player, _ = _followed(network.body, network.input_format, network.timesteps, _known())
    changing = inputs.ndim > 1 + len(network.input_format.shape)
    if player.style == "loop" and changing:
        return None
    values = torch.tensor(np.asarray(inputs, np.float64))
    steps = values.transpose(0, 1) if changing else values.expand(network.timesteps, *values.shape)
    sent, _ = player.play(network.normalize(steps))
    return {path: spikes.transpose(0, 1).numpy() for path, spikes in sent.items()}


def _followed(
    body: nn.Module, given: InputFormat, timesteps: int, known: Mapping[type[nn.Module], Converter]
) -> tuple[Player, TrainedNetwork]:
    """Trace a module with neurons of other libraries by running it; then run both and compare spikes."""
    check_supported(body, lambda part: _converter(part, known) is not None, known)
    layers = tuple(CONVERTERS)
    neurons = tuple(kind for kind in known if not issubclass(kind, layers))
    for path, part in body.named_modules():
        if isinstance(part, neurons) and _converter(part, known) is not None:
            _converted(path, part, known)  # raises if it has no exact equivalent, before anything runs
    try:
        return _followed_in(torch.float64, body, given, timesteps, known, neurons)
    except ForwardError:  # it may hold float32 numbers of its own
        return _followed_in(torch.float32, body, given, timesteps, known, neurons)


def _followed_in(
    dtype: torch.dtype,
    body: nn.Module,
    given: InputFormat,
    timesteps: int,
    known: Mapping[type[nn.Module], Converter],
    neurons: tuple[type[nn.Module], ...],
) -> tuple[Player, TrainedNetwork]:
    """Run a copy of the module in this precision, and return it with the network that fires its spikes."""
    module = ready_copy(body, dtype)
    with sending(module, dtype, neurons):
        recorded = record_step(
            module, given.shape, timesteps, dtype, lambda part: _converter(part, known) is not None, neurons
        )
    if not recorded.neurons and not is_foreign(body):
        raise FrontendError(f"{type(body).__name__}: no neurons were found.")
    read_out = recorded.readout
    trained = TrainedNetwork(
        input=given,
        steps=_steps(recorded.graph, body, given.shape, known),
        timesteps=timesteps,
        readout_leak=recorded.leak if read_out is None else _readout_leak(body, read_out, known),
    )
    player = Player(
        module=module,
        style=recorded.style,
        output=recorded.output,
        neurons=neurons,
        dtype=dtype,
        handwritten=recorded.neurons,
    )
    try:
        rehearse(player, trained)
    except FrontendError as error:
        raise HandwrittenError(str(error)) if recorded.neurons else error from error
    return player, trained


def _readout_leak(body: nn.Module, path: str, known: Mapping[type[nn.Module], Converter]) -> float:
    """Return the leak of a neuron whose membrane is the output, and which therefore must not reset."""
    module = body.get_submodule(path)
    where, neuron = layer_name(path, type(module).__name__), _converted(path, module, known)
    if not isinstance(neuron, Spike) or neuron.subtrahend is None or neuron.subtrahend.any():
        raise FrontendError(
            f"{where}: its membrane is the output, but it resets; only a neuron that never resets, as with "
            "snnTorch's reset_mechanism='none', can be a readout. Return its spikes."
        )
    if isinstance(neuron.leak, np.ndarray) or np.any(neuron.current_leak) or neuron.recurrent is not None:
        raise FrontendError(
            f"{where}: its membrane is the output; only one with one leak and without currents of its own "
            "can be a readout. Return its spikes."
        )
    return neuron.leak


def _known(
    converters: Mapping[type[nn.Module], Converter] | None = None,
) -> dict[type[nn.Module], Converter]:
    """Return all converters; those of the caller take precedence."""
    layers = {kind: CONVERTERS[base] for kind, base in foreign_layers(tuple(CONVERTERS)).items()}
    return {**CONVERTERS, **layers, **foreign_converters(), **(converters or {})}


def _format_of_shape(shape: Shape) -> InputFormat:
    channels = shape[0]
    return InputFormat(
        shape=tuple(shape), minimum=0, maximum=255, mean=np.zeros(channels), deviation=np.ones(channels)
    )


# Functions that forward may call, each with the module that computes the same from the same arguments.
FUNCTIONS: dict[Any, Callable[..., nn.Module]] = {
    torch.flatten: nn.Flatten,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    functional.max_pool2d: nn.MaxPool2d,
}
ADDITIONS = (operator.add, operator.iadd, torch.add)


# ---- tracing ----------------------------------------------------------------------------------


class _Tracer(fx.Tracer):
    """Treats modules with a converter, and torch's own, as leaves."""

    def __init__(self, known: Mapping[type[nn.Module], Converter]) -> None:
        super().__init__()
        self.known = known

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _converter(m, self.known) is not None or super().is_leaf_module(m, module_qualified_name)


def _converter(module: nn.Module, known: Mapping[type[nn.Module], Converter]) -> Converter | None:
    """Return the converter of the module's class, or of the class whose `forward` it inherits.

    A subclass with its own `forward` may compute something else and needs its own converter.
    """
    for kind in type(module).__mro__:
        if kind in known:
            inherits = getattr(type(module), "forward", None) is getattr(kind, "forward", None)
            return known[kind] if inherits else None
    return None


def _steps(
    graph: fx.Graph, body: nn.Module, shape: Shape, known: Mapping[type[nn.Module], Converter]
) -> tuple[Step, ...]:
    modules = dict(body.named_modules())
    shapes: dict[str, Shape] = {INPUT_NAME: shape}
    names: dict[fx.Node, str] = {}  # name of each node in the TrainedNetwork
    constants: dict[fx.Node, Constant] = {}
    steps: list[Step] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = INPUT_NAME
        elif node.op == "output":
            _check_output(node, names, steps)
        elif (constant := _constant(node, body, constants)) is not None:
            constants[node] = constant
        else:
            scaled = _scaled(node, constants, {each: shapes[name] for each, name in names.items()})
            label, operation = scaled or _operation(node, modules, constants, known)
            where = layer_name(label, type(modules[label]).__name__ if label in modules else "")
            sources = tuple(names[source] for source in _inputs(where, node, operation, constants))
            if operation is None:
                names[node] = sources[0]
                continue
            *before, last = operation if isinstance(operation, tuple) else (operation,)
            for number, part in enumerate(before, 1):
                sources = (_append(f"{label}.{number}", where, part, sources, shapes, steps),)
            names[node] = _append(label, where, last, sources, shapes, steps)
    return tuple(steps)


def _append(
    label: str,
    where: str,
    operation: Operation,
    sources: tuple[str, ...],
    shapes: dict[str, Shape],
    steps: list[Step],
) -> str:
    """Add a step; return its name."""
    name = _unique(label, shapes)
    shapes[name] = _shape(where, operation, [shapes[source] for source in sources])
    steps.append(Step(name=name, operation=operation, sources=sources, shape=shapes[name]))
    return name


def _graph(body: nn.Module, known: Mapping[type[nn.Module], Converter]) -> fx.Graph:
    if _converter(body, known) is not None:
        body = nn.Sequential(body)
    try:
        return _Tracer(known).trace(body)
    except (TypeError, fx.proxy.TraceError, RuntimeError) as error:
        raise FrontendError(
            f"{type(body).__name__}: torch.fx cannot trace it ({error}). Write forward without branches that "
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
    known: Mapping[type[nn.Module], Converter],
) -> tuple[str, Operation | tuple[Operation, ...] | None]:
    if node.op == "call_module":
        path = str(node.target)
        module = modules.get(path, modules[""])
        return path, _converted(path, module, known)
    if used := next((constants[each] for each in node.all_input_nodes if each in constants), None):
        raise FrontendError(_unsupported(used[0], "a parameter that forward uses directly", known))
    name = _name_of_call(node)
    if isinstance(node.target, Threshold):
        return node.target.neuron.name, node.target.neuron.spike()
    if node.target is scale_and_shift:
        gain, offset = node.args[1:]
        return name, norm_of(cast(Sequence[float], gain), cast(Sequence[float], offset))
    where = layer_name(name)
    if _is_addition(node):
        return name, Add()
    if (same := _module_of_call(node)) is not None:
        try:
            return name, CONVERTERS[type(same)](same)
        except FrontendError as error:
            raise FrontendError(f"{where}: {error}") from error
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.target)
    raise FrontendError(_unsupported(where, f"operation {target!r}", known))


def _converted(
    path: str, module: nn.Module, known: Mapping[type[nn.Module], Converter]
) -> Operation | tuple[Operation, ...] | None:
    """Return the operation of a layer; errors name the layer."""
    where, converter = layer_name(path, type(module).__name__), _converter(module, known)
    if converter is None:
        raise FrontendError(_unsupported(where, "this class of layer", known))
    try:
        return converter(module)
    except FrontendError as error:
        raise FrontendError(f"{where}: {error}") from error


def _name_of_call(node: fx.Node) -> str:
    """Name a function call in `forward`: the path of the module, then the name of the node."""
    inside = list(node.meta.get("nn_module_stack", {}).values())  # (path, class), the innermost last
    path = inside[-1][0] if inside else ""
    return f"{path}.{node.name}" if path else node.name


def _is_addition(node: fx.Node) -> bool:
    """Return whether a node adds two values, not a value and a number: a + b, a += b, a.add(b), torch.add."""
    called = node.target in ADDITIONS if node.op == "call_function" else node.target in ("add", "add_")
    return called and len(node.args) == 2 and not node.kwargs and len(_values(node)) == 2


def _module_of_call(node: fx.Node) -> nn.Module | None:
    """Return the module equivalent to a function or method: x.flatten(1), functional.avg_pool2d(x, 2)."""
    function = torch.flatten if (node.op, node.target) == ("call_method", "flatten") else node.target
    if function not in FUNCTIONS or len(_values(node)) != 1:
        return None
    defaults = {"start_dim": 0} if function is torch.flatten and len(node.args) < 2 else {}
    return FUNCTIONS[function](*node.args[1:], **{**defaults, **node.kwargs})


def _unsupported(where: str, what: str, known: Mapping[type[nn.Module], Converter]) -> str:
    names = ", ".join(sorted({kind.__name__ for kind in known}))
    hint = ""
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
    read, wanted = set(node.all_input_nodes) - set(constants), 2 if isinstance(operation, Add) else 1
    if len(values) != wanted or set(values) != read:
        raise FrontendError(f"{where}: takes {len(values)} values; only {wanted} is supported.")
    return values


def _unique(label: str, taken: Mapping[str, Shape]) -> str:
    """Return the label, or label@2, label@3 and so on if a module is called repeatedly."""
    names = [label, *(f"{label}@{count}" for count in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)


def _check_output(node: fx.Node, names: Mapping[fx.Node, str], steps: list[Step]) -> None:
    if not steps or not isinstance(node.args[0], fx.Node) or names[node.args[0]] != steps[-1].name:
        raise FrontendError("the module must return exactly one value, the output of its last layer.")


# ---- shapes -----------------------------------------------------------------------------------


def _shape(where: str, operation: Operation, sources: list[Shape]) -> Shape:
    """Return the output shape of an operation; raise FrontendError if it cannot take its inputs."""
    source = sources[0]
    match operation:
        case Linear(weight=weight):
            _expect(where, source, len(source) == 1 and source[0] == weight.shape[1], f"({weight.shape[1]},)")
            return (weight.shape[0],)
        case Convolution(synapse=synapse):
            channels = synapse.groups * synapse.weight.shape[1]
            _expect(where, source, len(source) == 3 and source[0] == channels, f"({channels}, height, width)")
            shape = output_shape(synapse, source)
            _expect(where, source, min(shape) > 0, "an input at least as large as the kernel")
            return shape
        case BatchNorm(gain=gain):
            _expect(where, source, source[0] == len(gain), f"{len(gain)} channels")
            return source
        case Flatten():
            return (int(np.prod(source)),)
        case AveragePool() | AdaptivePool() | MaxPool():
            _expect(where, source, len(source) == 3, "(channels, height, width)")
            shape = pooled_shape(operation, source)
            _expect(where, source, min(shape) > 0, "an input at least as large as the window")
            return shape
        case Add():
            _expect(where, sources[1], sources[1] == source, f"{source}, the shape of its other input")
            return source
        case Spike(norm=norm, recurrent=recurrent):
            size = 0 if norm is None else len(norm.gain)
            _expect(where, source, size in (0, source[0], np.prod(source)), f"{size} channels or neurons")
            if (
                recurrent is not None
                and (again := _shape(f"{where}, recurrent", recurrent, sources)) != source
            ):
                raise FrontendError(f"{where}: its recurrent synapse gives shape {again}, not {source}.")
            return source
        case _:
            assert_never(operation)


def _expect(where: str, found: Shape, holds: bool, wanted: str) -> None:
    if not holds:
        raise FrontendError(f"{where}: its input has shape {found}; it takes {wanted}.")
