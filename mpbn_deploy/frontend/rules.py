"""What operations of torch do to values: arithmetic, data movement, linear operations.

Linear operations stay what they are: each row of the batch axis, which at a batch of one holds time steps,
becomes one `Call` with its weights and its argument; an argument that reads several time steps is split into
one call for each. An operation without a rule gives an unknown element, which is rejected, with its line, if
a neuron or the output depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..base import FrontendError, record
from ..ir import (
    AdaptivePool,
    AveragePool,
    BatchNorm,
    Conv2d,
    Convolution,
    Gate,
    Linear,
    MaxPool,
    Operation,
)
from .layers import hint_for
from .values import (
    MAX_SWITCHES,
    Algebra,
    Atom,
    Shape,
    Term,
    Value,
    common_shape,
    constant,
    full,
    joined,
    single,
    thin,
)
from .watch import RANDOM, Site

PRODUCT = "a product of two values that change, as in attention or with an adaptive threshold"
DATA_INDEX = "reads or writes at places that depend on data"
OWN_STATISTICS = "a norm by the statistics of its own batch; train with track_running_stats=True"
CLAMP = "a clamp: the value is cut at a limit"
WORDS = {  # of operations that neither neurons nor synapses compute
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), CLAMP),
    **dict.fromkeys(("_softmax", "_log_softmax"), "a softmax, which divides by a sum over all outputs"),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), "a norm by the statistics of the sample"),
    **dict.fromkeys(("bmm", "mm", "addmm", "baddbmm", "mul"), PRODUCT),
    **dict.fromkeys(("max", "amax", "min", "amin"), "a maximum of values that are not spikes"),
    "relu": "a rectifier",
    "argmax": "a choice of the largest value",
    "div": "a division by a value that depends on the input",
}


@record
class Unknown:
    """An operation that no neuron and no synapse expresses."""

    name: str
    what: str
    site: Site

    def rejection(self) -> FrontendError:
        hint = hint_for(self.name) or (
            "Chips compute weighted sums of spikes, and neurons that leak, integrate, fire and reset: "
            "express it with these, or take it out of forward."
        )
        return FrontendError(f"{self.site}: {self.what} ({self.name.strip('_')}). {hint}")


@record
class Call:
    """A linear operation, or a maximum, on what its source holds."""

    name: str
    site: Site
    source: Value
    key: tuple[Any, ...]  # operation, weights by identity, geometry
    make: (
        Callable[[bool], Operation] | None
    )  # with its bias, or without; None if it is only known as a matrix
    whole: Callable[[Tensor], Tensor]  # of one sample, with its bias
    biased: bool

    @property
    def operation(self) -> Operation | None:
        return None if self.make is None else self.make(self.biased)

    def function(self, sample: Tensor) -> Tensor:
        found = self.whole(sample)
        return found if self.biased else found - self.whole(torch.zeros_like(sample))

    def at_zero(self) -> Tensor:
        """Return its bias, flat."""
        return self.function(torch.zeros(self.source.shape, dtype=torch.float64)).reshape(-1)


@record
class Gated:
    """A function of spikes of one time step that is 0 or 1: sum of weight * source > threshold."""

    site: Site
    sources: tuple[Value, ...]
    gate: Gate


class Rules:
    """The rules for one run; `compare` makes spikes (see `neurons`), `site` says where the run is."""

    def __init__(self, timesteps: int) -> None:
        self.algebra, self.timesteps = Algebra(), timesteps
        self.own: set[int] = set()  # storages of parameters and buffers that forward does not write
        self.shapes: dict[Any, Shape] = {}  # of results, by operation and the shape of its source
        self.site: Callable[[], Site]
        self.compare: Callable[[Value, bool], Value]

    def apply(self, name: str, func: Any, args: list[Any], kwargs: dict[str, Any], out: Any) -> Any:
        """Return the value of an operation's result, or the values of its results."""
        if name in RANDOM:
            raise FrontendError(
                f"{self.site()}: draws random numbers ({name}), so that no two runs are equal. Encode inputs "
                "before forward, as frames over time (--data), and keep noise to training."
            )
        if name.endswith("_like") or name.startswith("new_"):
            return None
        kwargs = {key: each for key, each in kwargs.items() if key not in LAYOUT}
        found = None
        if name in MOVES and isinstance(args[0], Value) and not any(map(_is_value, args[1:])):
            found = args[0].moved(lambda each: func(each, *args[1:], **kwargs))
        elif name in ARITHMETIC:
            found = ARITHMETIC[name](self, *args, **kwargs)
        elif (rule := getattr(self, f"_{name.strip('_')}", None)) is not None:
            found = rule(func, *args, **kwargs)
        return self._pointwise(name, func, args, kwargs, out) if found is None else found

    def value(self, given: Any) -> Value:
        return given if isinstance(given, Value) else constant(given)

    def rejected(self, name: str, what: str) -> FrontendError:
        return Unknown(name=name, what=what, site=self.site()).rejection()

    def unknown(self, name: str, shape: Sequence[int], given: Sequence[Value]) -> Value:
        """Return the value of an operation that nothing is known of; the first cause is kept."""
        causes = [cause for each in given for cause in self.causes(each)]
        what = WORDS.get(name, f"the operation {name.strip('_')!r}")
        facts = causes[0] if causes else Unknown(name=name, what=what, site=self.site())
        step = max((s for each in given for s in self.algebra.steps(each) if s is not None), default=None)
        return self.algebra.of(self.algebra.numbers.atom(shape, "unknown", step, facts))

    def causes(self, value: Value) -> list[Unknown]:
        """Return the unknown operations that a value depends on."""
        return [each for atom in self.algebra.atoms(value) if (each := self.cause(atom)) is not None]

    def cause(self, atom: Atom) -> Unknown | None:
        if atom.kind == "operation" and not atom.searched:
            atom.cause = next(iter(self.causes(atom.facts.source)), None)
            atom.searched = True
        found: Unknown | None = atom.facts if atom.kind == "unknown" else atom.cause
        return found

    def _pointwise(self, name: str, func: Any, args: list[Any], kwargs: Any, out: Any) -> Any:
        """Apply a function of few spikes, element by element; anything else is unknown."""
        nested = [each for arg in args if isinstance(arg, (list, tuple)) for each in arg]
        values = [each for each in (*args, *nested) if isinstance(each, Value)]
        if isinstance(out, (list, tuple)):
            return [self.unknown(name, each.shape, values) for each in out if isinstance(each, Tensor)]
        if not nested and out.shape == common_shape(*values):

            def call(*given: Tensor) -> Any:
                left = iter(given)
                return func(*(next(left) if isinstance(each, Value) else each for each in args), **kwargs)

            if len(self.algebra.switches(values) or ()) > 2:
                args = [self.gated(each) if isinstance(each, Value) else each for each in args]
                values = [each for each in args if isinstance(each, Value)]
            if (found := self.algebra.of_switches(call, values)) is not None:
                return found
        return self.unknown(name, out.shape, values)

    # ---- movement ---------------------------------------------------------------------------------

    def _constant_pad_nd(self, func: Any, x: Value, padding: Any, number: float = 0) -> Value:
        shift = func(torch.zeros(x.shape, dtype=torch.float64), padding, number)
        return x.moved(lambda each: func(each, padding, 0)).plus(Value(shift))

    def _to_copy(self, func: Any, x: Value, dtype: Any = None) -> Value | None:
        return x if dtype in (None, torch.float64) or self.is_binary(x) else None

    def _cat(self, func: Any, parts: list[Any], *args: Any, **kwargs: Any) -> Value:
        return joined(lambda each: func(each, *args, **kwargs), [self.value(part) for part in parts])

    _stack = _cat

    def _index(self, func: Any, x: Any, places: list[Any]) -> Value:
        if any(map(_is_value, places)):
            raise self.rejected("index", DATA_INDEX)
        return self.value(x).moved(lambda each: func(each, places))

    def _index_put(self, func: Any, x: Any, places: list[Any], new: Any, accumulate: bool = False) -> Value:
        target, new = self.value(x), self.value(new)
        if len(places) == 1 and _is_value(places[0]) and new.constant.numel() == 1 and not accumulate:
            missing = [1] * (len(target.shape) - len(places[0].shape))
            mask = places[0].moved(lambda each: each.reshape(*each.shape, *missing))
            return self.where(mask, new, target)
        if accumulate or any(map(_is_value, places)):
            raise self.rejected("index_put", DATA_INDEX)
        return joined(lambda each: _put(each[0], places, each[1]), [target, new])

    # ---- arithmetic -------------------------------------------------------------------------------

    def product(self, one: Any, other: Any) -> Value:
        a, b = self.value(one), self.value(other)
        if len(self.algebra.switches([a, b]) or ()) > 2:  # products of products stay short
            a, b = self.gated(a), self.gated(b)
        found = self.algebra.times(a, b)
        return self.unknown("mul", common_shape(a, b), [a, b]) if found is None else found

    def gated(self, value: Value) -> Value:
        """Write a function of several spikes that differs in one of their combinations with one spike."""
        switches = self.algebra.switches([value]) or []
        if not 2 <= len(switches) <= MAX_SWITCHES:
            return value
        if (axis := self.time_axis(value)) is not None:
            steps = [self.gated(value.select(axis, step)) for step in range(value.shape[axis])]
            return joined(lambda each: torch.stack(each, axis), steps)
        table = {
            bits: sorted(set(thin(self.algebra.at(value, switches, bits)).reshape(-1).tolist()))
            for bits in product((0, 1), repeat=len(switches))
        }
        chosen = _one_apart({bits: each[0] for bits, each in table.items() if len(each) == 1}, len(switches))
        if chosen is None:
            return value
        bits, there, elsewhere = chosen
        sign = 1.0 if abs(there) > abs(elsewhere) else -1.0  # the gate fires there, or everywhere else
        gate = Gate(weights=tuple(sign * (2.0 * bit - 1) for bit in bits), threshold=sign * (sum(bits) - 0.5))
        sources = tuple(single(ids.expand(value.shape)) for ids in switches)
        fires = self.algebra.of(self.gate_atom(sources, gate))
        low = elsewhere if sign > 0 else there
        return fires.scaled(there + elsewhere - 2 * low).plus(constant(low))

    def gate_atom(self, sources: tuple[Value, ...], gate: Gate) -> Atom:
        step = max((s for each in sources for s in self.algebra.steps(each) if s is not None), default=None)
        facts = Gated(site=self.site(), sources=sources, gate=gate)
        return self.algebra.numbers.atom(sources[0].shape, "spike", step, facts)

    def time_axis(self, value: Value) -> int | None:
        """Return the axis along which a value holds all time steps, if there is one."""
        if len(self.algebra.steps(value)) < 2:
            return None
        for axis, size in enumerate(value.shape):
            if size == self.timesteps:
                steps = [self.algebra.steps(value.select(axis, number)) for number in range(size)]
                if all(len(each) == 1 for each in steps) and len(set.union(*steps)) == size:
                    return axis
        return None

    def quotient(self, one: Any, other: Any, rounding_mode: str | None = None) -> Value | None:
        divisor = self.value(other)
        if divisor.terms or rounding_mode is not None:
            return None
        if bool((divisor.constant == 0).any()):
            raise self.rejected("div", "a division by zero, a constant that is not finite")
        return self.value(one).scaled(1 / divisor.constant)

    def where(self, mask: Any, one: Any, other: Any) -> Value:
        rest = self.value(other)
        return rest.plus(self.product(mask, self.value(one).minus(rest)))

    def negation(self, given: Value) -> Value | None:
        return constant(1.0).minus(given) if self.is_binary(given) else None

    def conjunction(self, one: Any, other: Any) -> Value | None:
        a, b = self.value(one), self.value(other)
        return self.product(a, b) if self.is_binary(a) and self.is_binary(b) else None

    def disjunction(self, one: Any, other: Any) -> Value | None:
        both = self.conjunction(one, other)
        return None if both is None else self.value(one).plus(self.value(other)).minus(both)

    def is_binary(self, value: Value) -> bool:
        """Whether a value is made of spikes."""
        return all(self.algebra.is_switch(term) for term in value.terms)

    def compared(self, sign: float, strict: bool, one: Any, other: Any) -> Value:
        return self.compare(self.value(one).minus(self.value(other)).scaled(sign), strict)

    def sign(self, x: Value) -> Value:
        return self.compare(x, True).plus(self.compare(x, False)).minus(constant(1.0))

    def heaviside(self, x: Value, at_zero: Any) -> Value:
        at = self.value(at_zero)
        if not at.terms and bool((at.constant == 0).all() or (at.constant == 1).all()):
            return self.compare(x, not bool(at.constant.any()))
        above = self.compare(x, True)
        return above.plus(self.product(self.compare(x, False).minus(above), at))

    # ---- linear operations ------------------------------------------------------------------------

    def rows(self, x: Value, make: Callable[[Value], Value]) -> Value:
        """Apply an operation to each row of the first axis."""
        return joined(torch.stack, [make(x.select(0, row)) for row in range(x.shape[0])])

    def call(
        self, name: str, key: tuple[Any, ...], make: Any, whole: Callable[[Tensor], Tensor], x: Value
    ) -> Value:
        """Return the result of an operation on one sample; one atom for each time step that it reads."""
        if not x.terms:
            return Value(whole(x.constant))
        key = (name, *map(self.identity, key))
        if (seen := (key, tuple(x.shape))) not in self.shapes:
            self.shapes[seen] = tuple(whole(x.constant).shape)
        parts = self.by_step(x) if name != "max_pool2d" else self._latest(x)
        scale = _common_factor(x) if len(parts) > 1 else 1.0  # of a mean over time, which is taken out
        shift = (
            Value(whole(torch.zeros_like(x.constant))) if scale != 1 else Value(full(0.0, self.shapes[seen]))
        )
        if scale != 1:  # a constant counts in each step
            parts = [(step, Value(x.constant / len(parts), part.terms)) for step, part in parts]
        for number, (step, part) in enumerate(parts):
            facts = Call(
                name=name, site=self.site(), source=part.scaled(1 / scale) if scale != 1 else part, key=key,
                make=make, whole=whole, biased=not number and scale == 1,
            )  # fmt: skip
            atom = self.algebra.numbers.atom(self.shapes[seen], "operation", step, facts)
            atom.pooled = name == "max_pool2d" and self.is_binary(x)
            shift = shift.plus(self.algebra.of(atom).scaled(scale))
        return shift

    def identity(self, weight: Any) -> Any:
        """Return a name for a tensor: of parameters, by where they are; of others, by what they hold."""
        if not isinstance(weight, Tensor):
            return weight
        if (storage := weight.untyped_storage()._cdata) in self.own:
            return storage, weight.storage_offset(), tuple(weight.shape), tuple(weight.stride())
        return hash((tuple(weight.shape), weight.detach().contiguous().numpy().tobytes()))

    def weights(self, given: Tensor) -> Tensor:
        """Return weights that later writes do not change."""
        kept = given.detach().double()
        return kept if given.untyped_storage()._cdata in self.own else kept.clone()

    def _latest(self, x: Value) -> list[tuple[int | None, Value]]:
        return [(max((step for step in self.algebra.steps(x) if step is not None), default=None), x)]

    def by_step(self, x: Value) -> list[tuple[int | None, Value]]:
        """Split a value by the time steps that it reads, the latest first; that part keeps the constant."""
        steps = sorted(self.algebra.steps(x), key=lambda step: -1 if step is None else step, reverse=True)
        if len(steps) < 2:
            return [(step, x) for step in steps]
        parts = {
            step: Value(full(0.0, x.shape) if number else x.constant) for number, step in enumerate(steps)
        }
        for coefficient, atoms in self.algebra.pieces(x):
            latest = max((atom.step for atom, _ in atoms if atom.step is not None), default=None)
            ids = tuple(index + atom.base for atom, index in atoms)
            parts[latest] = parts[latest].plus(Value(full(0.0, x.shape), [Term(coefficient, ids)]))
        return [(step, part) for step, part in parts.items() if part.terms]

    def _convolution(self, func: Any, x: Any, weight: Any, bias: Any, *geometry: Any) -> Value | None:
        if not _is_value(x) or _is_value(weight) or _is_value(bias):
            return None
        stride, padding, dilation, transposed, _, groups = geometry
        kernel, shift = self.weights(weight), None if bias is None else self.weights(bias)
        call = partial(self.call, "convolution", (weight, bias, str(geometry)))

        def whole(sample: Tensor) -> Any:
            return func(sample[None], kernel, shift, *geometry)[0]

        def image(numbers: Any, first: int) -> tuple[int, int]:  # a signal is an image of one row
            return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else (first, int(numbers[0]))

        def make(biased: bool) -> Operation:
            synapse = Conv2d(
                weight=(kernel if kernel.dim() == 4 else kernel.unsqueeze(-2)).numpy(), groups=groups,
                stride=image(stride, 1), padding=image(padding, 0), dilation=image(dilation, 1),
            )  # fmt: skip
            return Convolution(synapse=synapse, bias=_bias(shift, len(kernel), biased))

        if transposed or len(stride) > 2:
            return self.rows(x, partial(call, None, whole))
        if len(stride) == 2:
            return self.rows(x, partial(call, make, whole))
        signals = self.rows(
            x.moved(lambda each: each.unsqueeze(2)),
            partial(call, make, lambda sample: whole(sample.squeeze(1)).unsqueeze(1)),
        )
        return signals.moved(lambda each: each.squeeze(2))

    def _addmm(self, func: Any, bias: Any, x: Any, weight: Any, beta: float = 1, alpha: float = 1) -> Any:
        if not _is_value(x) or _is_value(weight) or _is_value(bias):
            return None
        shift = None if bias is None else self.weights(bias) * beta
        if self._are_apart(x, 1):  # a sum over time steps, with weights
            rows = enumerate(self.weights(weight) * alpha)
            parts = [x.moved(lambda each, n=n: each[:, n : n + 1]).scaled(row) for n, row in rows]
            return reduce(Value.plus, parts if shift is None else [*parts, Value(shift)])
        return self.rows(x, partial(self._dense, self.weights(weight) * alpha, shift, (weight, bias)))

    def _dense(self, matrix: Tensor, shift: Tensor | None, key: tuple[Any, ...], row: Value) -> Value:
        def whole(sample: Tensor) -> Tensor:
            return sample @ matrix if shift is None else sample @ matrix + shift

        def make(biased: bool) -> Operation:
            return Linear(weight=matrix.t().numpy(), bias=_bias(shift, matrix.shape[1], biased))

        return self.call("linear", key, make, whole, row)

    def _mm(self, func: Any, x: Any, weight: Any) -> Value | None:
        if _is_value(x) or not _is_value(weight):
            return self._addmm(func, None, x, weight)  # type: ignore[no-any-return]
        flipped = self._addmm(func, None, weight.moved(torch.t), x.t())
        return None if flipped is None else flipped.moved(torch.t)

    def _mv(self, func: Any, matrix: Any, x: Any) -> Any:
        if _is_value(matrix) and not _is_value(x):
            found = self._addmm(func, None, matrix, x[:, None])
            return found.select(1, 0)
        return self._addmv(func, None, matrix, x)

    def _addmv(self, func: Any, bias: Any, matrix: Any, x: Any) -> Any:
        found = (
            self._addmm(func, bias, x.moved(lambda each: each[None]), matrix.t()) if _is_value(x) else None
        )
        return None if found is None else found.select(0, 0)

    def _bmm(self, func: Any, x: Any, weight: Any) -> Value | None:
        made = [self._mm(func, *(_row(each, n) for each in (x, weight))) for n in range(x.shape[0])]
        return joined(torch.stack, [each for each in made if each is not None]) if all(made) else None

    def _matrix(self, func: Any, x: Any, *args: Any, **kwargs: Any) -> Value:
        """Apply a linear operation that the IR has no name for: it becomes a matrix."""
        key = (str(args), str(kwargs))
        return self.rows(
            x, partial(self.call, func._opname, key, None, lambda s: func(s[None], *args, **kwargs)[0])
        )

    _upsample_nearest2d = _upsample_bilinear2d = _upsample_nearest1d = _avg_pool1d = _avg_pool3d = _matrix
    _adaptive_avg_pool1d = _upsample_bicubic2d = _upsample_linear1d = _im2col = _matrix

    def _pooled(self, name: str, pool: Operation, function: Callable[[Tensor], Any], x: Value) -> Value:
        batched = x if len(x.shape) == 4 else x.moved(lambda each: each[None])
        call = partial(
            self.call, name, (str(pool),), lambda biased: pool, lambda each: function(each[None])[0]
        )
        made = self.rows(batched, call)
        return made if batched is x else made.select(0, 0)

    def _avg_pool2d(
        self, func: Any, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Value:  # fmt: skip
        pool = AveragePool(
            kernel=_pair(kernel), stride=_pair(stride or kernel), padding=_pair(padding),
            round_up=ceil_mode, count_padding=count_include_pad, divisor=divisor_override,
        )  # fmt: skip
        kind = (pool.kernel, pool.stride, pool.padding, ceil_mode, count_include_pad, divisor_override)
        return self._pooled("avg_pool2d", pool, lambda each: functional.avg_pool2d(each, *kind), x)

    def _adaptive_avg_pool2d(self, func: Any, x: Value, size: Any) -> Value:
        pool = AdaptivePool(size=_pair(size))
        return self._pooled("mean", pool, lambda each: functional.adaptive_avg_pool2d(each, _pair(size)), x)

    def _adaptive_avg_pool3d(self, func: Any, x: Value, size: Any) -> Value | None:
        """Average over whole axes; the IR has no pools of three axes."""
        axes = [axis - 3 for axis, wanted in enumerate(size) if wanted != x.shape[axis - 3]]
        return self._mean(func, x, axes, True) if all(size[axis] == 1 for axis in axes) else None

    def _max_pool2d_with_indices(
        self, func: Any, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> list[Value]:  # fmt: skip
        if ceil_mode:
            raise self.rejected("max_pool2d", "ceil_mode=True, whose windows extend beyond the image")
        kind = _pair(kernel), _pair(stride or kernel), _pair(padding), _pair(dilation)
        pool = MaxPool(kernel=kind[0], stride=kind[1], padding=kind[2], dilation=kind[3])
        return [self._pooled("max_pool2d", pool, lambda each: functional.max_pool2d(each, *kind), x)]

    def _sum(self, func: Any, x: Value, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Value:
        """Sum over axes: over time, term by term; within a sample, as a pool or a matrix."""
        axes = sorted(axis % len(x.shape) for axis in (dims or range(len(x.shape))))
        inside = []
        for axis in axes:
            if self._are_apart(x, axis):
                slices = [x.moved(lambda each, n=n: each.narrow(axis, n, 1)) for n in range(x.shape[axis])]  # type: ignore[misc] # noqa: B023
                x = reduce(Value.plus, slices)
            elif x.shape[axis] > 1:
                inside.append(axis)
        if len(x.shape) == 4 and inside == [2, 3]:
            size = tuple(x.shape[2:])
            x = self._avg_pool2d(func, x, size, divisor_override=1)
        elif inside:
            whole = self.call if 0 in inside else None
            inner = [axis - (whole is None) for axis in inside]
            call = partial(self.call, "sum", (str(inner),), None, lambda each: each.sum(inner, keepdim=True))
            x = call(x) if whole else self.rows(x, call)
        shape = [size for axis, size in enumerate(x.shape) if keepdim or axis not in axes]
        return x.moved(lambda each: each.reshape(shape))

    def _are_apart(self, x: Value, axis: int) -> bool:
        """Whether slices along an axis read different blocks: those of different time steps."""
        if not 1 < x.shape[axis] <= 8 * max(self.timesteps, 8):
            return False
        slices = [set(self.algebra.atoms(x.select(axis, n))) for n in range(x.shape[axis])]
        return sum(map(len, slices)) == len(set().union(*slices))

    def _mean(self, func: Any, x: Value, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Value:
        axes = sorted(axis % len(x.shape) for axis in (dims or range(len(x.shape))))
        if len(x.shape) == 4 and axes == [2, 3]:
            pooled = self._adaptive_avg_pool2d(func, x, (1, 1))
            return pooled if keepdim else pooled.moved(lambda each: each.reshape(each.shape[:2]))
        return self._sum(func, x, dims, keepdim).scaled(1 / prod(x.shape[axis] for axis in axes))

    # ---- norms ------------------------------------------------------------------------------------

    def _native_batch_norm(self, func: Any, x: Any, *rest: Any) -> list[Value] | None:
        parts, training, epsilon = rest[:4], rest[4], rest[-1]
        if training or parts[2] is None:
            raise self.rejected("batch_norm", OWN_STATISTICS)
        if not _is_value(x) or any(map(_is_value, parts)):
            return None
        gain, offset, mean, variance = (
            np.full(x.shape[1], default) if each is None else each.detach().double().numpy()
            for each, default in zip(parts, (1.0, 0.0, 0.0, 1.0), strict=True)
        )
        factor = gain / np.sqrt(variance + epsilon)
        scale, shift = torch.tensor(factor), torch.tensor(offset - mean * factor)
        if len(x.shape) not in (2, 4) or not self._is_between_neurons(x):
            shape = (-1, *[1] * (len(x.shape) - 2))
            return [x.scaled(scale.view(shape)).plus(Value(shift.view(shape)))]
        norm = BatchNorm(gain=gain, offset=offset, mean=mean, variance=variance, epsilon=epsilon)
        shape = (-1, *[1] * (len(x.shape) - 2))

        def make(biased: bool) -> Operation:
            return norm if biased else replace(norm, offset=0 * offset, mean=0 * mean)

        def whole(sample: Tensor) -> Tensor:
            return sample * scale.view(shape) + shift.view(shape)

        return [self.rows(x, partial(self.call, "batch_norm", parts, make, whole))]

    def _native_batch_norm_legit_no_training(self, func: Any, x: Any, *rest: Any) -> list[Value] | None:
        return self._native_batch_norm(func, x, *rest[:4], False, *rest[4:])

    def _is_between_neurons(self, x: Value) -> bool:
        """Whether each row is what one layer gives, and so no membrane that is normalized by hand."""
        rows = [self.algebra.atoms(x.select(0, row)) for row in range(x.shape[0])]
        return len(x.terms) == 1 and all(len(row) == 1 and row[0].kind != "membrane" for row in rows)


LAYOUT = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
MOVES = frozenset(
    {"clone", "contiguous", "index_select", "flip", "roll", "repeat", "pixel_shuffle", "pixel_unshuffle"}
    | {"channel_shuffle", "native_channel_shuffle", "unfold", "lift_fresh_copy", "view_copy"}
)
ARITHMETIC: dict[str, Callable[..., Value | None]] = {
    "add": lambda r, a, b, alpha=1: r.value(a).plus(r.value(b).scaled(alpha)),
    "sub": lambda r, a, b, alpha=1: r.value(a).plus(r.value(b).scaled(-alpha)),
    "rsub": lambda r, a, b, alpha=1: r.value(b).plus(r.value(a).scaled(-alpha)),
    "neg": lambda r, a: a.scaled(-1.0),
    "mul": Rules.product,
    "div": Rules.quotient,
    "pow": lambda r, a, exponent: r.product(a, a) if not _is_value(exponent) and exponent == 2 else None,
    "lerp": lambda r, a, b, weight: r.value(a).plus(r.product(r.value(b).minus(r.value(a)), weight)),
    "addcmul": lambda r, a, b, c, value=1: r.value(a).plus(r.product(b, c).scaled(value)),
    "where": Rules.where,
    "masked_fill": lambda r, x, mask, new: r.where(mask, new, x),
    "copy": lambda r, target, source, *_: r.value(source).grown(r.value(target).shape),
    "fill": lambda r, target, number: r.value(number).grown(target.shape),
    "zero": lambda r, target: constant(0.0).grown(target.shape),
    "sign": Rules.sign,
    "sgn": Rules.sign,
    "heaviside": Rules.heaviside,
    **dict.fromkeys(("logical_not", "bitwise_not"), Rules.negation),
    **dict.fromkeys(("logical_and", "bitwise_and"), Rules.conjunction),
    **dict.fromkeys(("logical_or", "bitwise_or"), Rules.disjunction),
    "gt": lambda r, a, b: r.compared(1.0, True, a, b),
    "ge": lambda r, a, b: r.compared(1.0, False, a, b),
    "lt": lambda r, a, b: r.compared(-1.0, True, a, b),
    "le": lambda r, a, b: r.compared(-1.0, False, a, b),
}


def _is_value(given: Any) -> bool:
    return isinstance(given, Value)


def _one_apart(
    table: dict[tuple[int, ...], float], count: int
) -> tuple[tuple[int, ...], float, float] | None:
    """Return the one combination whose value differs from that of all others, and both values."""
    numbers = sorted(table.values())
    if len(table) < 2**count or len(set(numbers)) != 2:
        return None
    rare = numbers[0] if numbers[1] == numbers[-1] else numbers[-1]
    found = [bits for bits, number in table.items() if number == rare]
    return (found[0], rare, numbers[1] if rare == numbers[0] else numbers[0]) if len(found) == 1 else None


def _row(given: Any, number: int) -> Any:
    return given.select(0, number) if _is_value(given) else given[number]


def _put(target: Tensor, places: Any, new: Tensor) -> Any:
    made = target.clone(memory_format=torch.contiguous_format)
    return torch.ops.aten.index_put(made, places, new)


def _bias(shift: Tensor | None, count: int, biased: bool) -> Any:
    return np.zeros(count) if shift is None or not biased else shift.expand(count).numpy().copy()


def _common_factor(x: Value) -> float:
    """Return the one coefficient of a value; 1 if there are several."""
    factors = {each for term in x.terms for each in thin(term.coefficient).reshape(-1).tolist() if each}
    return factors.pop() if len(factors) == 1 else 1.0


def _pair(values: Any) -> tuple[int, int]:
    numbers = [int(each) for each in values] if isinstance(values, (list, tuple)) else [int(values)]
    return (numbers[0], numbers[-1])
