"""Distribute samples over the workers of a Dask cluster.

    with connected("tcp://host:8786") as cluster:  # or "local:2": start two workers on this machine
        parts = cluster.share_out(work, network, inputs, "label")

Samples are cut into numbered shards. Data that all shards need (a network) is sent to every worker once, and
each result comes back with the number of its shard. Results therefore do not depend on which worker computes
a shard or in which order, and a shard that is computed again after a worker died counts once. Samples do not
influence each other, so results equal those of one process.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from .. import __version__
from ..base import (
    LOCAL,
    QUIET_SECONDS,
    Array,
    DeployError,
    MissingPackageError,
    OptionError,
    SimulationError,
    announce,
    host_and_port,
    interrupts_blocked,
    local_workers,
    record,
    temporary_folder,
    track,
)
from ..data import Inputs
from .lava import deferred_signals

CONNECT_RETRY_SECONDS = 0.5
CONNECT_SECONDS = 30.0  # time limit to reach a scheduler, and for a first worker to appear
POLL_SECONDS = 2.0  # between checks that there are workers
TRIES = 3  # of a shard, before its error is raised
SHARDS_PER_WORKER = 4  # at least, given enough samples, so that fast workers take over from slow ones
LARGEST_SHARD = 128  # samples
LOOPBACK = "127.0.0.1"
SHARDS_IN_FLIGHT = 2  # per worker; more would only fill the scheduler's memory

Common = TypeVar("Common")
Result = TypeVar("Result")


@record
class Shard:
    """Samples `start` to `stop - 1`."""

    number: int
    start: int
    stop: int


def cut(samples: int, workers: int, multiple: int = 1) -> list[Shard]:
    """Cut samples into shards of equal size, a multiple of `multiple`; the last shard may be smaller."""
    size = min(LARGEST_SHARD, -(-samples // (SHARDS_PER_WORKER * workers)))
    size = -(-size // multiple) * multiple
    starts = range(0, samples, max(size, 1))
    return [
        Shard(number=number, start=start, stop=min(start + size, samples))
        for number, start in enumerate(starts)
    ]


class Cluster:
    """A connection to a scheduler; `least` is the number of workers to count on while some restart."""

    def __init__(self, client: Any, address: str, least: int) -> None:
        self.client, self.address, self.least = client, address, least

    @property
    def workers(self) -> int:
        return len(self.client.nthreads())

    def __str__(self) -> str:
        """'2 workers of local:2'"""
        count = self.workers
        return f"{count} worker{'' if count == 1 else 's'} of {self.address}"

    def share_out(
        self,
        work: Callable[[Common, Array], Result],
        common: Common,
        inputs: Inputs | Array,
        label: str,
        *,
        multiple: int = 1,
    ) -> list[tuple[int, Result]]:
        """Return (first sample, `work(common, part)`) for all parts of the inputs, in order.

        `work` must be a function that workers can import, or a partial of one. Shows progress.
        """
        if len(inputs) == 0:
            raise SimulationError("no samples: inputs are empty; give at least one sample.")
        shards = cut(len(inputs), max(self.least, self.workers), multiple)
        with _ShardQueue(self, work, common, inputs, shards) as queue:
            found = dict(track(queue.results(), label, len(shards), quiet_seconds=QUIET_SECONDS))
        return [(shard.start, found[shard.number]) for shard in shards]


# ---- shards in flight -------------------------------------------------------------------------


class _ShardQueue:
    """Sends shards, a few at a time; cancels those still in flight on exit."""

    def __init__(
        self,
        cluster: Cluster,
        work: Callable[[Any, Array], Any],
        common: Any,
        inputs: Inputs | Array,
        shards: Sequence[Shard],
    ) -> None:
        self.cluster, self.client = cluster, cluster.client
        self.work, self.common, self.inputs, self.shards = work, common, inputs, shards
        self.in_flight: list[tuple[Any, Shard]] = []
        self.no_worker_since: float | None = None

    def __enter__(self) -> _ShardQueue:
        # A task instead of scattered data: the scheduler can recompute it if a worker dies.
        self.common = self._submit(_identity, self.common)
        return self

    def __exit__(self, *error: object) -> None:
        if self.in_flight and self.client.status == "running":
            self.client.cancel([future for future, _ in self.in_flight], force=True)
        self.in_flight.clear()

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of each shard, in order of completion."""
        waiting = iter(self.shards)
        while True:
            free = SHARDS_IN_FLIGHT * max(self.cluster.least, self.cluster.workers) - len(self.in_flight)
            for shard in islice(waiting, max(0, free)):
                self.in_flight.append((self._send(shard), shard))
            if not self.in_flight:
                return
            self._wait()
            for future, shard in [pair for pair in self.in_flight if pair[0].done()]:
                result = self._result(future, shard)
                if result is not None:
                    self.in_flight.remove((future, shard))
                    yield result

    def _send(self, shard: Shard) -> Any:
        part = self.inputs[shard.start : shard.stop]
        return self._submit(_compute, self.work, self.common, shard.number, part, __version__)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            # Dask suggests scattering large data; a network is sent once, so it need not be.
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            return self.client.submit(function, *arguments, pure=False, retries=TRIES - 1)

    def _wait(self) -> None:
        """Wait until a shard is finished; raise if all workers or the scheduler are gone."""
        distributed = _load()
        futures = [future for future, _ in self.in_flight]
        while True:
            try:
                with self.client.as_current():
                    distributed.wait(futures, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                return
            except distributed.TimeoutError:
                self._check_for_workers()
            except distributed.CancelledError as error:
                raise self._scheduler_gone() from error

    def _scheduler_gone(self) -> SimulationError:
        return SimulationError(
            f"--cluster {self.cluster.address}: lost the connection to the scheduler during the run. "
            "Check that it is still running, and start again."
        )

    def _check_for_workers(self) -> None:
        if self.cluster.workers:
            self.no_worker_since = None
            return
        now = time.monotonic()
        self.no_worker_since = now if self.no_worker_since is None else self.no_worker_since
        if now - self.no_worker_since > CONNECT_SECONDS:
            numbers = ", ".join(str(shard.number + 1) for _, shard in self.in_flight)
            raise SimulationError(
                f"--cluster {self.cluster.address}: {_no_worker()} Shards in flight: {numbers} "
                f"(of {len(self.shards)})."
            )

    def _result(self, future: Any, shard: Shard) -> tuple[int, Any] | None:
        """Return the result of a shard; None if its worker died first, and Dask is computing it again."""
        distributed = _load()
        if future.status == "error":
            raise self._failure(future.exception(), shard)
        try:
            number, result = future.result(timeout=CONNECT_SECONDS)
        except distributed.TimeoutError:
            return None
        except distributed.CancelledError as error:
            raise self._scheduler_gone() from error
        except Exception as error:  # raised by the recomputed shard, or by Dask
            raise self._failure(error, shard) from error
        return number, result

    def _failure(self, error: Exception, shard: Shard) -> SimulationError:
        """Return one error that names the shard and the error of its last try."""
        which = (
            f"--cluster {self.cluster.address}: shard {shard.number + 1} of {len(self.shards)} "
            f"(samples {shard.start} to {shard.stop - 1})"
        )
        if isinstance(error, _load().KilledWorker):
            return SimulationError(
                f"{which}: every worker that tried it died. Check the workers' output; a common cause "
                "is too little memory."
            )
        reason = str(error) if isinstance(error, DeployError) else f"{type(error).__name__}: {error}"
        return SimulationError(f"{which} failed {TRIES} times; last error: {reason}")


# ---- on the workers ---------------------------------------------------------------------------

_one_at_a_time = threading.Lock()  # only one thread of a process may import and start Lava


def _identity(common: Any) -> Any:
    return common


def _compute(work: Callable[[Any, Array], Any], common: Any, number: int, part: Array, version: str) -> Any:
    """Return a shard's number and result."""
    if version != __version__:
        raise SimulationError(
            f"a worker has mpbn_deploy {__version__}, its client {version}; install the same version on both."
        )
    with _one_at_a_time:
        return number, work(common, part)


# ---- connecting -------------------------------------------------------------------------------


@contextmanager
def chosen_cluster(address: str | None) -> Iterator[Cluster | None]:
    """Connect to a cluster, or yield None if `address` is None."""
    if address is None:
        yield None
        return
    with connected(address) as cluster:
        yield cluster


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler, or start local workers (`local:2`), which stop at the end of the block."""
    distributed = _load()
    with ExitStack() as stack:
        place: Any = address
        least = 1
        if address.startswith(LOCAL):
            least = local_workers(address)
            place = stack.enter_context(_local_cluster(least))
        cluster = Cluster(stack.enter_context(_client(place, address)), address, least)
        try:
            cluster.client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except distributed.TimeoutError as error:
            raise OptionError(f"--cluster {address}: {_no_worker()}") from error
        yield cluster


@contextmanager
def _client(place: Any, address: str) -> Iterator[Any]:
    distributed = _load()
    if isinstance(place, str):
        _wait_for_port(place)
    try:
        client = distributed.Client(place, timeout=CONNECT_SECONDS, set_as_default=False, name="mpbn_deploy")
    except (OSError, ValueError) as error:  # includes asyncio's TimeoutError and unknown protocols
        raise OptionError(_no_scheduler(address, error)) from error
    try:
        yield client
    finally:
        with deferred_signals():
            client.close()


def _wait_for_port(address: str) -> None:
    """Wait until the address accepts connections: a Dask client takes a minute to give up."""
    found, until = host_and_port(address), time.monotonic() + CONNECT_SECONDS
    if found is None:
        raise OptionError(f"cluster {address}: not an address; give tcp://host:8786, or {LOCAL}2.")
    while True:
        try:
            socket.create_connection(found, timeout=CONNECT_SECONDS).close()
        except OSError as error:
            if time.monotonic() >= until:
                raise OptionError(_no_scheduler(address, error)) from error
            time.sleep(CONNECT_RETRY_SECONDS)
        else:
            return


def _no_scheduler(address: str, error: Exception) -> str:
    return (
        f"--cluster {address}: no Dask scheduler answered within {CONNECT_SECONDS:g} s ({error}). "
        f"Start one with `dask scheduler`, or use {LOCAL}2 for two workers on this machine."
    )


@contextmanager
def _local_cluster(count: int) -> Iterator[Any]:
    """Start workers on this machine; all their files are in a temporary folder that is removed at the end."""
    announce(f"cluster: starting {count} worker{'' if count == 1 else 's'} on this machine")
    with temporary_folder() as folder:
        settings = import_module("dask").config.set({"temporary-directory": folder})
        # Ctrl-C reaches all processes of a command; we stop the workers ourselves. Starting multiprocessing's
        # resource tracker would reset the mask that they inherit, so that is started before.
        resource_tracker.ensure_running()
        with settings, deferred_signals(), interrupts_blocked():
            workers = _start(count, folder)
        try:
            yield workers
        finally:
            with deferred_signals():
                workers.close()


def _start(count: int, folder: str) -> Any:
    distributed = _load()
    try:
        return distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            host=LOOPBACK,
            dashboard_address=None,
            # Its status pages are for this machine only; any free port, because there may be other clusters.
            scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:0"},
            memory_limit=0,  # no limit: Dask would stop workers that use more than their share
            silence_logs=logging.CRITICAL,  # we report failures ourselves, in one message
            local_directory=folder,
            # One thread per worker, because they share a machine.
            env={"TMPDIR": folder, "OMP_NUM_THREADS": "1"},
        )
    except (OSError, RuntimeError, distributed.TimeoutError) as error:
        raise SimulationError(f"--cluster {LOCAL}{count}: cannot start workers ({error}).") from error


def _load() -> Any:
    """Import and return Dask's package `distributed`."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MissingPackageError(
            f"distributed (Dask) is not installed ({error}); only --cluster needs it. "
            "Install it: pip install 'mpbn_deploy[cluster]'"
        ) from error


def _no_worker() -> str:
    return (
        f"the scheduler has no worker, and none connected within {CONNECT_SECONDS:g} s. Start workers where "
        "mpbn_deploy is installed: `dask worker SCHEDULER --nworkers auto --nthreads 1`."
    )
