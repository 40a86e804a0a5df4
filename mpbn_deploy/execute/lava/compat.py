"""Makes Lava importable on Pythons it was not released for, from outside and only while it is imported.

lava-nc 0.10.0 and lava-dl 0.6.0 are the last releases of archived projects, and declare Python
3.10 only. Two things break beyond, and each mend below says what and why. Two more let Lava run where
others started us: in a process of multiprocessing, such as a worker of a cluster.
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
# Everything of Lava that we or its compiler use, so that nothing is imported after the mends are gone.
_LAVA_MODULES = (
    "lava.magma.compiler.var_model",
    "lava.magma.compiler.compiler",
    "lava.magma.runtime.runtime",
    "lava.magma.core.run_configs",
    "lava.proc.lif.models",
    "lava.proc.conv.models",
    "lava.proc.dense.models",
)
GLANCE = 0.5  # seconds between two looks at whether the parent lives
_NETX_MODULES = ("lava.lib.dl.netx.hdf5",)
_OBJECT_DETECTION = "lava.lib.dl.slayer.object_detection"


class LavaFailedError(SimulationError):
    """Lava broke off in the middle of a run: a process of it died, or hung."""


def lava_version() -> str | None:
    """The installed version of lava-nc, or None."""
    return installed_version("lava-nc")


def load_lava() -> None:
    """Import Lava, mended, or say how to get it."""
    _load("lava-nc", _LAVA_MODULES)


def load_netx() -> ModuleType:
    """Import lava-dl's stock netx reader, mended, or say how to get it."""
    load_lava()
    _load("lava-dl", _NETX_MODULES)
    return sys.modules[_NETX_MODULES[0]]


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _load(package: str, modules: tuple[str, ...]) -> None:
    if installed_version(package) is None:
        raise MissingPackageError(
            f"{package} is not installed; everything but Lava works. To get it: {INSTALL_LAVA}"
        )
    if all(name in sys.modules for name in modules):
        return
    mends = (_hashable_dataclasses(), _no_object_detection(), start_method(None))
    with signals_kept_for_later(), ExitStack() as mended, quiet():
        for mend in mends:
            mended.enter_context(mend)
        for name in modules:
            _import(package, name)


def _import(package: str, module: str) -> None:
    try:
        import_module(module)
    except ImportError as error:  # half removed, or without what it needs itself
        raise MissingPackageError(
            f"{package} is installed, but cannot be imported ({error}). To get it whole: {INSTALL_LAVA}"
        ) from error


@contextmanager
def signals_kept_for_later() -> Iterator[None]:
    """Interrupts and requests to end that come meanwhile are obeyed afterwards.

    While Lava is imported, interrupts have been seen to get lost; and its processes, which inherit a
    handler that only takes note, must not die of them. Blocking the signals would not do: starting
    the resource tracker of multiprocessing unblocks them.
    """
    if threading.current_thread() is not threading.main_thread():  # only there can handlers be set
        yield
        return
    kept: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda got, frame: kept.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in kept:
            signal.raise_signal(late)


@contextmanager
def start_method(name: str | None) -> Iterator[None]:
    """How multiprocessing starts processes meanwhile; None leaves it to whoever chooses first.

    Lava's must be forks. It chooses that for good when it is imported, and fails where a choice was made
    before: by the user, or by multiprocessing itself in a process that it spawned. So Lava finds none
    then, and what was chosen is chosen again afterwards.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(name, force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


@contextmanager
def children_end_with_us() -> Iterator[None]:
    """Processes that are started meanwhile look, now and then, whether their parent lives, and end with it.

    A parent that is killed cannot stop them, and Lava's would wait for its messages for ever. When the last
    of them is gone, the resource tracker of multiprocessing removes the shared memory that they used.
    (Linux can send a signal when a parent dies, but does so already when the *thread* that started the
    child ends.)

    Because they end with it, even a daemonic process, which may have no children lest they outlive it, may
    have these: workers of a cluster are such.
    """
    guard = _Guard()
    multiprocessing.util.register_after_fork(guard, _Guard.watch)  # for as long as there is a guard
    settings = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    daemonic = settings.pop("daemon", None)
    try:
        yield
    finally:
        del guard
        if daemonic is not None:
            settings["daemon"] = daemonic


class _Guard:
    """In a child: ends it when its parent is another one than at first."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        # Where multiprocessing keeps its sockets is shared with those who started us, if any did.
        self.owner = multiprocessing.parent_process() is None

    def watch(self) -> None:
        started_by = multiprocessing.parent_process()
        if started_by is None or started_by.pid != self.parent:
            return  # a child of a child, whom others look after
        threading.Thread(target=self._wait, name="guard", daemon=True).start()

    def _wait(self) -> None:
        while os.getppid() == self.parent:
            time.sleep(GLANCE)
        sockets = multiprocessing.current_process()._config.get("tempdir")  # type: ignore[attr-defined]
        if self.owner and sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def quiet() -> Iterator[None]:
    """Lava and its packages warn of deprecations, about which users can do nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _hashable_dataclasses() -> Iterator[None]:
    """For lava-nc 0.10.0 on Python 3.11 and newer.

    `lava/magma/compiler/var_model.py` uses an instance of a dataclass as the default of a field.
    From 3.11 on, dataclasses refuse defaults that are not hashable, and a dataclass with `eq` has
    no hash unless asked; so Lava's dataclasses are asked for one.
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


@contextmanager
def _no_object_detection() -> Iterator[None]:
    """For lava-dl 0.6.0 where torchvision and OpenCV are absent, or made for another torch.

    Importing `lava.lib.dl.slayer` imports its object detection, and with it torchvision and OpenCV.
    netx uses none of it, so an empty module stands in its place while netx is imported.
    """
    absent = _OBJECT_DETECTION not in sys.modules
    if absent:
        sys.modules[_OBJECT_DETECTION] = ModuleType(_OBJECT_DETECTION)
    try:
        yield
    finally:
        if absent:
            del sys.modules[_OBJECT_DETECTION]
