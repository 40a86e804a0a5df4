"""Run a module beside the network that was read from it: every decision of every neuron must be the same.

Reading sees one run with a batch of one. The proof runs a batch of lively random samples: each decision of
the network is computed after the module's own spikes before it, so one that differs is found where it is
made. Ties, closer to the threshold than float64 resolves, are counted and not compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..base import Array, layer_name, record
from ..ir import InputFormat, Shape, Spike, TrainedNetwork
from .network import BatchError, Readout, StyleError
from .rounding import RoundingBounds, rounding_bounds
from .values import Algebra, Atom, Value
from .watch import COMPARING, Exact, in_float64, ready_copy

Style = Literal["merged", "step", "loop", "time first", "batch first", "time last"]
SAMPLES = 12
ENOUGH = 2**19  # decisions, after which no more inputs are drawn for neurons that never fire
DRAWS = 3


def call(
    module: nn.Module, style: Style, steps: Tensor, seen: Callable[[Tensor], None] = lambda given: None
) -> Iterator[Any]:
    """Yield what forward returns in each of its calls, for inputs [T, B, *shape]; `seen` gets each input."""
    if style != "step":
        given = {"loop": steps[0], "batch first": steps.transpose(0, 1), "merged": steps.flatten(0, 1)}
        given["time last"] = steps.movedim(0, -1)
        inputs = given.get(style, steps).clone()  # forward may write into it
        seen(inputs)
        yield module(inputs)
        return
    passes = len(inspect.signature(module.forward).parameters) > 1  # the state, as norse's modules do
    state: tuple[Any, ...] = ()
    for step in steps:
        inputs = step.clone()
        seen(inputs)
        output = module(inputs, *state)
        state = (output[1],) if passes and isinstance(output, tuple) and len(output) == 2 else ()
        yield output


class _Ears(Exact):  # type: ignore[no-untyped-call]
    """Keeps the results of comparisons, by their number in the run."""

    def __init__(self, dtype: torch.dtype, wanted: set[Any]) -> None:
        super().__init__(dtype)
        self.wanted = wanted
        self.heard: dict[Any, Tensor] = {}
        self.judged: dict[Any, Tensor] = {}  # what was compared, minus what it was compared with

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._opname.strip("_")
        if not self.opaque and name in COMPARING and self.comparisons in self.wanted:
            against = 0.0 if name in ("sign", "sgn", "heaviside") else args[1]
            self.judged[self.comparisons] = (args[0] - against) * (-1.0 if name in ("lt", "le") else 1.0)
        out = func(*args, **kwargs)
        if self.comparisons in self.judged and name in COMPARING:
            self.heard[self.comparisons] = out.clone()
        return out


@record
class Played:
    """A run: spikes [T, B, *shape] of each population, what was compared for them, outputs [B, outputs]."""

    spikes: dict[str, Tensor]
    judged: dict[str, Tensor]
    outputs: Tensor


@record
class Player:
    """A module that can be played: how its forward is called, and which of its comparisons are spikes."""

    module: nn.Module
    style: Style
    shape: Shape
    readout: Readout
    algebra: Algebra
    fired: Mapping[Any, Value]  # results of comparisons, and of modules with converters
    leaves: tuple[type[nn.Module], ...]
    spikes: Mapping[str, tuple[Atom, ...]]  # of each population, in each step
    shapes: Mapping[str, Shape]
    returned: tuple[int, ...]  # the shape of what is returned for one sample
    dtype: torch.dtype = torch.float64

    def of_type(self, dtype: torch.dtype) -> Player:
        return replace(self, dtype=dtype)

    def play(self, steps: Tensor) -> Played:
        """Run the module on [T, B, *shape]."""
        module = ready_copy(self.module, self.dtype)
        ears = _Ears(self.dtype, set(self.fired))
        with in_float64(self.dtype), self._hooked(module, ears), ears:
            given = steps.to(self.dtype).reshape(*steps.shape[:2], *self.shape)
            outputs = list(call(module, self.style, given))
        picked = [next(t for t in tree_leaves(output) if isinstance(t, Tensor)) for output in outputs]
        whole = torch.stack(picked) if self.style == "step" else picked[0]
        found = self.by_sample(whole.double(), self.returned, steps.shape[1]).flatten(1)
        final = found[:, self.readout.index].mean(1) * self.readout.factor
        spikes = self._by_neuron(ears.heard, steps.shape[1])
        return Played(spikes=spikes, judged=self._by_neuron(ears.judged, steps.shape[1]), outputs=final)

    @contextmanager
    def _hooked(self, module: nn.Module, ears: _Ears) -> Iterator[None]:
        """Read modules with converters as a whole."""
        calls: dict[str, int] = {}

        def enter(part: nn.Module, given: Any) -> None:
            ears.opaque += 1

        def leave(path: str) -> Any:
            def hook(part: nn.Module, given: Any, output: Any) -> None:
                ears.opaque -= 1
                if not ears.opaque:
                    calls[path] = calls.get(path, 0) + 1
                    ears.heard[path, calls[path]] = next(
                        t for t in tree_leaves(output) if isinstance(t, Tensor)
                    )

            return hook

        parts = [(path, part) for path, part in module.named_modules() if isinstance(part, self.leaves)]
        handles = [part.register_forward_pre_hook(enter) for _, part in parts]
        handles += [part.register_forward_hook(leave(path)) for path, part in parts]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def by_sample(self, tensor: Tensor, single: tuple[int, ...], samples: int) -> Tensor:
        """Return [samples, *single] of a tensor; the axis of samples may be merged with time."""
        shape = tuple(tensor.shape)
        if shape == (samples, *single):
            return tensor
        if len(shape) == len(single):
            for axis, (size, wanted) in enumerate(zip(shape, single, strict=True)):
                if (
                    size == wanted * samples
                    and shape[:axis] + shape[axis + 1 :] == single[:axis] + single[axis + 1 :]
                ):
                    order = (samples, wanted) if self.style == "batch first" else (wanted, samples)
                    split = tensor.reshape(*shape[:axis], *order, *shape[axis + 1 :])
                    return split.movedim(axis + (0 if self.style == "batch first" else 1), 0)
        for axis, size in enumerate(shape):  # forward may squeeze a batch of one
            if size == samples and shape[:axis] + shape[axis + 1 :] == single:
                return tensor.movedim(axis, 0)
        raise BatchError(
            f"{type(self.module).__name__}: a batch of {samples} gives shape {shape} where one sample gives "
            f"{single}; the samples of a batch must not depend on each other."
        )

    def _by_neuron(self, heard: Mapping[Any, Tensor], samples: int) -> dict[str, Tensor]:
        """Return what was heard as [T, B, *shape] of each population."""
        wanted = {atom.base: atom for atoms in self.spikes.values() for atom in atoms}
        found = {base: torch.zeros(samples, atom.size, dtype=torch.float64) for base, atom in wanted.items()}
        for key, value in self.fired.items():
            if key not in heard or len(value.terms) != 1 or len(value.terms[0].ids) != 1:
                continue
            tensor = self.by_sample(heard[key].double(), tuple(value.shape), samples).flatten(1)
            for coefficient, ((atom, index),) in self.algebra.parts(value.terms[0]):
                if atom.base in wanted:
                    used = torch.nonzero(coefficient.reshape(-1)).reshape(-1)
                    found[atom.base][:, index.reshape(-1)[used]] = tensor[:, used]
        return {
            name: torch.stack([found[atom.base] for atom in atoms]).reshape(
                len(atoms), samples, *self.shapes[name]
            )
            for name, atoms in self.spikes.items()
        }


@record
class Proof:
    """How many decisions were compared, how many of them were ties, and which populations never changed."""

    decisions: int
    ties: int
    silent: tuple[str, ...]


def prove(player: Player, trained: TrainedNetwork, recognized: Mapping[str, Tensor]) -> Proof:
    """Raise FrontendError if the module decides, or answers, otherwise than the network read from it.

    One sample runs alone, too: the network treats samples one by one, so a module that mixes them differs.
    """
    decisions, ties, silent = 0, 0, set(recognized)
    for draw in range(DRAWS):
        raw = torch.tensor(lively_inputs(trained, draw))
        if player.style == "loop":
            raw = raw[:1].expand(raw.shape)
        middle = raw.shape[1] // 2
        for samples in (slice(None), slice(middle, middle + 1)):
            inputs = raw[:, samples]
            played = player.play(_normalized(inputs, trained.input))
            bounds = rounding_bounds(trained, inputs, played.spikes, torch.finfo(torch.float64).eps)
            for name in played.spikes:
                _check_decisions(player, name, recognized.get(name), played, bounds)
            for name in recognized:
                found, tie = played.spikes[name], bounds.ties[name]
                decisions, ties = decisions + found.numel(), ties + int(tie.sum())
                if bool(found.any()) and not bool(found.all()):
                    silent.discard(name)
            _check_outputs(player, bounds.result, played.outputs, bounds.outputs)
        if not silent or decisions > ENOUGH:
            break
    return Proof(decisions=decisions, ties=ties, silent=tuple(sorted(silent)))


def _check_decisions(
    player: Player, name: str, unit: Tensor | None, played: Played, bounds: RoundingBounds
) -> None:
    """Compare decisions outside of ties; and how far membranes that were recognized are from thresholds."""
    margin, error = bounds.margins[name], bounds.errors[name]
    apart = bounds.wrong[name] & ~bounds.ties[name]
    if unit is not None:
        factor = unit.reshape(margin.shape[2:])
        apart |= (played.judged[name] - factor * margin).abs() > 1e-9 + 16 * (factor.abs() * error)
    different = torch.nonzero(apart)
    if len(different):
        step, _, *neuron = (int(each) for each in different[different[:, 0].argmin()])
        raise StyleError(
            f"{layer_name(name)}: {len(different)} of {margin.numel()} membranes of the module, called with "
            f"{AXES[player.style]}, differ from those of the network read from it, first in step {step}, "
            f"neuron {tuple(neuron)}. {WHY}"
        )


def _check_outputs(player: Player, ours: Tensor, theirs: Tensor, bound: Tensor) -> None:
    difference = (ours.flatten(1) - theirs).abs()
    if not bool((difference <= 1e-9 + bound.flatten(1) * 16).all()):
        raise StyleError(
            f"{type(player.module).__name__}: its outputs, called with {AXES[player.style]}, differ from "
            f"those of the network read from it by up to {float(difference.max()):g}. {WHY}"
        )


AXES = {
    "merged": "[T * B, ...]", "step": "[B, ...] once per step", "loop": "[B, ...]",
    "time first": "[T, B, ...]", "batch first": "[B, T, ...]", "time last": "[B, ..., T]",
}  # fmt: skip
WHY = (
    "Its forward does something that one run with a batch of one does not show: samples that depend on each "
    "other, a branch on shapes, or a state that is not reset, or not passed on."
)


def _normalized(raw: Tensor, given: InputFormat) -> Tensor:
    shape = (-1, *[1] * (len(given.shape) - 1))
    mean, deviation = (torch.tensor(each).reshape(shape) for each in (given.mean, given.deviation))
    return (raw - mean) / deviation


def lively_inputs(trained: TrainedNetwork, draw: int) -> Array:
    """Return inputs [T, samples, *shape] in parts of the range, so that neurons fire at times; or beyond."""
    given, random = trained.input, np.random.default_rng(draw)
    neurons = sum(prod(each.shape) for each in trained.operations if isinstance(each.kind, Spike))
    samples = max(2, min(SAMPLES, ENOUGH // max(1, neurons * trained.timesteps)))
    width = max(given.maximum - given.minimum, 1) * 8.0**draw
    highest = (width * 2.0 ** -np.linspace(0, 10, samples)).reshape(-1, *[1] * len(given.shape))
    values: Array = given.minimum + random.random((trained.timesteps, samples, *given.shape)) * highest
    return values if draw < 2 else values - highest / 2
