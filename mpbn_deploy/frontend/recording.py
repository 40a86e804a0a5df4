"""Record what a module computes in one time step by running it: nn.Module -> fx.Graph.

Other libraries leave it to the user how time passes. A module is run in these styles until one fits:

    step           forward([B, ...]) computes one step; its neurons keep their state, or return it
    loop           forward([B, ...]) repeats a constant input in a loop over the time steps
    time first     forward([T, B, ...]) loops over x[t], or computes all steps at once (step_mode "m")
    batch first    forward([B, T, ...]) likewise

While it runs, hooks and a TorchFunctionMode follow each value from the input to the output: which call
computed it, and of which time step it is. Equal calls are one node of the graph, so a loop whose steps all do
the same gives the graph of one step. What cannot be followed is reported only if the output depends on it.
Whether the graph says all is then tested by running both (`rehearsal`).
"""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from ..base import FrontendError, layer_name
from ..ir import Shape
from .arithmetic import ARITHMETIC, QUOTIENTS, SUMS, per_channel, plain_name, scale_and_shift, scaling
from .foreign import is_layer

BATCH = 3  # samples while recording, told apart from time steps by the values

WHOLE = "the input itself"

# Names of functions and methods, as TorchFunctionMode reports them.
UNCHANGED = frozenset(
    {
        "float",
        "double",
        "to",
        "type",
        "contiguous",
        "clone",
        "detach",
        "cpu",
        "dropout",
        "dropout2d",
        "__get__",
    }
)
RESHAPES = frozenset({"flatten", "unflatten", "view", "reshape", "squeeze", "unsqueeze"})
STATISTICS = frozenset({"max", "min", "amax", "amin", "aminmax", "mean", "std", "var", "sum", "norm"})
RANDOM = ("bernoulli", "rand", "normal", "poisson", "multinomial")
POOLINGS = {
    "avg_pool2d": functional.avg_pool2d,
    "adaptive_avg_pool2d": functional.adaptive_avg_pool2d,
    "max_pool2d": functional.max_pool2d,
}


@dataclass(frozen=True)
class Membrane:
    """The membrane of a neuron, by the neuron's path; only an output may depend on it."""

    path: str


@dataclass(frozen=True, eq=False)
class Call:
    """One call in the graph of a step: a module's path, a function or a membrane; None for the input."""

    target: Any = None
    sources: tuple[Call, ...] = ()
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)


INPUT = Call()


@dataclass(frozen=True)
class Value:
    """What a tensor holds: the result of a call in some time steps.

    steps    the time steps in order; None: the same in all of them, or all of them along the axes of `form`
    form     "B" [B, ...], "TB" [T, B, ...], "BT" [B, T, ...]; as one batch: "TB merged", "BT merged";
             over time: "stack" of some steps [steps, B, ...], "sum", "mean"
    problem  why the value cannot be followed; then `call` is None
    hint     what to do about it
    raw      whether it comes from the input alone, of which it may still become a known step
    """

    call: Call | None
    steps: tuple[int, ...] | None = None
    form: str = "B"
    problem: str = ""
    hint: str = ""
    raw: bool = False


@dataclass(frozen=True)
class Recording:
    """The graph of one step, and the style in which the module computes its steps.

    readout    the neuron whose membrane is the output; the graph then ends with what arrives there
    output     which of the returned tensors counts, and its form (see `Value`)
    """

    graph: fx.Graph
    style: str
    readout: str | None
    output: tuple[int, str]


def record_step(
    module: nn.Module,
    shape: Shape,
    timesteps: int,
    dtype: torch.dtype,
    is_known: Callable[[nn.Module], bool],
    neurons: tuple[type[nn.Module], ...],
) -> Recording:
    """Run a module in each style and return the recording of the first that fits."""
    failures: dict[str, Exception] = {}
    furthest: list[tuple[int, FrontendError]] = []
    for style in ("step or loop", "time first", "batch first"):
        recorder = _Recorder(copy_to_run(module), shape, timesteps, style, is_known, neurons)
        try:
            with torch.no_grad():
                return recorder.run(dtype)
        except FrontendError as error:
            furthest.append((recorder.reached, error))
        except Exception as error:  # forward of a user's module can raise anything
            failures[style] = error
    if furthest:
        raise max(furthest, key=lambda each: each[0])[1]
    raise _failed(module, shape, timesteps, failures)


class ForwardError(FrontendError):
    """The forward of a module failed for inputs of every kind."""


def _failed(
    module: nn.Module, shape: Shape, timesteps: int, failures: Mapping[str, Exception]
) -> ForwardError:
    axes = {"step or loop": "B", "time first": "T, B", "batch first": "B, T"}
    sizes = ", ".join(map(str, shape))
    listed = "".join(
        f"\n  - [{axes[style]}, {sizes}]: {type(error).__name__}: {error}"
        for style, error in failures.items()
    )
    first = next(iter(failures.values()))
    error = ForwardError(
        f"{type(module).__name__}: forward fails for inputs of every kind that was tried, with B = {BATCH} "
        f"and T = {timesteps}:{listed}\nCheck input shape and time steps; forward must take the inputs alone."
        f"{_shape_hint(module, shape)}"
    )
    error.__cause__ = first
    return error


def _shape_hint(module: nn.Module, shape: Shape) -> str:
    """Return a hint if the first layer takes the samples flattened, or the channels first."""
    layers = (part for part in module.modules() if isinstance(part, (nn.Linear, nn.Conv2d)))
    first = next(layers, None)
    if isinstance(first, nn.Linear) and len(shape) > 1 and first.in_features == prod(shape):
        return (
            f" Its first Linear takes {prod(shape)} features: give --input-shape {prod(shape)}, and samples "
            "are flattened."
        )
    if isinstance(first, nn.Conv2d) and (len(shape) != 3 or shape[0] != first.in_channels):
        sizes = "HEIGHT WIDTH"
        if len(shape) == 3 and shape[-1] == first.in_channels:
            sizes = f"{shape[0]} {shape[1]}"
        return (
            f" Its first Conv2d takes {first.in_channels} channels, which come before height and width: give "
            f"--input-shape {first.in_channels} {sizes}; samples with the channels last are reordered."
        )
    return ""


class _Recorder(TorchFunctionMode):
    """Follows the values of one run."""

    def __init__(
        self,
        module: nn.Module,
        shape: Shape,
        timesteps: int,
        style: str,
        is_known: Callable[[nn.Module], bool],
        neurons: tuple[type[nn.Module], ...],
    ) -> None:
        super().__init__()
        self.module, self.shape, self.timesteps, self.style = module, shape, timesteps, style
        self.is_known, self.neurons = is_known, neurons
        self.values: dict[int, tuple[Tensor, Value]] = {}  # the tensor, so that its id is not used again
        self.calls: dict[Any, Call] = {}
        self.fired: Counter[str] = Counter()  # calls of each neuron
        self.where: list[str] = []  # paths of the modules being called
        self.depth = 0  # of leaf modules being called
        merged = (timesteps * BATCH,)
        self.leading = {  # the first axes of each form
            "B": (BATCH,),
            "TB": (timesteps, BATCH),
            "BT": (BATCH, timesteps),
            "TB merged": merged,
            "BT merged": merged,
        }

    def run(self, dtype: torch.dtype) -> Recording:
        given = self._make_input(dtype)
        with self._hooked(), self:
            output = self.module(given)
        return self._recording(output)

    @property
    def reached(self) -> int:
        """The number of values that could be followed."""
        return sum(value.call is not None for _, value in self.values.values())

    def _make_input(self, dtype: torch.dtype) -> Tensor:
        """Return random inputs, different in each step; remember their steps."""
        generator = torch.Generator().manual_seed(0)
        steps = 1 if self.style == "step or loop" else self.timesteps
        self.steps = torch.rand((steps, BATCH, *self.shape), generator=generator).to(dtype)
        if self.style == "step or loop":
            given = self.steps[0].clone()  # forward may write into it
        else:
            given = (self.steps if self.style == "time first" else self.steps.transpose(0, 1)).clone()
        self._keep(given, self._recognized(given) or Value(None, problem=WHOLE, raw=True))
        return given

    # ---- hooks ------------------------------------------------------------------------------------

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        handles: list[RemovableHandle] = []
        for path, part in self.module.named_modules():
            leaf = self.is_known(part) or is_layer(part)
            handles.append(part.register_forward_pre_hook(self._entering(path, leaf)))
            handles.append(part.register_forward_hook(self._leaving(path, part, leaf), with_kwargs=True))
        with removed_after(handles):
            yield

    def _entering(self, path: str, leaf: bool) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any) -> None:
            self.where.append(path)
            self.depth += leaf

        return enter

    def _leaving(self, path: str, part: nn.Module, leaf: bool) -> Callable[..., None]:
        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self.where.pop()
            if leaf and self.depth == 1:
                self._called(path, part, list(tensors((args, kwargs))), list(tensors(output)))
            self.depth -= leaf

        return leave

    def _called(self, path: str, part: nn.Module, given: list[Tensor], sent: list[Tensor]) -> None:
        """Follow the call of a leaf module: its first output, of its first input."""
        value = self._value(given[0]) if given else None
        if value is None or not sent:
            return
        if isinstance(part, self.neurons):
            self._check_mode(path, part, tuple(given[0].shape))
            spikes = value if value.call is None else self._fired(path, value)
            self._keep_states(path, part, value, spikes, sent[1:])
            value = spikes
        elif value.form in ("stack", "sum") or (value.form == "mean" and not isinstance(part, nn.Linear)):
            value = Value(None, problem=f"{layer_name(path)}, called with values of all time steps together")
        elif value.call is not None:
            value = Value(self._call(path, (value.call,)), value.steps, value.form)
        self._keep(sent[0], value)

    def _check_mode(self, path: str, part: nn.Module, given: Shape) -> None:
        """Raise if a neuron of SpikingJelly that takes all steps at once would take other axes for time."""
        wanted = (self.timesteps, BATCH)
        if getattr(part, "step_mode", "s") == "m" and given[:2] != wanted:
            raise FrontendError(
                f"{layer_name(path, type(part).__name__)}: step_mode 'm' takes [time, batch, ...], "
                f"{list(wanted)} at first; it gets {list(given)}. Check --timesteps, or set step_mode 's'."
            )

    def _keep_states(
        self, path: str, part: nn.Module, given: Value, spikes: Value, states: list[Tensor]
    ) -> None:
        """Follow the states of a neuron, the last of which is its membrane; some are kept as an attribute."""
        if isinstance(kept := getattr(part, "mem", None), Tensor):
            states = [*states, kept]
        for state in states[:-1]:
            self._keep(state, Value(None, problem=f"the current of {layer_name(path, type(part).__name__)}"))
        if states and (given.call is None or spikes.call is None):
            self._keep(states[-1], spikes)
        elif states and given.call is not None:
            membrane = self._call(Membrane(path), (given.call,))
            self._keep(states[-1], Value(membrane, spikes.steps, spikes.form))

    def _fired(self, path: str, value: Value) -> Value:
        """Return the spikes of a neuron: of one step after the other, or of all steps at once."""
        assert value.call is not None
        count = self.fired[path]
        self.fired[path] += 1
        if value.form == "TB" and count == 0:
            return Value(self._call(path, (value.call,)), None, "TB")
        if value.form != "B" or value.steps not in (None, (count,)):
            found = "all time steps together" if value.form != "B" else f"time step {list(value.steps or ())}"
            return Value(
                None, problem=f"{layer_name(path)}, which in its call {count} gets values of {found}"
            )
        return Value(self._call(path, (value.call,)), (count,), "B")

    def _call(
        self, target: Any, sources: tuple[Call, ...], arguments: Any = (), keywords: Any = None
    ) -> Call:
        key = (target, sources, repr(arguments), repr(keywords))
        return self.calls.setdefault(key, Call(target, sources, tuple(arguments), dict(keywords or {})))

    # ---- functions --------------------------------------------------------------------------------

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if name == "__iter__":  # over the first axis
            result = args[0].unbind(0)
        changed = args[0] if name == "__setitem__" else result
        if not self.depth:
            for index, tensor in enumerate(tensors(changed)):
                self._follow(function, list(args), kwargs, tensor, index)
        return iter(result) if name == "__iter__" else result

    def _follow(self, function: Any, args: list[Any], kwargs: Any, result: Tensor, index: int) -> None:
        tracked = [(each, value) for each in tensors((args, kwargs)) if (value := self._value(each))]
        if not tracked:
            return
        values = [value for _, value in tracked]
        name = getattr(function, "__name__", str(function))
        raw = all(value.call is INPUT or value.raw for value in values)
        if raw and (seen := self._recognized(result)) is not None:
            self._keep(result, seen)
        elif (found := next((value for value in values if value.problem), None)) is not None:
            self._keep(result, found if found.problem != WHOLE else self._unknown(name, raw))
        else:
            followed = self._followed(name, args, kwargs, tracked, result, index)
            self._keep(result, followed or self._unknown(name, raw))

    def _unknown(self, name: str, raw: bool) -> Value:
        problem = f"{layer_name(self._named(name))}: operation {name!r}"
        return Value(None, problem=problem, hint=_hint(name, raw), raw=raw)

    def _named(self, name: str) -> str:
        """Name a function call in `forward`: the path of the module, then the name of the function."""
        return f"{self.where[-1]}.{name}" if self.where and self.where[-1] else name

    def _followed(
        self,
        name: str,
        args: list[Any],
        kwargs: Any,
        tracked: list[tuple[Tensor, Value]],
        result: Tensor,
        index: int,
    ) -> Value | None:
        """Return the value of a function's result; None if the function is not supported."""
        source, value = tracked[0]
        plain = plain_name(name)
        if plain in SUMS and (added := self._added(args, kwargs, [each for _, each in tracked])) is not None:
            return added
        if name in ("stack", "cat", "concat"):
            return self._stacked(args, kwargs, [each for _, each in tracked])
        if name in ("sum", "mean"):
            return self._reduced(name, args, kwargs, value)
        if len(tracked) > 1 or value.call is None:
            return None
        if plain in QUOTIENTS and value.form == "sum":
            return self._averaged(args, value)
        if plain in ARITHMETIC:
            return None if kwargs else self._scaled(name, args, source, value)
        if name in UNCHANGED:
            same = result.shape == source.shape and torch.equal(result.to(source), source)
            return value if same else None
        if name in POOLINGS and value.form in ("B", "TB merged", "BT merged"):
            given = [each if each != [] else None for each in args[1:]]  # of a stride that was not given
            call = self._call(POOLINGS[name], (value.call,), given, kwargs)
            return Value(call, value.steps, value.form)
        if name in ("__getitem__", "select", "unbind", "__iter__"):
            return self._one_step(name, args, value, index)
        return self._reshaped(value, source.shape, result.shape) if name in RESHAPES else None

    def _added(self, args: list[Any], kwargs: Any, values: list[Value]) -> Value | None:
        """Return the sum of two values of one step, or of one value in consecutive steps."""
        numbers = [each for each in args[:2] if not (isinstance(each, Tensor) and self._value(each))]
        if kwargs or len(args) != 2 or any(torch.as_tensor(each).any() for each in numbers):
            return None
        if len(values) == 1:
            return values[0]
        first, second = values
        same = first.call is second.call and first.form in ("B", "sum") and second.form == "B"
        if same and first.steps and second.steps == (first.steps[-1] + 1,):
            return Value(first.call, first.steps + second.steps, "sum")
        steps = {value.steps for value in values} - {None}
        if len(steps) > 1 or first.form != second.form or first.form not in self.leading:
            return None
        assert first.call is not None and second.call is not None
        return Value(self._call(operator.add, (first.call, second.call)), next(iter(steps), None), first.form)

    def _stacked(self, args: list[Any], kwargs: Any, values: list[Value]) -> Value | None:
        """Return values of consecutive steps, stacked along a new first or second axis."""
        axis = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        if axis not in (0, 1) or any(
            value.steps != (step,) or value.form != "B" for step, value in enumerate(values)
        ):
            return None
        if any(value.call is not values[0].call for value in values):
            return Value(None, problem="values that some time steps compute in another way")
        if len(values) == self.timesteps:
            return Value(values[0].call, None, "BT" if axis else "TB")
        return Value(values[0].call, tuple(range(len(values))), "stack")

    def _reduced(self, name: str, args: list[Any], kwargs: Any, value: Value) -> Value | None:
        axis = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
        time = {"stack": 0, "TB": 0, "BT": 1}.get(value.form)
        if time is None or axis not in (time, (time,), [time]):
            return None
        return Value(value.call, value.steps, name)

    def _averaged(self, args: list[Any], value: Value) -> Value | None:
        """A sum divided by the time steps is a mean."""
        return Value(value.call, value.steps, "mean") if args[-1] == self.timesteps else None

    def _scaled(self, name: str, args: list[Any], source: Tensor, value: Value) -> Value | None:
        """Return a value of a step, multiplied by a constant, or with a constant added."""
        assert value.call is not None
        place = next(place for place, each in enumerate(args) if each is source)
        found = scaling(name, args, place)
        if found is None or value.form not in self.leading:
            return None
        features = tuple(source.shape[len(self.leading[value.form]) :])
        numbers = per_channel(layer_name(self._named(name)), found, features)
        return Value(self._call(scale_and_shift, (value.call,), numbers), value.steps, value.form)

    def _one_step(self, name: str, args: list[Any], value: Value, index: int) -> Value | None:
        """Return one step of a value that holds all of them: x[t], x[:, t], or a result of unbind."""
        time = {"stack": 0, "TB": 0, "BT": 1}.get(value.form)
        if time is None:
            return None
        if name in ("unbind", "__iter__"):
            axis, step = (args[1] if len(args) > 1 else 0), index
        elif name == "select":
            axis, step = args[1], args[2]
        else:
            axis, step = _indexed(args[1])
        if axis != time or not isinstance(step, int):
            return None
        return Value(value.call, (step % self.timesteps,), "B")

    def _reshaped(self, value: Value, before: torch.Size, after: torch.Size) -> Value | None:
        """Return a value with merged or split time axis, and flattened or not."""
        assert value.call is not None
        leading = self.leading
        if value.form not in leading:
            return None
        features = tuple(before[len(leading[value.form]) :])
        time = value.form.partition(" ")[0]
        for form in ("B",) if time == "B" else (time, f"{time} merged"):
            if tuple(after[: len(leading[form])]) != leading[form]:
                continue
            found = tuple(after[len(leading[form]) :])
            if found == features:
                return Value(value.call, value.steps, form)
            if found == (prod(features),):
                return Value(self._call(torch.flatten, (value.call,), (1,)), value.steps, form)
        return None

    # ---- values -----------------------------------------------------------------------------------

    def _value(self, tensor: Tensor) -> Value | None:
        return self.values[id(tensor)][1] if id(tensor) in self.values else None

    def _keep(self, tensor: Tensor, value: Value) -> None:
        self.values[id(tensor)] = (tensor, value)

    def _recognized(self, tensor: Tensor) -> Value | None:
        """Return which steps of the input a tensor equals; None if it equals none."""
        constant = self.style == "step or loop"
        flat = self._call(torch.flatten, (INPUT,), (1,))
        for call, steps in ((INPUT, self.steps), (flat, self.steps.flatten(2))):
            features = tuple(steps.shape[2:])
            if tuple(tensor.shape) == (BATCH, *features):
                for step, values in enumerate(steps):
                    if torch.equal(tensor.to(values), values):
                        return Value(call, None if constant else (step,), "B")
            time_first = steps.expand(self.timesteps, *steps.shape[1:])
            for time, whole in (("TB", time_first), ("BT", time_first.transpose(0, 1))):
                for form in (time, f"{time} merged"):
                    if tuple(tensor.shape) == (*self.leading[form], *features):
                        whole = whole.reshape(tensor.shape)
                        if torch.equal(tensor.to(whole), whole):
                            return Value(call, None, form)
        return None

    # ---- the result -------------------------------------------------------------------------------

    def _recording(self, output: Any) -> Recording:
        returned = [(index, self._value(tensor)) for index, tensor in enumerate(tensors(output))]
        values = [(index, value) for index, value in returned if value is not None]
        index, found = next(((n, value) for n, value in values if value.call is not None), (0, None))
        if found is None or found.call is None:
            raise FrontendError(_not_followed(type(self.module).__name__, [value for _, value in values]))
        last, readout = found.call, None
        if isinstance(last.target, Membrane):
            readout, last = last.target.path, last.sources[0]
        needed = _reachable(last)
        for call in needed:
            if isinstance(call.target, Membrane):
                where = layer_name(call.target.path)
                raise FrontendError(f"{where}: its membrane is sent on; only spikes can be sent.")
        style = self._style(found, readout is not None)
        return Recording(_graph_of(needed, last), style, readout, (index, found.form))

    def _style(self, found: Value, membrane: bool) -> str:
        name, steps = type(self.module).__name__, self.timesteps
        if found.form == "B" and self.style == "step or loop" and max(self.fired.values(), default=0) == 1:
            return "step"
        if found.form == "B" and not (membrane and found.steps == (steps - 1,)):
            raise FrontendError(
                f"{name}: returns the value of one time step; return those of all steps, as torch.stack(...) "
                "or as their sum, or let forward compute one step and keep the loop outside."
            )
        if found.form != "B" and found.steps is not None and len(found.steps) != steps:
            ran = len(found.steps)
            raise FrontendError(
                f"{name}: its forward runs {ran} time steps, but {steps} are given; give --timesteps {ran}."
            )
        if membrane and found.form in ("sum", "mean"):
            raise FrontendError(
                f"{name}: returns the {found.form} of membranes over time; return their stack, or the last."
            )
        return "loop" if self.style == "step or loop" else self.style


def _hint(name: str, raw: bool) -> str:
    """Return what to do instead of an operation; `raw`: its values are the inputs."""
    if raw and name.startswith(RANDOM):
        return "Encode the samples before, and give the spikes [samples, time, ...] with --data. "
    if raw and name in STATISTICS:
        return "Scale inputs by constants, or leave it out of forward and give --normalize MEAN DEVIATION. "
    return ""


def _not_followed(name: str, values: list[Value]) -> str:
    if not values:
        return f"{name}: forward returns nothing that was computed from its input by layers."
    return (
        f"{name}: its output depends on {values[0].problem}, which is not supported. {values[0].hint}"
        "Supported are layers, additions of two values of one time step, arithmetic with constants, "
        "flattening, pooling, and sums, means or stacks over all time steps."
    )


@contextmanager
def removed_after(handles: Sequence[RemovableHandle]) -> Iterator[None]:
    """Remove hooks at the end."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def copy_to_run(module: nn.Module) -> nn.Module:
    """Return a copy with states of its own; parameters, which no run changes, are shared."""
    return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})


def tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, dictionaries and named tuples."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from tensors(list(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors(value)


def _indexed(index: Any) -> tuple[int, Any]:
    """Return axis and step of x[t] and x[:, t], which may go on with slices of whole axes."""
    places = index if isinstance(index, tuple) else (index,)
    whole = [place == slice(None) or place is Ellipsis for place in places]
    axis = next((number for number, all_of_it in enumerate(whole) if not all_of_it), 0)
    alone = all(whole[:axis]) and all(whole[axis + 1 :]) and Ellipsis not in places[:axis]
    return axis, places[axis] if alone else None


def _reachable(last: Call) -> list[Call]:
    """Return the calls that a call depends on, in order of execution, itself last."""
    found: dict[int, Call] = {}

    def visit(call: Call) -> None:
        if id(call) not in found:
            for source in call.sources:
                visit(source)
            found[id(call)] = call

    visit(last)
    return list(found.values())


def _graph_of(calls: Sequence[Call], last: Call) -> fx.Graph:
    graph = fx.Graph()
    nodes = {id(INPUT): graph.placeholder("x")}
    for call in calls:
        if call is INPUT:
            continue
        sources = tuple(nodes[id(source)] for source in call.sources)
        if isinstance(call.target, str):
            nodes[id(call)] = graph.call_module(call.target, sources)
        else:
            nodes[id(call)] = graph.call_function(
                call.target, (*sources, *call.arguments), dict(call.keywords)
            )
    graph.output(nodes[id(last)])
    return graph
