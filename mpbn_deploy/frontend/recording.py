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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any, get_args

import torch
from torch import Tensor, fx, nn
from torch.utils.hooks import RemovableHandle

from ..base import FrontendError, layer_name
from ..ir import Shape
from .following import BATCH, Follower, tensors
from .foreign import is_layer
from .handwritten import HandwrittenError, HandwrittenNeuron, Threshold, leaking_sum
from .values import INPUT, Call, FollowedMembrane, FollowedValue, Form, Style, TriedStyle


@dataclass(frozen=True)
class Recording:
    """The graph of one step, and the style in which the module computes its steps.

    readout      the neuron whose membrane is the output; the graph then ends with what arrives there
    leak         of a membrane that is the output, and that forward computes by itself
    output       which of the returned tensors counts, and its form (see `FollowedValue`)
    handwritten  the neurons that forward computes by itself
    """

    graph: fx.Graph
    style: Style
    readout: str | None
    leak: float | None
    output: tuple[int, Form]
    handwritten: tuple[HandwrittenNeuron, ...]


def record_step(
    module: nn.Module,
    shape: Shape,
    timesteps: int,
    dtype: torch.dtype,
    is_known: Callable[[nn.Module], bool],
    neuron_classes: tuple[type[nn.Module], ...],
) -> Recording:
    """Run a module in each style and return the recording of the first that fits."""
    failures: dict[TriedStyle, Exception] = {}
    furthest: list[tuple[int, FrontendError]] = []
    for style in get_args(TriedStyle):
        recorder = _Recorder(copy_to_run(module), shape, timesteps, style, is_known, neuron_classes)
        try:
            with torch.no_grad():
                return recorder.run(dtype)
        except FrontendError as error:
            if (recorder.handwritten or recorder.unknown_neurons) and not isinstance(error, HandwrittenError):
                error = HandwrittenError(str(error))
            furthest.append((recorder.reached, error))
        except Exception as error:  # forward of a user's module can raise anything
            failures[style] = error
    if furthest:
        raise max(furthest, key=lambda each: each[0])[1]
    raise _failed(module, shape, timesteps, failures)


class ForwardError(FrontendError):
    """The forward of a module failed for inputs of every kind."""


def _failed(
    module: nn.Module, shape: Shape, timesteps: int, failures: Mapping[TriedStyle, Exception]
) -> ForwardError:
    axes: dict[TriedStyle, str] = {"step or loop": "B", "time first": "T, B", "batch first": "B, T"}
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


class _Recorder(Follower):
    """Follows the values of one run, and makes a graph of them."""

    def __init__(
        self,
        module: nn.Module,
        shape: Shape,
        timesteps: int,
        style: TriedStyle,
        is_known: Callable[[nn.Module], bool],
        neuron_classes: tuple[type[nn.Module], ...],
    ) -> None:
        super().__init__(shape, timesteps, style)
        self.module, self.is_known, self.neuron_classes = module, is_known, neuron_classes
        self.fired: Counter[str] = Counter()  # calls of each neuron

    def run(self, dtype: torch.dtype) -> Recording:
        given = self.begin(dtype)
        with self._hooked(), self:
            output = self.module(given)
            self.stepped = self._keeps_states()
            again = range(1, self.timesteps) if self.stepped else ()
            outputs = [output, *(self._call_again(given) for _ in again)]
        return self._recording(outputs)

    def _call_again(self, given: Tensor) -> Any:
        self.comparisons = 0
        return self.module(given)

    def _keeps_states(self) -> bool:
        """Whether forward computed one step of neurons of its own; the next steps show what they are."""
        single = self.style == "step or loop" and all(len(each.updates) == 1 for each in self.handwritten)
        return single and bool(self.handwritten)

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
        value = replace(value, terms=None)  # of membranes, which cannot be sent
        if isinstance(part, self.neuron_classes):
            self._check_mode(path, part, tuple(given[0].shape))
            spikes = value if value.call is None else self._fired(path, value)
            self._keep_states(path, part, value, spikes, sent[1:])
            value = spikes
        elif value.form in ("stack", "sum") or (value.form == "mean" and not isinstance(part, nn.Linear)):
            value = FollowedValue(
                None, problem=f"{layer_name(path)}, called with values of all time steps together"
            )
        elif value.call is not None:
            value = FollowedValue(self._call(path, (value.call,)), value.steps, value.form)
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
        self, path: str, part: nn.Module, given: FollowedValue, spikes: FollowedValue, states: list[Tensor]
    ) -> None:
        """Follow the states of a neuron, the last of which is its membrane; some are kept as an attribute."""
        if isinstance(kept := getattr(part, "mem", None), Tensor):
            states = [*states, kept]
        for state in states[:-1]:
            self._keep(
                state, FollowedValue(None, problem=f"the current of {layer_name(path, type(part).__name__)}")
            )
        if states and (given.call is None or spikes.call is None):
            self._keep(states[-1], spikes)
        elif states and given.call is not None:
            membrane = self._call(FollowedMembrane(path), (given.call,))
            self._keep(states[-1], FollowedValue(membrane, spikes.steps, spikes.form))

    def _fired(self, path: str, value: FollowedValue) -> FollowedValue:
        """Return the spikes of a neuron: of one step after the other, or of all steps at once."""
        assert value.call is not None
        count = self.fired[path]
        self.fired[path] += 1
        if value.form == "TB" and count == 0:
            return FollowedValue(self._call(path, (value.call,)), None, "TB")
        if value.form != "B" or value.steps not in (None, (count,)):
            found = "all time steps together" if value.form != "B" else f"time step {list(value.steps or ())}"
            return FollowedValue(
                None, problem=f"{layer_name(path)}, which in its call {count} gets values of {found}"
            )
        return FollowedValue(self._call(path, (value.call,)), (count,), "B")

    # ---- the result -------------------------------------------------------------------------------

    def _recording(self, outputs: list[Any]) -> Recording:
        index, found, leak = self._output(outputs[0])
        for step, output in enumerate(outputs[1:], 1):
            value = self._value(list(tensors(output))[index])
            if value is None or value.call is not found.call or value.steps not in (None, (step,)):
                name = type(self.module).__name__
                if value is not None and value.problem:
                    raise FrontendError(_not_followed(name, [value]))
                raise FrontendError(
                    f"{name}: its calls do not all do the same; each must compute one time step alike."
                )
        assert found.call is not None
        last, readout = found.call, None
        if isinstance(last.target, FollowedMembrane):
            readout, last = last.target.path, last.sources[0]
        needed = _reachable(last)
        for call in needed:
            if isinstance(call.target, FollowedMembrane):
                where = layer_name(call.target.path)
                raise FrontendError(f"{where}: its membrane is sent on; only spikes can be sent.")
        style = self._style(found, readout is not None or leak is not None)
        handwritten = tuple(call.target.neuron for call in needed if isinstance(call.target, Threshold))
        for neuron in handwritten:
            if len(neuron.updates) != self.timesteps:
                raise neuron.error(f"fires in {len(neuron.updates)} of {self.timesteps} time steps")
        return Recording(_graph_of(needed), style, readout, leak, (index, found.form), handwritten)

    def _output(self, output: Any) -> tuple[int, FollowedValue, float | None]:
        """Return the first returned value that can be followed, its place, and the leak of a membrane."""
        returned = [(index, self._value(tensor)) for index, tensor in enumerate(tensors(output))]
        values = [(index, value) for index, value in returned if value is not None]
        for index, value in values:
            if value.call is not None:
                return index, value, None
            found = None if value.terms is None else leaking_sum(value.terms, self.timesteps)
            if found is not None:
                call, leak, factor = found
                if factor != 1:
                    raise FrontendError(
                        f"{type(self.module).__name__}: returns a membrane to which what arrives is added "
                        f"{factor:g} times; only once is supported. Multiply the weights."
                    )
                return index, FollowedValue(call, (self.timesteps - 1,), "B"), leak
        raise FrontendError(_not_followed(type(self.module).__name__, [value for _, value in values]))

    def _style(self, found: FollowedValue, membrane: bool) -> Style:
        name, steps = type(self.module).__name__, self.timesteps
        single = max(self.fired.values(), default=0) == 1 or self.stepped
        if found.form == "B" and self.style == "step or loop" and single:
            return "step"
        if found.form == "B" and not (membrane and found.steps == (steps - 1,)):
            raise FrontendError(
                f"{name}: returns the value of one time step; return those of all steps, as torch.stack(...) "
                "or as their sum, or let forward compute one step and keep the loop outside."
            )
        ran = steps if found.form == "B" or found.steps is None else len(found.steps)
        if (fired := max(self.fired.values(), default=0)) > ran:
            raise FrontendError(
                f"{name}: its neurons run {fired} time steps, of which it returns {ran}; return those of all."
            )
        if ran != steps:
            raise FrontendError(
                f"{name}: its forward runs {ran} time steps, but {steps} are given; give --timesteps {ran}."
            )
        if membrane and found.form in ("sum", "mean"):
            raise FrontendError(
                f"{name}: returns the {found.form} of membranes over time; return their stack, or the last."
            )
        return "loop" if self.style == "step or loop" else self.style


def _not_followed(name: str, values: list[FollowedValue]) -> str:
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


def _graph_of(calls: Sequence[Call]) -> fx.Graph:
    """Return the graph of calls in order of execution; the last gives the output."""
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
    graph.output(nodes[id(calls[-1])])
    return graph
