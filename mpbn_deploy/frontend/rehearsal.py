"""Run a module beside the operations that were traced from it; every spike must be the same.

Tracing sees one run. A branch that it did not take, a state that is not reset, or a neuron whose mode was
mistaken would give another network; here it gives an error.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from typing_extensions import assert_never

from ..base import Array, FrontendError, layer_name, record
from ..ir import (
    INPUT_NAME,
    AdaptivePool,
    Add,
    AveragePool,
    BatchNorm,
    Convolution,
    CountingSpike,
    Delay,
    Flatten,
    Linear,
    MaxPool,
    Operation,
    Spike,
    TrainedNetwork,
)
from .arithmetic import plain_name
from .following import of_type, tensors
from .handwritten import COMPARISONS, HandwrittenNeuron
from .hints import ADAPTIVE_THRESHOLD
from .membranes import MembraneWatch
from .recording import copy_to_run, removed_after
from .values import Form, Style

SAMPLES = 12  # at most, and two at least
MOST_VALUES = 2**16  # of all samples in one step


def ready_copy(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a copy for inference, with states forgotten and numbers of one type."""
    forget(module)
    try:
        return copy.deepcopy(module).to(dtype).eval()
    except RuntimeError as error:
        raise FrontendError(
            f"{type(module).__name__}: cannot be copied ({error}). Reset its states first, or build it anew."
        ) from error


def forget(module: nn.Module) -> None:
    """Reset the states of all neurons, as snntorch.utils.reset and SpikingJelly's reset_net do."""
    for part in module.modules():
        library = type(part).__module__.partition(".")[0]
        method = {"snntorch": "reset_mem", "spikingjelly": "reset"}.get(library, "")
        if callable(reset := getattr(part, method, None)):
            reset()


@record
class Player:
    """A module that can be played: the style of its forward, its output, and the classes of its neurons."""

    module: nn.Module
    style: Style
    output: tuple[int, Form]
    neuron_classes: tuple[type[nn.Module], ...]
    dtype: torch.dtype
    handwritten: tuple[HandwrittenNeuron, ...] = ()  # those that forward computes by itself
    membrane: bool = False  # whether the output is a membrane, after the last step

    def of_type(self, dtype: torch.dtype) -> Player:
        """Return the same module with numbers of another type."""
        return replace(self, module=copy.deepcopy(self.module).to(dtype), dtype=dtype)

    def play(self, steps: Tensor, *, watched: bool = False) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return the spikes [T, samples, *shape] of each neuron by path, and the outputs as returned.

        Plays a copy, because modules may keep states of their own. `watched`: raise FrontendError if forward
        changes a membrane between two calls of its neuron.
        """
        module = copy_to_run(self.module)
        sent: dict[str, list[Tensor]] = {}
        ears = _Ears(self, sent)
        listening = self._listening(module, sent, ears)
        watch = MembraneWatch(module, self.neuron_classes).watching() if watched else nullcontext()
        with torch.no_grad(), sending(module, self.dtype, self.neuron_classes), listening, ears, watch:
            outputs = list(self.outputs(module, steps.to(self.dtype, copy=True)))  # forward may write into it
        spikes = {path: _joined(each, steps.shape[:2]).bool() for path, each in sent.items()}
        return spikes, [list(tensors(output))[self.output[0]] for output in outputs]

    def outputs(self, module: nn.Module, steps: Tensor) -> Iterator[Any]:
        """Yield what forward returns, in each of its calls."""
        match self.style:
            case "step":
                yield from _step_by_step(module, steps)
            case "loop":
                yield module(steps[0])
            case "time first":
                yield module(steps)
            case "batch first":
                yield module(steps.transpose(0, 1))

    @contextmanager
    def _listening(self, module: nn.Module, sent: dict[str, list[Tensor]], ears: _Ears) -> Iterator[None]:
        """Collect what neurons send."""

        def begin(part: nn.Module, given: Any) -> None:
            ears.comparisons = 0

        def listener(path: str) -> Callable[..., None]:
            def listen(part: nn.Module, given: Any, output: Any) -> None:
                sent.setdefault(path, []).append(output[0] if isinstance(output, tuple) else output)

            return listen

        parts = [
            (path, part) for path, part in module.named_modules() if isinstance(part, self.neuron_classes)
        ]
        handles = [part.register_forward_hook(listener(path)) for path, part in parts]
        with removed_after([*handles, module.register_forward_pre_hook(begin)]):
            yield


class _Ears(TorchFunctionMode):
    """Collects the comparisons that are the spikes of neurons that forward computes by itself."""

    def __init__(self, player: Player, sent: dict[str, list[Tensor]]) -> None:
        super().__init__()
        self.comparisons, self.dtype, self.sent = 0, player.dtype, sent
        self.names = {number: each.name for each in player.handwritten for number in each.comparisons}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        result = of_type(self.dtype, name, args, function(*args, **(kwargs or {})))
        if plain_name(name) in COMPARISONS:
            if self.comparisons in self.names:
                self.sent.setdefault(self.names[self.comparisons], []).append(result)
            self.comparisons += 1
        return result


def _step_by_step(module: nn.Module, steps: Tensor) -> Iterator[Any]:
    """Call a module once per step; modules of norse return their state, which the next call gets."""
    returns_state = any(type(part).__module__.startswith("norse.") for part in module.modules())
    state: tuple[Any, ...] = ()
    for step in steps:
        output = module(step, *state)
        state = (output[1],) if returns_state and isinstance(output, tuple) else ()
        yield output


def _joined(spikes: list[Tensor], leading: torch.Size) -> Tensor:
    """Return the spikes of all steps, which come from one call per step, or from one call for all."""
    whole = len(spikes) == 1 and spikes[0].shape[:2] == leading
    return spikes[0] if whole else torch.stack(spikes)


@contextmanager
def sending(
    module: nn.Module, dtype: torch.dtype, neuron_classes: tuple[type[nn.Module], ...]
) -> Iterator[None]:
    """Let neurons send numbers of one type, also to layers of their own: snnTorch's spikes are float32."""

    def convert(part: nn.Module, given: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0].to(dtype), *output[1:])
        return output.to(dtype)

    def accept(part: nn.Module, given: Any) -> Any:
        return tuple(each.to(dtype) if isinstance(each, Tensor) else each for each in given)

    parts = [part for part in module.modules() if isinstance(part, neuron_classes)]
    inside = [
        part for neuron in parts for part in neuron.modules() if isinstance(part, (nn.Linear, nn.Conv2d))
    ]
    handles = [part.register_forward_hook(convert) for part in parts]
    with removed_after([*handles, *(part.register_forward_pre_hook(accept) for part in inside)]):
        yield


# ---- both beside each other ---------------------------------------------------------------------


def rehearse(player: Player, trained: TrainedNetwork) -> None:
    """Raise FrontendError if the module fires or answers otherwise than the traced network."""
    steps = torch.tensor(_inputs(trained))
    if player.style == "loop":  # the input is constant
        steps = steps[:1].expand(steps.shape)
    expected, outputs = player.play(steps, watched=True)
    spikes, last = network_run(trained, steps)
    for name, found in spikes.items():
        different = torch.nonzero(found != expected[name])
        if len(different):
            modules = dict(player.module.named_modules())
            kind = type(modules[name]).__name__ if name in modules else ""
            why = ADAPTIVE_THRESHOLD if _changes_thresholds(player, steps) else WHY
            raise FrontendError(
                f"{layer_name(name, kind)}: {len(different)} of {found.numel()} spikes of the module differ "
                f"from those of the network traced from it, first in step {int(different[:, 0].min())}. {why}"
            )
    theirs = final_output(outputs, player.output[1], player.membrane, trained.timesteps).double()
    ours = last[-1] if trained.readout_leak is not None else last.mean(0)
    if not torch.allclose(
        ours.flatten(1), theirs.flatten(1), rtol=NEARLY[player.dtype], atol=NEARLY[player.dtype]
    ):
        raise FrontendError(
            f"{type(player.module).__name__}: its outputs differ from those of the network traced from it by "
            f"up to {float((ours.flatten(1) - theirs.flatten(1)).abs().max()):g}. {WHY}"
        )


def _changes_thresholds(player: Player, steps: Tensor) -> bool:
    """Whether a run of the module leaves other thresholds in its neurons."""
    module = copy_to_run(player.module)
    neurons = [part for part in module.modules() if isinstance(part, player.neuron_classes)]
    before = copy.deepcopy([_threshold(part) for part in neurons])
    with torch.no_grad(), sending(module, player.dtype, player.neuron_classes), _Ears(player, {}):
        list(player.outputs(module, steps.to(player.dtype, copy=True)))
    return any(not torch.equal(*pair) for pair in zip(before, map(_threshold, neurons), strict=True))


def _threshold(neuron: nn.Module) -> Tensor:
    return torch.as_tensor(getattr(neuron, "threshold", getattr(neuron, "v_threshold", 0.0)))


WHY = (
    "Its forward does something that tracing cannot see: a branch that it did not take, or a state that is "
    "not reset, or not passed on."
)
NEARLY = {torch.float64: 1e-6, torch.float32: 1e-2}  # tolerance of outputs


def final_output(outputs: list[Tensor], form: Form, membrane: bool, timesteps: int) -> Tensor:
    """Return the output of a sample: the mean over time, or the membrane after the last step."""
    steps = torch.stack(outputs) if len(outputs) > 1 or form == "B" else outputs[0]
    if form == "sum":
        return steps / timesteps
    if form == "mean":
        return steps
    if form == "TB merged":
        steps = steps.reshape(timesteps, -1, *steps.shape[1:])
    elif form == "BT merged":
        steps = steps.reshape(-1, timesteps, *steps.shape[1:])
    if form in ("BT", "BT merged"):
        steps = steps.transpose(0, 1)
    return steps[-1] if membrane else steps.mean(0)


def _inputs(trained: TrainedNetwork) -> Array:
    """Return normalized inputs [T, samples, *shape] within the range, in more and more of it."""
    given, random = trained.input, np.random.default_rng(0)
    samples = max(2, min(SAMPLES, MOST_VALUES // prod(given.shape)))
    shape = (trained.timesteps, samples, *given.shape)
    width = given.maximum - given.minimum
    highest = np.maximum(1, width * 2.0 ** -(np.arange(samples) % 9)).reshape(-1, *[1] * len(given.shape))
    values = given.minimum + np.floor(random.random(shape) * (np.minimum(highest, width) + 1))
    mean, deviation = (
        each.reshape(-1, *[1] * (len(given.shape) - 1)) for each in (given.mean, given.deviation)
    )
    steps: Array = (np.minimum(values, given.maximum) - mean) / deviation
    return steps


# ---- the traced network -------------------------------------------------------------------------


def network_run(trained: TrainedNetwork, steps: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return the spikes [T, samples, *shape] of a traced network, and its last value, both in float64."""
    values = {INPUT_NAME: steps.double()}
    spikes: dict[str, Tensor] = {}
    for operation in trained.operations:
        sources = [values[source] for source in operation.sources]
        if isinstance(operation.kind, Spike):
            spikes[operation.name] = _fire(operation.kind, sources[0])
            values[operation.name] = spikes[operation.name].double()
        else:
            values[operation.name] = _in_all_steps(operation.kind, sources)
    last = values[trained.operations[-1].name]
    return spikes, last if trained.readout_leak is None else _integrate(last, trained.readout_leak)


def _in_all_steps(operation: Operation, sources: list[Tensor]) -> Tensor:
    """Compute an operation without time, or a norm per time step, on [T, samples, *shape]."""
    if isinstance(operation, BatchNorm) and operation.per_step:
        return torch.stack([_normalize(operation.at(step), x) for step, x in enumerate(sources[0])])
    result = apply_operation(operation, [source.flatten(0, 1) for source in sources])
    return result.reshape(*sources[0].shape[:2], *result.shape[1:])


def _integrate(arriving: Tensor, leak: float) -> Tensor:
    membranes = [arriving[0]]
    for x in arriving[1:]:
        membranes.append(leak * membranes[-1] + x)
    return torch.stack(membranes)


def apply_operation(operation: Operation, sources: list[Tensor]) -> Tensor:
    """Compute an operation without time as torch does, on [samples, *shape]."""
    x = sources[0]
    match operation:
        case Linear(weight=weight, bias=bias):
            return functional.linear(x, _tensor(weight), _tensor(bias))
        case Convolution(synapse=synapse, bias=bias):
            geometry = (synapse.stride, synapse.padding, synapse.dilation, synapse.groups)
            return functional.conv2d(x, _tensor(synapse.weight), _tensor(bias), *geometry)
        case BatchNorm():
            return _normalize(operation, x)
        case Flatten():
            return x.flatten(1)
        case AveragePool(kernel=kernel, stride=stride, padding=padding):
            kind = (operation.round_up, operation.count_padding, operation.divisor)
            return functional.avg_pool2d(x, kernel, stride, padding, *kind)
        case AdaptivePool(size=size):
            return functional.adaptive_avg_pool2d(x, size)
        case MaxPool(kernel=kernel, stride=stride, padding=padding, dilation=dilation):
            return functional.max_pool2d(x, kernel, stride, padding, dilation)
        case Add():
            return x + sources[1]
        case Spike() | CountingSpike() | Delay():
            raise AssertionError("neurons and delays are computed over time")
        case _:
            assert_never(operation)


def _normalize(norm: BatchNorm, x: Tensor) -> Tensor:
    """Apply a norm per channel, or per element."""
    ones = [1] * (x.dim() - 2) if len(norm.gain) == x.shape[1] else []
    shape = (-1, *ones) if ones or x.dim() == 2 else x.shape[1:]
    gain, offset, mean, variance = (
        _tensor(each).reshape(shape) for each in (norm.gain, norm.offset, norm.mean, norm.variance)
    )
    return gain * (x - mean) / (variance + norm.epsilon).sqrt() + offset


def _fire(neuron: Spike, arriving: Tensor) -> Tensor:
    """Run a neuron over [T, samples, *shape]; see `Spike`."""
    current, membrane = torch.zeros_like(arriving[0]), torch.zeros_like(arriving[0])
    spike, spikes = torch.zeros_like(membrane, dtype=torch.bool), []
    leak, current_leak = (over_channels(each, membrane) for each in (neuron.leak, neuron.current_leak))
    subtrahend = None if neuron.subtrahend is None else over_channels(neuron.subtrahend, membrane)
    for step, x in enumerate(arriving):
        again = 0.0 if neuron.recurrent is None else apply_operation(neuron.recurrent, [spike.double()])
        current = current_leak * current + x + again
        membrane = leak * membrane + current
        judged = membrane if neuron.norm is None else _normalize(neuron.norm.at(step), membrane)
        spike = judged > neuron.threshold
        after = torch.zeros_like(membrane) if subtrahend is None else membrane - subtrahend
        membrane = torch.where(spike, after, membrane)
        spikes.append(spike)
    return torch.stack(spikes)


def over_channels(values: float | Array, like: Tensor) -> Tensor:
    """Return one number, or one per channel or neuron, as it multiplies [samples, *shape]."""
    numbers = _tensor(np.asarray(values))
    if numbers.numel() in (1, like.shape[1]):
        return numbers.reshape(-1, *[1] * (like.dim() - 2))
    return numbers.reshape(like.shape[1:])


def _tensor(values: Array) -> Tensor:
    return torch.tensor(np.asarray(values, np.float64))
