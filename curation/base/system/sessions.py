# SPDX-License-Identifier: Apache-2.0
"""Sessions: they run tasks on threads, on processes or on the workers of a cluster.

A session hands an executor only some tasks at a time, its *window*, and the next task when one has ended. So memory,
here and in the scheduler of a cluster, does not depend on the number of tasks. A cluster gets *batches* of tasks, since
each batch costs its client and its scheduler a millisecond or more. Batches become smaller towards the end. A message
to the scheduler has several batches. Each batch measures the time of its tasks, by which the executor chooses the size
of the next batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from curation.base.system.interrupts import Stop, run_task, wait_for

POLL_SECONDS = 5
LINGER_SECONDS = 0.05  # wait for other batches to end, so that one message can carry their results and the next batches


class Executor(Protocol):
    """Runs calls elsewhere. Futures have `add_done_callback`."""

    @property
    def window(self) -> int:
        """The number of batches to hand over before the first one ends."""
        ...

    @property
    def message(self) -> int:
        """The number of batches to hand over at once; 1 if single batches cost nothing extra."""
        ...

    def batch(self, waiting: int, seconds: float) -> int:
        """Return the number of tasks in the next batch.

        waiting  number of tasks that are not handed over yet; 0: unknown
        seconds  mean time of a task so far; 0.0 before the first has ended
        """
        ...

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Any]:
        """Begin `function(item)` for each item and return their futures. Tasks begin in the order in which they are
        submitted."""
        ...

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of futures that have ended, or raise the first error among them."""
        ...

    def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel the tasks of these futures that have not begun."""
        ...

    def check(self) -> None:
        """Raise an error if no task can end any more. The session calls this when no task has ended for
        POLL_SECONDS."""
        ...


class LocalExecutor:
    """An executor of `workers` tasks at once on a pool of this machine."""

    message = 1

    def __init__(self, pool: Any, workers: int) -> None:
        self.pool = pool
        self.window = 2 * workers

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Any]:
        """Begin `function(item)` for each item, in threads or processes of this machine."""
        return [self.pool.submit(function, item) for item in items]

    def batch(self, waiting: int, seconds: float) -> int:
        """Always 1: tasks go to a pool of this machine one by one."""
        return 1

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of futures that have ended. The first error is raised."""
        return [future.result() for future in futures]

    def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel the futures that have not started. Running tasks are not stopped."""
        for future in futures:
            future.cancel()

    def check(self) -> None:
        """Do nothing: a broken pool raises its own error."""


class TaskSession:
    """A session that runs tasks with an executor.

    dashboard  address of the cluster's dashboard; "" without one
    begin      each batch of tasks calls this function first, in its process
    """

    def __init__(self, executor: Executor, dashboard: str = "", begin: Callable[[], object] | None = None) -> None:
        self.executor = executor
        self.dashboard = dashboard
        self.begin = begin or _nothing

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Return the result of `function` for each item, in order. Errors and signals have the same effect as in
        `run`."""
        results: dict[int, Any] = {}
        self.run(function, items, lambda number, _, result: results.__setitem__(number, result))
        return [results[number] for number in range(len(results))]

    def run(
        self, function: Callable[[Any], Any], items: Iterable[Any],
        done: Callable[[int, Any, Any], object] = lambda number, item, result: None,
    ) -> None:  # fmt: skip
        """Call `function` for each item, and `done(number, item, result)` when a task has ended, in any order.

        Each item is taken from `items` when its task begins. If `items` has a length, a cluster gets several tasks at a
        time. The first error cancels the other tasks and is raised. A signal ends this call at once. Running tasks of
        this process then end at their next safe point.
        """
        stop = Stop()
        try:
            wait_for(partial(self._run, stop, partial(run_task, stop, function), items, done))
        except KeyboardInterrupt:
            stop.set()
            raise

    def _run(
        self, stop: Stop, function: Callable[[Any], Any], items: Iterable[Any], done: Callable[[int, Any, Any], object]
    ) -> None:
        ended: SimpleQueue[int] = SimpleQueue()
        running: dict[int, tuple[Any, list[tuple[int, Any]]]] = {}  # first task of a batch -> its future and tasks
        waiting, left = enumerate(items), len(items) if isinstance(items, Sized) else 0
        times, all_begun = TaskTimes(), False
        try:
            while not stop.is_set():
                window, message, batches = self.executor.window, self.executor.message, list[list[tuple[int, Any]]]()
                has_room = not all_begun and (window - len(running) >= message or not running)
                while has_room and len(batches) < min(message, window - len(running)):
                    tasks = [*islice(waiting, self.executor.batch(left, times.mean))]
                    if all_begun := not tasks:
                        break
                    left = max(left - len(tasks), 0)
                    batches.append(tasks)
                if batches:
                    items = [[item for _, item in tasks] for tasks in batches]
                    futures = self.executor.submit(partial(_run_batch, self.begin, function), items)
                    for future, tasks in zip(futures, batches, strict=True):
                        running[tasks[0][0]] = future, tasks
                        future.add_done_callback(partial(_note_end, ended, tasks[0][0]))
                if not running:
                    return
                is_full = all_begun or window - len(running) < message
                firsts = self._wait(ended, min(message, len(running))) if is_full else _take(ended)
                results = self.executor.results([running[first][0] for first in firsts]) if firsts else []
                for first, (seconds, answers) in zip(firsts, results, strict=True):
                    times.add(seconds, len(answers))
                    for (number, item), result in zip(running.pop(first)[1], answers, strict=True):
                        done(number, item, result)
        finally:
            self.executor.cancel([future for future, _ in running.values()])

    def _wait(self, ended: SimpleQueue[int], wanted: int) -> list[int]:
        """Wait until a batch has ended, and a little longer until `wanted` batches have. Return the number of the first
        task of each batch that has ended."""
        while True:
            try:
                numbers = [ended.get(timeout=POLL_SECONDS)]
                break
            except Empty:
                self.executor.check()
        until = time.monotonic() + LINGER_SECONDS
        with suppress(Empty):
            while len(numbers) < wanted:
                numbers.append(ended.get(timeout=max(until - time.monotonic(), 0)))
        return numbers + _take(ended)


class TaskTimes:
    """The times of the tasks of a phase."""

    def __init__(self) -> None:
        self.seconds, self.tasks = 0.0, 0

    def add(self, seconds: float, tasks: int) -> None:
        """Count tasks that took `seconds` together."""
        self.seconds += seconds
        self.tasks += tasks

    @property
    def mean(self) -> float:
        """Seconds per task; 0.0 before the first one."""
        return self.seconds / max(self.tasks, 1)


def _take(ended: SimpleQueue[int]) -> list[int]:
    """Return the number of the first task of each batch that has ended, without waiting."""
    numbers: list[int] = []
    with suppress(Empty):
        while True:
            numbers.append(ended.get_nowait())
    return numbers


def _nothing() -> None:
    """Begin a batch without a preparation."""


def _run_batch(
    begin: Callable[[], object], function: Callable[[Any], Any], items: Sequence[Any]
) -> tuple[float, list[Any]]:
    """Run a batch: return its seconds, without those of `begin`, and the result of each task."""
    begin()
    begun = time.monotonic()
    results = [function(item) for item in items]
    return time.monotonic() - begun, results


class CountedItems:
    """Items that are made one at a time, and their number."""

    def __init__(self, items: Iterable[Any], count: int) -> None:
        self._items = items
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return self._count


def _note_end(ended: SimpleQueue[int], number: int, _: Any) -> None:
    ended.put(number)
