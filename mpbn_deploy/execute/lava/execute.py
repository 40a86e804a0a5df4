"""Start Lava's processes, run them, and stop them whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import get_temp_dir
from typing import Any

from ...base import SimulationError
from .compat import (
    LavaFailedError,
    children_end_with_us,
    load_lava,
    quiet,
    signals_kept_for_later,
    start_method,
)

load_lava()

from lava.magma.core.process.process import AbstractProcess  # noqa: E402
from lava.magma.core.run_conditions import RunSteps  # noqa: E402
from lava.magma.core.run_configs import Loihi2SimCfg  # noqa: E402
from lava.magma.runtime.mgmt_token_enums import MGMT_RESPONSE, enum_equal  # noqa: E402

SECONDS_TO_END = 5.0  # seconds for Lava's processes to end
GLANCE = 0.2  # seconds between two looks at whether all of Lava's processes live
LONGEST_FOLDER = 90  # characters of the folder of sockets, whose names may have 107 with it
CHANNEL_SIZE = 4  # messages that a channel of Lava holds; no process is more than one step ahead of another


@contextmanager
def started(process: AbstractProcess, configuration: Loihi2SimCfg) -> Iterator[AbstractProcess]:
    """Start Lava's processes; stop them at the end, also after an error or an interrupt.

    Interrupts of the keyboard, and mostly requests to end, reach all processes of a command at once.
    Lava's would die in the middle of a message, and the stop would wait for them for ever; so they
    are born deaf to both, and are stopped from here. If we are killed, they notice and end.
    """
    try:
        with signals_kept_for_later(), children_end_with_us(), start_method("fork"), quiet():
            _create(process, configuration)
        yield process
    finally:
        with signals_kept_for_later(), quiet():
            _stop(process.runtime)


def _create(process: AbstractProcess, configuration: Loihi2SimCfg) -> None:
    if len(folder := get_temp_dir()) > LONGEST_FOLDER:
        raise SimulationError(
            f"{folder}: too long a name for the sockets of Lava's processes, which may have {LONGEST_FOLDER} "
            "characters; set TMPDIR to another folder."
        )
    try:
        process.create_runtime(run_cfg=configuration, compile_config={"pypy_channel_size": CHANNEL_SIZE})
    except Exception as error:  # of any model, in one of Lava's processes
        raise SimulationError(f"Lava's processes cannot be started: {error}") from error


def run_steps(process: AbstractProcess, steps: int, patience: float) -> None:
    """Go on for so many time steps; give up when one of Lava's processes died, or after `patience` seconds.

    Lava itself would wait for ever where a process waits for a message of one that died.
    """
    runtime, answered = process.runtime, threading.Event()
    for port in runtime.service_to_runtime:
        port.observer = answered.set
    deadline = time.monotonic() + patience
    process.run(condition=RunSteps(num_steps=steps, blocking=False))
    while not all(port.probe() for port in runtime.service_to_runtime):
        if not answered.wait(GLANCE):
            _refuse_the_dead(runtime)
            _refuse_to_wait(runtime, deadline, f"{steps} time steps in {patience:g} s")
        answered.clear()
    answers = [port.peek() for port in runtime.service_to_runtime]
    if not all(enum_equal(answer, MGMT_RESPONSE.DONE) for answer in answers):
        _wait_for_the_dead(runtime)
    process.wait()


def _wait_for_the_dead(runtime: Any) -> None:
    """Lava said that a process failed; the process itself says why, a little later."""
    deadline = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < deadline:
        _refuse_the_dead(runtime)
        time.sleep(0.05)
    raise LavaFailedError(f"Lava reported an error; its processes are {_names(runtime)}.")


def _refuse_the_dead(runtime: Any) -> None:
    dead = [(name, actor) for name, actor in _actors(runtime) if not actor.is_alive()]
    if dead:
        told = [f"{name}: {_last_words(actor)}" for name, actor in dead]
        raise LavaFailedError(f"a process of Lava failed: {'; '.join(told)}")


def _last_words(actor: Any) -> str:
    if actor.exception is None:
        return f"ended with exit code {actor.exitcode}"
    error, _ = actor.exception
    return f"{type(error).__name__}: {error}"


def _refuse_to_wait(runtime: Any, deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise LavaFailedError(
            f"Lava did not finish {what}; its processes are {_names(runtime)}. "
            "Have more --patience, run fewer samples at once, or use the emulator."
        )


def _names(runtime: Any) -> str:
    return ", ".join(name for name, _ in _actors(runtime))


def _actors(runtime: Any) -> list[tuple[str, Any]]:
    """Lava's processes of the operating system, each with what it runs."""
    names = [f"{type(p).__name__} {p.name}" for p in runtime._executable.proc_builders]
    actors = runtime._messaging_infrastructure.actors
    names += ["runtime service"] * (len(actors) - len(names))
    return [(f"{name} (process {actor.pid})", actor) for name, actor in zip(names, actors, strict=True)]


def _stop(runtime: Any) -> None:
    """Ask Lava's processes to end, between two runs; kill them in the middle of one, or if they do not."""
    if runtime is None or runtime._messaging_infrastructure is None:
        return  # it never came to start any
    if runtime._is_started and not runtime._is_running:
        stopping = threading.Thread(target=runtime.stop, daemon=True)
        stopping.start()
        stopping.join(SECONDS_TO_END)
        if not stopping.is_alive():
            return
    for actor in runtime._messaging_infrastructure.actors:
        if not actor._is_done:
            actor.kill()
    runtime._is_started = runtime._is_running = False
    runtime.join()  # its ports, which wait in threads
    runtime._messaging_infrastructure.stop()  # waits for the killed, and gives their shared memory back
    runtime._watchdog_manager.stop()
