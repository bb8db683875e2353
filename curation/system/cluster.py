# SPDX-License-Identifier: Apache-2.0
"""Dask sessions of both engines, on this machine or on a cluster.

Dask reassigns the tasks of a dead worker to other workers, but without any worker it waits for ever, and its errors
give no advice. This module adds a timeout and error messages.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import multiprocessing.resource_tracker
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from curation.errors import EngineError, OutOfMemoryError
from curation.system.interrupts import Stop, announce, end, request_stop, run_task, wait_for

PATIENCE_SECONDS = 300  # without any worker; a batch system takes minutes to start one
POLL_SECONDS = 5
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP)  # the terminal sends them to every process of its group
CLEAN_UP_SECONDS = 1.0  # for the tasks of worker processes, after a signal
# Loggers of the client. Those of workers and schedulers, which may run in this process too, are not silenced.
CLIENT_LOGS = tuple(f"distributed.{name}" for name in ("client", "core", "batched", "utils"))
RESUME_ADVICE = "Completed work is kept. Rerun the same command without --force to resume"

log = logging.getLogger(__name__)


class DaskSession:
    """A session that maps a function over items with `get`, a Dask scheduler: (graph, names of results) -> results.

    dashboard  address of the cluster's dashboard; "" without one
    """

    def __init__(self, get: Callable[..., Any], dashboard: str = "") -> None:
        self.get = get
        self.dashboard = dashboard

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return the result of `function` for each item, in order. The first error stops the rest and is raised.

        A signal ends the wait at once. Running tasks of this process then end at their next safe point.
        """
        # A plain graph: 10,000 delayed objects take six seconds. Dask starts with the greatest name.
        run = uuid.uuid4().hex
        names = [f"{run}-{number:09d}" for number in reversed(range(len(items)))]
        stop = Stop()
        tasks = [(partial(run_task, stop, function, item),) for item in items]
        try:
            return list(wait_for(partial(self.get, dict(zip(names, tasks, strict=True)), names)))
        except KeyboardInterrupt:
            stop.set()
            raise


class _Process(multiprocessing.context.SpawnProcess):
    """A process that starts with the signals of the terminal blocked: one that came before `_begin_worker` ignores them
    would end in a traceback."""

    def start(self) -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


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
    pool = ProcessPoolExecutor(workers, context, initializer=_begin_worker, initargs=(watched,))
    try:
        yield pool
    except KeyboardInterrupt:
        alive.close()  # the workers read the end of the pipe
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        alive.close()
        watched.close()


def _begin_worker(watched: multiprocessing.connection.Connection) -> None:
    """Ignore signals of the terminal and watch the parent: a killed parent cannot end its workers, which would keep
    writing into a folder that another run may have locked."""
    announce(str, lambda code: "")  # the parent speaks
    for number in TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
    signal.signal(signal.SIGTERM, _end_worker)
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()


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


@contextmanager
def connect(cluster: Any) -> Iterator[DaskSession]:
    """A session on a cluster: a cluster object, or the address of a scheduler.

    Raises EngineError if no scheduler answers, if the cluster has no worker for `PATIENCE_SECONDS`, or if the scheduler
    disappears; OutOfMemoryError if workers keep dying on the same task.
    """
    with open_client(cluster) as client:
        yield DaskSession(partial(_get, client), _dashboard(client))


@contextmanager
def open_client(cluster: Any) -> Iterator[Any]:
    """A client of a cluster, without messages of its own. EngineError if no scheduler answers."""
    from distributed import Client

    with _silent(CLIENT_LOGS):
        try:
            client = wait_for(partial(Client, cluster))
        except OSError as error:
            raise EngineError(f"no scheduler answers at {cluster}: {error}. Start one with `dask scheduler`") from error
        with client:
            yield client


def _dashboard(client: Any) -> str:
    has_one = "dashboard" in client.scheduler_info().get("services", {})
    return str(client.dashboard_link) if has_one else ""


@contextmanager
def _silent(names: Sequence[str]) -> Iterator[None]:
    """Silence loggers: they print tracebacks of a lost connection, for which `_get` raises an error with advice."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _get(client: Any, graph: Any, names: list[str]) -> list[Any]:
    from distributed.scheduler import KilledWorker, NoWorkerError

    address = client.scheduler.address
    try:
        return list(client.sync(_gather, client, client.get(graph, names, sync=False)))
    except NoWorkerError as error:
        raise no_worker(address, error.timeout) from error
    except KilledWorker as error:
        raise OutOfMemoryError(
            f"{error.allowed_failures + 1} workers of {address} died on the same task, most often because memory ran "
            "out. Give each worker more memory or fewer threads; if documents are very long, lower max_document_bytes. "
            f"{RESUME_ADVICE}"
        ) from error
    except CancelledError as error:
        raise EngineError(
            f"the scheduler at {address} has disappeared. Start it and its workers again. {RESUME_ADVICE}"
        ) from error


def no_worker(address: str, seconds: float) -> EngineError:
    """Return the error of a cluster without workers."""
    return EngineError(
        f"{address} has had no worker for {seconds:.0f} s. Start workers; the logs of the earlier workers "
        f"show why they ended. {RESUME_ADVICE}"
    )


async def _gather(client: Any, futures: list[Any]) -> list[Any]:
    """All results, or the first error: NoWorkerError after `PATIENCE_SECONDS` without a worker. A scheduler raises it
    too, if it is configured to."""
    from distributed.scheduler import NoWorkerError

    results, idle_seconds = asyncio.ensure_future(client.gather(futures)), 0.0
    results.add_done_callback(lambda done: done.cancelled() or done.exception())  # asyncio logs unread exceptions
    while not (await asyncio.wait([results], timeout=POLL_SECONDS))[0]:
        idle_seconds = 0 if client.scheduler_info()["n_workers"] else idle_seconds + POLL_SECONDS
        if idle_seconds == POLL_SECONDS:
            log.warning("no worker at %s; waiting %d s for one", client.scheduler.address, PATIENCE_SECONDS)
        if idle_seconds >= PATIENCE_SECONDS:
            await client.cancel(futures)
            raise NoWorkerError(futures[0].key, idle_seconds)
    return results.result()


__all__ = ["DaskSession", "connect", "no_worker", "open_client", "process_pool"]
