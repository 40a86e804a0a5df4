"""What the tensors of a run hold: results of calls, in some time steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Monomial = frozenset[Any]  # the factors
Terms = Mapping[Monomial, float]  # a polynomial: the factor of each monomial; that of none is a constant

# The axes of a value: [B, ...], [T, B, ...], [B, T, ...], or the last two merged into one batch; over time, a
# stack of some steps [steps, B, ...], the sum and the mean.
Form = Literal["B", "TB", "BT", "TB merged", "BT merged", "stack", "sum", "mean"]
ORDERS: tuple[tuple[Form, ...], ...] = (("B",), ("TB", "TB merged"), ("BT", "BT merged"))

# How forward takes time (`recording`); before a run, a step cannot be told from a loop.
TriedStyle = Literal["step or loop", "time first", "batch first"]
Style = Literal["step", "loop", "time first", "batch first"]


@dataclass(frozen=True)
class FollowedMembrane:
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
class FollowedValue:
    """What a tensor holds: the result of a call in some time steps.

    steps    the time steps in order; None: the same in all of them, or all of them along the axes of `form`
    form     its axes
    problem  why the value cannot be followed; then `call` is None
    hint     what to do about it
    raw      whether it comes from the input alone, of which it may still become a known step
    terms    what it is of values and membranes of several steps (`handwritten`); then `call` is None, too
    """

    call: Call | None
    steps: tuple[int, ...] | None = None
    form: Form = "B"
    problem: str = ""
    hint: str = ""
    raw: bool = False
    terms: Terms | None = None
