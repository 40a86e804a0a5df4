"""What a tensor holds, per element: value = constant + sum over terms of coefficient * product of elements.

Elements are numbered. An `Atom` is a block of numbers: the input of a time step, the result of an operation,
a membrane, or a spike. A term holds, beside each coefficient, the number of the element that it multiplies
(of several, for products). So moving data (views, permutations, joins, writes) is the same operation applied
to coefficients and numbers, and needs no case of its own.

Coefficients that are equal over an axis stay expanded tensors (stride 0): `thin` computes on one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor

MAX_DEGREE = 4  # factors of one term
MAX_SWITCHES = 4  # spikes of which any function is a polynomial

Shape = tuple[int, ...]


@dataclass(eq=False)
class Atom:
    """A block of numbered elements; `step` is None if it is the same in all time steps."""

    base: int
    shape: Shape
    kind: str  # "input", "operation", "membrane", "spike", "sent" (counts, or what is delayed), "unknown"
    step: int | None = None
    facts: Any = None  # what it is: `rules.Call` or `Unknown`, `neurons.Membrane`, `Firing` or `Converted`
    cause: Any = None  # the first unknown operation that it depends on, once searched for
    searched: bool = False
    pooled: bool = False  # a maximum of spikes

    @property
    def is_binary(self) -> bool:
        return self.kind == "spike" or self.pooled

    @property
    def size(self) -> int:
        return prod(self.shape)


class Numbers:
    """Gives numbers to elements, and finds the atom that has a number."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.bases: list[int] = []
        self.next = 1

    def atom(self, shape: Iterable[int], kind: str, step: int | None = None, facts: Any = None) -> Atom:
        made = Atom(self.next, tuple(shape), kind, step, facts)
        self.next += max(made.size, 1)
        self.atoms.append(made)
        self.bases.append(made.base)
        return made

    def owner(self, number: int) -> Atom:
        return self.atoms[bisect_right(self.bases, number) - 1]


def thin(tensor: Tensor) -> Tensor:
    """Return a tensor without the copies along expanded axes; it broadcasts to the whole one."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def full(number: float, shape: Iterable[int]) -> Tensor:
    return torch.full((), number, dtype=torch.float64).expand(tuple(shape))


def spread(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """Compute element by element on thin tensors of one shape."""
    return function(*map(thin, given)).expand(given[0].shape)


@dataclass(eq=False)
class Term:
    coefficient: Tensor
    ids: tuple[Tensor, ...]

    @cached_property
    def head(self) -> tuple[int, ...]:
        """The first and last number of each factor, to tell terms apart quickly."""
        if not self.coefficient.numel():
            return ()
        corner = (0,) * self.coefficient.dim()
        opposite = tuple(size - 1 for size in self.coefficient.shape)
        return tuple(int(ids[where]) for ids in self.ids for where in (corner, opposite))

    def moved(self, move: Callable[[Tensor], Tensor]) -> Term:
        return Term(move(self.coefficient), tuple(map(move, self.ids)))

    @property
    def vanishes(self) -> bool:
        return not bool((thin(self.coefficient) != 0).any())


def same_ids(one: Term, other: Term) -> bool:
    return (
        len(one.ids) == len(other.ids)
        and one.coefficient.shape == other.coefficient.shape
        and one.head == other.head
        and all(_same(a, b) for a, b in zip(one.ids, other.ids, strict=True))
    )


def _same(one: Tensor, other: Tensor) -> bool:
    alias = one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
    return one is other or alias or torch.equal(one, other)


@dataclass(eq=False)
class Value:
    """The elements of a tensor as polynomials."""

    constant: Tensor
    terms: list[Term] = field(default_factory=list)

    @property
    def shape(self) -> Shape:
        return tuple(self.constant.shape)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Value:
        """Move elements, alike in constants, coefficients and numbers."""
        return Value(move(self.constant), [term.moved(move) for term in self.terms])

    def flat(self) -> Value:
        return self.moved(lambda each: each.reshape(-1))

    def select(self, axis: int, number: int) -> Value:
        return self.moved(lambda each: each.select(axis, number))

    def grown(self, shape: Shape) -> Value:
        return self if shape == self.shape else self.moved(lambda each: each.expand(shape))

    def scaled(self, factor: Tensor | float) -> Value:
        factors = torch.as_tensor(factor, dtype=torch.float64)
        shape = common_shape(self, factors)
        grown, factors = self.grown(shape), factors.expand(shape)
        terms = [Term(spread(torch.mul, t.coefficient, factors), t.ids) for t in grown.terms]
        return tidy(Value(spread(torch.mul, grown.constant, factors), terms))

    def plus(self, other: Value) -> Value:
        shape = common_shape(self, other)
        one, other = self.grown(shape), other.grown(shape)
        terms = list(one.terms)
        for term in other.terms:
            _merge(terms, term)
        return tidy(Value(spread(torch.add, one.constant, other.constant), terms))

    def minus(self, other: Value) -> Value:
        return self.plus(other.scaled(-1.0))


def single(ids: Tensor) -> Value:
    """Return the elements that have these numbers."""
    return Value(full(0.0, ids.shape), [Term(full(1.0, ids.shape), (ids,))])


def common_shape(*given: Value | Tensor) -> Shape:
    """Return the shape to which all of these broadcast."""
    found: Shape = torch.broadcast_shapes(*(each.shape for each in given))  # type: ignore[no-untyped-call]
    return found


def constant(given: Any) -> Value:
    tensor = given.detach() if isinstance(given, Tensor) else torch.as_tensor(given)
    return Value(tensor.to(torch.float64))


def tidy(value: Value) -> Value:
    return Value(value.constant, [term for term in value.terms if not term.vanishes])


def _merge(terms: list[Term], new: Term) -> None:
    """Add a term: to equal numbers where there are any, then to free places, else beside the others."""
    for place, old in enumerate(terms):
        if same_ids(old, new):
            terms[place] = Term(_sum(old.coefficient, new.coefficient), old.ids)
            return
    for place, old in enumerate(terms):
        if len(old.ids) != len(new.ids) or bool((thin(old.coefficient) != 0).all()):
            continue
        equal = reduce(torch.logical_and, (a == b for a, b in zip(old.ids, new.ids, strict=True)))
        used = new.coefficient != 0
        if bool((equal | (old.coefficient == 0) | ~used).all()):
            ids = tuple(torch.where(used, b, a) for a, b in zip(old.ids, new.ids, strict=True))
            terms[place] = Term(_sum(old.coefficient, new.coefficient), ids)
            return
    terms.append(new)


def _sum(one: Tensor, other: Tensor) -> Tensor:
    """Add coefficients; what cancels but for rounding is zero."""

    def add(a: Tensor, b: Tensor) -> Tensor:
        total = a + b
        return torch.where(total.abs() < 1e-13 * (a.abs() + b.abs()), 0.0, total)

    return spread(add, one, other)


def joined(join: Callable[[list[Tensor]], Tensor], values: Sequence[Value]) -> Value:
    """Put values together: their first terms of a degree become the first term of the result, and so on."""
    terms: list[Term] = []
    for degree in sorted({len(term.ids) for value in values for term in value.terms}):
        lists = [[term for term in value.terms if len(term.ids) == degree] for value in values]
        for number in range(max(map(len, lists))):
            picked = [
                found[number] if number < len(found) else _nothing(value.shape, degree)
                for found, value in zip(lists, values, strict=True)
            ]
            ids = tuple(join([term.ids[factor] for term in picked]) for factor in range(degree))
            terms.append(Term(_joined(join, [term.coefficient for term in picked]), ids))
    return tidy(Value(_joined(join, [value.constant for value in values]), terms))


def _joined(join: Callable[[list[Tensor]], Tensor], parts: list[Tensor]) -> Tensor:
    """Join tensors; equal numbers stay one number."""
    lean = [thin(part) for part in parts]
    if all(part.numel() == 1 for part in lean) and len({float(part) for part in lean}) == 1:
        shape = join([torch.empty(part.shape, device="meta") for part in parts]).shape
        return full(float(lean[0]), shape)
    return join(parts)


def _nothing(shape: Shape, degree: int) -> Term:
    return Term(full(0.0, shape), (torch.zeros((), dtype=torch.int64).expand(shape),) * degree)


def _places(atom: Atom, ids: Tensor, where: Tensor | None) -> Tensor:
    """Return places in an atom; elements without a coefficient get their own, as if unmoved."""
    if where is None:
        return ids - atom.base
    own = torch.arange(ids.numel()).view(ids.shape) % max(atom.size, 1)
    return torch.where(where, ids - atom.base, own)


class Algebra:
    """Values of numbered elements, and their products."""

    def __init__(self) -> None:
        self.numbers = Numbers()

    def ids(self, atom: Atom) -> Tensor:
        return torch.arange(atom.base, atom.base + atom.size).view(atom.shape)

    def of(self, atom: Atom) -> Value:
        return Value(full(0.0, atom.shape), [Term(full(1.0, atom.shape), (self.ids(atom),))])

    def owners(self, coefficient: Tensor, ids: Tensor) -> list[tuple[Atom, Tensor | None]]:
        """Return the atoms that numbers belong to, each with where; None stands for everywhere."""
        everywhere = bool((thin(coefficient) != 0).all())
        used = ids if everywhere else ids[coefficient != 0]
        if not used.numel():
            return []
        low, high = self.numbers.owner(int(used.min())), self.numbers.owner(int(used.max()))
        if low is high:
            return [(low, None if everywhere else coefficient != 0)]
        bases = torch.tensor(self.numbers.bases)
        places = torch.searchsorted(bases, ids.contiguous(), right=True) - 1
        places = torch.where(coefficient != 0, places, -1)
        found = sorted({int(place) for place in torch.unique_consecutive(places) if place >= 0})
        return [(self.numbers.atoms[place], places == place) for place in found]

    def parts(self, term: Term) -> list[tuple[Tensor, tuple[tuple[Atom, Tensor], ...]]]:
        """Cut a term into pieces of one atom per factor: coefficients, and atoms with places in them."""
        pieces: list[tuple[Tensor, tuple[tuple[Atom, Tensor], ...]]] = [(term.coefficient, ())]
        for ids in term.ids:
            pieces = [
                (
                    coefficient if where is None else torch.where(where, coefficient, 0.0),
                    (*atoms, (atom, _places(atom, ids, where))),
                )
                for coefficient, atoms in pieces
                for atom, where in self.owners(coefficient, ids)
            ]
        return pieces

    def pieces(self, value: Value) -> list[tuple[Tensor, tuple[tuple[Atom, Tensor], ...]]]:
        return [piece for term in value.terms for piece in self.parts(term)]

    def atoms(self, value: Value) -> list[Atom]:
        """Return all atoms that a value reads."""
        found = (
            atom for term in value.terms for ids in term.ids for atom, _ in self.owners(term.coefficient, ids)
        )
        return list(dict.fromkeys(found))

    def steps(self, value: Value) -> set[int | None]:
        return {atom.step for atom in self.atoms(value)}

    # ---- products ---------------------------------------------------------------------------------

    def times(self, one: Value, other: Value) -> Value | None:
        """Return the product; None if it is a product of two values that are no spikes, or of too many."""
        shape = common_shape(one, other)
        one, other = one.grown(shape), other.grown(shape)
        result = one.scaled(other.constant)
        for term in other.terms:
            _merge(result.terms, Term(spread(torch.mul, term.coefficient, one.constant), term.ids))
        for left, right in product(one.terms, other.terms):
            coefficient = spread(torch.mul, left.coefficient, right.coefficient)
            found = Term(coefficient, (*left.ids, *right.ids))
            if found.vanishes:
                continue
            if not (self.is_switch(left) or self.is_switch(right)):
                return None
            simple = self._simplified(found)
            if len(simple.ids) > MAX_DEGREE:
                return None
            _merge(result.terms, simple)
        return tidy(result)

    def is_switch(self, term: Term) -> bool:
        """Whether all factors are spikes, which are 0 or 1."""
        return all(atom.is_binary for ids in term.ids for atom, _ in self.owners(term.coefficient, ids))

    def _simplified(self, term: Term) -> Term:
        """Remove repeated spikes (s * s = s); order factors by their numbers."""
        kept: list[Tensor] = []
        for ids in term.ids:
            again = any(_same(ids, other) for other in kept)
            if not (again and self.is_switch(Term(term.coefficient, (ids,)))):
                kept.append(ids)
        if len(kept) > 1:
            ordered = torch.stack([ids.expand(term.coefficient.shape) for ids in kept]).sort(0).values
            kept = list(ordered)
        return Term(term.coefficient, tuple(kept))

    def of_switches(self, function: Callable[..., Tensor], values: Sequence[Value]) -> Value | None:
        """Return a function of values made of few spikes: any such function is a polynomial of them."""
        switches = self.switches(values)
        if switches is None or len(switches) > MAX_SWITCHES:
            return None
        shape = common_shape(*values)
        result = Value(full(0.0, shape))
        one = constant(1.0)
        for bits in product((0, 1), repeat=len(switches)):
            at = [self.at(value, switches, bits) for value in values]
            piece: Value | None = constant(function(*at)).grown(shape)
            for bit, ids in zip(bits, switches, strict=True):
                spike = single(ids.expand(shape))
                piece = None if piece is None else self.times(piece, spike if bit else one.minus(spike))
            if piece is None:
                return None
            result = result.plus(piece)
        return result

    def switches(self, values: Sequence[Value]) -> list[Tensor] | None:
        """Return the numbers of the spikes that values are made of; None if they are made of other things."""
        found: list[Tensor] = []
        for term in (term for value in values for term in value.terms):
            if not self.is_switch(term):
                return None
            found += [ids for ids in term.ids if not any(_same(ids, other) for other in found)]
        return found

    def at(self, value: Value, switches: list[Tensor], bits: tuple[int, ...]) -> Tensor:
        """Return a value of spikes that are as given."""
        total = value.constant
        for term in value.terms:
            if all(bits[next(k for k, each in enumerate(switches) if _same(ids, each))] for ids in term.ids):
                total = total + term.coefficient
        return total


def multiple_of(value: Value, base: Value) -> tuple[Tensor, Tensor] | None:
    """Return factor and shift with value = factor * base + shift; None if it is no such thing."""
    if len(value.terms) > len(base.terms) or not value.terms or value.shape != base.shape:
        return None
    mates: list[tuple[Tensor, Tensor]] = []
    for term in base.terms:
        found = next((each for each in value.terms if same_ids(each, term)), None)
        mates.append((full(0.0, value.shape) if found is None else found.coefficient, term.coefficient))
    if sum(bool((thin(mate) != 0).any()) for mate, _ in mates) != len(value.terms):
        return None
    factor = full(float("nan"), value.shape)
    for mate, own in mates:
        factor = spread(lambda f, m, o: torch.where(f.isnan() & (o != 0), m / o, f), factor, mate, own)
    factor = spread(lambda f: torch.nan_to_num(f, nan=0.0), factor)
    for mate, own in mates:
        if not torch.allclose(thin(mate), thin(factor) * thin(own), rtol=1e-9, atol=1e-12):
            return None
    return factor, spread(lambda v, f, b: v - f * b, value.constant, factor, base.constant)
