"""Import Lava on Python versions it was not released for, with patches that last only for the import.

lava-nc 0.10.0 and lava-dl 0.6.0 are the last releases of archived projects and declare support for Python
3.10 only. `_hashable_dataclasses` and `_stand_ins` make them importable elsewhere, and quicker.
`start_method` and `children_exit_with_parent` let Lava run inside a multiprocessing process, such as a Dask
worker.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.util
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module, metadata
from types import ModuleType
from typing import Any

from ...base import MissingPackageError, SimulationError

_PACKAGES = "lava-nc==0.10.0 lava-dl==0.6.0"
INSTALL_LAVA = (
    f"pip install {_PACKAGES}"
    if sys.version_info < (3, 11)
    else f"pip install 'mpbn_deploy[lava]' && pip install --no-deps --ignore-requires-python {_PACKAGES}"
)
# All Lava modules that we or its compiler use: none may be imported after the patches are removed.
_LAVA_MODULES = (
    "lava.magma.compiler.var_model",
    "lava.magma.compiler.compiler",
    "lava.magma.runtime.runtime",
    "lava.magma.core.run_configs",
    "lava.proc.lif.models",
    "lava.proc.conv.models",
    "lava.proc.dense.models",
)
POLL_SECONDS = 0.5  # between checks that the parent is alive
_NETX_MODULES = ("lava.lib.dl.netx.hdf5",)
_NOT_NEEDED = (
    "lava.lib.dl.slayer.object_detection",
    "matplotlib.animation",
    "matplotlib.pyplot",
    "scipy.signal",
)


class LavaFailedError(SimulationError):
    """A Lava process died or hung during a run."""


def lava_version() -> str | None:
    """Return the installed version of lava-nc, or None."""
    return installed_version("lava-nc")


def load_lava() -> None:
    """Import Lava with patches, or raise an error that says how to install it."""
    _load("lava-nc", _LAVA_MODULES)


def load_stock() -> None:
    """Import Lava and what the processes of its own convolutions use: once, before they are forked."""
    load_lava()
    import_module("scipy.signal")
    # Lava holds these as int8, and computes sizes from them: with NumPy 2, those above 127 would overflow.
    model = import_module("lava.proc.conv.models").AbstractPyConvModel
    for name in ("kernel_size", "stride", "padding", "dilation", "groups"):
        getattr(model, name).d_type = import_module("numpy").int32


def load_netx() -> ModuleType:
    """Import and return lava-dl's netx reader, or raise an error that says how to install it."""
    load_stock()
    _load("lava-dl", _NETX_MODULES)
    return sys.modules[_NETX_MODULES[0]]


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _load(package: str, modules: tuple[str, ...]) -> None:
    if installed_version(package) is None:
        raise MissingPackageError(
            f"{package} is not installed; everything but Lava works without it. Install it: {INSTALL_LAVA}"
        )
    if all(name in sys.modules for name in modules):
        return
    patches = (_hashable_dataclasses(), _stand_ins(), start_method(None))
    with deferred_signals(), ExitStack() as patched, quiet():
        for patch in patches:
            patched.enter_context(patch)
        for name in modules:
            _import(package, name)


def _import(package: str, module: str) -> None:
    try:
        import_module(module)
    except ImportError as error:  # incomplete, or one of its dependencies is missing
        raise MissingPackageError(
            f"{package} is installed, but cannot be imported ({error}). Reinstall it: {INSTALL_LAVA}"
        ) from error


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Record SIGINT, SIGTERM and SIGHUP during the block, and raise them at its end.

    Interrupts can get lost while Lava is imported. Lava's processes inherit the recording handler, so that
    signals to the process group do not kill them. Blocking the signals is not enough, because starting
    multiprocessing's resource tracker unblocks them.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda got, frame: received.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for deferred in received:
            signal.raise_signal(deferred)


@contextmanager
def start_method(name: str | None) -> Iterator[None]:
    """Set multiprocessing's start method during the block; None leaves it unset.

    Lava's processes must be forked. Importing Lava sets the start method for good, and fails if it is set
    already, by the user or by multiprocessing in a spawned process. It is therefore unset during the import,
    and restored afterwards.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(name, force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


@contextmanager
def children_exit_with_parent() -> Iterator[None]:
    """Make processes that are started in this block exit when their parent dies.

    A parent that is killed cannot stop its children, and Lava's processes would wait forever for its
    messages. Each child therefore polls whether its parent is alive. When the last child has exited,
    multiprocessing's resource tracker removes their shared memory. (Linux's parent-death signal does not
    help: it is sent when the *thread* that started the child ends.)

    multiprocessing forbids daemonic processes, such as Dask workers, to have children, because those could
    outlive them. These children cannot, so the block lifts the ban.
    """
    watcher = _ParentWatcher()
    multiprocessing.util.register_after_fork(watcher, _ParentWatcher.watch)  # until `watcher` is deleted
    settings = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    daemonic = settings.pop("daemon", None)
    try:
        yield
    finally:
        del watcher
        if daemonic is not None:
            settings["daemon"] = daemonic


class _ParentWatcher:
    """Kills a child process when its parent has died."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        # multiprocessing's folder of sockets belongs to the topmost process.
        self.owner = multiprocessing.parent_process() is None

    def watch(self) -> None:
        started_by = multiprocessing.parent_process()
        if started_by is None or started_by.pid != self.parent:
            return  # a grandchild, which its own parent watches
        threading.Thread(target=self._wait, name="parent watcher", daemon=True).start()

    def _wait(self) -> None:
        while os.getppid() == self.parent:
            time.sleep(POLL_SECONDS)
        sockets = multiprocessing.current_process()._config.get("tempdir")  # type: ignore[attr-defined]
        if self.owner and sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def quiet() -> Iterator[None]:
    """Hide deprecation warnings of Lava and its dependencies, which users cannot fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _hashable_dataclasses() -> Iterator[None]:
    """Make Lava's dataclasses hashable, for lava-nc 0.10.0 on Python 3.11 and newer.

    `lava/magma/compiler/var_model.py` uses an instance of a dataclass as the default of a field. Python
    3.11 rejects defaults that are not hashable, and a dataclass with `eq` is not unless `unsafe_hash` is set.
    """
    original: Callable[..., Any] = dataclasses.dataclass

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        def decorate(kind: type) -> Any:
            if kind.__module__.startswith("lava.") and not options.get("frozen"):
                return original(kind, **{**options, "unsafe_hash": True})
            return original(kind, **options)

        return decorate if cls is None else decorate(cls)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = original


class _OnDemand(ModuleType):
    """A stand-in for a module, which is imported when one of its attributes is first used."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # `inspect` asks every module for its file
            raise AttributeError(attribute)
        self.leave()
        return getattr(import_module(self.__name__), attribute)

    def leave(self) -> None:
        """Let the module itself be imported from now on."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Import Lava without modules that it does not need to run networks.

    `lava.lib.dl.slayer` imports its object detection, which needs torchvision and OpenCV: they may be
    missing, or built for another torch. scipy.signal takes longer than all of Lava, and only its own
    convolutions use it (`lava/proc/conv/utils.py`). lava-dl draws with matplotlib, but not while it reads
    networks.
    """
    absent = {name: _OnDemand(name) for name in _NOT_NEEDED if name not in sys.modules}
    sys.modules.update(absent)
    try:
        yield
    finally:
        for module in absent.values():
            module.leave()
