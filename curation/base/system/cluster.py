# SPDX-License-Identifier: Apache-2.0
"""Dask sessions of both engines, on this machine or on a cluster.

Dask reassigns the tasks of a dead worker to other workers, but without any worker it waits for ever, and its errors
give no advice. This module adds a timeout and error messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import multiprocessing.resource_tracker
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

from curation.base.errors import EngineError, OutOfMemoryError
from curation.base.system import interrupts
from curation.base.system.damage import RESUME_ADVICE
from curation.base.system.interrupts import Interrupted, announce, cancelled_by, check, end, request_stop, wait_for
from curation.base.system.pools import ThreadedProcesses, threaded_processes
from curation.base.system.sessions import TaskSession
from curation.base.system.steps import Every
from curation.base.system.terminal import protect_streams

PATIENCE_SECONDS = 300  # without any worker; a batch system takes minutes to start one
POLL_SECONDS = 5
BATCHES_PER_THREAD, MIN_WINDOW = 4, 16  # handed to the scheduler
MESSAGES, MAX_MESSAGE = 4, 256  # messages that fill a window: a thread still has three batches when one is sent
BATCHES_LEFT, MAX_BATCH = 2, 64  # a batch has half of the tasks left per thread: the last ones have one task
BATCH_SECONDS = 0.0021  # from one batch to the next: the scheduler's CPU (docs/measurements/large_runs.md)
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP)  # the terminal sends them to every process of its group
START_SECONDS = 0.3  # below the time of a function that `at_end` registers
NAMED_HOSTS = ("", "tcp", "tls", "ws", "wss")  # schemes of addresses whose host is a name or a number
CLEAN_UP_SECONDS = 1.0  # for the tasks of worker processes, after a signal
# Loggers of the client. Those of workers and schedulers, which may run in this process too, are not silenced.
CLIENT_LOGS = tuple(f"distributed.{name}" for name in ("client", "core", "batched", "utils"))

log = logging.getLogger(__name__)
_starting = threading.Lock()
_first: ContextVar[Callable[[], Callable[[], None] | None]] = ContextVar("first", default=lambda: None)


@contextmanager
def begun_by(make: Callable[[], Callable[[], None] | None]) -> Iterator[None]:
    """Let each worker process that starts inside the block first call what `make` returns; None: nothing more."""
    token = _first.set(make)
    try:
        yield
    finally:
        _first.reset(token)


class _Process(multiprocessing.context.SpawnProcess):
    """A worker. It starts with the signals of the terminal blocked: one that came before `_begin_worker` ignores them
    would end in a traceback. So would a process whose parent ends before it has sent the arguments."""

    def start(self) -> None:
        with _starting:
            check()
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
            try:
                super().start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end_processes() -> None:
    """Ask the workers to end before this process does: at once before `_begin_worker`, with `_end_worker` after it."""
    _starting.acquire(timeout=START_SECONDS)  # kept: no other process starts
    for process in multiprocessing.active_children():
        process.terminate()
        _continue(process.pid)  # to take the signal


interrupts.at_end(_end_processes)


def _continue(pid: int | None) -> None:
    """Let a process go on that is stopped (SIGSTOP): it would hold its streams, and its parent would wait for it."""
    with suppress(ProcessLookupError):
        os.kill(pid or 0, signal.SIGCONT)


@contextmanager
def _ended_by_interrupts(alive: multiprocessing.connection.Connection) -> Iterator[None]:
    """After an interrupt, let the workers read the end of the pipe, and those that are stopped, too."""
    try:
        yield
    except KeyboardInterrupt:
        alive.close()
        for process in multiprocessing.active_children():
            if isinstance(process, _Process):
                _continue(process.pid)
        raise


class _SpawnContext(multiprocessing.context.SpawnContext):
    Process = _Process


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of `workers` spawned processes, which end when this process ends, even if it is killed.

    After an error, running tasks are completed and no other task starts. After a signal, running tasks end at their
    next safe point, or with their process.
    """
    context = _SpawnContext()
    multiprocessing.resource_tracker.ensure_running()  # its start would unblock the signals of `_Process`
    watched, alive = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(watched, _first.get()()))
    try:
        with _ended_by_interrupts(alive):
            yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        alive.close()
        watched.close()


@contextmanager
def pool_of_processes(threads: Sequence[int]) -> Iterator[ThreadedProcesses]:
    """The same for processes with these numbers of threads."""
    context = _SpawnContext()
    multiprocessing.resource_tracker.ensure_running()
    watched, alive = context.Pipe(duplex=False)
    try:
        begin = partial(_begin_worker, first=_first.get()())
        with threaded_processes(context, threads, begin, watched) as pool, _ended_by_interrupts(alive):
            yield pool
    finally:
        alive.close()
        watched.close()


def _begin_worker(watched: multiprocessing.connection.Connection, first: Callable[[], None] | None = None) -> None:
    """Ignore signals of the terminal and watch the parent: a killed parent cannot end its workers, which would keep
    writing into a folder that another run may have locked."""
    protect_streams()
    announce(str, lambda code: "")  # the parent speaks
    for number in TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    signal.signal(signal.SIGTERM, _end_worker)
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
    if first:
        first()


def _end_worker(number: int, _: Any) -> None:
    """Let the task end at its next safe point, or with the process."""
    request_stop(number)
    threading.Timer(CLEAN_UP_SECONDS, end, (128 + number,)).start()


def _end_with_parent(watched: multiprocessing.connection.Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    multiprocessing.connection.wait([watched, parent.sentinel])  # pipes that the system closes
    request_stop(signal.SIGTERM)
    multiprocessing.connection.wait([parent.sentinel], CLEAN_UP_SECONDS)
    end(1)


def patience() -> str:
    """Return how long Dask tries to connect to a scheduler, such as "30s"."""
    import dask
    import distributed.config  # noqa: F401 - sets the defaults of dask.config

    return str(dask.config.get("distributed.comm.timeouts.connect"))


@contextmanager
def connect(cluster: Any) -> Iterator[TaskSession]:
    """A session on a cluster: a cluster object, or the address of a scheduler.

    Raises EngineError if no scheduler answers, if the cluster has no worker for `PATIENCE_SECONDS`, or if the scheduler
    disappears; OutOfMemoryError if workers keep dying on the same task.
    """
    with open_client(cluster) as client:
        yield TaskSession(ClusterExecutor(client), _dashboard(client))


@contextmanager
def open_client(cluster: Any) -> Iterator[Any]:
    """A client of a cluster, without messages of its own. EngineError if no scheduler answers."""
    from distributed import Client

    with _silent(CLIENT_LOGS):
        if isinstance(cluster, str):
            _check_host(cluster)
        try:
            client = wait_for(partial(Client, cluster))
        except OSError as error:
            raise EngineError(f"no scheduler answers at {cluster}: {error}. Start one with `dask scheduler`") from error
        with client:
            yield client


def _check_host(address: str) -> None:
    """Raise EngineError if the host of a scheduler has no address: Dask would repeat the search until its timeout."""
    scheme, _, netloc = address.rpartition("://")
    host = netloc.rpartition(":")[0].strip("[]")
    if scheme not in NAMED_HOSTS or not host:
        return
    try:
        wait_for(partial(socket.getaddrinfo, host, None))
    except (OSError, UnicodeError) as error:
        raise EngineError(f"the host {host} of the scheduler {address} is not found: {error}. Correct it") from None


def _dashboard(client: Any) -> str:
    """The address of the dashboard; "" without one. `services` has the scheduler's HTTP server, also if this serves no
    dashboard because of `--no-dashboard` or because bokeh is not installed."""
    has_one = client.run_on_scheduler(lambda dask_scheduler: bool(dask_scheduler.http_application.applications))
    return str(client.dashboard_link) if has_one else ""


@contextmanager
def _silent(names: Sequence[str]) -> Iterator[None]:
    """Silence loggers: they print tracebacks of a lost connection, for which `_explained` gives advice."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class ClusterExecutor:
    """Submits tasks through a Dask client, and fails where no worker is left to run them."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.run = uuid.uuid4().hex
        self.submitted = 0
        self.live: dict[Any, Any] = {}  # futures whose results nobody has asked for, by key
        self.idle_seconds = 0.0
        self.clock, self.threads = Every(POLL_SECONDS), self._count_threads()

    @property
    def window(self) -> int:
        """Tasks that may wait on the cluster at once. It follows the threads of the workers, counted now and then."""
        if self.clock.is_due():
            self.threads = self._count_threads()
        return max(BATCHES_PER_THREAD * self.threads, MIN_WINDOW)

    @property
    def message(self) -> int:
        """Tasks that one message to the scheduler has at most."""
        return min(max(BATCHES_PER_THREAD * self.threads, MIN_WINDOW) // MESSAGES, MAX_MESSAGE)

    def batch(self, waiting: int, seconds: float) -> int:
        """Tasks that one future has, so that the scheduler has few of them when tasks are short."""
        return batch_of(waiting, self.threads, seconds)

    def _count_threads(self) -> int:
        with _explained(self.client):
            return sum(self.client.nthreads().values())

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Any]:
        """Begin `function(item)` for each item, by one message to the scheduler."""
        first, self.submitted = self.submitted, self.submitted + len(items)
        numbers = range(first, self.submitted)
        keys = [_key(self.run, number) for number in numbers]
        with _explained(self.client):
            futures = self.client.map(partial(_run_if_wanted, function, self.run), items, numbers, key=keys, pure=False)
        self.live.update(zip(keys, futures, strict=True))
        return futures

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of futures that have ended, and forget the futures."""
        self.idle_seconds = 0.0
        with _explained(self.client):
            results = list(self.client.sync(self._gather, futures))
        for future in futures:
            del self.live[future.key]
        return results

    async def _gather(self, futures: Sequence[Any]) -> list[Any]:
        """All results, or the first error. If the worker that has a result dies, its task runs again, perhaps never:
        another task may have ended every worker."""
        results = asyncio.ensure_future(self.client.gather(list(futures)))
        results.add_done_callback(lambda done: done.cancelled() or done.exception())  # asyncio logs unread exceptions
        while not (await asyncio.wait([results], timeout=POLL_SECONDS))[0]:
            if failed := [future for future in self.live.values() if future.status == "error"]:
                await self.client.gather(failed[:1])
            self._check(self.client.scheduler_info()["n_workers"])
        return results.result()

    def cancel(self, futures: Sequence[Any]) -> None:
        """Ask the scheduler to drop these futures. No error if the scheduler is gone."""
        if futures:
            with suppress(Exception):  # the scheduler is gone
                self.client.cancel(list(futures))

    def check(self) -> None:
        """Raise EngineError if the cluster has had no worker for too long."""
        with _explained(self.client):
            self._check(self.client.sync(self._count_workers))

    async def _count_workers(self) -> int:
        return int(self.client.scheduler_info()["n_workers"])

    def _check(self, workers: int) -> None:
        """Raise EngineError after `PATIENCE_SECONDS` without a worker."""
        address = self.client.scheduler.address
        self.idle_seconds = 0.0 if workers else self.idle_seconds + POLL_SECONDS
        if self.idle_seconds == POLL_SECONDS:
            log.warning("no worker at %s; waiting %d s for one", address, PATIENCE_SECONDS)
        if self.idle_seconds >= PATIENCE_SECONDS:
            raise no_worker(address, self.idle_seconds)


class _NotWantedError(Exception):
    """Ends a batch whose results nobody wants. A KeyboardInterrupt would end the worker."""


def _key(run: str, number: int) -> tuple[str, int]:
    """The key of a batch. All batches of a run are one group of tasks."""
    return f"curate-{run}", number


def _run_if_wanted(function: Callable[[Any], Any], run: str, item: Any, number: int) -> Any:
    """Return `function(item)` of a batch. Once the scheduler has cancelled the batch, since another one has failed or
    the client is gone, no task of it begins, and the running one ends at its next safe point. It would write into
    a folder that another run may have locked."""
    from distributed import get_worker

    tasks, key = get_worker().state.tasks, _key(run, number)

    def is_cancelled() -> bool:
        task = tasks.get(key)
        return task is None or task.state == "cancelled"

    try:
        with cancelled_by(is_cancelled):
            return function(item)
    except Interrupted as error:
        raise _NotWantedError from error


def batch_of(waiting: int, threads: int, seconds: float = 0.0) -> int:
    """Return the number of tasks to hand over at once, if so many wait for so many threads: at most MAX_BATCH.

    A batch has half of the tasks left per thread. But many threads with short tasks would wait for the scheduler,
    which needs BATCH_SECONDS for a batch. It has begun all batches of k tasks after waiting / k times BATCH_SECONDS,
    and the last one ends k times `seconds` later. The sum is least if both times are equal. A batch need not be larger
    than keeps its thread at work while the scheduler begins one batch for each other thread.

    seconds  mean time of a task; 0.0 if it is not known
    """
    size = waiting // (BATCHES_LEFT * max(threads, 1))
    if seconds:
        enough = threads * BATCH_SECONDS / seconds
        size = max(size, int(min(math.sqrt(waiting * BATCH_SECONDS / seconds), enough)))
    return max(min(size, waiting, MAX_BATCH), 1)


def no_worker(address: str, seconds: float) -> EngineError:
    """The error for a cluster whose workers have all ended: it says where to look and how to resume."""
    return EngineError(
        f"{address} has had no worker for {seconds:.0f} s. Start workers; the logs of the earlier workers "
        f"show why they ended. {RESUME_ADVICE}"
    )


@contextmanager
def _explained(client: Any) -> Iterator[None]:
    """Turn the errors of Dask into errors with advice."""
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoWorkerError

    address = client.scheduler.address
    try:
        yield
    except NoWorkerError as error:  # a scheduler raises it too, if it is configured to
        raise no_worker(address, error.timeout) from error
    except KilledWorker as error:
        raise OutOfMemoryError(
            f"{error.allowed_failures + 1} workers of {address} died on the same task, most often because memory ran "
            "out. Give each worker more memory or fewer threads; if documents are very long, lower max_document_bytes. "
            f"{RESUME_ADVICE}"
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise EngineError(
            f"the scheduler at {address} has disappeared. Start it and its workers again. {RESUME_ADVICE}"
        ) from error
