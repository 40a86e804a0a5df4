"""Recognize neurons that forward computes by itself: leak, integrate, compare with a threshold, reset.

While a module runs, what it computes of its membranes is kept as polynomials in

    Sent(call, step)      what a layer, or a neuron, sends in a time step
    State(neuron, step)   the membrane v that a neuron compared with its threshold in a time step

so that what is compared in the next step shows the neuron. With the spike s of the step before, it is

    kept * v + gated * v * s + spent * s + factor * arriving

and the neuron, in units of what arrives, has leak = kept / factor. With gated = -kept, a spike resets the
membrane to zero; with gated = 0, it subtracts -spent / kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf, isclose, isfinite
from typing import Any

import numpy as np
import torch

from ..base import FrontendError, layer_name
from ..ir import Spike
from .arithmetic import (
    DIFFERENCES,
    NEGATIONS,
    PRODUCTS,
    QUOTIENTS,
    REVERSED_DIFFERENCES,
    SUMS,
    exactly,
    scale_and_shift,
)
from .hints import ADAPTIVE_THRESHOLD
from .values import Call, FollowedValue, Monomial, Terms

REVERSED = frozenset({"lt", "le", "less", "less_equal"})  # which Python also calls for v > parameter
COMPARISONS = frozenset({"gt", "ge", "greater", "greater_equal", "heaviside"}) | REVERSED
INCLUSIVE = frozenset({"ge", "greater_equal", "le", "less_equal"})
INVERSIONS = frozenset({"invert", "logical_not", "bitwise_not"})
NONE: Monomial = frozenset()
NEARLY = 1e-9  # relative difference of numbers that mean the same


class HandwrittenError(FrontendError):
    """A neuron that forward computes by itself cannot be recognized."""


@dataclass(frozen=True)
class Sent:
    """What a call gives in a time step; None: the same in all."""

    call: Call
    step: int | None


@dataclass(frozen=True)
class Update:
    """One step of a neuron, as in the description of this module; it fires above `threshold`."""

    kept: float
    gated: float
    spent: float
    threshold: float
    inclusive: bool

    def numbers(self) -> tuple[float, ...]:
        return self.kept, self.gated, self.spent


@dataclass(eq=False)
class HandwrittenNeuron:
    """A neuron that was recognized, with what it did in each step, and which of all comparisons it made."""

    name: str
    source: Call
    call: Call
    updates: list[Update] = field(default_factory=list)
    comparisons: list[int] = field(default_factory=list)

    def spike(self) -> Spike:
        """Return the neuron; raise HandwrittenError if it has no equivalent."""
        first, *later = self.updates
        for update in later:
            if not _alike(update.threshold, first.threshold):
                found = f"{first.threshold:g} in one time step and {update.threshold:g} in another"
                raise self.error(f"whose threshold is {found}", f" {ADAPTIVE_THRESHOLD}")
            if not all(map(_alike, update.numbers(), later[0].numbers())):
                raise self.error("which does not do the same in all time steps")
        threshold = float(np.nextafter(first.threshold, -inf)) if first.inclusive else first.threshold
        kept, gated, spent = later[0].numbers() if later else (0.0, 0.0, 0.0)
        if not -NEARLY <= kept <= 1 + NEARLY:
            raise self.error(f"whose membrane is multiplied by {kept:g}; 0 to 1 is supported")
        return Spike(
            leak=kept, threshold=threshold, norm=None, subtrahend=self._subtrahend(kept, gated, spent)
        )

    def _subtrahend(self, kept: float, gated: float, spent: float) -> Any:
        if _alike(kept, 0.0) and not (_alike(gated, 0.0) and _alike(spent, 0.0)):
            raise self.error("which keeps its membrane only if it fires")
        if _alike(gated, -kept):
            if not _alike(spent, 0.0):
                raise self.error(f"which resets to {spent / kept:g}; 0, and a subtraction, are supported")
            return None
        if not _alike(gated, 0.0):
            raise self.error(f"in which a spike leaves {1 + gated / kept:g} of the membrane")
        return np.array([-spent / kept])

    def error(self, found: str, hint: str = "") -> HandwrittenError:
        return HandwrittenError(
            f"{layer_name(self.name)}: a neuron that forward computes by itself, {found}.{hint}"
        )


@dataclass(frozen=True, eq=False)
class Threshold:
    """The target of the calls of a neuron."""

    neuron: HandwrittenNeuron

    @property
    def __name__(self) -> str:
        return self.neuron.name

    def __call__(self, x: Any) -> Any:
        raise AssertionError("neurons are computed over time")


@dataclass(frozen=True)
class State:
    neuron: HandwrittenNeuron
    step: int


def _alike(first: float, second: float) -> bool:
    return isclose(first, second, rel_tol=NEARLY, abs_tol=NEARLY)


# ---- polynomials --------------------------------------------------------------------------------


def terms_of(value: FollowedValue) -> Terms | None:
    """Return a value of one step as a polynomial."""
    if value.terms is not None:
        return value.terms
    if value.call is None or value.form != "B" or len(value.steps or ()) > 1:
        return None
    if value.call.target is scale_and_shift:
        gain, offset = (set(each) for each in value.call.arguments)
        inside = terms_of(FollowedValue(value.call.sources[0], value.steps))
        if len(gain) == len(offset) == 1 and inside is not None:
            return _plus(_times(inside, {NONE: gain.pop()}), {NONE: offset.pop()})
    step = None if value.steps is None else value.steps[0]
    return {frozenset({Sent(value.call, step)}): 1.0}


def constant_terms(given: Any) -> Terms | None:
    """Return a number, or a tensor of equal numbers, as a polynomial."""
    if not isinstance(given, (int, float, torch.Tensor)):
        return None
    values = exactly(given).flatten()
    if not values.numel() or not torch.equal(values, values[:1].expand(values.shape)):
        return None
    number = float(values[0])
    return {NONE: number} if isfinite(number) else None


def combined(name: str, operands: Sequence[Terms]) -> Terms | None:
    """Return what a function computes of polynomials; None if it is none."""
    match len(operands):
        case 1 if name in NEGATIONS:
            return _times(operands[0], {NONE: -1.0})
        case 1 if name in INVERSIONS:
            return _plus({NONE: 1.0}, operands[0], -1.0)
        case 2:
            return _of_two(name, *operands)
        case 3 if name == "where":
            return _chosen(*operands)
        case 3 if name == "masked_fill":
            return _chosen(operands[1], operands[2], operands[0])
    return None


def _of_two(name: str, first: Terms, second: Terms) -> Terms | None:
    if name in SUMS:
        return _plus(first, second)
    if name in DIFFERENCES:
        return _plus(first, second, -1.0)
    if name in REVERSED_DIFFERENCES:
        return _plus(second, first, -1.0)
    if name in PRODUCTS:
        return _times(first, second)
    if name in QUOTIENTS and second.keys() == {NONE} and second[NONE]:
        return _times(first, {NONE: 1 / second[NONE]})
    return None


def _chosen(condition: Terms, first: Terms, second: Terms) -> Terms | None:
    """Return `first` where a spike is, else `second`."""
    chosen, other = _times(condition, first), _times(condition, second)
    return None if chosen is None or other is None else _plus(_plus(chosen, second), other, -1.0)


def _plus(first: Terms | None, second: Terms, factor: float = 1.0) -> Terms | None:
    if first is None:
        return None
    total = dict(first)
    for monomial, number in second.items():
        total[monomial] = total.get(monomial, 0.0) + factor * number
    return {monomial: number for monomial, number in total.items() if number}


def _times(first: Terms, second: Terms) -> Terms | None:
    """Return the product; None if it holds a square of anything but spikes, which are 0 or 1."""
    total: dict[Monomial, float] = {}
    for left, factor in first.items():
        for right, number in second.items():
            if not all(_is_spike(shared) for shared in left & right) or len(left | right) > 2:
                return None
            total[left | right] = total.get(left | right, 0.0) + factor * number
    return {monomial: number for monomial, number in total.items() if number}


def _is_spike(atom: Any) -> bool:
    return isinstance(atom, Sent) and isinstance(atom.call.target, Threshold)


# ---- comparisons --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fired:
    """A neuron that fired: its step, and its membrane as a polynomial, of which one unit is its state."""

    neuron: HandwrittenNeuron
    step: int
    membrane: Terms
    factor: float

    def rewritten(self, terms: Terms) -> Terms | None:
        """Return a polynomial that is a multiple of the membrane, and a constant, with the state instead."""
        rest = {monomial: number for monomial, number in terms.items() if monomial}
        if rest.keys() != self.membrane.keys():
            return None
        ratios = [number / self.membrane[monomial] for monomial, number in rest.items()]
        if not all(_alike(ratio, ratios[0]) for ratio in ratios):
            return None
        state = frozenset({State(self.neuron, self.step)})
        return _plus({state: ratios[0] * self.factor}, {NONE: terms.get(NONE, 0.0)})


def fire(
    compared: Terms, inclusive: bool, name: Callable[[Call], str], add: Callable[[Call, Call], Call]
) -> Fired | None:
    """Return the neuron that fires where a polynomial is above zero; None if it is not a membrane.

    `name` names a new neuron by what it reads, `add` adds what arrives from several layers.
    """
    rest = dict(compared)
    threshold = -rest.pop(NONE, 0.0)
    membrane = dict(rest)
    known = {atom.neuron for monomial in rest for atom in monomial if isinstance(atom, State)}
    if len(known) > 1:
        return None
    neuron = next(iter(known), None)
    step = 0 if neuron is None else len(neuron.updates)
    kept = gated = spent = 0.0
    if neuron is not None:
        before, spike = State(neuron, step - 1), Sent(neuron.call, step - 1)
        kept, gated, spent = (
            rest.pop(frozenset(each), 0.0) for each in ((before,), (before, spike), (spike,))
        )
    found = _arriving(rest, step, add)
    if found is None or (neuron is not None and neuron.source is not found[0]):
        return None
    source, factor = found
    if neuron is None:
        neuron = _new_neuron(name(source), source)
    kept, gated, spent, threshold = (number / factor for number in (kept, gated, spent, threshold))
    neuron.updates.append(Update(kept, gated, spent, threshold, inclusive))
    return Fired(neuron, step, membrane, factor)


def _arriving(
    rest: Mapping[Monomial, float], step: int, add: Callable[[Call, Call], Call]
) -> tuple[Call, float] | None:
    """Return what arrives in a step, and its factor; None if something else is left."""
    atoms = [next(iter(monomial)) for monomial in rest if len(monomial) == 1]
    factors = list(rest.values())
    if not atoms or len(atoms) < len(rest) or not all(_alike(each, factors[0]) for each in factors):
        return None
    if factors[0] <= 0 or not all(isinstance(atom, Sent) and atom.step in (None, step) for atom in atoms):
        return None
    return reduce(add, (atom.call for atom in atoms)), factors[0]


def _new_neuron(name: str, source: Call) -> HandwrittenNeuron:
    neuron = HandwrittenNeuron(name=name, source=source, call=Call())
    neuron.call = Call(target=Threshold(neuron), sources=(source,))
    return neuron


def leaking_sum(terms: Terms, timesteps: int) -> tuple[Call, float, float] | None:
    """Return call, leak and factor of y <- leak * y + factor * sent after all steps; None for another."""
    atoms = {next(iter(monomial)): number for monomial, number in terms.items() if len(monomial) == 1}
    if len(atoms) < len(terms) or not all(isinstance(atom, Sent) for atom in atoms):
        return None
    by_step = {atom.step: number for atom, number in atoms.items()}
    if len({atom.call for atom in atoms}) != 1 or sorted(by_step, key=str) != sorted(
        range(timesteps), key=str
    ):
        return None
    factor = by_step[timesteps - 1]
    leak = by_step[timesteps - 2] / factor if timesteps > 1 else 1.0
    expected = (factor * leak ** (timesteps - 1 - step) for step in range(timesteps))
    if not 0 < leak <= 1 or not all(map(_alike, expected, (by_step[step] for step in range(timesteps)))):
        return None
    return next(iter(atoms)).call, leak, factor
