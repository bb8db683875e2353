# SPDX-License-Identifier: Apache-2.0
"""Tasks for Dask, on this machine or a cluster, for both engines. Dask gives the tasks of a dead worker to others; but
where none is left it waits for ever, and its errors do not say what to do."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from curation.errors import EngineError, OutOfMemoryError
from curation.interrupts import Interrupted

PATIENCE_SECONDS = 300  # without any worker; a batch system takes minutes to start one
LOOK_SECONDS = 5
CLEAN_UP_SECONDS = 1.0
# Of this process. Those of workers and schedulers, which a cluster of this process has too, stay.
CLIENT_LOGS = tuple(f"distributed.{name}" for name in ("client", "core", "batched", "utils"))
GOES_ON = "What is done stays, the same command, without --force, goes on from here"

log = logging.getLogger(__name__)


class DaskSession:
    """Maps a function over items by `get`, a scheduler of Dask: it takes a graph and the names of what is wanted."""

    def __init__(self, get: Callable[..., Any]) -> None:
        self.get = get

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        # A plain graph: of delayed objects, 10,000 take six seconds. Dask begins with the greatest name.
        run = uuid.uuid4().hex
        names = [f"{run}-{number:09d}" for number in reversed(range(len(items)))]
        tasks = [(partial(function, item),) for item in items]
        return list(self.get(dict(zip(names, tasks, strict=True)), names))


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end when this one does, however it ends. After an error the tasks that have begun are waited for,
    and no other begins."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin_worker)
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _begin_worker() -> None:
    """Leaves the signals of the terminal to the parent, and watches it: a killed one cannot end its workers, and they
    would go on writing into a folder that another run may hold."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_worker)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_worker(number: int, _: Any) -> None:
    """Leaves the task time to remove what is half written. The pool takes the exception for the task's, so that the
    process ends by a timer."""
    threading.Timer(CLEAN_UP_SECONDS, os._exit, (128 + number,)).start()
    raise Interrupted(number)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])  # a pipe, which the system closes
        os._exit(1)


@contextmanager
def connect(cluster: Any) -> Iterator[Callable[..., list[Any]]]:
    """Dask's `get` on a cluster, which is given as such or by the address of its scheduler."""
    from distributed import Client

    with _silent(CLIENT_LOGS):
        try:
            client = Client(cluster)
        except OSError as error:
            raise EngineError(f"no scheduler answers at {cluster}: {error}. Start one with `dask scheduler`") from error
        with client:
            yield partial(_get, client)


@contextmanager
def _silent(names: Sequence[str]) -> Iterator[None]:
    """Logs print nothing: tracebacks of a lost connection, of which `_get` raises the error that says what to do."""
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
        raise EngineError(
            f"{address} has had no worker for {error.timeout:.0f} s: start some; the logs of those before say why they "
            f"ended. {GOES_ON}"
        ) from error
    except KilledWorker as error:
        raise OutOfMemoryError(
            f"{error.allowed_failures + 1} workers of {address} ended abruptly on the same piece of work, most often "
            "because memory ran out: give each more memory or fewer threads, or lower max_document_bytes where "
            f"documents are very long. {GOES_ON}"
        ) from error
    except CancelledError as error:
        raise EngineError(f"the scheduler at {address} is gone. Start it and its workers again. {GOES_ON}") from error


async def _gather(client: Any, futures: list[Any]) -> list[Any]:
    """The results of all, or the first error. NoWorkerError where no worker has been there for too long, as schedulers
    raise it that are set to."""
    from distributed.scheduler import NoWorkerError

    results, alone = asyncio.ensure_future(client.gather(futures)), 0.0
    results.add_done_callback(lambda done: done.cancelled() or done.exception())  # asyncio logs what nobody asks for
    while not (await asyncio.wait([results], timeout=LOOK_SECONDS))[0]:
        alone = 0 if client.scheduler_info()["n_workers"] else alone + LOOK_SECONDS
        if alone == LOOK_SECONDS:
            log.warning("no worker at %s; waiting %d s for one", client.scheduler.address, PATIENCE_SECONDS)
        if alone >= PATIENCE_SECONDS:
            await client.cancel(futures)
            raise NoWorkerError(futures[0].key, alone)
    return results.result()


__all__ = ["DaskSession", "connect", "process_pool"]
