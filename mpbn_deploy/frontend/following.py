"""Follow the values of a run from the input to the output: which call computed each, and of which time step.

A TorchFunctionMode sees every function that forward calls.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ..base import FrontendError, layer_name
from ..ir import Shape
from .arithmetic import ARITHMETIC, QUOTIENTS, SUMS, channel_numbers, plain_name, scale_and_shift, scaling
from .handwritten import (
    COMPARISONS,
    INCLUSIVE,
    REVERSED,
    Fired,
    HandwrittenNeuron,
    combined,
    constant_terms,
    fire,
    terms_of,
)
from .hints import ADAPTIVE_THRESHOLD, OWN_NEURON, hint_for
from .values import INPUT, ORDERS, Call, FollowedValue, Form, Terms, TriedStyle

BATCH = 3  # samples while recording, told apart from time steps by the values

WHOLE = "the input itself"

# Names of functions and methods, as TorchFunctionMode reports them.
CONSTANTS = frozenset(
    {
        "zeros_like",
        "ones_like",
        "full_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_tensor",
        "size",
        "numel",
    }
)
UNCHANGED = frozenset(
    {
        "float",
        "double",
        "bool",
        "to",
        "type",
        "type_as",
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
DECISIONS = {  # what gives Python a number, by which forward may choose what to compute
    **dict.fromkeys(("__bool__", "is_nonzero"), "if"),
    **dict.fromkeys(("__float__", "__int__", "__index__"), "int() or float()"),
    **{name: name for name in ("item", "tolist", "numpy", "__array__", "equal", "allclose", "__contains__")},
    **{name: name for name in ("nonzero", "argwhere", "masked_select", "bincount", "unique_consecutive")},
    **dict.fromkeys(("unique", "_return_output", "_return_inverse", "_return_counts"), "unique"),
}
STATISTICS = frozenset({"max", "min", "amax", "amin", "aminmax", "mean", "std", "var", "sum", "norm"})
RANDOM = ("bernoulli", "rand", "normal", "poisson", "multinomial")
POOLINGS = {
    "avg_pool2d": functional.avg_pool2d,
    "adaptive_avg_pool2d": functional.adaptive_avg_pool2d,
    "max_pool2d": functional.max_pool2d,
}
STACKS = frozenset({"stack", "cat", "concat"})
TOTALS: dict[str, Form] = {"sum": "sum", "mean": "mean"}
TIME_AXIS: dict[Form, int] = {"stack": 0, "TB": 0, "BT": 1}
PICKS = frozenset({"__getitem__", "select", "unbind", "__iter__"})
SUPPORTED = STACKS | TOTALS.keys() | PICKS | RESHAPES | POOLINGS.keys()  # of values that can be followed


class Follower(TorchFunctionMode):
    """Follows the values of one run of a module, whose inputs are given with `begin`."""

    def __init__(self, shape: Shape, timesteps: int, style: TriedStyle) -> None:
        super().__init__()
        self.shape, self.timesteps, self.style = shape, timesteps, style
        self.values: dict[
            int, tuple[Tensor, FollowedValue]
        ] = {}  # the tensor, so that its id is not used again
        self.calls: dict[Any, Call] = {}
        self.where: list[str] = []  # paths of the modules being called
        self.depth = 0  # of leaf modules being called
        self.comparisons = 0  # in this call of the module
        self.handwritten: list[HandwrittenNeuron] = []  # that forward computes by itself
        self.unknown_neurons = 0  # comparisons that look like those of a neuron
        self.adaptive = False  # whether a membrane was compared with something that changes
        self.made: set[int] = set()  # tensors that are results of arithmetic
        merged = (timesteps * BATCH,)
        self.leading: dict[Form, Shape] = {  # the first axes of each form
            "B": (BATCH,),
            "TB": (timesteps, BATCH),
            "BT": (BATCH, timesteps),
            "TB merged": merged,
            "BT merged": merged,
        }

    def begin(self, dtype: torch.dtype) -> Tensor:
        """Return random inputs, different in each step; remember their steps."""
        self.dtype = dtype
        generator = torch.Generator().manual_seed(0)
        steps = 1 if self.style == "step or loop" else self.timesteps
        self.steps = torch.rand((steps, BATCH, *self.shape), generator=generator).to(dtype)
        if self.style == "step or loop":
            given = self.steps[0].clone()  # forward may write into it
        else:
            given = (self.steps if self.style == "time first" else self.steps.transpose(0, 1)).clone()
        self._keep(given, self._recognized(given) or FollowedValue(None, problem=WHOLE, raw=True))
        return given

    @property
    def reached(self) -> int:
        """The number of values that could be followed."""
        return sum(value.call is not None for _, value in self.values.values())

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
        name = getattr(function, "__name__", "")
        before = list(args)
        if writes(name) and isinstance(args[0], Tensor) and self._value(args[0]) is None:
            before[0] = args[0].clone()
        result = of_type(self.dtype, name, args, function(*args, **kwargs))
        self.comparisons += plain_name(name) in COMPARISONS
        if name in DECISIONS and not self.depth:
            self._check_decision(name, before)
        if name == "__iter__":  # over the first axis
            result = args[0].unbind(0)
        changed = args[0] if name == "__setitem__" else result
        if not self.depth:
            for index, tensor in enumerate(tensors(changed)):
                self._follow(function, before, kwargs, tensor, index)
        return iter(result) if name == "__iter__" else result

    def _follow(self, function: Any, args: list[Any], kwargs: Any, result: Tensor, index: int) -> None:
        name = getattr(function, "__name__", str(function))
        read = args[:1] if name in ("to", "type_as") else (args, kwargs)  # of another tensor, the type alone
        tracked = [(each, value) for each in tensors(read) if (value := self._value(each))]
        if not tracked or name in CONSTANTS:
            return
        values = [value for _, value in tracked]
        raw = all(value.call is INPUT or value.raw for value in values)
        if raw and (seen := self._recognized(result)) is not None:
            self._keep(result, seen)
        elif (
            lost := next((value for value in values if value.problem and not value.terms), None)
        ) is not None:
            self.unknown_neurons += plain_name(name) in COMPARISONS and not lost.raw
            self._keep(result, lost if lost.problem != WHOLE else self._unknown(name, raw))
        else:
            plain = not any(value.terms for value in values)
            followed = self._followed(name, args, kwargs, tracked, result, index) if plain else None
            followed = followed or self._expressed(name, args, kwargs, tracked, result)
            self._keep(result, followed or self._cause(name, values) or self._unknown(name, raw))
            if plain_name(name) in ARITHMETIC:
                self.made.add(id(result))

    def _check_decision(self, name: str, args: list[Any]) -> None:
        """Raise if forward may decide by its data what to compute: one run shows one of its branches."""
        if any(self._value(each) for each in tensors(args)):
            where = f"{layer_name(self._named('forward'))}, {_line_of_forward()}"
            how = DECISIONS[name]
            raise FrontendError(
                f"{where}: takes a number out of its data ({how}), so what it computes may differ from "
                "input to input; the same operations are needed for all. "
                "Check inputs before calling it, and count spikes outside of it."
            )

    def _cause(self, name: str, values: list[FollowedValue]) -> FollowedValue | None:
        """Return which value keeps a supported function from being followed: a product of membranes, say."""
        computed = (replace(value, terms=None) for value in values if value.terms and value.problem)
        return next(computed, None) if name in SUPPORTED else None

    def _unknown(self, name: str, raw: bool) -> FollowedValue:
        problem = f"{layer_name(self._named(name))}: operation {name!r}"
        own = ADAPTIVE_THRESHOLD if self.adaptive else OWN_NEURON if self.handwritten and not raw else ""
        hint = _hint(name, raw) or (f"{own} " if own else "")
        return FollowedValue(None, problem=problem, hint=f"See {_line_of_forward()}. {hint}", raw=raw)

    def _named(self, name: str) -> str:
        """Name a function call in `forward`: the path of the module, then the name of the function."""
        return f"{self.where[-1]}.{name}" if self.where and self.where[-1] else name

    def _followed(
        self,
        name: str,
        args: list[Any],
        kwargs: Any,
        tracked: list[tuple[Tensor, FollowedValue]],
        result: Tensor,
        index: int,
    ) -> FollowedValue | None:
        """Return the value of a function's result; None if the function is not supported."""
        source, value = tracked[0]
        plain = plain_name(name)
        if plain in SUMS and (added := self._added(args, kwargs, [each for _, each in tracked])) is not None:
            return added
        if name in STACKS:
            return self._stacked(args, kwargs, [each for _, each in tracked])
        if name in TOTALS:
            return self._reduced(TOTALS[name], args, kwargs, value)
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
            return FollowedValue(call, value.steps, value.form)
        if name in PICKS:
            return self._one_step(name, args, value, index)
        return self._reshaped(value, source.shape, result.shape) if name in RESHAPES else None

    def _expressed(
        self,
        name: str,
        args: list[Any],
        kwargs: Any,
        tracked: list[tuple[Tensor, FollowedValue]],
        result: Tensor,
    ) -> FollowedValue | None:
        """Return what forward computes of membranes by itself (see `handwritten`)."""
        source, value = tracked[0]
        if name in UNCHANGED and len(tracked) == 1:
            return value if torch.equal(result.to(source), source) else None
        if kwargs or any(each.shape != result.shape for each, _ in tracked):
            return None
        operands = [self._terms(each) for each in args]
        known = [each for each in operands if each is not None]
        plain = plain_name(name)
        if len(known) < len(operands):
            self.unknown_neurons += plain in COMPARISONS
            return None
        if plain in COMPARISONS:
            spikes = self._compared(plain, known)
            self.unknown_neurons += spikes is None
            return spikes
        terms = combined(plain, known)
        if terms is None:
            return None
        return replace(self._unknown(name, raw=False), terms=terms)

    def _terms(self, given: Any) -> Terms | None:
        value = self._value(given) if isinstance(given, Tensor) else None
        return constant_terms(given) if value is None else terms_of(value)

    def _compared(self, name: str, operands: list[Terms]) -> FollowedValue | None:
        """Return the spikes of a neuron that forward computes by itself."""
        inclusive = name in INCLUSIVE
        self.adaptive |= all(any(operand) for operand in operands)
        if name == "heaviside":  # its second argument is the value at zero
            inclusive, operands = operands[1].get(frozenset(), 0.0) > 0, [operands[0], {}]
        difference = combined("rsub" if name in REVERSED else "sub", operands)
        fired = None if difference is None else fire(difference, inclusive, self._name_of, self._sum)
        if fired is None:
            return None
        fired.neuron.comparisons.append(self.comparisons - 1)
        if not fired.step:
            self.handwritten.append(fired.neuron)
        self._remember(fired)
        return FollowedValue(fired.neuron.call, (fired.step,), "B")

    def _sum(self, first: Call, second: Call) -> Call:
        return self._call(operator.add, (first, second))

    def _name_of(self, source: Call) -> str:
        """Name a neuron by the module that computes it, or by the layer that it reads."""
        path = self.where[-1] if self.where and self.where[-1] else ""
        while source.sources and not isinstance(source.target, str):
            source = source.sources[0]
        name = path or f"{source.target or 'input'}_spikes"
        taken = {neuron.name for neuron in self.handwritten}
        return next(
            each for each in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if each not in taken
        )

    def _remember(self, fired: Fired) -> None:
        """Let tensors that hold the membrane of a neuron be its state from now on."""
        for number in self.made & self.values.keys():
            tensor, value = self.values[number]
            terms = terms_of(value)
            rewritten = None if terms is None else fired.rewritten(terms)
            if rewritten is not None:
                problem = f"the membrane of {layer_name(fired.neuron.name)}, which forward computes by itself"
                self._keep(tensor, FollowedValue(None, problem=problem, terms=rewritten))

    def _added(self, args: list[Any], kwargs: Any, values: list[FollowedValue]) -> FollowedValue | None:
        """Return the sum of two values of one step, or of one value in consecutive steps."""
        numbers = [each for each in args[:2] if not (isinstance(each, Tensor) and self._value(each))]
        if kwargs or len(args) != 2 or any(torch.as_tensor(each).any() for each in numbers):
            return None
        if len(values) == 1:
            return values[0]
        first, second = values
        same = first.call is second.call and first.form in ("B", "sum") and second.form == "B"
        if same and first.steps and second.steps == (first.steps[-1] + 1,):
            return FollowedValue(first.call, first.steps + second.steps, "sum")
        steps = {value.steps for value in values} - {None}
        if len(steps) > 1 or first.form != second.form or first.form not in self.leading:
            return None
        assert first.call is not None and second.call is not None
        return FollowedValue(
            self._call(operator.add, (first.call, second.call)), next(iter(steps), None), first.form
        )

    def _stacked(self, args: list[Any], kwargs: Any, values: list[FollowedValue]) -> FollowedValue | None:
        """Return values of consecutive steps, stacked along a new first or second axis."""
        axis = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        if axis not in (0, 1) or any(
            value.steps != (step,) or value.form != "B" for step, value in enumerate(values)
        ):
            return None
        if any(value.call is not values[0].call for value in values):
            return FollowedValue(None, problem="values that some time steps compute in another way")
        if len(values) == self.timesteps:
            return FollowedValue(values[0].call, None, "BT" if axis else "TB")
        return FollowedValue(values[0].call, tuple(range(len(values))), "stack")

    def _reduced(
        self, total: Form, args: list[Any], kwargs: Any, value: FollowedValue
    ) -> FollowedValue | None:
        axis = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
        time = TIME_AXIS.get(value.form)
        if time is None or axis not in (time, (time,), [time]):
            return None
        return FollowedValue(value.call, value.steps, total)

    def _averaged(self, args: list[Any], value: FollowedValue) -> FollowedValue | None:
        """A sum divided by the number of its time steps is a mean."""
        count = self.timesteps if value.steps is None else len(value.steps)
        return FollowedValue(value.call, value.steps, "mean") if args[-1] == count else None

    def _scaled(
        self, name: str, args: list[Any], source: Tensor, value: FollowedValue
    ) -> FollowedValue | None:
        """Return a value of a step, multiplied by a constant, or with a constant added."""
        assert value.call is not None
        place = next(place for place, each in enumerate(args) if each is source)
        found = scaling(name, args, place)
        if found is None or value.form not in self.leading:
            return None
        features = tuple(source.shape[len(self.leading[value.form]) :])
        numbers = channel_numbers(layer_name(self._named(name)), found, features)
        return FollowedValue(self._call(scale_and_shift, (value.call,), numbers), value.steps, value.form)

    def _one_step(self, name: str, args: list[Any], value: FollowedValue, index: int) -> FollowedValue | None:
        """Return one step of a value that holds all of them: x[t], x[:, t], or a result of unbind."""
        time = TIME_AXIS.get(value.form)
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
        return FollowedValue(value.call, (step % self.timesteps,), "B")

    def _reshaped(self, value: FollowedValue, before: torch.Size, after: torch.Size) -> FollowedValue | None:
        """Return a value with merged or split time axis, and flattened or not."""
        assert value.call is not None
        for form in next((forms for forms in ORDERS if value.form in forms), ()):
            leading = self.leading[form]
            features = tuple(before[len(self.leading[value.form]) :])
            found = tuple(after[len(leading) :])
            if tuple(after[: len(leading)]) != leading:
                continue
            if found == features:
                return FollowedValue(value.call, value.steps, form)
            if found == (prod(features),):
                return FollowedValue(self._call(torch.flatten, (value.call,), (1,)), value.steps, form)
        return None

    # ---- values -----------------------------------------------------------------------------------

    def _value(self, tensor: Tensor) -> FollowedValue | None:
        return self.values[id(tensor)][1] if id(tensor) in self.values else None

    def _keep(self, tensor: Tensor, value: FollowedValue) -> None:
        self.values[id(tensor)] = (tensor, value)

    def _recognized(self, tensor: Tensor) -> FollowedValue | None:
        """Return which steps of the input a tensor equals; None if it equals none."""
        constant = self.style == "step or loop"
        flat = self._call(torch.flatten, (INPUT,), (1,))
        for call, steps in ((INPUT, self.steps), (flat, self.steps.flatten(2))):
            features = tuple(steps.shape[2:])
            if tuple(tensor.shape) == (BATCH, *features):
                for step, values in enumerate(steps):
                    if torch.equal(tensor.to(values), values):
                        return FollowedValue(call, None if constant else (step,), "B")
            time_first = steps.expand(self.timesteps, *steps.shape[1:])
            for forms, whole in zip(ORDERS[1:], (time_first, time_first.transpose(0, 1)), strict=True):
                for form in forms:
                    if tuple(tensor.shape) == (*self.leading[form], *features):
                        whole = whole.reshape(tensor.shape)
                        if torch.equal(tensor.to(whole), whole):
                            return FollowedValue(call, None, form)
        return None


def _line_of_forward() -> str:
    """Return the line of the user's code that calls torch: 'net.py, line 12'."""
    ours = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"


def _hint(name: str, raw: bool) -> str:
    """Return what to do instead of an operation; `raw`: its values are the inputs."""
    if raw and name.startswith(RANDOM):
        return "Encode the samples before, and give the spikes [samples, time, ...] with --data. "
    if plain_name(name) in COMPARISONS:
        return f"{OWN_NEURON} "
    if raw and name in STATISTICS:
        return "Scale inputs by constants, or leave it out of forward and give --normalize MEAN DEVIATION. "
    return f"{hint} " if (hint := hint_for(name)) else ""


def of_type(dtype: torch.dtype, name: str, args: Sequence[Any], result: Any) -> Any:
    """Let `float` and its like give the type in which a module is run: spikes are then sent as that type.

    What has that type already keeps all its digits, as it does when the module runs in float32.
    """
    narrow = isinstance(result, Tensor) and result.dtype == torch.float32 != dtype
    if not narrow or name not in ("float", "to", "type", "type_as"):
        return result
    return args[0] if args[0].dtype == dtype else result.to(dtype)


def tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, dictionaries and named tuples."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from tensors(list(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors(value)


def writes(name: str) -> bool:
    """Whether a function writes its result into its first argument: add_, __iadd__."""
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def _indexed(index: Any) -> tuple[int, Any]:
    """Return axis and step of x[t] and x[:, t], which may go on with slices of whole axes."""
    places = index if isinstance(index, tuple) else (index,)
    whole = [place == slice(None) or place is Ellipsis for place in places]
    axis = next((number for number, all_of_it in enumerate(whole) if not all_of_it), 0)
    alone = all(whole[:axis]) and all(whole[axis + 1 :]) and Ellipsis not in places[:axis]
    return axis, places[axis] if alone else None
