"""Write what was read as a TrainedNetwork: operations with names, populations, and the readout.

Everything comes from the last time step: what the output reads in it, the populations that send it, what
drives them, and so on. A factor and a shift become a norm; moved elements a matrix of zeros and ones (whole
channels, a convolution with kernels of one pixel); sums additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import takewhile
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..base import Array, FrontendError, layer_name, record
from ..ir import (
    INPUT_NAME,
    Add,
    BatchNorm,
    Conv2d,
    Convolution,
    Delay,
    Flatten,
    Gate,
    InputFormat,
    Linear,
    Operation,
    Shape,
    TracedOperation,
    TrainedNetwork,
    picture_shape,
    product_of_spikes,
)
from .layers import ADAPTIVE_THRESHOLD
from .neurons import LATE, Converted, Firing, Neurons, Population, fingerprint, snapped
from .rules import Call, Gated, Rules
from .values import Atom, Term, Value, full, single, thin
from .watch import Site

LARGEST_MATRIX = 2**24
SAME_STEPS = "Let all time steps do the same."


class StyleError(FrontendError):
    """The module does something else, as it does if forward takes another axis for time, or for the batch."""

    rank = 1  # lower ranks say more about a module that was called in several ways


class StepsError(StyleError):
    """Its outputs are those of another number of time steps."""

    rank, ran = 2, 0


class BatchError(StyleError):
    """What a batch gives cannot be told apart by samples."""

    rank = 3


@record
class Readout:
    """How the output of a sample is made: factor * mean over rows of what is returned, [index]."""

    index: Tensor  # [rows, outputs], into one sample of what is returned, flattened
    factor: float
    leak: float | None
    value: Value  # of the last step, flat
    weights: tuple[float, ...] = ()  # of the steps, if they are neither equal nor those of a leak


@record
class Written:
    """The network, and the spikes of each of its populations, step by step."""

    trained: TrainedNetwork
    spikes: dict[str, tuple[Atom, ...]]
    recognized: dict[str, Tensor]  # populations that no converter gave, with their units (`neurons.Found`)


class Writer:
    """Writes operations, each once."""

    def __init__(self, neurons: Neurons, timesteps: int) -> None:
        self.neurons, self.algebra, self.timesteps = neurons, neurons.algebra, timesteps
        self.operations: list[TracedOperation] = []
        self.taken = {INPUT_NAME: 1}
        self.done: dict[Any, tuple[str, Shape]] = {}
        self.values: dict[Any, str] = {}
        self.spikes: dict[str, tuple[Atom, ...]] = {}
        self.recognized: dict[str, Tensor] = {}
        self.chains = _chains(neurons)

    def write(self, given: InputFormat, readout: Readout, module: str) -> Written:
        for atom in self._needed(readout.value):
            self.atom(atom)
        name = self.value(readout.value, self._shape(readout.value, ()), "output")
        if name == INPUT_NAME:
            raise FrontendError(f"{module}: forward returns its input; a network has at least one layer.")
        if readout.weights:
            name = self._weighed(name, readout)
        last = next(each for each in self.operations if each.name == name)  # the last one is the output
        operations = (*(each for each in self.operations if each is not last), last)
        trained = TrainedNetwork(
            input=given, operations=operations, timesteps=self.timesteps, readout_leak=readout.leak
        )
        return Written(trained=trained, spikes=self.spikes, recognized=self.recognized)

    def add(self, name: str, kind: Operation, sources: tuple[str, ...], shape: Shape) -> str:
        self.taken[name] = self.taken.get(name, 0) + 1
        unique = name if self.taken[name] == 1 else f"{name}@{self.taken[name]}"
        self.operations.append(TracedOperation(name=unique, kind=kind, sources=sources, shape=shape))
        return unique

    def _weighed(self, name: str, readout: Readout) -> str:
        """Write a sum of the steps with weights: a norm per step, whose outputs are averaged."""
        shape = next(each.shape for each in self.operations if each.name == name)
        gain = np.repeat(self.timesteps * np.array(readout.weights)[:, None], shape[0], axis=1)
        rest = np.ones_like(gain)
        norm = BatchNorm(gain=gain, offset=0 * rest, mean=0 * rest, variance=rest, epsilon=0.0, per_step=True)
        return self.add("output.weights", norm, (name,), shape)

    def _needed(self, value: Value) -> list[Atom]:
        """Return the atoms that a value depends on in the last step, in order of execution."""
        found: set[Atom] = set()
        waiting = self.algebra.atoms(value)
        while waiting:
            atom = waiting.pop()
            if atom in found:
                continue
            found.add(atom)
            if atom.kind == "operation":
                waiting += self.algebra.atoms(atom.facts.source)
            elif isinstance(atom.facts, Gated):
                waiting += [a for each in atom.facts.sources for a in self.algebra.atoms(each)]
            elif atom.kind in ("spike", "sent"):
                converted = isinstance(atom.facts, Converted)
                drive = atom.facts.drive if converted else atom.facts.membrane.facts.source
                now = (None, self.timesteps - 1)
                waiting += [each for each in self.algebra.atoms(drive) if each.step in now]
        return sorted(found, key=lambda atom: atom.base)

    # ---- atoms ------------------------------------------------------------------------------------

    def atom(self, atom: Atom) -> tuple[str, Shape]:
        """Return the operation that gives an atom, and the shape of what it gives."""
        now = atom.step in (None, self.timesteps - 1)  # the same operation may run again
        pure = atom.kind == "operation" or isinstance(atom.facts, Gated)
        key = (self.neurons.signature(atom), _of_sample(atom.shape)) if pure and now else atom
        if key not in self.done:
            self.done[key] = self._written(atom)
        return self.done[key]

    def _written(self, atom: Atom) -> tuple[str, Shape]:
        if atom.kind in ("input", "operation") and atom.step not in (None, self.timesteps - 1):
            where = str(atom.facts.site) if atom.kind == "operation" else "input"
            raise FrontendError(f"{where}: what arrives in one time step is read in another. {LATE}")
        if atom.kind == "input":
            return INPUT_NAME, _legal(atom.shape)
        if atom.kind == "operation":
            return self._call(atom)
        if atom.kind == "unknown":
            raise atom.facts.rejection()
        if atom.kind == "membrane":
            raise _sent_on(atom)
        if isinstance(atom.facts, Gated):
            facts, shape = atom.facts, _legal(_of_sample(atom.shape))
            return self._gate(facts.gate, facts.sources, shape, f"{facts.site.path}.mul".strip(".")), shape
        if atom.step not in (None, self.timesteps - 1):
            name = atom.facts.name if isinstance(atom.facts, Converted) else atom.facts.membrane.facts.name
            raise FrontendError(f"{layer_name(name or 'forward')}: its spikes arrive in a later step. {LATE}")
        return self._converted(atom) if isinstance(atom.facts, Converted) else self._fires(atom)

    def _call(self, atom: Atom) -> tuple[str, Shape]:
        call: Call = atom.facts
        source_shape, shape, operation = _legal(call.source.shape), _legal(atom.shape), call.operation
        if operation is None:
            source_shape, shape, operation = (call.source.constant.numel(),), (atom.size,), self._matrix(call)
        label = call.site.path or call.name
        source = self.value(call.source.flat(), source_shape, label)
        return self.add(label, operation, (source,), shape), shape

    def _matrix(self, call: Call) -> Linear:
        size, bias = call.source.constant.numel(), call.at_zero()
        if size * len(bias) > LARGEST_MATRIX:
            raise FrontendError(
                f"{call.site}: {call.name} of {size} values is a matrix of {len(bias)} x {size} numbers, too "
                "many. Use a convolution, or a pool, which stay small."
            )
        ones = torch.eye(size, dtype=torch.float64)
        columns = [call.function(one.reshape(call.source.shape)).reshape(-1) - bias for one in ones]
        return Linear(weight=torch.stack(columns, 1).numpy(), bias=bias.numpy().copy())

    def _converted(self, atom: Atom) -> tuple[str, Shape]:
        facts: Converted = atom.facts
        shape = _legal(atom.shape)
        source = self.value(facts.drive.flat(), shape, facts.name)
        name = self.add(facts.name, facts.kind, (source,), shape)
        same = (each for each in self.algebra.numbers.atoms if isinstance(each.facts, Converted))
        chain = tuple(each for each in same if each.facts.chain == facts.chain)
        if len({self.neurons.signature_of(each.facts.drive.flat(), each.step) for each in chain}) > 1:
            found = "some time steps compute what it receives in another way"
            raise FrontendError(f"{layer_name(facts.name)}: {found}. {SAME_STEPS}")
        if not isinstance(facts.kind, Delay):
            self.spikes[name] = chain
        return name, shape

    def _fires(self, atom: Atom) -> tuple[str, Shape]:
        membrane = atom.facts.membrane
        chain = self.chains[membrane]
        population = Population(self.neurons, chain)
        if len(chain) != self.timesteps and atom.step is not None:
            fires = f"that fires in {len(chain)} of {self.timesteps} time steps"
            raise population.error(fires, "Check --timesteps.")
        shape = self._shape(membrane.facts.source, membrane.shape)
        found = population.found(shape)
        label = membrane.facts.name or f"{[*self._layers(found.drive), INPUT_NAME][0]}_spikes"
        spike = found.spike
        if found.again is not None:
            # A module may hold both the neurons and their recurrent layer.
            label = reduce(_common, self._layers(found.again), label) or label
            recurrent = self._recurrent(found.again, chain[-2].facts.firings[0].atom, shape, label)
            spike = replace(spike, recurrent=recurrent)
        source = self.value(found.drive, shape, label)
        name = self.add(label, spike, (source,), shape)
        spikes = tuple(each.facts.firings[0].atom for each in chain)
        self.spikes[name] = spikes * (self.timesteps if atom.step is None else 1)
        self.recognized[name] = found.unit
        return name, shape

    def _layers(self, value: Value) -> list[str]:
        """Return the paths of the layers that give a value, the last one first."""
        atoms, paths = self.algebra.atoms(value), []
        while atoms and atoms[0].kind == "operation":
            paths += [atoms[0].facts.site.path] * bool(atoms[0].facts.site.path)
            atoms = self.algebra.atoms(atoms[0].facts.source)
        return paths

    def _recurrent(self, again: Value, before: Atom, shape: Shape, label: str) -> Linear | Convolution:
        """Return what own spikes of the step before add: one layer, or a matrix of all of them."""
        atoms = self.algebra.atoms(again)
        call = atoms[0].facts if len(atoms) == 1 and atoms[0].kind == "operation" else None
        if call is not None and self._is_unmoved(again) and self._is_unmoved(call.source.flat(), before):
            return call.operation  # type: ignore[no-any-return]
        size = prod(shape)
        if size * size > LARGEST_MATRIX or size != shape[0]:
            found = f"its recurrent synapse of {size} neurons is neither a layer nor a small matrix"
            raise FrontendError(
                f"{layer_name(label)}: {found}. Use one layer from the neurons to themselves."
            )
        bias = self._evaluated(again, before, torch.zeros(size, dtype=torch.float64))
        rows = torch.eye(size, dtype=torch.float64)
        columns = [self._evaluated(again, before, row) - bias for row in rows]
        return Linear(weight=torch.stack(columns, 1).numpy(), bias=bias.numpy().copy())

    def _is_unmoved(self, value: Value, atom: Atom | None = None) -> bool:
        """Whether a value is an atom as it is."""
        pieces = self.algebra.pieces(value)
        if len(pieces) != 1 or len(pieces[0][1]) != 1 or bool(thin(value.constant).any()):
            return False
        (coefficient, ((found, index),)) = pieces[0]
        whole = found.size == len(index) and bool((index == torch.arange(len(index))).all())
        return whole and _ones(coefficient) and atom in (None, found)

    def _evaluated(self, value: Value, atom: Atom, given: Tensor) -> Tensor:
        """Return a linear value for given elements of one atom."""
        total = value.flat().constant.clone()
        for coefficient, ((source, index),) in self.algebra.pieces(value.flat()):
            inner = given
            if source is not atom:
                call: Call = source.facts
                inner = call.function(self._evaluated(call.source, atom, given).reshape(call.source.shape))
            total = total + coefficient * inner.reshape(-1)[index]
        return total

    # ---- values -----------------------------------------------------------------------------------

    def value(self, value: Value, shape: Shape, label: str) -> str:
        """Write a flat value with this shape; return the name of its operation."""
        key = (self.neurons.signature_of(value, self.timesteps - 1), shape)
        if key not in self.values:
            self.values[key] = self._sum(self.neurons.rules.gated(value), shape, label)
        return self.values[key]

    def _sum(self, value: Value, shape: Shape, label: str) -> str:
        size = prod(shape)
        found = [self._piece(c, atoms, shape, label) for c, atoms in self.algebra.pieces(value)]
        if not found:
            raise FrontendError(f"{layer_name(label)}: nothing that depends on the input reaches it.")
        total, gain = found[0]
        if len(found) > 1:
            total = self._scaled(total, gain, full(0.0, (size,)), shape)
            for source, factor in found[1:]:
                other = self._scaled(source, factor, full(0.0, (size,)), shape)
                total = self.add(f"{label}.add", Add(), (total, other), shape)
            gain = full(1.0, (size,))
        return self._scaled(total, gain, value.constant.expand(size), shape)

    def _scaled(self, source: str, gain: Tensor, constant: Tensor, shape: Shape) -> str:
        if _ones(gain) and not bool(thin(constant).any()):
            return source
        gains, offsets = (_per_channel(each, shape) for each in (gain, constant))
        size = max(gains.size, offsets.size)
        gains, offsets = (np.repeat(each, size // each.size) for each in (gains, offsets))
        norm = BatchNorm(gain=gains, offset=offsets, mean=np.zeros(size), variance=np.ones(size), epsilon=0.0)
        return self.add(f"{source}.scale", norm, (source,), shape)

    def _piece(self, coefficient: Tensor, atoms: Any, shape: Shape, label: str) -> tuple[str, Tensor]:
        """Write elements of one atom, moved; return the result, and factors that are still to be applied."""
        if len(atoms) > 1:
            kinds = [atom.kind for atom, _ in atoms]
            if not all(atom.is_binary for atom, _ in atoms):
                raise FrontendError(
                    f"{layer_name(label)}: receives a product of {' and '.join(kinds)}, as a gate; "
                    "synapses add. Put a neuron in front of the product: products of spikes are supported."
                )
            spikes = tuple(single(index + atom.base) for atom, index in atoms)
            return self._gate(product_of_spikes(len(spikes)), spikes, shape, f"{label}.mul"), coefficient
        ((atom, index),), size = atoms, prod(shape)
        source, source_shape = self.atom(atom)
        if size == atom.size and bool((index == torch.arange(size)).all()):
            flat = source if source_shape == shape else self.add("flatten", Flatten(), (source,), shape)
            return flat, coefficient
        if (channels := _channels(coefficient, index, source_shape, shape)) is not None:
            moved = Convolution(synapse=Conv2d(weight=channels), bias=np.zeros(len(channels)))
            return self.add(f"{label}.channels", moved, (source,), shape), full(1.0, (size,))
        if size * atom.size > LARGEST_MATRIX:
            raise FrontendError(
                f"{layer_name(label)}: receives {size} values rearranged from {atom.size}, a matrix that is "
                "too large. Only whole channels can be moved in large images."
            )
        matrix, factors = np.zeros((size, atom.size)), coefficient.contiguous().numpy()
        rows = np.flatnonzero(factors)
        matrix[rows, index.numpy()[rows]] = factors[rows]
        if len(source_shape) > 1:
            source = self.add("flatten", Flatten(), (source,), (atom.size,))
        name = self.add(f"{label}.moved", Linear(weight=matrix, bias=np.zeros(size)), (source,), (size,))
        if shape != (size,):
            name = self.add("flatten", Flatten(), (name,), shape)
        return name, full(1.0, (size,))

    def _gate(self, gate: Gate, factors: Sequence[Value], shape: Shape, label: str) -> str:
        """Write a function of spikes, each of all neurons or of one position per channel."""
        key = (
            gate.weights,
            gate.threshold,
            shape,
            *(self.neurons.signature_of(each.flat(), self.timesteps - 1) for each in factors),
        )
        given = {self._whole(each.flat()) for each in factors} - {None}
        if len(given) == 1 and shape not in given:  # written once, where the spikes are
            name = self._gate(gate, factors, given.pop() or shape, label)
            return self.add("flatten", Flatten(), (name,), shape)
        if key not in self.values:
            names = tuple(self._factor(each.flat(), shape, label) for each in factors)
            self.values[key] = self.add(label, gate, names, shape)
        return self.values[key]

    def _whole(self, value: Value) -> Shape | None:
        """Return the shape of the one atom that a value is, unmoved."""
        pieces = self.algebra.pieces(value)
        atoms = [atom for _, ((atom, index), *_) in pieces if self._is_unmoved(value, atom)]
        return self.atom(atoms[0])[1] if len(pieces) == 1 and atoms else None

    def _factor(self, value: Value, shape: Shape, label: str) -> str:
        """Write spikes for a gate, which repeats those of one position at all others by itself."""
        pieces = self.algebra.pieces(value)
        if len(pieces) == 1:
            ((atom, index),) = pieces[0][1]
            name, given = self.atom(atom)
            alike = len(given) == len(shape) and all(a in (1, b) for a, b in zip(given, shape, strict=True))
            places = torch.arange(atom.size).view(given)
            if alike and bool((index == places.expand(shape).reshape(-1)).all()):
                return name
        return self.value(value, shape, label)

    def _shape(self, value: Value, written: Shape) -> Shape:
        """Return the shape of a value of one sample: that of a layer it reads, or as it is written."""
        size = value.constant.numel()
        for _, atoms in self.algebra.pieces(value):
            atom, index = atoms[0]
            if len(atoms) == 1 and atom.size == size and bool((index == torch.arange(size)).all()):
                membrane = getattr(atom.facts, "membrane", atom if atom.kind == "membrane" else None)
                if membrane is not None:
                    return self._shape(membrane.facts.source, membrane.shape)
                return _legal(_of_sample(atom.shape))
        shape = _of_sample(written)
        return _legal(shape) if prod(shape) == size and shape else (size,)


def _sent_on(membrane: Atom) -> FrontendError:
    where = Site(path=membrane.facts.name, line=membrane.facts.site.line)
    return FrontendError(
        f"{where}: its membrane is sent on; only spikes can be sent. Send its spikes, or return a membrane "
        "that never resets as the output."
    )


def _chains(neurons: Neurons) -> dict[Atom, list[Atom]]:
    """Return the membranes of the same neurons so far, by each of them; without memory, by signature."""
    chains: dict[Atom, list[Atom]] = {}
    stateless: dict[Any, list[Atom]] = {}
    followed = {each.facts.before for each in neurons.membranes}
    for membrane in neurons.membranes:
        if membrane.facts.before is not None:
            chains[membrane] = [*chains[membrane.facts.before], membrane]
        elif membrane in followed:
            chains[membrane] = [membrane]
        else:
            found = stateless.setdefault((membrane.facts.chain, membrane.size), [])
            found.append(membrane)
            chains[membrane] = list(found)
    return chains


def _channels(coefficient: Tensor, index: Tensor, source: Shape, shape: Shape) -> Array | None:
    """Return kernels of one pixel, if whole channels of an image are moved."""
    if len(source) != 3 or len(shape) != 3 or source[1:] != shape[1:]:
        return None
    pixels = shape[1] * shape[2]
    numbers, factors = (each.expand(prod(shape)).reshape(shape[0], pixels) for each in (index, coefficient))
    whole = (numbers == numbers[:, :1] + torch.arange(pixels)) & (numbers[:, :1] % pixels == 0)
    if not bool(((whole & (factors == factors[:, :1])).all(1) | (factors == 0).all(1)).all()):
        return None
    kernels = np.zeros((shape[0], source[0], 1, 1))
    for row in torch.nonzero(factors[:, 0]).reshape(-1).tolist():
        kernels[row, int(numbers[row, 0]) // pixels] = float(factors[row, 0])
    return kernels


def _common(one: str, other: str) -> str:
    """Return the path of the innermost module that holds both."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return ".".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _ones(tensor: Tensor) -> bool:
    return bool((thin(tensor) == 1).all())


def _per_channel(values: Tensor, shape: Shape) -> Array:
    numbers: Array = values.expand(prod(shape)).contiguous().numpy().reshape(shape[0], -1)
    return numbers[:, 0].copy() if np.all(numbers == numbers[:, :1]) else numbers.ravel().copy()


def _of_sample(shape: Shape) -> Shape:
    """Return a shape without the axes of a batch of one, and of one step."""
    while (len(shape) in (2, 4, 5) or shape[:2] == (1, 1)) and shape[0] == 1:
        shape = shape[1:]
    return shape


def _legal(shape: Shape) -> Shape:
    """Return (features,) or (channels, height, width); a signal is a picture of one row."""
    return picture_shape(shape) if 1 <= len(shape) <= 3 else (prod(shape),)


# ---- the readout --------------------------------------------------------------------------------


class Output:
    """Finds how outputs are made of what the last layer gives in each step."""

    def __init__(self, rules: Rules, neurons: Neurons, name: str) -> None:
        self.rules, self.algebra, self.neurons = rules, rules.algebra, neurons
        self.timesteps, self.name = rules.timesteps, name

    def error(self, found: str, todo: str) -> FrontendError:
        return FrontendError(f"{self.name}: {found}. {todo}")

    def readout(self, value: Value) -> Readout:
        """Return the readout of one returned tensor; raise FrontendError if there is none."""
        if causes := self.rules.causes(value):
            raise causes[0].rejection()
        whole = self._opened(value.flat())
        latest = torch.full(whole.shape, -1)
        for coefficient, atoms in self.algebra.pieces(whole):
            step = max((atom.step for atom, _ in atoms if atom.step is not None), default=-1)
            latest = torch.where(coefficient != 0, latest.clamp(min=step), latest)
        steps = sorted(set(latest.tolist()))
        if len(steps) == 1:
            return self._of_all(whole, torch.arange(len(latest))[None], steps[0])
        rows = [torch.nonzero(latest == step).reshape(-1) for step in steps]
        if len(steps) != self.timesteps:
            raise self._other_steps(len(steps))
        if steps != list(range(self.timesteps)) or len(set(map(len, rows))) > 1:
            raise self.error("its outputs are not those of each time step", ADAPTIVE_THRESHOLD)
        return self._of_each(whole, torch.stack(rows))

    def _other_steps(self, ran: int) -> FrontendError:
        if not ran:
            return self.error("its output does not depend on time", SAME_STEPS)
        found = f"its forward runs {ran} time steps, but {self.timesteps} are given"
        error = StepsError(f"{self.name}: {found}. Give --timesteps {ran}.")
        error.ran = ran
        return error

    def _opened(self, value: Value) -> Value:
        """Write membranes, which the output may read if they never reset, as what arrived in them."""
        while membranes := [atom for atom in self.algebra.atoms(value) if atom.kind == "membrane"]:
            opened = Value(value.constant)
            for coefficient, atoms in self.algebra.pieces(value):
                atom, index = atoms[0]
                if len(atoms) > 1 or atom.kind != "membrane":
                    ids = tuple(places + each.base for each, places in atoms)
                    opened = opened.plus(Value(full(0.0, value.shape), [Term(coefficient, ids)]))
                else:
                    held = atom.facts.source.moved(lambda each: each[index])  # noqa: B023
                    opened = opened.plus(held.scaled(coefficient))
            value = opened
            own = (a for a in self.algebra.atoms(value) if isinstance(a.facts, Firing))
            if any(atom.facts.membrane in membranes for atom in own):
                where = Site(path=membranes[0].facts.name, line=membranes[0].facts.site.line)
                raise FrontendError(
                    f"{where}: its membrane is the output, but it resets; only a membrane that never resets "
                    "can be a readout. Return its spikes."
                )
        return value

    def _of_each(self, whole: Value, index: Tensor) -> Readout:
        """Return the mean of the values of all steps, or, of membranes, the last."""
        rows = [whole.moved(lambda each, row=row: each[row]) for row in index]  # type: ignore[misc]
        if len(self.algebra.steps(rows[-1]) - {None}) > 1:
            return self._of_all(rows[-1], index[-1:], self.timesteps - 1)
        for atom in self.algebra.atoms(rows[-1]):
            inner = self.algebra.atoms(atom.facts.source) if atom.kind == "operation" else []
            if membranes := [each for each in inner if each.kind == "membrane"]:
                raise _sent_on(membranes[0])
        if len({self.neurons.signature_of(row, step) for step, row in enumerate(rows)}) > 1:
            raise self.error("some time steps compute the output in another way", SAME_STEPS)
        last, factor = rows[-1], 1.0
        if all(bool((thin(term.coefficient) == self.timesteps).all()) for term in last.terms):
            last, factor = last.scaled(1 / self.timesteps), 1 / self.timesteps  # a sum, as SpikeCount's
        return Readout(index=index, factor=factor, leak=None, value=last)

    def _of_all(self, whole: Value, index: Tensor, step: int) -> Readout:
        """Return the readout of outputs that sum over the steps with weights."""
        parts = dict(self.rules.by_step(whole))
        if None in parts:
            raise self.error("a part of its output is the same in all time steps", SAME_STEPS)
        if step != self.timesteps - 1:
            raise self._other_steps(step + 1)
        last = self._unbiased(
            Value(whole.constant, parts[step].terms), [parts[k] for k in parts if k != step]
        )
        weights = [self._weight(parts.get(number), parts[step]) for number in range(self.timesteps)]
        if self.timesteps > 1 and not any(weights[:-1]):
            return Readout(index=index, factor=1.0, leak=0.0, value=last)
        if all(weight == 1 for weight in weights):
            return self._mean(last, index)
        leak = weights[-2]
        powers = [leak ** (self.timesteps - 1 - number) for number in range(self.timesteps)]
        leaks = 0 < leak < 1 and np.allclose(weights, powers, rtol=0, atol=1e-9)
        value = Value(last.constant / sum(weights), last.terms)
        return Readout(
            index=index,
            factor=1.0,
            leak=leak if leaks else None,
            value=value,
            weights=() if leaks else tuple(weights),
        )

    def _mean(self, last: Value, index: Tensor) -> Readout:
        if all(_ones(term.coefficient) for term in last.terms):  # a sum: its mean is as good
            value = Value(last.constant / self.timesteps, last.terms)
            return Readout(index=index, factor=1 / self.timesteps, leak=None, value=value)
        terms = [Term(_whole(term.coefficient * self.timesteps), term.ids) for term in last.terms]
        return Readout(index=index, factor=1.0, leak=None, value=Value(last.constant, terms))

    def _unbiased(self, last: Value, others: Sequence[Value]) -> Value:
        """Take the bias of a layer on a sum over time, which counts once, out of the last step."""
        known = [a for each in others for a in self.algebra.atoms(each) if a.kind == "operation"]
        plain = {self.neurons.signature(atom) for atom in known if not atom.facts.biased}
        result = Value(last.constant)
        for coefficient, atoms in self.algebra.pieces(last):
            atom, index = atoms[0]
            if atom.kind == "operation" and atom.facts.biased and self.neurons.signature(atom) in plain:
                result = result.plus(Value(atom.facts.at_zero()[index] * coefficient))
                call = replace(atom.facts, biased=False)
                atoms = ((self.algebra.numbers.atom(atom.shape, "operation", atom.step, call), index),)
            ids = tuple(places + each.base for each, places in atoms)
            result = result.plus(Value(full(0.0, last.shape), [Term(coefficient, ids)]))
        return result

    def _weight(self, part: Value | None, last: Value) -> float:
        """Return the factor of a step's part of the output, relative to that of the last."""
        if part is None:
            return 0.0
        ours, theirs = (
            {
                tuple(
                    (self.neurons.signature(atom), fingerprint(index)) for atom, index in atoms
                ): coefficient
                for coefficient, atoms in self.algebra.pieces(each)
            }
            for each in (part, last)
        )
        if ours.keys() != theirs.keys():
            raise self.error("some time steps compute the output in another way", SAME_STEPS)
        ratios = torch.cat([(ours[key] / theirs[key])[theirs[key] != 0] for key in ours])
        if not torch.allclose(ratios, ratios[:1].expand(ratios.shape), rtol=1e-9):
            raise self.error("weighs time steps differently for different outputs", SAME_STEPS)
        return float(snapped(ratios[:1].numpy())[0])


def _whole(tensor: Tensor) -> Tensor:
    return torch.where((tensor.round() - tensor).abs() < 1e-12, tensor.round(), tensor)
