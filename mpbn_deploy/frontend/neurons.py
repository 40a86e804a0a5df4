"""Find neurons: what is compared is a membrane, and the result of the comparison is a spike.

In each time step, a membrane is a polynomial of the membrane and the spike of the step before, and of what
arrives:

    membrane = kept * before + gated * before * spike + spent * spike + arriving + shift
    spike    = factor * membrane + level > 0

After the first step, every tensor that holds a multiple of the membrane is written with the membrane itself,
so polynomials stay short. In the first step nothing is: there, a membrane, a current and what other layers
receive are the same thing. The last step therefore says what a neuron is; the steps before must agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base import Array, FrontendError, record
from ..ir import BatchNorm, OverTime, Shape, Spike, product_of_spikes
from .layers import ADAPTIVE_THRESHOLD
from .rules import Gated, Rules
from .values import Atom, Term, Value, constant, full, joined, multiple_of, same_ids, single, thin
from .watch import Site, Watch

NEARLY = 1e-9
ONE_STATE = "Use a neuron with one membrane, v = leak * v + x, and a reset to a constant or a subtraction."
PER_STEP = "Parameters that differ from step to step are not supported yet: use the same in all time steps."
LATE = "Layers receive what others send in the same step, and their own spikes one step later."


@dataclass(eq=False)
class Firing:
    """A spike of a membrane: factor * membrane + level > 0, or >= 0 if it is not strict."""

    membrane: Atom
    factor: Tensor
    level: Tensor
    strict: bool
    atom: Atom


@dataclass(eq=False)
class Membrane:
    """What was compared, and where; `before` is the same neurons' membrane one time step earlier."""

    source: Value  # flat
    site: Site
    name: str  # the path of the module that computes it
    before: Atom | None
    chain: int  # equal for all time steps of the same neurons
    firings: list[Firing] = field(default_factory=list)


@record
class Converted:
    """What a module over time sends, whose converter says what it is."""

    name: str
    kind: OverTime
    drive: Value
    chain: int


class Neurons:
    """Makes spikes of comparisons while a module runs."""

    def __init__(self, rules: Rules, watch: Watch) -> None:
        self.rules, self.algebra, self.watch = rules, rules.algebra, watch
        self.membranes: list[Atom] = []
        self.by_terms: dict[tuple[Any, ...], list[Atom]] = {}
        self.first_reads: dict[
            Atom, list[Atom]
        ] = {}  # membranes of a first step, by the atoms that they read
        self.fired: dict[Any, Value] = {}  # results of comparisons, by their number in the run
        self.signatures: dict[Atom, int] = {}

    def compare(self, value: Value, strict: bool) -> Value:
        """Return [value > 0]; >= if it is not strict."""
        if not value.terms:
            return constant(value.constant > 0 if strict else value.constant >= 0)
        if self.rules.causes(value):
            return self.rules.unknown("gt", value.shape, [value])
        known = self.algebra.of_switches(lambda v: (v > 0) if strict else (v >= 0), [value])
        if known is not None:
            return known
        axis = self.rules.time_axis(value)
        if axis is not None:
            steps = [self._fire(value.select(axis, step), strict) for step in range(value.shape[axis])]
            result = joined(lambda each: torch.stack(each, axis), steps)
        elif (decided := self._decided(value, strict)) is not None:
            return decided
        else:
            result = self._fire(value, strict)
        self.fired[self.watch.comparisons] = result
        return result

    def _fire(self, value: Value, strict: bool) -> Value:
        judged = value.flat()
        membrane, factor, level = self._known(judged) or self._new(judged, value.shape)
        for firing in membrane.facts.firings:
            if firing.strict == strict and alike(firing.factor, factor) and alike(firing.level, level):
                break
        else:
            spike = self.algebra.numbers.atom(membrane.shape, "spike", membrane.step)
            spike.facts = firing = Firing(membrane, factor, level, strict, spike)
            membrane.facts.firings.append(firing)
        return self.algebra.of(firing.atom).moved(lambda each: each.reshape(value.shape))

    def _known(self, judged: Value) -> tuple[Atom, Tensor, Tensor] | None:
        """Return a membrane that was compared before, of which this is a multiple."""
        atoms = self.algebra.atoms(judged)
        if len(judged.terms) == 1 and len(atoms) == 1 and atoms[0].kind == "membrane":
            term, whole = judged.terms[0], self.algebra.of(atoms[0]).flat().terms[0]
            if same_ids(term, whole):
                return atoms[0], term.coefficient, judged.constant
        for membrane in reversed(self.by_terms.get(_heads(judged), [])):
            facts = membrane.facts
            found = multiple_of(judged, facts.source)
            if found is not None and (facts.site.path == self.watch.path or facts.before is not None):
                return membrane, *found
        return None

    def _new(self, judged: Value, shape: Shape) -> tuple[Atom, Tensor, Tensor]:
        source, factor, level = self._state(judged)
        site, held = self.watch.where(), self.watch.operand
        before = self._before(source, site)
        step = max((each for each in self.algebra.steps(source) if each is not None), default=0)
        step = step if before is None or before.step is None else before.step + 1
        chain = hash((site.path, self.signature_of(source, step))) if before is None else before.facts.chain
        # A surrogate function may be a module inside of the neuron.
        name = held if held and site.path.startswith(f"{held}.") else site.path
        facts = Membrane(source, site, name, before, chain)
        membrane = self.algebra.numbers.atom(shape, "membrane", step, facts)
        self.membranes.append(membrane)
        self.by_terms.setdefault(_heads(source), []).append(membrane)
        if before is None:
            for atom in self.algebra.atoms(source):
                self.first_reads.setdefault(atom, []).append(membrane)
        else:
            self._substitute(membrane)
        return membrane, factor, level

    def _state(self, judged: Value) -> tuple[Value, Tensor, Tensor]:
        """Return the oldest live value of which the judged one is a multiple: what the module keeps."""
        for stored in self.watch.memory.live():
            if stored.value.constant.numel() == judged.constant.numel():
                value = stored.value.flat()
                if (found := multiple_of(judged, value)) is not None:
                    return value, *found
        return judged, full(1.0, judged.shape), full(0.0, judged.shape)

    def _before(self, source: Value, site: Site) -> Atom | None:
        """Return the membrane of the same neurons one time step earlier: driven through the same weights."""
        found: list[Atom] = []
        for atom in self.algebra.atoms(source):
            found += [atom] if atom.kind == "membrane" else self.first_reads.get(atom, [])
            found += [atom.facts.membrane] if isinstance(atom.facts, Firing) else []
        drives = self._drives(source)
        found = [
            each
            for each in found
            if each.size == source.constant.numel()
            and each.facts.site.path == site.path
            and self._drives(each.facts.source) <= drives
        ]
        same_line = [each for each in found if each.facts.site.line == site.line]
        return max(same_line or found, key=lambda each: each.base, default=None)

    def _drives(self, source: Value) -> set[Any]:
        """Return the layers that a value reads; of a norm, which may be one of a membrane, what it reads."""
        calls = [atom.facts for atom in self.algebra.atoms(source) if atom.kind == "operation"]
        norms = [call for call in calls if call.name == "batch_norm"]
        keys = {call.key for call in calls if call not in norms}
        return keys.union(*(self._drives(call.source) for call in norms))

    def _substitute(self, membrane: Atom) -> None:
        """Write all live multiples of a membrane with the membrane itself."""
        source, ids = membrane.facts.source, self.algebra.ids(membrane).reshape(-1)
        for stored in self.watch.memory.live():
            shape = stored.value.shape
            if stored.value.constant.numel() == source.constant.numel():
                found = multiple_of(stored.value.flat(), source)
                if found is not None:
                    term = Term(found[0].reshape(shape), (ids.view(shape),))
                    stored.replace(Value(found[1].reshape(shape), [term]))

    def settle(self) -> None:
        """Give steps anew, after the run: spikes of what never changes are the same in all time steps."""
        followed = {each.facts.before for each in self.membranes}
        self.signatures.clear()
        for atom in self.algebra.numbers.atoms:
            if atom.kind == "operation" or (atom.kind == "membrane" and atom.facts.before is None):
                first = 0 if atom in followed else None
                steps = self.algebra.steps(atom.facts.source) - {None}
                atom.step = max(steps, default=first)  # type: ignore[type-var]
            elif atom.kind == "membrane":
                atom.step = None if atom.facts.before.step is None else atom.facts.before.step + 1
            elif isinstance(atom.facts, Firing):
                atom.step = atom.facts.membrane.step
            elif isinstance(atom.facts, Gated):
                steps = set().union(*map(self.algebra.steps, atom.facts.sources)) - {None}
                atom.step = max(steps, default=None)  # type: ignore[type-var]

    # ---- comparisons that a spike decides ---------------------------------------------------------

    def _decided(self, value: Value, strict: bool) -> Value | None:
        """Return what is known of a membrane after its reset: it is compared again, and its spike decides."""
        firings = {a.facts for a in self.algebra.atoms(value) if isinstance(a.facts, Firing)}
        if len(firings) != 1 or (firing := firings.pop()).membrane.size != value.constant.numel():
            return None
        low = self._on_side(self._given(value.flat(), firing, 0.0), firing, strict, above=False)
        high = self._on_side(self._given(value.flat(), firing, 1.0), firing, strict, above=True)
        if low is None or high is None:
            return None
        spike = self.algebra.of(firing.atom).flat()
        return Value(low).plus(spike.scaled(high - low)).moved(lambda each: each.reshape(value.shape))

    def _given(self, value: Value, firing: Firing, bit: float) -> Value:
        """Return a value with a spike replaced by 0 or 1."""
        result = Value(value.constant)
        for coefficient, atoms in self.algebra.pieces(value):
            ids = tuple(index + atom.base for atom, index in atoms if atom is not firing.atom)
            factor = coefficient if len(ids) == len(atoms) else coefficient * bit
            result = result.plus(Value(full(0.0, value.shape), [Term(factor, ids)]) if ids else Value(factor))
        return result

    def _on_side(self, value: Value, firing: Firing, strict: bool, above: bool) -> Tensor | None:
        """Return [value > 0] on one side of the threshold; None if it is not the same everywhere there."""
        membrane = self.algebra.of(firing.membrane).flat()
        found = multiple_of(value, membrane) or multiple_of(value, firing.membrane.facts.source)
        if not value.terms:
            found = full(0.0, value.shape), value.constant
        if found is None or bool((firing.factor <= 0).any()):
            return None
        factor, shift = found
        edge = _clean(factor * (-firing.level / firing.factor) + shift)  # at the threshold
        away = factor if above else -factor
        surely = (away >= 0) & (edge > 0)
        never = (away <= 0) & (edge <= 0 if above or strict else edge < 0)
        return surely.double() if bool((surely | never).all()) else None

    # ---- equal over time --------------------------------------------------------------------------

    def signature(self, atom: Atom) -> int:
        """Return a number that is equal for atoms that are the same thing in different time steps."""
        if atom not in self.signatures:
            self.signatures[atom] = self._signature(atom)
        return self.signatures[atom]

    def _signature(self, atom: Atom) -> int:
        if atom.kind == "operation":
            return hash((atom.facts.key, self.signature_of(atom.facts.source, atom.step)))
        if isinstance(atom.facts, Firing):
            facts = atom.facts.membrane.facts
            return hash(("spike", facts.chain, facts.firings.index(atom.facts)))
        if isinstance(atom.facts, Gated):
            sources = (self.signature_of(each.flat(), atom.step) for each in atom.facts.sources)
            return hash((atom.facts.gate.weights, atom.facts.gate.threshold, *sources))
        if atom.kind in ("membrane", "spike", "sent"):
            return hash((atom.kind, atom.facts.chain))
        return hash((atom.kind, atom.shape if atom.kind == "input" else atom.base))

    def signature_of(self, value: Value, now: int | None) -> int:
        found = []
        for coefficient, atoms in self.algebra.pieces(value):
            lags = [None if atom.step is None or now is None else now - atom.step for atom, _ in atoms]
            reads = tuple((self.signature(atom), fingerprint(index)) for atom, index in atoms)
            found.append(hash((fingerprint(coefficient), reads, tuple(lags))))
        return hash((fingerprint(value.constant), tuple(sorted(found))))


def fingerprint(tensor: Tensor) -> int:
    """Return a number that is equal for equal tensors."""
    lean = thin(tensor)
    for axis in range(lean.dim()):
        if lean.shape[axis] > 1 and bool((lean == lean.narrow(axis, 0, 1)).all()):
            lean = lean.narrow(axis, 0, 1)
    return hash((tuple(tensor.shape), lean.contiguous().numpy().tobytes()))


def _heads(value: Value) -> tuple[Any, ...]:
    return tuple(sorted(term.head for term in value.terms))


def alike(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(thin(one), thin(other), rtol=NEARLY, atol=1e-12)


def is_zero(tensor: Tensor) -> bool:
    return bool((thin(tensor).abs() <= NEARLY).all())


def _clean(tensor: Tensor) -> Tensor:
    """Return numbers with what is zero but for rounding as zero."""
    return torch.where(tensor.abs() < 1e-12, 0.0, tensor)


def _over(one: Tensor, other: Tensor) -> Tensor:
    """Divide; zero where the divisor is."""
    return torch.where((other == 0) | (one == 0), 0.0, one / torch.where(other == 0, 1.0, other))


# ---- what neurons are ---------------------------------------------------------------------------


@dataclass(eq=False)
class Arrival:
    """What arrives from an atom, `lag` steps late: coefficients, and places in the atom."""

    coefficient: Tensor
    atom: Atom
    index: Tensor
    lag: int

    def term(self, scale: float) -> Term:
        return Term(self.coefficient / scale, (self.index + self.atom.base,))


@dataclass(eq=False)
class Step:
    """One time step of a population, as in the description of this module."""

    kept: Tensor
    gated: Tensor
    spent: Tensor
    shift: Tensor
    arrivals: list[Arrival]


@record
class Found:
    """A population: its neuron, what drives it, and what its own spikes send back one step later.

    What the module compares is `unit` times how far the neuron is above its threshold.
    """

    spike: Spike
    drive: Value
    again: Value | None
    unit: Tensor


class Population:
    """The membranes of the same neurons in all time steps."""

    def __init__(self, neurons: Neurons, chain: list[Atom]) -> None:
        self.neurons, self.algebra, self.chain = neurons, neurons.algebra, chain
        self.last: Membrane = chain[-1].facts
        self.firings: list[list[Firing]] = [each.facts.firings for each in chain]
        self.zero = full(0.0, (chain[-1].size,))

    def error(self, found: str, todo: str) -> FrontendError:
        where = Site(path=self.last.name, line=self.last.site.line)
        return FrontendError(f"{where}: a neuron {found}. {todo}")

    def found(self, shape: Shape) -> Found:
        """Return what the last step says, checked against the others."""
        if (count := max(map(len, self.firings))) > 1:
            raise self.error(
                f"with {count} thresholds on one membrane, as for ternary spikes",
                "One threshold is supported yet: use spikes of 0 and 1.",
            )
        firing = self.firings[-1][0]
        second = len(self.chain) == 2 and self.last.before is not None
        last = self._second_step() if second else self.step(-1)
        self._check_steps(last)
        drive, again, leak = self._arriving(last)
        spent, again = self._sent_back(last.spent, again, leak)
        # Spikes before the first step are zero: what recurrent layers make of them is a constant, their bias.
        extra = self.zero
        for each in again:
            if each.atom.kind == "operation":
                extra = extra + each.coefficient * each.atom.facts.at_zero()[each.index]
        start = self._start(firing, drive) - extra
        shifts = [each.facts.source.constant - extra * leak**step for step, each in enumerate(self.chain)]
        shift = last.shift - extra * leak ** (len(self.chain) - 1) if len(self.chain) > 1 else start
        if self.last.before is not None:
            for number in range(2, len(self.chain) - 1):
                self._expect_same("bias", number, shifts[number], shift)
        spent, again = self._fed_back(last, spent, start - shift, again)
        hard, origin = self._reset(last, spent, shift, start)
        scale = _unit([each.coefficient for each in (*drive, *again)])
        factor, level = firing.factor * scale, firing.level + firing.factor * origin
        judged = _judged(factor, level, firing.strict, shape)
        subtrahend = None if hard else _compact(_over(-spent, last.kept) / scale, shape)
        spike = Spike(
            leak=_number(last.kept, shape), current_leak=_number(leak, shape), subtrahend=subtrahend, **judged
        )
        scaled = judged["norm"] is not None and bool((judged["norm"].gain != 1).any())
        bias = _clean((shift + last.kept * origin - origin) / scale)
        return Found(
            spike=spike,
            drive=Value(bias, [each.term(scale) for each in drive]),
            again=Value(self.zero, [each.term(scale) for each in again]) if again else None,
            unit=self.zero + 1 if scaled else factor,
        )

    def step(self, number: int) -> Step:
        """Sort the terms of a membrane by what they are."""
        facts: Membrane = self.chain[number].facts
        made = Step(self.zero, self.zero, self.zero, facts.source.constant, [])
        straight = torch.arange(len(self.zero))
        for coefficient, atoms in self.algebra.pieces(facts.source):
            own = all(
                facts.before is not None
                and facts.before in (atom, getattr(atom.facts, "membrane", None))
                and bool(((index == straight) | (coefficient == 0)).all())
                for atom, index in atoms
            )
            kinds = [atom.kind for atom, _ in atoms]
            if own and kinds == ["membrane"]:
                made.kept = made.kept + coefficient
            elif own and kinds == ["membrane", "spike"]:
                made.gated = made.gated + coefficient
            elif own and kinds == ["spike"]:
                made.spent = made.spent + coefficient
            elif len(atoms) == 1:
                made.arrivals.append(self._arrival(coefficient, *atoms[0], self.chain[number]))
            elif all(atom.is_binary for atom, _ in atoms) and not any(
                map(self._is_own, (atom for atom, _ in atoms))
            ):
                factors = tuple(single(index + atom.base) for atom, index in atoms)
                gate = self.neurons.rules.gate_atom(factors, product_of_spikes(len(factors)))
                made.arrivals.append(self._arrival(coefficient, gate, straight, self.chain[number]))
            else:
                raise self._product(kinds)
        return made

    def _arrival(self, coefficient: Tensor, atom: Atom, index: Tensor, membrane: Atom) -> Arrival:
        lag = 0 if atom.step is None or membrane.step is None else membrane.step - atom.step
        return Arrival(coefficient, atom, index, lag)

    def _product(self, kinds: list[str]) -> FrontendError:
        if "operation" in kinds or "input" in kinds:
            found = "that loses, or gates, what arrives after a spike: a product of input and spike"
            return self.error(found, "Let a spike act on the membrane alone, in the step in which it fires.")
        found = f"with a product of {' and '.join(kinds)} of several steps: a second state"
        return self.error(found, ADAPTIVE_THRESHOLD)

    def _second_step(self) -> Step:
        """Sort the terms of the second step, in which the first membrane is still written as what arrived."""
        first: Value = self.chain[0].facts.source
        spike = self.firings[0][0].atom
        gated, plain, spent = Value(self.zero), Value(self.last.source.constant), self.zero
        for coefficient, atoms in self.algebra.pieces(self.last.source):
            ids = tuple(index + atom.base for atom, index in atoms if atom is not spike)
            if not ids:
                spent = spent + coefficient
            elif len(ids) > 1:
                raise self._product([atom.kind for atom, _ in atoms])
            elif len(ids) < len(atoms):
                gated = gated.plus(Value(self.zero, [Term(coefficient, ids)]))
            else:
                plain = plain.plus(Value(self.zero, [Term(coefficient, ids)]))
        factor = self.zero
        if gated.terms:
            found = multiple_of(gated, Value(self.zero, first.terms))
            if found is None:
                raise self._product(["operation", "spike"])
            factor, spent = found[0], spent - found[0] * first.constant
        kept = self._kept_of_first(plain, first)
        left = plain.minus(first.scaled(kept))
        arrivals = [self._arrival(c, *atoms[0], self.chain[1]) for c, atoms in self.algebra.pieces(left)]
        return Step(kept, factor, spent, left.constant, arrivals)

    def _kept_of_first(self, plain: Value, first: Value) -> Tensor:
        held = self.algebra.atoms(first)
        old = {self.neurons.signature(atom) for atom in held}
        again = [a for a in self.algebra.atoms(plain) if self.neurons.signature(a) in old and a not in held]
        for term in first.terms:
            for mate in plain.terms:
                if same_ids(mate, term):  # if nothing arrives anew, what is kept arrives, too
                    return mate.coefficient / term.coefficient - (0 if again else 1)
        return self.zero

    def _expect_same(self, what: str, number: int, one: Tensor, other: Tensor) -> None:
        if not alike(one, other):
            found = f"{_range(one)} in time step {number} and {_range(other)} in the last"
            raise self.error(f"whose {what} is {found}", PER_STEP)

    def _check_steps(self, last: Step) -> None:
        """Raise if a step between does something else than the last."""
        for number in range(2, len(self.chain) - 1):
            step = self.step(number)
            self._expect_same("leak", number, step.kept, last.kept)
            self._expect_same("reset", number, step.gated, last.gated)
            self._expect_same("reset", number, step.spent, last.spent)
            if self._fresh(step) != self._fresh(last):
                raise self.error(f"that receives something else in time step {number} than later", PER_STEP)
        for number, (found,) in enumerate(self.firings):
            if number or self.last.before is None:  # the first membrane may be in other units
                levels = [_over(-each.level, each.factor) for each in (found, self.firings[-1][0])]
                self._expect_same("threshold", number, *levels)

    def _fresh(self, step: Step) -> set[Any]:
        return {
            (self.neurons.signature(each.atom), fingerprint(each.coefficient), fingerprint(each.index))
            for each in step.arrivals
            if each.lag == 0 and each.atom.step is not None
        }

    def _arriving(self, last: Step) -> tuple[list[Arrival], list[Arrival], Tensor]:
        """Return what arrives in a step, what own spikes send back, and what is left of both in the next."""
        groups: dict[Any, list[Arrival]] = {}
        for each in last.arrivals:
            if each.atom.kind == "membrane":
                raise self.error("that reads the membrane of another", "Only spikes can be sent: send them.")
            key = self.neurons.signature(each.atom), fingerprint(each.index)
            groups.setdefault(key, []).append(each)
        drive: list[Arrival] = []
        again: list[Arrival] = []
        leak: Tensor | None = None
        for found in groups.values():
            found.sort(key=lambda each: (each.lag, -each.atom.base))
            base = found[0]
            if self._is_own(base.atom) and base.atom.kind == "spike":
                again += found
                continue
            if base.lag > 1 or (base.lag == 1 and not self._is_own(base.atom)):
                raise self.error(f"that receives something {base.lag} time steps late", LATE)
            if base.atom.step is None and len(self.chain) > 1:
                base, ratio = self._of_static(found, last)
            else:
                ratio = _over(found[1].coefficient, base.coefficient) if len(found) > 1 else self.zero
                for place, each in enumerate(found):
                    if each.lag - base.lag != place or not alike(
                        each.coefficient, base.coefficient * ratio**place
                    ):
                        raise self.error("with a second state beside membrane and current", ONE_STATE)
            (again if base.lag else drive).append(base)
            if leak is not None and not alike(ratio, leak) and len(self.chain) > 2:
                raise self.error("whose inputs leave currents of several kinds", ONE_STATE)
            leak = ratio if leak is None or len(found) > 1 else leak
        return drive, again, self.zero if leak is None else leak

    def _of_static(self, found: list[Arrival], last: Step) -> tuple[Arrival, Tensor]:
        """Return what arrives in each step of what is the same in all, and what is left of it in the next.

        The first membranes are a, (kept + leak + 1) * a; what has arrived in step n, a * (1 + .. + leak^n).
        """
        if len(self.chain) == 2:  # either leak makes the same two membranes: that of the membrane
            together = sum((each.coefficient for each in found[1:]), found[0].coefficient)
            return replace(found[0], coefficient=together), self.zero
        same = self.neurons.signature(found[0].atom), fingerprint(found[0].index)

        def total(number: int) -> Tensor:
            source = self._first_source(found) if number == 0 else self.chain[number].facts.source
            result = self.zero
            for coefficient, atoms in self.algebra.pieces(source):
                reads = [(self.neurons.signature(atom), fingerprint(index)) for atom, index in atoms]
                result = result + coefficient if reads == [same] else result
            return result

        first, second = (
            _over(total(number) * self.firings[number][0].factor, self.firings[-1][0].factor)
            for number in (0, 1)
        )
        leak = _clean(_over(second, first) - last.kept - 1)
        judged = self.firings[-1][0].factor != 0  # a gain of zero hides what the first membranes were
        first, leak = torch.where(judged, first, total(2)), torch.where(judged, leak, 0.0)
        expected = self.zero
        for number in range(len(self.chain)):
            expected = expected * leak + first
            if number > 1 and not alike(total(number), expected):
                raise self.error(f"that receives something else in time step {number} than later", PER_STEP)
        return replace(found[0], coefficient=first), leak

    def _is_own(self, atom: Atom) -> bool:
        """Whether an atom is a spike of this population, or reads nothing else."""
        if atom.kind == "operation":
            return all(self._is_own(each) for each in self.algebra.atoms(atom.facts.source))
        return isinstance(atom.facts, Firing) and atom.facts.membrane in self.chain

    def _sent_back(self, spent: Tensor, again: list[Arrival], leak: Tensor) -> tuple[Tensor, list[Arrival]]:
        """Tell what spikes send back into a current, one to one, from what they take from the membrane."""
        late = [each for each in again if each.atom.kind == "spike"]
        if not late:
            return spent, again
        weight = _over(late[0].coefficient, leak)
        for place, each in enumerate(late):
            if each.lag != place + 2 or not alike(each.coefficient, weight * leak ** (place + 1)):
                raise self.error("that depends on its spikes of several steps before", ADAPTIVE_THRESHOLD)
        return spent - weight, [*(a for a in again if a not in late), self._one_to_one(weight)]

    def _fed_back(
        self, last: Step, spent: Tensor, start: Tensor, again: list[Arrival]
    ) -> tuple[Tensor, list[Arrival]]:
        """Of a neuron that resets, what a spike adds beyond the state it started from is sent to itself."""
        resets = alike(last.gated, -last.kept) and not is_zero(last.gated)
        if len(self.chain) < 2 or not resets or alike(spent, start):
            return spent, again
        return start, [*again, self._one_to_one(spent - start)]

    def _one_to_one(self, weight: Tensor) -> Arrival:
        return Arrival(weight, self.firings[-2][0].atom, torch.arange(len(self.zero)), 1)

    def _start(self, firing: Firing, drive: list[Arrival]) -> Tensor:
        """Return the constant of the first membrane, in the units of the last."""
        first = self.firings[0][0]
        source = self._first_source(drive)
        level = first.factor * source.constant + first.level - firing.level
        return _clean(torch.where(firing.factor == 0, source.constant, _over(level, firing.factor)))

    def _first_source(self, drive: list[Arrival]) -> Value:
        """Return the first membrane; a norm by hand, which looks like a layer there, is opened."""
        source: Value = self.chain[0].facts.source
        known = {self.neurons.signature(each.atom) for each in drive}
        for atom in self.algebra.atoms(source):
            norm = atom.kind == "operation" and atom.facts.name == "batch_norm" and len(source.terms) == 1
            if norm and self.neurons.signature(atom) not in known:
                shift = atom.facts.at_zero()
                ones = torch.ones(atom.facts.source.shape, dtype=torch.float64)
                scale = atom.facts.function(ones).reshape(-1) - shift
                inner: Value = atom.facts.source.flat()
                opened = inner.scaled(scale).plus(Value(shift))
                return opened.scaled(source.terms[0].coefficient).plus(Value(source.constant))
        return source

    def _reset(self, last: Step, spent: Tensor, shift: Tensor, start: Tensor) -> tuple[bool, Tensor]:
        """Return whether a spike resets, and the membrane's origin: where it starts, and is reset to.

        From its origin, the first membrane is kept * origin + shift + what arrives.
        """
        kept, gated, forgets = last.kept, last.gated, last.kept == 0
        if not bool((kept >= -NEARLY).all() and (kept <= 1 + NEARLY).all()):
            found = f"whose membrane is multiplied by {_range(kept)} in each step"
            raise self.error(found, "0 to 1 is supported.")
        if bool((forgets & ((gated.abs() > NEARLY) | (spent.abs() > NEARLY))).any()):
            raise self.error("that keeps its membrane only if it fires", ONE_STATE)
        if bool((forgets & ((start - shift).abs() > NEARLY)).any()):
            raise self.error("whose first step has another bias than the last", PER_STEP)
        if alike(gated, -kept) and not is_zero(gated):
            return True, _clean(_over(spent, kept))
        if not is_zero(gated):
            left = _range(1 + _over(gated, kept))
            raise self.error(f"in which a spike leaves {left} of the membrane", ONE_STATE)
        return is_zero(spent) and is_zero(kept), _clean(_over(start - shift, kept))


def _range(tensor: Tensor) -> str:
    low, high = float(tensor.min()), float(tensor.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _unit(coefficients: list[Tensor]) -> float:
    """Return the one positive factor of all that arrives, to be taken into the threshold; else 1."""
    first = float(coefficients[0].reshape(-1)[0]) if coefficients else 1.0
    same = first > 0 and all(bool((thin(each) == first).all()) for each in coefficients)
    return first if same else 1.0


def _number(values: Tensor, shape: Shape) -> float | Array:
    found = _compact(values, shape)
    return float(found[0]) if found.size == 1 else found


def _compact(values: Tensor, shape: Shape) -> Array:
    """Return one number, one per channel, or one per neuron."""
    numbers: Array = values.expand(int(np.prod(shape))).contiguous().numpy().astype(np.float64)
    if np.all(numbers == numbers[0]):
        return numbers[:1].copy()
    channels = numbers.reshape(shape[0], -1)
    return channels[:, 0].copy() if np.all(channels == channels[:, :1]) else numbers


def _judged(factor: Tensor, level: Tensor, strict: bool, shape: Shape) -> dict[str, Any]:
    """Return threshold and norm: factor * v + level > 0."""
    gains, levels = _compact(factor, shape), _compact(level, shape)
    if gains.size == 1 and gains[0] > 0:
        thresholds = snapped(-levels / gains[0])
        thresholds = thresholds if strict else np.nextafter(thresholds, -np.inf)
        if thresholds.size == 1:
            return {"threshold": float(thresholds[0]), "norm": None}
        gains, levels, strict = np.ones(1), -thresholds, True
    size = max(gains.size, levels.size, shape[0])
    gain, offset = (np.repeat(each, size // each.size if each.size > 1 else size) for each in (gains, levels))
    zeros, ones = np.zeros(size), np.ones(size)
    norm = BatchNorm(gain=gain, offset=offset, mean=zeros, variance=ones, epsilon=0.0)
    return {"threshold": 0.0 if strict else float(np.nextafter(0.0, -1.0)), "norm": norm}


def snapped(values: Array) -> Array:
    """Return numbers without the rounding of the arithmetic around them: 0.9999999999999998 is 1."""
    near = np.array([float(f"{value:.12g}") for value in values])
    return np.where(np.abs(near - values) <= 1e-14 * np.abs(values), near, values)
