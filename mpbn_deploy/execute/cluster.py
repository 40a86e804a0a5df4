"""Samples shared out over the workers of a Dask cluster.

    with connected("tcp://host:8786") as cluster:  # or "local:2": two workers of our own, on this machine
        parts = cluster.share_out(work, network, inputs, "label")

Samples are cut into shards. What all shards need (a network) goes to every worker once; each shard goes out
with its number, and its result comes back with that number and is put in its place. So it does not matter
who computes a shard, in which order, or whether a worker dies and another computes it again: each
sample is counted once. Networks know no other samples than their own, so results are those of one process.
"""

from __future__ import annotations

import logging
import signal
import socket
import tempfile
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
    Array,
    DeployError,
    MissingPackageError,
    OptionError,
    SimulationError,
    announce,
    record,
    watched,
)
from ..base.arguments import LOCAL, host_and_port, local_workers
from ..data import Inputs
from .lava import signals_kept_for_later

SECONDS_BETWEEN_KNOCKS = 0.5
SECONDS_TO_FIND = 30.0  # a scheduler, or a worker where there is none
GLANCE = 2.0  # seconds between two looks at whether there are workers
TRIES = 3  # of a shard, before its error is told
SHARDS_PER_WORKER = 4  # at least, where there are so many samples: the fast help the slow
LARGEST_SHARD = 128  # samples
UNDER_WAY = 2  # shards per worker that are sent before results come back; more would only fill the scheduler

Common = TypeVar("Common")
Result = TypeVar("Result")


@record
class Shard:
    """Samples `start` to `stop`, without the latter."""

    number: int
    start: int
    stop: int


def cut(samples: int, workers: int, multiple: int = 1) -> list[Shard]:
    """All samples in shards of equal size (the last may be smaller), each of a `multiple` of samples."""
    size = min(LARGEST_SHARD, -(-samples // (SHARDS_PER_WORKER * workers)))
    size = -(-size // multiple) * multiple
    starts = range(0, samples, max(size, 1))
    return [
        Shard(number=number, start=start, stop=min(start + size, samples))
        for number, start in enumerate(starts)
    ]


class Cluster:
    """A client of some scheduler, which has workers; `least` says how many, even while one starts again."""

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
        """`work(common, part)` of all parts of the inputs, in their order, each with its first sample.

        `work` must be a function that workers can import, or a partial of one. Progress is shown.
        """
        if len(inputs) == 0:
            raise SimulationError("no samples: inputs are empty; give at least one sample.")
        shards = cut(len(inputs), max(self.least, self.workers), multiple)
        found: dict[int, Result] = {}
        with _Sending(self, work, common, inputs, shards) as sending:
            results = _remembered(sending.results(), found)
            for _ in watched(label)(results, len(shards)):
                pass
        return [(shard.start, found[shard.number]) for shard in shards]


def _remembered(results: Iterator[tuple[int, Result]], found: dict[int, Result]) -> Iterator[int]:
    """Put results in their places; a shard that was computed twice has one place."""
    for number, result in results:
        found[number] = result
        yield number


# ---- shards under way -------------------------------------------------------------------------


class _Sending:
    """Shards that are sent, a few at a time; those still under way at the end are called off."""

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
        self.under_way: list[tuple[Any, Shard]] = []
        self.deserted: float | None = None  # since when there is no worker

    def __enter__(self) -> _Sending:
        # A task of its own, not data that is scattered: the scheduler can make it again if a worker dies.
        self.common = self._submit(_as_it_is, self.common)
        return self

    def __exit__(self, *error: object) -> None:
        if self.under_way and self.client.status == "running":
            self.client.cancel([future for future, _ in self.under_way], force=True)
        self.under_way.clear()

    def results(self) -> Iterator[tuple[int, Any]]:
        """The number and the result of each shard, as they come."""
        waiting = iter(self.shards)
        while True:
            room = UNDER_WAY * max(self.cluster.least, self.cluster.workers) - len(self.under_way)
            for shard in islice(waiting, max(0, room)):
                self.under_way.append((self._send(shard), shard))
            if not self.under_way:
                return
            self._wait()
            for future, shard in [pair for pair in self.under_way if pair[0].done()]:
                result = self._result(future, shard)
                if result is not None:
                    self.under_way.remove((future, shard))
                    yield result

    def _send(self, shard: Shard) -> Any:
        part = self.inputs[shard.start : shard.stop]
        return self._submit(_compute, self.work, self.common, shard.number, part, __version__)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            # Large networks are sent as they are, once; Dask would have them scattered.
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            return self.client.submit(function, *arguments, pure=False, retries=TRIES - 1)

    def _wait(self) -> None:
        """Until something is finished; give up where there is nobody to do it, or nobody to ask."""
        distributed = _load()
        futures = [future for future, _ in self.under_way]
        while True:
            try:
                with self.client.as_current():
                    distributed.wait(futures, timeout=GLANCE, return_when="FIRST_COMPLETED")
                return
            except distributed.TimeoutError:
                self._refuse_to_wait_for_nobody()
            except distributed.CancelledError as error:
                raise self._deserted() from error

    def _deserted(self) -> SimulationError:
        return SimulationError(f"--cluster {self.cluster.address}: the scheduler went away in the middle.")

    def _refuse_to_wait_for_nobody(self) -> None:
        if self.cluster.workers:
            self.deserted = None
            return
        now = time.monotonic()
        self.deserted = now if self.deserted is None else self.deserted
        if now - self.deserted > SECONDS_TO_FIND:
            numbers = ", ".join(str(shard.number + 1) for _, shard in self.under_way)
            raise SimulationError(
                f"--cluster {self.cluster.address}: {_no_worker()} Of {len(self.shards)} shards, these were "
                f"under way: {numbers}."
            )

    def _result(self, future: Any, shard: Shard) -> tuple[int, Any] | None:
        """What a shard gave; None where its worker died before it was asked: then it is under way again."""
        distributed = _load()
        if future.status == "error":
            raise self._failure(future.exception(), shard)
        try:
            number, result = future.result(timeout=SECONDS_TO_FIND)
        except distributed.TimeoutError:
            return None
        except distributed.CancelledError as error:
            raise self._deserted() from error
        except Exception as error:  # of a shard that was computed again, or of Dask
            raise self._failure(error, shard) from error
        return number, result

    def _failure(self, error: Exception, shard: Shard) -> SimulationError:
        """One message: which shard, and what its last try said."""
        which = (
            f"--cluster {self.cluster.address}: shard {shard.number + 1} of {len(self.shards)} "
            f"(samples {shard.start} to {shard.stop - 1})"
        )
        if isinstance(error, _load().KilledWorker):
            return SimulationError(
                f"{which}: every worker that tried it died. Look at what they print; too little memory is a "
                "common reason."
            )
        told = str(error) if isinstance(error, DeployError) else f"{type(error).__name__}: {error}"
        return SimulationError(f"{which} failed {TRIES} times, at last with: {told}")


# ---- what workers do --------------------------------------------------------------------------

_one_at_a_time = threading.Lock()  # Lava is imported and started by one thread of a process


def _as_it_is(common: Any) -> Any:
    return common


def _compute(work: Callable[[Any, Array], Any], common: Any, number: int, part: Array, version: str) -> Any:
    """A shard's number and result."""
    if version != __version__:
        raise SimulationError(
            f"a worker has mpbn_deploy {__version__}, and is asked by {version}; install the same on both."
        )
    with _one_at_a_time:
        return number, work(common, part)


def dask_setup(worker: Any) -> None:
    """Dask calls this in workers of our own: they share a machine, so each computes in one thread."""
    import torch

    torch.set_num_threads(1)


# ---- connecting -------------------------------------------------------------------------------


@contextmanager
def chosen_cluster(address: str | None) -> Iterator[Cluster | None]:
    """As `connected`, where a cluster is wanted."""
    if address is None:
        yield None
        return
    with connected(address) as cluster:
        yield cluster


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler, or start workers of our own (`local:2`), which end with the block."""
    distributed = _load()
    with ExitStack() as stack:
        place: Any = address
        least = 1
        if address.startswith(LOCAL):
            least = local_workers(address)
            place = stack.enter_context(_own_workers(least))
        cluster = Cluster(stack.enter_context(_client(place, address)), address, least)
        try:
            cluster.client.wait_for_workers(1, timeout=SECONDS_TO_FIND)
        except distributed.TimeoutError as error:
            raise OptionError(f"--cluster {address}: {_no_worker()}") from error
        yield cluster


@contextmanager
def _client(place: Any, address: str) -> Iterator[Any]:
    distributed = _load()
    if isinstance(place, str):
        _knock(place)
    try:
        client = distributed.Client(place, timeout=SECONDS_TO_FIND, set_as_default=False, name="mpbn_deploy")
    except (OSError, ValueError) as error:  # also asyncio's TimeoutError, and no such protocol
        raise OptionError(_no_scheduler(address, error)) from error
    try:
        yield client
    finally:
        with signals_kept_for_later():
            client.close()


def _knock(address: str) -> None:
    """Wait until somebody listens there: a client of Dask that nobody answers takes a minute to let go."""
    found, until = host_and_port(address), time.monotonic() + SECONDS_TO_FIND
    if found is None:
        raise OptionError(f"cluster {address}: no address; say tcp://host:8786, or {LOCAL}2.")
    while True:
        try:
            socket.create_connection(found, timeout=SECONDS_TO_FIND).close()
        except OSError as error:
            if time.monotonic() >= until:
                raise OptionError(_no_scheduler(address, error)) from error
            time.sleep(SECONDS_BETWEEN_KNOCKS)
        else:
            return


def _no_scheduler(address: str, error: Exception) -> str:
    return (
        f"--cluster {address}: no scheduler of Dask answers there within {SECONDS_TO_FIND:g} s ({error}). "
        f"Start one with `dask scheduler`, or say {LOCAL}2 for two workers on this machine."
    )


@contextmanager
def _own_workers(count: int) -> Iterator[Any]:
    """Workers on this machine, who leave nothing behind: what they write is in a folder that is removed."""
    announce(f"cluster: starting {count} worker{'' if count == 1 else 's'} on this machine")
    with tempfile.TemporaryDirectory(prefix="mpbn-", ignore_cleanup_errors=True) as folder:
        elsewhere = import_module("dask").config.set({"temporary-directory": folder})
        with elsewhere, signals_kept_for_later(), _deaf_to_the_keyboard():
            workers = _start(count, folder)
        try:
            yield workers
        finally:
            with signals_kept_for_later():
                workers.close()


def _start(count: int, folder: str) -> Any:
    distributed = _load()
    try:
        return distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": ":0"},  # any free port: others may have a cluster too
            memory_limit=0,  # none: Dask would stop a worker that uses more than its share
            silence_logs=logging.CRITICAL,  # what goes wrong is told by us, in one message
            local_directory=folder,
            env={"TMPDIR": folder},
            preload=[__name__],
        )
    except (OSError, RuntimeError, distributed.TimeoutError) as error:
        raise SimulationError(f"--cluster {LOCAL}{count}: workers cannot be started ({error}).") from error


@contextmanager
def _deaf_to_the_keyboard() -> Iterator[None]:
    """Threads that are started meanwhile, and all processes that they will ever start, hear no interrupt.

    An interrupt reaches all processes of a command; the workers among them are ended by us. The mask
    of signals is inherited, and starting the resource tracker of multiprocessing would undo it.
    """
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _load() -> Any:
    """Dask's package, which is imported only where a cluster is wanted."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MissingPackageError(
            f"distributed (Dask) is not installed ({error}); --cluster needs it, everything else does not. "
            "To get it: pip install 'mpbn_deploy[cluster]'"
        ) from error


def _no_worker() -> str:
    return (
        f"the scheduler has no worker, and none came within {SECONDS_TO_FIND:g} s. Start some where "
        "mpbn_deploy is installed: `dask worker SCHEDULER --nworkers auto --nthreads 1`."
    )
