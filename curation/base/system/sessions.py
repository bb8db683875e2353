# SPDX-License-Identifier: Apache-2.0
"""Sessions: tasks in windows, on threads, processes or the workers of a cluster.

A session hands an executor only some tasks at a time, the next one when one has ended. So memory, here and in the
scheduler of a cluster, does not depend on the number of tasks. A cluster gets *batches* of tasks, which become smaller
towards the end: a batch costs its client and its scheduler a millisecond or more. A message has several batches.
Batches note the time of their tasks, by which the executor chooses the size of the next ones.
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
LINGER_SECONDS = 0.05  # for the ends of other batches, whose results and successors share a message


class Executor(Protocol):
    """Runs calls elsewhere. Futures have `add_done_callback`."""

    @property
    def window(self) -> int:
        """The number of batches to hand over before the first one ends."""
        ...

    @property
    def message(self) -> int:
        """The number of batches to hand over at once: 1 if each may be handed over alone, without a cost."""
        ...

    def batch(self, waiting: int, seconds: float) -> int:
        """Return the number of tasks in the next batch.

        waiting  tasks that are not handed over; 0: their number is not known
        seconds  mean time of a task so far; 0.0: none has ended
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
        """Do not begin the tasks of these futures that have not begun."""
        ...

    def check(self) -> None:
        """Raise an error if no task can end any more. Called when none has ended for POLL_SECONDS."""
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
        """Drop the futures that have not started; a running one ends by itself."""
        for future in futures:
            future.cancel()

    def check(self) -> None:
        """Nothing: a pool of this machine breaks with an error of its own."""


class TaskSession:
    """A session that runs tasks with an executor.

    dashboard  address of the cluster's dashboard; "" without one
    """

    def __init__(self, executor: Executor, dashboard: str = "") -> None:
        self.executor = executor
        self.dashboard = dashboard

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Return the result of `function` for each item, in order. Errors and signals as in `run`."""
        results: dict[int, Any] = {}
        self.run(function, items, lambda number, _, result: results.__setitem__(number, result))
        return [results[number] for number in range(len(results))]

    def run(
        self, function: Callable[[Any], Any], items: Iterable[Any],
        done: Callable[[int, Any, Any], object] = lambda number, item, result: None,
    ) -> None:  # fmt: skip
        """Call `function` for each item, and `done(number, item, result)` when a task has ended, in any order.

        Items are taken when their tasks begin. If `items` has a length, a cluster gets several tasks at a time. The
        first error stops the rest and is raised. A signal ends the wait at once. Running tasks of this process then end
        at their next safe point.
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
                    futures = self.executor.submit(partial(_run_batch, function), items)
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
        """Return the first tasks of the batches that have ended, at least one; `wanted` if they end soon."""
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
    """Return the first tasks of the batches that have ended, without waiting."""
    numbers: list[int] = []
    with suppress(Empty):
        while True:
            numbers.append(ended.get_nowait())
    return numbers


def _run_batch(function: Callable[[Any], Any], items: Sequence[Any]) -> tuple[float, list[Any]]:
    """Return the seconds of a batch, and the result of each task."""
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
