"""Check while a module runs that each neuron of a library gets the states that it left in its last call.

Nothing but its own equation is read of such a neuron, so what forward does to a membrane between two calls (a
clamp, a factor, a reset, a state of another step) would be lost. Every state that a neuron returns, or keeps
as an attribute, is marked; detach, clone and their like pass the mark on, every other function does not, and
writing into a state removes it. So an operation is found even if it changes no number of this run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..base import FrontendError, layer_name
from .following import UNCHANGED, tensors, writes
from .recording import removed_after

KEPT = ("spk", "syn", "mem")  # where snnTorch's neurons keep their states; SpikingJelly's have `_memories`
Mark = tuple[str, int, Any]  # the neuron's path, the number of its call, and which of its states


class MembraneWatch(TorchFunctionMode):
    """Raises FrontendError when a neuron gets another state than it left."""

    def __init__(self, module: nn.Module, neuron_classes: tuple[type[nn.Module], ...]) -> None:
        super().__init__()
        self.neurons = [
            (path, part) for path, part in module.named_modules() if isinstance(part, neuron_classes)
        ]
        self.calls: Counter[str] = Counter()
        self.marks: dict[int, tuple[Tensor, set[Mark]]] = {}  # the tensor, so that its id is not used again
        self.left: dict[Mark, Tensor] = {}  # copies

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = [
            part.register_forward_pre_hook(self._entering(path), with_kwargs=True)
            for path, part in self.neurons
        ]
        handles += [part.register_forward_hook(self._leaving(path)) for path, part in self.neurons]
        with removed_after(handles), self:
            yield

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        result = function(*args, **(kwargs or {}))
        if name == "__setitem__" or writes(name):
            self._written(args[0])
        source = self.marks.get(id(args[0])) if args and name in UNCHANGED else None
        for tensor in tensors(result):
            if source is None or tensor.shape != source[0].shape:
                self.marks.pop(id(tensor), None)
            elif tensor is not source[0]:
                self.marks[id(tensor)] = (tensor, source[1])
        return result

    def _written(self, tensor: Tensor) -> None:
        """Forget a tensor that was written into, and those that share its memory."""
        place = tensor.untyped_storage().data_ptr()
        for number, (other, _) in list(self.marks.items()):
            if other.untyped_storage().data_ptr() == place:
                del self.marks[number]

    def _entering(self, path: str) -> Callable[..., None]:
        def enter(part: nn.Module, args: Any, kwargs: Any) -> None:
            call = self.calls[path]
            given = _from_the_end(list(tensors((args, kwargs)))[1:]) or _kept(part)
            before = {mark[2] for mark in self.left if mark[:2] == (path, call - 1)}
            kept = {which for which in before if isinstance(which, str)}
            missing = before and not (given.keys() & before)
            missing = missing or (kept & given.keys() and kept - given.keys())  # a reset left a plain number
            if missing or not all(self._is_left((path, call - 1, each), given[each]) for each in given):
                raise FrontendError(
                    f"{layer_name(path, type(part).__name__)}: forward changes its state before time step "
                    f"{call}; a neuron must get the state that it left in the step before, and zero in the "
                    "first. Pass membranes on as they are: clamping, scaling, resetting or assigning them "
                    "between two calls is not supported."
                )

        return enter

    def _is_left(self, mark: Mark, tensor: Tensor) -> bool:
        with torch._C.DisableTorchFunction():
            if mark[1] < 0:
                return not tensor.any()
            marked = mark in self.marks.get(id(tensor), (tensor, set()))[1]
            return marked and torch.equal(tensor, self.left[mark])

    def _leaving(self, path: str) -> Callable[..., None]:
        def leave(part: nn.Module, args: Any, output: Any) -> None:
            call = self.calls[path]
            self.calls[path] += 1
            returned = list(tensors(output)) if isinstance(output, tuple) else []
            with torch._C.DisableTorchFunction():
                for which, tensor in {**_from_the_end(returned), **_kept(part)}.items():
                    _, marks = self.marks.get(id(tensor), (tensor, set()))
                    self.marks[id(tensor)] = (tensor, marks | {(path, call, which)})
                    self.left[path, call, which] = tensor.detach().clone()

        return leave


def _from_the_end(states: list[Tensor]) -> dict[int | str, Tensor]:
    """Number states from the last one: neurons return their spikes before them."""
    return {index - len(states): tensor for index, tensor in enumerate(states)}


def _kept(part: nn.Module) -> dict[int | str, Tensor]:
    """Return the states that a neuron keeps as attributes, by name."""
    names = (*KEPT, *getattr(part, "_memories", ()))
    found = {name: getattr(part, name, None) for name in names}
    return {name: state for name, state in found.items() if isinstance(state, Tensor)}
