"""Network -> connected Lava processes, a run configuration that chooses their models, and tapes.

One process sends the input, and one process per population (`Layer`) computes. The run configuration chooses
its model: `fast_layers` (one process model of ours) or `stock_layers` (a graph of Lava's own processes). A
population can also be built alone, with one process per source that sends recorded spikes.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod
from multiprocessing import current_process
from multiprocessing.util import Finalize
from typing import Any

import numpy as np

from ...base import SimulationError, new_temporary_folder, record, return_freed_memory
from ...ir import AnyNetwork, AnyPopulation, FoldedNetwork, Shape, is_graded, sends
from .compat import (
    LavaFailedError,
    children_exit_with_parent,
    deferred_signals,
    load_lava,
    quiet,
    start_method,
)
from .fast_layers import fast_layer
from .plans import Source, Tape, fed_populations, lava_shape, pipeline_depths, plan_layer
from .processes import (
    DelayLine,
    DelayLineModel,
    Layer,
    TapedDelta,
    TapedDeltaModel,
    TapedLif,
    TapedLifModelFixed,
    TapedLifModelFloat,
    TapedSigma,
    TapedSigmaDelta,
    TapedSigmaDeltaModel,
    TapedSigmaModel,
    TapeInput,
    TapeInputModel,
    TapeOutput,
    TapeOutputModel,
    Window,
    WindowModelFixed,
    WindowModelFloat,
    port_name,
)
from .stock_layers import StockLayerFixed, StockLayerFloat

load_lava()
from lava.magma.core.process.process import AbstractProcess  # noqa: E402
from lava.magma.core.run_conditions import RunSteps  # noqa: E402
from lava.magma.core.run_configs import Loihi2SimCfg  # noqa: E402
from lava.magma.runtime.mgmt_token_enums import MGMT_RESPONSE, enum_equal  # noqa: E402
from lava.proc.conv.models import PyConvModelFixed, PyConvModelFloat  # noqa: E402
from lava.proc.conv.process import Conv as LavaConv  # noqa: E402
from lava.proc.dense.models import PyDenseModelBitAcc, PyDenseModelFloat  # noqa: E402
from lava.proc.dense.process import Dense as LavaDense  # noqa: E402
from lava.proc.graded.models import PyGradedVecModelFixed  # noqa: E402
from lava.proc.graded.process import GradedVec  # noqa: E402

FIXED = {
    LavaConv: PyConvModelFixed,
    LavaDense: PyDenseModelBitAcc,
    GradedVec: PyGradedVecModelFixed,
    TapedLif: TapedLifModelFixed,
    TapedDelta: TapedDeltaModel,
    TapedSigmaDelta: TapedSigmaDeltaModel,
    TapedSigma: TapedSigmaModel,
    Window: WindowModelFixed,
}
FLOAT = {
    LavaConv: PyConvModelFloat,
    LavaDense: PyDenseModelFloat,
    TapedLif: TapedLifModelFloat,
    Window: WindowModelFloat,
}
EITHER = {TapeInput: TapeInputModel, TapeOutput: TapeOutputModel, DelayLine: DelayLineModel}
TAPE_BYTES = 2**27  # memory limit for all tapes; rows are reused
MOST_ROWS = 256


@record
class LavaGraph:
    """Connected processes, their run configuration, and the tapes of inputs and traces."""

    source: TapeInput
    configuration: Loihi2SimCfg
    input_tapes: Mapping[str, Tape]
    spike_tapes: Mapping[str, Tape]
    voltage_tapes: Mapping[str, Tape]
    probed: Collection[str]
    lanes: int | None


def build(
    network: AnyNetwork, probed: Collection[str], lanes: int | None, alone: str | None = None
) -> LavaGraph:
    """Build and connect the input and one process per population; without lanes, with Lava's own models.

    With `alone`, only this population is built, and each of its sources sends what is on its tape.
    """
    depths = pipeline_depths(network, alone)
    lane_axis: Shape = () if lanes is None else (lanes,)
    fed = fed_populations(network, alone)
    built = [p for p in network.layers if alone in (None, p.name)]
    inputs, spikes, voltages = _tapes(network, fed, built, probed, lane_axis)
    senders: dict[str, Any] = {
        name: TapeInput(shape=tape.values.shape[1:], tape=tape, name=name) for name, tape in inputs.items()
    }
    source = senders[fed[0].name]
    layers = {
        p.name: Layer(
            plan=plan_layer(network, p, depths, lane_axis, (spikes.get(p.name), voltages.get(p.name)))
        )
        for p in built
    }
    if alone is None:
        senders.update(layers)
    for layer in layers.values():
        for index, sender in enumerate(layer.proc_params["plan"].sources):
            senders[sender.name].s_out.connect(getattr(layer, port_name(index)))
    real = isinstance(network, FoldedNetwork)
    return LavaGraph(
        source=source,
        configuration=configuration(real=real, stock=lanes is None),
        input_tapes=inputs,
        spike_tapes=spikes,
        voltage_tapes=voltages,
        probed=probed,
        lanes=lanes,
    )


def _tapes(
    network: AnyNetwork,
    fed: Sequence[Source],
    built: Sequence[AnyPopulation],
    probed: Collection[str],
    lane_axis: Shape,
) -> tuple[dict[str, Tape], dict[str, Tape], dict[str, Tape]]:
    """Return tapes of what is fed, and of spikes and voltages of probed populations and the output."""
    kind = np.float64 if isinstance(network, FoldedNetwork) else np.int32
    silent = not sends(network.output.neuron)
    firing = [p for p in built if p.name in probed or (p is network.output and not silent)]
    charged = [p for p in built if p.name in probed or (p is network.output and silent)]

    def sizes(populations: Sequence[Source]) -> int:
        return sum(p.size for p in populations) * prod(lane_axis)

    graded = [p for p in firing if is_graded(p.neuron)]
    row = sizes(firing) + 3 * sizes(graded) + sizes(charged) * np.dtype(kind).itemsize + sizes(fed) * 4
    rows = int(np.clip(TAPE_BYTES // row, 1, MOST_ROWS))

    def made(populations: Sequence[Source], kind: Any) -> dict[str, Tape]:
        return {p.name: Tape(rows, (*lane_axis, *lava_shape(p.shape)), kind) for p in populations}

    spikes = {**made(firing, np.bool_), **made(graded, np.int32)}
    return made(fed, np.int32), spikes, made(charged, kind)


class ModelChoice(dict[Any, Any]):
    """Maps each process to its model, by the type of the process.

    Lava looks processes up here first. Otherwise it would search for models by executing every file of our
    package. Keys are types because processes inside other processes do not exist yet.
    """

    def __contains__(self, process: object) -> bool:
        return super().__contains__(type(process))

    def __getitem__(self, process: Any) -> Any:
        chosen = super().__getitem__(type(process))
        if chosen is not fast_layer:
            return chosen
        plan = process.proc_params["plan"]
        return fast_layer(len(plan.sources), plan.rule.graded)


def configuration(*, real: bool, stock: bool) -> Loihi2SimCfg:
    """Return a run configuration: floating-point or fixed-point models, Lava's own layers or ours."""
    stock_layer = StockLayerFloat if real else StockLayerFixed
    models = {**(FLOAT if real else FIXED), **EITHER, Layer: stock_layer if stock else fast_layer}
    return Loihi2SimCfg(
        select_tag="floating_pt" if real else "fixed_pt", exception_proc_model_map=ModelChoice(models)
    )


# Start Lava's processes, run them, and stop them, also after errors and interrupts.


STOP_SECONDS = 5.0  # time limit for Lava's processes to stop
KILLED_SECONDS = 30.0  # and for what waits for them, once they were killed: a busy machine takes its time
POLL_SECONDS = 0.2  # between checks that all of Lava's processes are alive
LONGEST_FOLDER = 90  # characters; the path of a socket may have 107 in all
CHANNEL_SIZE = 4  # messages per channel; no process is more than one step ahead of another


@contextmanager
def started(process: AbstractProcess, configuration: Loihi2SimCfg) -> Iterator[AbstractProcess]:
    """Start Lava's processes; stop them at the end of the block, also after an error or an interrupt.

    Ctrl-C, and often SIGTERM and SIGHUP, reach all processes of a command at once. Lava's processes would
    die in the middle of a message, and stopping them would wait forever. They therefore ignore these signals
    and are stopped from here; if this process is killed, they exit by themselves.
    """
    try:
        with deferred_signals(), children_exit_with_parent(), start_method("fork"), quiet():
            _create(process, configuration)
        yield process
    finally:
        with deferred_signals(), quiet():
            _stop(process.runtime)


def _create(process: AbstractProcess, configuration: Loihi2SimCfg) -> None:
    if len(folder := _socket_folder()) > LONGEST_FOLDER:
        raise SimulationError(
            f"{folder}: the path has {len(folder)} characters; the sockets of Lava's processes allow "
            f"{LONGEST_FOLDER}. Set TMPDIR to a folder with a shorter path."
        )
    return_freed_memory()
    try:
        process.create_runtime(run_cfg=configuration, compile_config={"pypy_channel_size": CHANNEL_SIZE})
    except Exception as error:  # raised by any process model
        raise SimulationError(f"Lava's processes did not start: {error}") from error


def _socket_folder() -> str:
    """Return multiprocessing's folder of sockets; the next run removes it if this one is killed."""
    settings: dict[str, str] = current_process()._config  # type: ignore[attr-defined]
    if settings.get("tempdir") is None:
        settings["tempdir"] = new_temporary_folder()
        # When this process ends, after everything else: as multiprocessing does with a folder of its own.
        Finalize(None, shutil.rmtree, args=(settings["tempdir"], True), exitpriority=-100)
    return settings["tempdir"]


def run_steps(process: AbstractProcess, steps: int, patience: float) -> None:
    """Run time steps; raise if one of Lava's processes dies, or after `patience` seconds.

    Without this, Lava waits forever when a process waits for a message of one that died.
    """
    runtime, answered = process.runtime, threading.Event()
    for port in runtime.service_to_runtime:
        port.observer = answered.set
    deadline = time.monotonic() + patience
    process.run(condition=RunSteps(num_steps=steps, blocking=False))
    while not all(port.probe() for port in runtime.service_to_runtime):
        if not answered.wait(POLL_SECONDS):
            _raise_if_dead(runtime)
            _raise_if_late(runtime, deadline, f"{steps} time steps in {patience:g} s")
        answered.clear()
    answers = [port.peek() for port in runtime.service_to_runtime]
    if not all(enum_equal(answer, MGMT_RESPONSE.DONE) for answer in answers):
        _raise_failure(runtime)
    process.wait()


def _raise_failure(runtime: Any) -> None:
    """Raise the error of the process that failed, which is available shortly after Lava reports it."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        _raise_if_dead(runtime)
        time.sleep(0.05)
    raise LavaFailedError(f"Lava reported an error in one of its processes: {_names(runtime)}.")


def _raise_if_dead(runtime: Any) -> None:
    dead = [(name, actor) for name, actor in _actors(runtime) if not actor.is_alive()]
    if dead:
        reasons = [f"{name}: {_exit_reason(actor)}" for name, actor in dead]
        raise LavaFailedError(f"a Lava process failed: {'; '.join(reasons)}")


def _exit_reason(actor: Any) -> str:
    if actor.exception is None:
        return f"ended with exit code {actor.exitcode}"
    error, _ = actor.exception
    return f"{type(error).__name__}: {error}"


def _raise_if_late(runtime: Any, deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise LavaFailedError(
            f"Lava did not finish {what}; its processes are {_names(runtime)}. "
            "Increase --patience, run fewer samples at once, or use the emulator."
        )


def _names(runtime: Any) -> str:
    return ", ".join(name for name, _ in _actors(runtime))


def _actors(runtime: Any) -> list[tuple[str, Any]]:
    """Return Lava's operating-system processes, each with the name of the Lava process it runs."""
    names = [f"{type(p).__name__} {p.name}" for p in runtime._executable.proc_builders]
    actors = runtime._messaging_infrastructure.actors
    names += ["runtime service"] * (len(actors) - len(names))
    return [(f"{name} (process {actor.pid})", actor) for name, actor in zip(names, actors, strict=True)]


def _stop(runtime: Any) -> None:
    """Stop Lava's processes; kill them if a run is in progress or if they do not stop in time."""
    if runtime is None or runtime._messaging_infrastructure is None:
        return  # nothing was started
    stopping = threading.Thread(target=_stop_gently, args=(runtime,), daemon=True)
    if runtime._is_started and not runtime._is_running:
        stopping.start()
        stopping.join(STOP_SECONDS)
        if not stopping.is_alive():
            return
    for actor in runtime._messaging_infrastructure.actors:
        if not actor._is_done:
            actor.kill()
    if stopping.is_alive():  # it waited for processes that are dead now, and may finish: not both at once
        stopping.join(KILLED_SECONDS)
        if not stopping.is_alive():
            return
    runtime._is_started = runtime._is_running = False
    runtime.join()  # its ports, which have threads
    runtime._messaging_infrastructure.stop()  # waits for the killed processes and frees their shared memory
    runtime._watchdog_manager.stop()


def _stop_gently(runtime: Any) -> None:
    with suppress(OSError, EOFError):  # of connections to processes that were killed meanwhile
        runtime.stop()
