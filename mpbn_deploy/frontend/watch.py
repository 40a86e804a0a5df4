"""Watch a module run: a TorchDispatchMode sees every operation that torch executes, with its real tensors.

A storage holds a value (`values`), a tensor is a view of it; so writes in place reach every view, and a view
costs nothing. The run is in float64, whatever the module asks for. Operations know the path of the module
that runs them, and the line of its code.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ..base import FrontendError, layer_name, record
from .values import Value, joined

HALVES = (torch.float32, torch.float16, torch.bfloat16)
HERE = str(Path(__file__).parent)
THEIRS = str(Path(torch.__file__).parent)
RUNS = ("frontend/proof.py", "frontend/stage.py")  # where modules are called
COMPARING = frozenset({"gt", "ge", "lt", "le", "sign", "sgn", "heaviside"})
SAME_STORAGE = frozenset({"detach", "alias", "lift_fresh", "_unsafe_view", "_reshape_alias"})


@record
class Site:
    """Where an operation runs: the path of the innermost module, and the line of Python that called torch."""

    path: str
    line: str

    def __str__(self) -> str:
        where = layer_name(self.path or "forward")
        return f"{where}, {self.line}" if self.line else where


def current_line() -> str:
    """Return the innermost line that is neither torch's nor ours, 'model.py, line 12'; '' for none."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(RUNS):
        name = frame.f_code.co_filename
        if not name.startswith((HERE, THEIRS, "<")):
            return f"{Path(name).name}, line {frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


class Exact(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every operation in float64 (or as it is, with another `dtype`)."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype = dtype
        self.opaque = 0  # depth of modules that are read as a whole
        self.comparisons = 0  # so far, outside of them

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = self.raised(func, args, kwargs or {})
        self.comparisons += not self.opaque and func._opname.strip("_") in COMPARING
        return self.run(func, args, kwargs)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def raised(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return arguments with float64 for every smaller type."""
        if self.dtype != torch.float64:
            return args, kwargs
        written = {id(each) for each in tree_leaves((args, kwargs)) if _is_written(func, args, kwargs, each)}

        def raise_one(each: Any) -> Any:
            if isinstance(each, torch.dtype):
                return torch.float64 if each in HALVES else each
            if isinstance(each, Tensor) and each.dtype in HALVES and id(each) not in written:
                return each.double()
            return each

        return tree_map(raise_one, (args, kwargs))  # type: ignore[no-any-return]


def _is_written(func: Any, args: Any, kwargs: Any, each: Any) -> bool:
    if not func._schema.is_mutable or not isinstance(each, Tensor):
        return False
    return (bool(args) and each is args[0]) or each is kwargs.get("out")


@contextmanager
def in_float64(dtype: torch.dtype = torch.float64) -> Iterator[None]:
    """Let tensors that are made without a type be of this one; and compute no gradients."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(before)


# ---- storages -----------------------------------------------------------------------------------

Layout = tuple[tuple[int, ...], tuple[int, ...], int]


def layout_of(tensor: Tensor) -> Layout:
    return tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())


@dataclass(eq=False)
class Stored:
    """What a storage holds, through the layout that was written, and through others as they are read."""

    alive: StorageWeakRef
    size: int
    order: int
    path: str  # of the module that wrote it last
    written: Layout
    views: dict[Layout, Value] = field(default_factory=dict)

    @property
    def value(self) -> Value:
        return self.views[self.written]

    @property
    def expired(self) -> bool:
        return bool(self.alive.expired())  # type: ignore[no-untyped-call]

    def replace(self, value: Value) -> None:
        self.views = {self.written: value}

    def flat(self) -> Value:
        return self.value.moved(lambda each: _flattened(each, self.written, self.size))


def _flattened(part: Tensor, layout: Layout, size: int) -> Tensor:
    whole = torch.zeros(size, dtype=part.dtype)
    whole.as_strided(*layout).copy_(part)
    return whole


class Memory:
    """The values of all storages that are alive."""

    def __init__(self) -> None:
        self.stored: dict[int, Stored] = {}
        self.written = 0

    def find(self, tensor: Tensor) -> Stored | None:
        key = tensor.untyped_storage()._cdata
        found = self.stored.get(key)
        if found is not None and found.expired:
            del self.stored[key]
            return None
        return found

    def read(self, tensor: Any) -> Value | None:
        found = self.find(tensor) if isinstance(tensor, Tensor) else None
        if found is None:
            return None
        layout = layout_of(tensor)
        if layout not in found.views:
            found.views[layout] = found.flat().moved(lambda each: each.as_strided(*layout))
        return found.views[layout]

    def remember(self, tensor: Tensor, value: Value) -> None:
        """Note what a view of a storage holds."""
        if (found := self.find(tensor)) is not None:
            found.views.setdefault(layout_of(tensor), value)

    def write(self, tensor: Tensor, value: Value, path: str) -> None:
        storage = tensor.untyped_storage()
        size = storage.nbytes() // tensor.element_size()
        layout, old = layout_of(tensor), self.find(tensor)
        if tensor.numel() < size:
            rest = Value(tensor.detach().as_strided((size,), (1,), 0).double()) if old is None else old.flat()
            value, layout = _overwritten(rest, value, layout), ((size,), (1,), 0)
        self.written += 1
        order = self.written if old is None else old.order
        alive = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.stored[storage._cdata] = Stored(alive, size, order, path, layout, {layout: value})

    def live(self) -> list[Stored]:
        """Return all storages in the order in which they were made."""
        self.stored = {key: each for key, each in self.stored.items() if not each.expired}
        return sorted(self.stored.values(), key=lambda each: each.order)


def _overwritten(rest: Value, new: Value, layout: Layout) -> Value:
    """Return a flat value with a part of it replaced."""

    def put(parts: list[Tensor]) -> Tensor:
        whole = parts[0].clone(memory_format=torch.contiguous_format)
        whole.as_strided(*layout).copy_(parts[1])
        return whole

    return joined(put, [rest, new])


# ---- the mode -----------------------------------------------------------------------------------

TAKEN_OUT = {"_local_scalar_dense": "if, item(), int() or float()", "equal": "equal", "nonzero": "nonzero"}
TAKEN_OUT |= dict.fromkeys(("unique", "_unique2", "unique_dim", "unique_consecutive"), "unique")
TAKEN_OUT |= {name: name for name in ("masked_select", "bincount", "is_nonzero")}


class Watch(Exact):  # type: ignore[no-untyped-call]
    """Keeps the value of each tensor that depends on the input; `apply` says what operations do to values."""

    def __init__(self, apply: Callable[..., Any], own: set[int]) -> None:
        super().__init__()
        self.memory, self.apply, self.own = Memory(), apply, own
        self.paths = [""]
        self.operand = ""  # the path of the module that computed what is compared

    @property
    def path(self) -> str:
        """The innermost module that runs; of one that several modules share, the module that called it."""
        path = ""
        for each in self.paths:
            if path and not each.startswith(f"{path}."):
                break
            path = each
        return path

    def where(self) -> Site:
        return Site(path=self.path, line=current_line())

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.opaque:
            return func(*args, **kwargs)
        given = tree_map(self._symbolic, (list(args), kwargs))
        known = any(isinstance(each, Value) for each in tree_leaves(given, is_leaf=_is_value))
        name = func._opname.removesuffix("_") if func._schema.is_mutable else func._opname
        if func._schema.is_mutable:
            written = [each for each in tree_leaves(args[:1]) if isinstance(each, Tensor)]
            self.own.difference_update(each.untyped_storage()._cdata for each in written)
        if not known and not _is_random(name):
            return func(*args, **kwargs)
        if name in TAKEN_OUT:
            self.taken_out(TAKEN_OUT[name])
        if func._schema.is_mutable:  # constants as they are before the write
            given = tree_map(
                lambda each: each.clone() if isinstance(each, Tensor) else each, given, is_leaf=_is_value
            )
        out = func(*args, **kwargs)
        if isinstance(out, (bool, int, float)):
            self.taken_out(name)
        if torch.Tag.inplace_view in func.tags:
            return out  # another view of the same storage
        if name in COMPARING and (
            operand := next(
                (f for each in args if isinstance(each, Tensor) and (f := self.memory.find(each))), None
            )
        ):
            self.operand = operand.path
        if func.is_view or name in SAME_STORAGE:
            self._viewed(func, args, kwargs, given[0][0], out)
            return out
        written = (kwargs.get("out") if "out" in kwargs else args[0]) if func._schema.is_mutable else out
        given[1].pop("out", None)
        self._store(written, self.apply(name, func, given[0], given[1], written))
        return out

    def taken_out(self, how: str) -> None:
        raise FrontendError(
            f"{self.where()}: takes a number out of its data ({how}), so what it computes may differ from "
            "input to input; the same operations are needed for all. Check inputs before calling it, and "
            "count spikes outside of it."
        )

    def _symbolic(self, each: Any) -> Any:
        value = self.memory.read(each)
        return each if value is None else value

    def _viewed(self, func: Any, args: Any, kwargs: Any, source: Value, out: Any) -> None:
        if func._opname == "as_strided":
            return  # read through the storage
        single = [out]
        views = list(out) if isinstance(out, (list, tuple)) else single

        def move(tensor: Tensor) -> Any:
            try:
                return func(tensor, *args[1:], **kwargs)
            except RuntimeError:  # of an expanded tensor
                return func(tensor.contiguous(), *args[1:], **kwargs)

        def part(number: int) -> Callable[[Tensor], Tensor]:
            return lambda each: move(each)[number] if views is not single else move(each)

        for number, view in enumerate(views):
            self.memory.remember(view, source.moved(part(number)))

    def _store(self, out: Any, value: Any) -> None:
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        for tensor, each in zip(outs, values, strict=False):
            if isinstance(tensor, Tensor) and isinstance(each, Value):
                self.memory.write(tensor, each.grown(tensor.shape), self.path)

    # ---- modules ----------------------------------------------------------------------------------

    @contextmanager
    def hooked(
        self,
        module: nn.Module,
        converter_of: Callable[[nn.Module], Any],
        converted: Callable[[str, nn.Module, Value], Value],
    ) -> Iterator[None]:
        """Know the path of the module that runs; one with a converter is read as a whole."""
        handles = []
        for path, part in module.named_modules():
            leaf = converter_of(part) is not None
            handles.append(part.register_forward_pre_hook(self._entering(path, leaf)))
            leave = self._leaving(path, leaf, converted)
            handles.append(part.register_forward_hook(leave, always_call=True))
        try:
            with _NumpyIsSeen(self), self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, path: str, leaf: bool) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any) -> None:
            self.paths.append(path)
            self.opaque += leaf

        return enter

    def _leaving(self, path: str, leaf: bool, converted: Callable[..., Value]) -> Callable[..., None]:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self.paths.pop()
            self.opaque -= leaf
            if not leaf or self.opaque or output is None:
                return
            given = [value for each in tree_leaves(args) if (value := self.memory.read(each)) is not None]
            sent = next((each for each in tree_leaves(output) if isinstance(each, Tensor)), None)
            if len(given) > 1:
                where = layer_name(path, type(module).__name__)
                raise FrontendError(f"{where}: takes {len(given)} values; one is supported.")
            if given and sent is not None:
                self.memory.write(sent, converted(path, module, given[0]), path)

        return leave


class _NumpyIsSeen(TorchFunctionMode):
    """Numpy reads tensors without torch: reject it where data depend on the input."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        reads = name in ("numpy", "__array__", "tolist") and not self.watch.opaque
        if reads and self.watch.memory.read(args[0]) is not None:
            self.watch.taken_out(name)
        return function(*args, **(kwargs or {}))


def _is_value(each: Any) -> bool:
    return isinstance(each, Value)


def _is_random(name: str) -> bool:
    return name in RANDOM


RANDOM = frozenset(
    {"rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "randperm", "bernoulli", "normal"}
    | {"uniform", "poisson", "multinomial", "native_dropout", "random", "exponential"}
)


def ready_copy(module: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Return a copy for inference, with states forgotten and numbers of one type."""
    forget(module)
    try:
        made = copy.deepcopy(module).to(dtype).eval()
    except RuntimeError as error:
        raise FrontendError(
            f"{type(module).__name__}: cannot be copied ({error}). Reset its states first, or build it anew."
        ) from error
    for part in made.modules():  # tensors that are neither parameters nor buffers
        for name, each in vars(part).items():
            if isinstance(each, Tensor) and each.is_floating_point() and not each.requires_grad:
                setattr(part, name, each.to(dtype))
    return made


def forget(module: nn.Module) -> None:
    """Reset the states of all neurons, as snntorch.utils.reset and SpikingJelly's reset_net do."""
    for part in module.modules():
        library = type(part).__module__.partition(".")[0]
        method = {"snntorch": "reset_mem", "spikingjelly": "reset"}.get(library, "")
        if callable(reset := getattr(part, method, None)):
            reset()
