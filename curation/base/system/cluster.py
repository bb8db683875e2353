# SPDX-License-Identifier: Apache-2.0
"""Dask sessions of both engines, on this machine or on a cluster.

Dask reassigns the tasks of a dead worker to other workers, but without any worker it waits for ever, and its errors
give no advice. This module adds a timeout and error messages.
"""

from __future__ import annotations

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
BATCHES_PER_THREAD, MIN_WINDOW = 4, 16  # batches that may wait at the scheduler
MESSAGES, MAX_MESSAGE = 4, 256  # a window has 4 messages, so a thread still has three batches when one is sent
BATCHES_LEFT, MAX_BATCH = 2, 64  # a batch has half of the remaining tasks per thread, so the last batches have one task
BATCH_SECONDS = 0.0021  # the scheduler's CPU time per batch (docs/measurements/large_runs.md)
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP)  # the terminal sends them to every process of its group
START_SECONDS = 0.3  # shorter than the time that a function of `at_end` may take
NAMED_HOSTS = ("", "tcp", "tls", "ws", "wss")  # address schemes whose host is a name or an IP address
CLEAN_UP_SECONDS = 1.0  # time for the tasks of worker processes to end after a signal
# Loggers of the client. Workers and schedulers may run in this process too; their loggers are not silenced.
CLIENT_LOGS = tuple(f"distributed.{name}" for name in ("client", "core", "batched", "utils"))

log = logging.getLogger(__name__)
_starting = threading.Lock()
_first: ContextVar[Callable[[], Callable[[], None] | None]] = ContextVar("first", default=lambda: None)


@contextmanager
def begun_by(make: Callable[[], Callable[[], None] | None]) -> Iterator[None]:
    """Inside the block, let each new worker process first call the function that `make` returns. If `make` returns
    None, the process calls nothing."""
    token = _first.set(make)
    try:
        yield
    finally:
        _first.reset(token)


class _Process(multiprocessing.context.SpawnProcess):
    """A worker process. At its start, the terminal's signals are blocked until `_begin_worker` ignores them, since an
    earlier signal would print a traceback. `start` also calls `check` first: a worker prints a traceback if its parent
    ends before it has sent the arguments."""

    def start(self) -> None:
        with _starting:
            check()
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
            try:
                super().start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end_processes() -> None:
    """End the workers before this process ends. A worker that has run `_begin_worker` answers SIGTERM by `_end_worker`;
    any other worker ends at once."""
    _starting.acquire(timeout=START_SECONDS)  # never released, so that no other process starts
    for process in multiprocessing.active_children():
        process.terminate()
        _continue(process.pid)  # a stopped process would not act on the signal


interrupts.at_end(_end_processes)


def _continue(pid: int | None) -> None:
    """Resume a process that is stopped (SIGSTOP). Otherwise it would keep its streams open, and its parent would wait
    for it."""
    with suppress(ProcessLookupError):
        os.kill(pid or 0, signal.SIGCONT)


@contextmanager
def _ended_by_interrupts(alive: multiprocessing.connection.Connection) -> Iterator[None]:
    """After an interrupt, close the pipe that the workers watch, and resume stopped workers so that they notice it."""
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
    """Yield a pool like that of `process_pool`, in which process i has `threads[i]` threads."""
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
    announce(str, lambda code: "")  # only the parent prints messages
    for number in TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    signal.signal(signal.SIGTERM, _end_worker)
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
    if first:
        first()


def _end_worker(number: int, _: Any) -> None:
    """Let the task end at its next safe point; end the process after CLEAN_UP_SECONDS in any case."""
    request_stop(number)
    threading.Timer(CLEAN_UP_SECONDS, end, (128 + number,)).start()


def _end_with_parent(watched: multiprocessing.connection.Connection) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    multiprocessing.connection.wait([watched, parent.sentinel])  # the system closes these pipes when the parent ends
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
    """Yield a client of a cluster; the log messages of Dask's client are silenced. Raises EngineError if no scheduler
    answers."""
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
    """Raise EngineError if the name of a scheduler's host is unknown. Dask would repeat the look-up until its
    timeout."""
    scheme, _, netloc = address.rpartition("://")
    host = netloc.rpartition(":")[0].strip("[]")
    if scheme not in NAMED_HOSTS or not host:
        return
    try:
        wait_for(partial(socket.getaddrinfo, host, None))
    except (OSError, UnicodeError) as error:
        raise EngineError(f"the host {host} of the scheduler {address} is not found: {error}. Correct it") from None


def _dashboard(client: Any) -> str:
    """Return the address of the dashboard; "" without one. The scheduler's `services` cannot tell: it lists the HTTP
    server even with `--no-dashboard` or without bokeh."""
    has_one = client.run_on_scheduler(lambda dask_scheduler: bool(dask_scheduler.http_application.applications))
    return str(client.dashboard_link) if has_one else ""


@contextmanager
def _silent(names: Sequence[str]) -> Iterator[None]:
    """Silence loggers, which print tracebacks when a connection is lost. `_explained` raises an error with advice
    instead."""
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
    """Submits tasks through a Dask client. Raises EngineError if no worker is left to run them."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.run = uuid.uuid4().hex
        self.submitted = 0
        self.live: dict[Any, Any] = {}  # futures whose results nobody has asked for, by key
        self.idle_seconds = 0.0
        self.clock, self.threads = Every(POLL_SECONDS), self._count_threads()

    @property
    def window(self) -> int:
        """Number of batches that may wait on the cluster. It depends on the workers' threads, counted every
        POLL_SECONDS."""
        if self.clock.is_due():
            self.threads = self._count_threads()
        return max(BATCHES_PER_THREAD * self.threads, MIN_WINDOW)

    @property
    def message(self) -> int:
        """Maximum number of batches in one message to the scheduler."""
        return min(max(BATCHES_PER_THREAD * self.threads, MIN_WINDOW) // MESSAGES, MAX_MESSAGE)

    def batch(self, waiting: int, seconds: float) -> int:
        """Return the number of tasks per future: many if tasks are short, so that the scheduler has few futures."""
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

    def on_each_worker(self, function: Callable[[], Any]) -> list[Any]:
        """Return the result of a function in each worker, without those of workers in which it fails."""
        with _explained(self.client):
            results = self.client.run(function, on_error="return").values()
        return [result for result in results if not isinstance(result, Exception)]

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of futures that have ended, and forget the futures."""
        self.idle_seconds = 0.0
        with _explained(self.client):
            results = list(self.client.sync(self._gather, futures))
        for future in futures:
            del self.live[future.key]
        return results

    async def _gather(self, futures: Sequence[Any]) -> list[Any]:
        """Return all results, or raise the first error. If a worker dies with a result, Dask runs its task again. That
        needs a worker: if tasks have ended all of them, raise an error instead of waiting for ever."""
        import asyncio  # here, since most runs need no cluster

        results = asyncio.ensure_future(self.client.gather(list(futures)))
        results.add_done_callback(lambda done: done.cancelled() or done.exception())  # asyncio logs unread exceptions
        while not (await asyncio.wait([results], timeout=POLL_SECONDS))[0]:
            if failed := [future for future in self.live.values() if future.status == "error"]:
                await self.client.gather(failed[:1])
            self._check(self.client.scheduler_info()["n_workers"])
        return results.result()

    def cancel(self, futures: Sequence[Any]) -> None:
        """Ask the scheduler to drop these futures. If the scheduler is gone, raise no error."""
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
    """Return the key of a batch. Dask shows all batches of a run as one group, since their keys have the same
    prefix."""
    return f"curate-{run}", number


def _run_if_wanted(function: Callable[[Any], Any], run: str, item: Any, number: int) -> Any:
    """Return `function(item)` of a batch, unless the scheduler cancels the batch. It does so when another batch fails
    or the client is gone. Then no task of the batch begins, and the running one ends at its next safe point. Otherwise
    it would write into a folder that another run may have locked."""
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
    """Return the number of tasks in the next batch, if `waiting` tasks wait for `threads` threads: at most MAX_BATCH.

    A batch has half of the remaining tasks per thread. But many threads with short tasks would wait for the scheduler,
    which needs BATCH_SECONDS for a batch. With k tasks per batch, it has begun all batches after waiting / k times
    BATCH_SECONDS. The last batch ends k times `seconds` later. The sum is least if both times are equal. There is also
    an upper bound: a batch must only keep its thread busy while the scheduler begins one batch for each other thread.

    seconds  mean time of a task; 0.0 if it is not known
    """
    size = waiting // (BATCHES_LEFT * max(threads, 1))
    if seconds:
        enough = threads * BATCH_SECONDS / seconds
        size = max(size, int(min(math.sqrt(waiting * BATCH_SECONDS / seconds), enough)))
    return max(min(size, waiting, MAX_BATCH), 1)


def no_worker(address: str, seconds: float) -> EngineError:
    """Return the error for a cluster without workers: it says where to look and how to resume."""
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
    except NoWorkerError as error:  # a scheduler raises it if it has a timeout of its own
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
