# SPDX-License-Identifier: Apache-2.0
"""Processes with several threads each, for machines with many processors.

A thread holds Python's lock for 4 to 11 % of its time, so more than about 9 to 25 threads in a process gain nothing.
With one process per thread, each would load the libraries (150 MB).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

THREADS_PER_PROCESS = 8
MANY_WORKERS = 16  # from here on, processes by default
ENDED = "a worker process ended abruptly"


def threads_of_processes(scheduler: str, workers: int) -> list[int]:
    """Return the number of threads of each worker process; empty for threads of this process.

    scheduler  "threads", "processes" (of one thread each), or "auto": from MANY_WORKERS on, processes of up to
               THREADS_PER_PROCESS threads, else threads
    """
    if scheduler == "processes":
        return [1] * workers
    if scheduler != "auto" or workers < MANY_WORKERS:
        return []
    count = -(-workers // THREADS_PER_PROCESS)
    return [workers // count + (number < workers % count) for number in range(count)]


class _Worker:
    """A worker process, seen from its parent."""

    def __init__(self, process: Any, connection: Connection, threads: int) -> None:
        self.process, self.connection, self.threads = process, connection, threads
        self.futures: dict[int, Future[Any]] = {}
        self.lock = threading.Lock()
        self.is_alive = True
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @property
    def load(self) -> float:
        """Tasks per thread."""
        return len(self.futures) / self.threads

    def submit(self, number: int, function: Callable[[Any], Any], item: Any) -> Future[Any]:
        future: Future[Any] = Future()
        data = pickle.dumps((number, function, item))
        with self.lock:
            self.futures[number] = future
            try:
                if not self.is_alive:
                    raise BrokenPipeError
                self.connection.send_bytes(data)
            except OSError:
                del self.futures[number]
                future.set_exception(BrokenProcessPool(ENDED))
        return future

    def _read(self) -> None:
        while True:
            try:
                number, is_error, content = pickle.loads(self.connection.recv_bytes())
            except (EOFError, OSError):
                break
            future = self.futures.pop(number)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                value = pickle.loads(content)
            except Exception as error:  # the exception of the task cannot be unpickled
                is_error, value = True, error
            if is_error:
                future.set_exception(value)
            else:
                future.set_result(value)
        with self.lock:
            self.is_alive = False
            futures = list(self.futures.values())
            self.futures.clear()
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(BrokenProcessPool(ENDED))


class ThreadedProcesses:
    """A pool that runs a task in the process with the fewest tasks per thread."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self.workers = workers
        self.submitted = 0

    def submit(self, function: Callable[[Any], Any], item: Any) -> Future[Any]:
        """Begin `function(item)`, both of which can be pickled."""
        self.submitted += 1
        return min(self.workers, key=lambda worker: worker.load).submit(self.submitted, function, item)


@contextmanager
def threaded_processes(
    context: Any, threads: Sequence[int], begin: Callable[[Any], None], watched: Any
) -> Iterator[ThreadedProcesses]:
    """Yield a pool of spawned processes; process i has `threads[i]` threads. Each process calls `begin(watched)` first.

    After an error, running tasks are completed and no other task starts.
    """
    workers: list[_Worker] = []
    try:
        for count in threads:
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, count, begin, watched))
            process.start()
            theirs.close()
            workers.append(_Worker(process, mine, count))
        yield ThreadedProcesses(workers)
    finally:
        for worker in workers:
            with worker.lock, suppress(OSError):  # it has ended
                worker.is_alive = False
                worker.connection.send_bytes(b"")
        for worker in workers:
            worker.process.join()
            worker.reader.join()
            worker.connection.close()


def _serve(connection: Connection, threads: int, begin: Callable[[Any], None], watched: Any) -> None:
    """Run the tasks that arrive on a connection, until it ends or an empty message arrives."""
    begin(watched)
    lock = threading.Lock()
    with ThreadPoolExecutor(threads) as pool:
        while True:
            try:
                data = connection.recv_bytes()
            except (EOFError, OSError):
                data = b""
            if not data:
                break
            pool.submit(partial(_answer, connection, lock, data))
        pool.shutdown(cancel_futures=True)
    connection.close()


def _answer(connection: Connection, lock: Any, data: bytes) -> None:
    number, function, item = pickle.loads(data)
    try:
        is_error, content = False, pickle.dumps(function(item))
    except BaseException as error:
        is_error, content = True, _as_bytes(error)
    with lock:
        connection.send_bytes(pickle.dumps((number, is_error, content)))


def _as_bytes(error: BaseException) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:  # an exception may hold anything
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
