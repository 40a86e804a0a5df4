"""`trace`: torch module -> TrainedNetwork.

The module runs once, watched; what it computed becomes a network; both run beside each other. Modules with a
converter are read as a whole, your own entries first:

    trace(network, converters={MyNeuron: lambda module: Spike(leak=0.5, threshold=1.0, norm=None)})

A converter returns None for a module that passes its input on unchanged.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..base import Array, FrontendError, announce, layer_name, record
from ..ir import BatchNorm, InputFormat, Operation, OverTime, Shape, Spike, TrainedNetwork
from ..nn import SpikingNetwork, TimedLayer
from .layers import OWN, Converters, convert, converter_of
from .network import Output, Readout, StepsError, StyleError, Writer, Written
from .neurons import Converted, Neurons
from .proof import AXES, Player, Proof, Style, call, prove
from .rounding import apply_operation
from .rules import Rules
from .values import Value, joined
from .watch import Watch, in_float64, ready_copy


def trace(
    module: nn.Module,
    input_shape: Shape | None = None,
    timesteps: int | None = None,
    *,
    converters: Converters | None = None,
) -> TrainedNetwork:
    """Return the operations of a module as a TrainedNetwork.

    A SpikingNetwork has its own input shape and time steps. Any other module is treated as the body of one:
    it takes raw values 0..255, as [B, ...] once per step or once for all, as [T, B, ...] or as [B, T, ...];
    with LIFs of ours, as [T * B, ...].
    """
    if isinstance(module, SpikingNetwork):
        given, body = module.input_format, module.body
        timesteps = module.timesteps if timesteps is None else timesteps
    elif input_shape is None or timesteps is None:
        name = type(module).__name__
        raise FrontendError(f"{name}: give input_shape and timesteps, or pass a SpikingNetwork.")
    else:
        given, body = as_bytes(input_shape), module
    if input_shape is not None and prod(input_shape) != prod(given.shape):
        raise FrontendError(f"input_shape {tuple(input_shape)}; the network was built for {given.shape}.")
    shape = given.shape if input_shape is None else tuple(input_shape)
    found = read(body, given, shape, timesteps, {**OWN, **(converters or {})})
    if found.proof and found.proof.silent:
        announce(
            f"{', '.join(found.proof.silent)}: never or always fires, for all random inputs of the proof: "
            "its membranes are those of the module, but what a spike does to them was not compared."
        )
    return found.trained


def as_bytes(shape: Shape) -> InputFormat:
    """Return the format of bytes."""
    return InputFormat(shape=tuple(shape), minimum=0, maximum=255, mean=np.zeros(1), deviation=np.ones(1))


def foreign_player(network: SpikingNetwork) -> Player:
    """Return a network, ready to be played in its own way."""
    given = network.input_format
    return read(network.body, given, given.shape, network.timesteps, OWN).player


def foreign_run(player: Player, network: SpikingNetwork, inputs: Array) -> tuple[dict[str, Array], Array]:
    """Play inputs; return the neurons' spikes [samples, timesteps, *shape] by name, and the outputs.

    A forward that loops over time by itself repeats one input; it then gets the first step of each sample.
    """
    values = torch.tensor(np.asarray(inputs, np.float64))
    changing = values.dim() > 1 + len(network.input_format.shape)
    steps = values.transpose(0, 1) if changing else values.expand(network.timesteps, *values.shape)
    played = player.play(network.normalize(steps))
    spikes = {name: each.transpose(0, 1).numpy().astype(np.int8) for name, each in played.spikes.items()}
    return spikes, played.outputs.numpy()


def read(
    body: nn.Module,
    given: InputFormat,
    shape: Shape,
    timesteps: int,
    known: Converters,
    advised: bool = False,
) -> Read:
    """Read a module in the first style that fits; time steps are tried before they are advised."""
    whole = any(converter_of(part, known) is not None for part in body.modules())
    styles: list[Style] = ["merged"] if whole else ["step", "time first", "batch first", "time last"]
    problems: dict[Style, Exception] = {}
    while styles:
        style = styles.pop(0)
        try:
            return Reading(body, given, shape, timesteps, style, known).run()
        except _LoopError:
            styles.insert(0, "loop")
        except Exception as error:  # forward of a user's module can raise anything
            problems[style] = error
    found = _failed(body, shape, timesteps, problems)
    if isinstance(found, StepsError) and found.ran and not advised:
        try:
            read(body, given, shape, found.ran, known, advised=True)
        except FrontendError as error:
            raise FrontendError(f"{found} That alone does not help, though: {error}") from error
    raise found


def _failed(body: nn.Module, shape: Shape, timesteps: int, problems: dict[Style, Exception]) -> FrontendError:
    """Return why a module cannot be read: what is wrong with it rather than with how it was called."""
    ours = [error for error in problems.values() if isinstance(error, FrontendError)]
    if ours:
        return min(ours, key=lambda error: getattr(error, "rank", 0))
    sizes = ", ".join(map(str, shape))
    listed = "".join(
        f"\n  - {AXES[style].replace('...', sizes)}: {type(error).__name__}: {error}"
        for style, error in problems.items()
    )
    found = FrontendError(
        f"{type(body).__name__}: forward fails for inputs of every kind that was tried, with B = 1 and T = "
        f"{timesteps}:{listed}\nCheck input shape and time steps; forward must take the inputs alone."
        f"{_shape_hint(body, shape)}"
    )
    found.__cause__ = next(iter(problems.values()))
    return found


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
        last = len(shape) == 3 and shape[-1] == first.in_channels
        sizes = f"{shape[0]} {shape[1]}" if last else "HEIGHT WIDTH"
        return (
            f" Its first Conv2d takes {first.in_channels} channels, which come before height and width: give "
            f"--input-shape {first.in_channels} {sizes}; samples with the channels last are reordered."
        )
    return ""


@record
class Read:
    """A network, the module that it was read from, and how both were compared (not with own converters)."""

    player: Player
    trained: TrainedNetwork
    proof: Proof | None


class _LoopError(Exception):
    """Forward computes several time steps in one call."""


class Reading:
    """One watched run of a module in one style."""

    def __init__(
        self,
        module: nn.Module,
        given: InputFormat,
        shape: Shape,
        timesteps: int,
        style: Style,
        known: Converters,
    ) -> None:
        self.module, self.given, self.shape = module, given, shape
        self.timesteps, self.style, self.known = timesteps, style, known
        self.rules = Rules(timesteps)
        self.watch = Watch(self.rules.apply, self.rules.own)
        self.neurons = Neurons(self.rules, self.watch)
        self.rules.compare, self.rules.site = self.neurons.compare, self.watch.where
        self.calls: Counter[str] = Counter()

    def run(self) -> Read:
        """Read the module; return it with the network, proved."""
        module, name = ready_copy(self.module), type(self.module).__name__
        for part in module.modules():
            if isinstance(part, TimedLayer):
                part.timesteps = self.timesteps
        running = copy.deepcopy(module)  # a run may leave states
        tensors = (*running.parameters(), *running.buffers())
        self.rules.own.update(each.untyped_storage()._cdata for each in tensors)
        returned = self._returned(running)
        self.neurons.settle()
        with torch.no_grad():
            readout, shape = self._readout(returned)
            given = self.given.as_picture() if len(self.given.shape) == 2 else self.given
            written = Writer(self.neurons, self.timesteps).write(given, readout, name)
        shapes = {each.name: each.shape for each in written.trained.operations}
        leaves = tuple(
            {type(part) for part in module.modules() if converter_of(part, self.known) is not None}
        )
        player = Player(
            module=module, style=self.style, shape=self.shape, readout=readout, algebra=self.rules.algebra,
            fired=self.neurons.fired, leaves=leaves, spikes=written.spikes, shapes=shapes, returned=shape,
        )  # fmt: skip
        theirs = any(kind not in OWN for kind in leaves)  # a converter of the caller may mean something else
        if not theirs:
            self._check_memory(written)
            proof = prove(player, written.trained, written.recognized)
        return Read(player=player, trained=written.trained, proof=None if theirs else proof)

    def _returned(self, module: nn.Module) -> list[Value | None]:
        """Run the module; return the value of the first tensor that it returns, for each call."""
        shape = (self.timesteps, 1, *self.shape)
        steps = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        returned: list[Value | None] = []
        with in_float64(), self.watch.hooked(module, self._converter_of, self._converted):
            for output in call(module, self.style, steps, self._label):
                tensors = [each for each in tree_leaves(output) if isinstance(each, Tensor)]
                returned.append(self.watch.memory.read(tensors[0]) if tensors else None)
                looped = any(each.facts.before is not None for each in self.neurons.membranes)
                if self.style == "step" and looped and len(returned) == 1:
                    raise _LoopError
        return returned

    def _label(self, given: Tensor) -> None:
        """Give numbers to the elements of an input, by time step."""
        algebra = self.rules.algebra

        def block(step: int | None) -> Value:
            return algebra.of(algebra.numbers.atom(self.shape, "input", step))

        if self.style in ("step", "loop"):
            value = block(None if self.style == "loop" else self.calls[""])
            self.calls[""] += 1
        else:
            blocks = [block(step) for step in range(self.timesteps)]
            axis = -1 if self.style == "time last" else 0
            value = joined(partial(torch.stack, dim=axis), blocks)
        self.watch.memory.write(given, value.moved(lambda each: each.reshape(given.shape)), "")

    def _readout(self, returned: list[Value | None]) -> tuple[Readout, Shape]:
        """Return the readout of what was returned, and its shape."""
        output = Output(self.rules, self.neurons, type(self.module).__name__)
        found = [each for each in returned if each is not None]
        if not found:
            nothing = "forward returns nothing that was computed from its input"
            raise output.error(nothing, "Return its outputs; of several tensors, the first counts.")
        if len(found) < len(returned):
            late = "in some time steps, its output does not depend on its input"
            raise output.error(late, "Let every step answer to what arrives in it.")
        value = joined(torch.stack, found) if self.style == "step" else found[0]
        return output.readout(value), value.shape

    def _check_memory(self, written: Written) -> None:
        """Raise if time was taken for a batch: a module of one step per call, called with all, forgets."""
        last = [written.spikes[name][-1].facts.membrane.facts for name in written.recognized]
        forgets = bool(last) and all(membrane.before is None for membrane in last)
        if self.style in ("time first", "batch first", "time last") and self.timesteps > 1 and forgets:
            found = f"no neuron keeps anything from step to step, called with {AXES[self.style]}"
            raise StyleError(f"{type(self.module).__name__}: {found}.")

    # ---- modules with a converter -----------------------------------------------------------------

    def _converter_of(self, part: nn.Module) -> Callable[[Any], Any] | None:
        return converter_of(part, self.known)

    def _converted(self, path: str, part: nn.Module, value: Value) -> Value:
        """Return what a module gives, as its converter says."""
        self.calls[path] += 1
        for kind in convert(path, part, self.known):
            value = self._applied(path, part, kind, value)
        self.neurons.fired[path, self.calls[path]] = value
        return value

    def _applied(self, path: str, part: nn.Module, kind: Operation, value: Value) -> Value:
        if not isinstance(kind, OverTime):

            def applied(row: int) -> Value:
                step = row if value.shape[0] == self.timesteps else self.calls[path] - 1
                now = kind.at(step) if isinstance(kind, BatchNorm) else kind

                def whole(sample: Tensor) -> Tensor:
                    return apply_operation(now, [sample[None]])[0]

                key, given = (path, id(kind)), value.select(0, row)
                return self.rules.call(layer_name(path), key, lambda _: kind, whole, given)

            return joined(torch.stack, [applied(row) for row in range(value.shape[0])])
        at_once = value.shape[0] == self.timesteps and self.style != "step"
        number, made = self.calls[path] if at_once else 1, []
        name = path if number == 1 else f"{path}@{number}"
        for row in range(value.shape[0]):
            source = value.select(0, row)
            facts = Converted(name=name, kind=kind, drive=source, chain=hash((path, number)))
            step = row if at_once else self.calls[path] - 1
            sort = "spike" if isinstance(kind, Spike) else "sent"
            atom = self.rules.algebra.numbers.atom(source.shape, sort, step, facts)
            made.append(self.rules.algebra.of(atom))
        return joined(torch.stack, made)
