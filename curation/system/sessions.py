# SPDX-License-Identifier: Apache-2.0
"""Sessions: tasks in windows, on threads, processes or the workers of a cluster.

A session hands an executor only some tasks at a time, the next one when one has ended. So memory, here and in the
scheduler of a cluster, does not depend on the number of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from curation.system.interrupts import Stop, run_task, wait_for

POLL_SECONDS = 5


class Executor(Protocol):
    """Runs calls elsewhere. Futures have `add_done_callback`."""

    @property
    def window(self) -> int:
        """The number of tasks to hand over before the first one ends."""
        ...

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        """Begin `function(item)` and return its future. Tasks begin in the order in which they are submitted."""
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

    def __init__(self, pool: Any, workers: int) -> None:
        self.pool = pool
        self.window = 2 * workers

    def submit(self, function: Callable[[Any], Any], item: Any) -> Any:
        return self.pool.submit(function, item)

    def results(self, futures: Sequence[Any]) -> list[Any]:
        return [future.result() for future in futures]

    def cancel(self, futures: Sequence[Any]) -> None:
        for future in futures:
            future.cancel()

    def check(self) -> None:
        pass


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

        Items are taken when their tasks begin. The first error stops the rest and is raised. A signal ends the wait at
        once. Running tasks of this process then end at their next safe point.
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
        running: dict[int, tuple[Any, Any]] = {}  # number of a task -> its future and item
        waiting = enumerate(items)
        try:
            while not stop.is_set():
                for number, item in islice(waiting, max(self.executor.window - len(running), 0)):
                    future = self.executor.submit(function, item)
                    running[number] = future, item
                    future.add_done_callback(partial(_note_end, ended, number))
                if not running:
                    return
                numbers = self._wait(ended)
                results = self.executor.results([running[number][0] for number in numbers])
                for number, result in zip(numbers, results, strict=True):
                    done(number, running.pop(number)[1], result)
        finally:
            self.executor.cancel([future for future, _ in running.values()])

    def _wait(self, ended: SimpleQueue[int]) -> list[int]:
        """Return the numbers of the tasks that have ended, at least one."""
        while True:
            try:
                numbers = [ended.get(timeout=POLL_SECONDS)]
                break
            except Empty:
                self.executor.check()
        while not ended.empty():
            numbers.append(ended.get())
        return numbers


def _note_end(ended: SimpleQueue[int], number: int, _: Any) -> None:
    ended.put(number)


__all__ = ["Executor", "LocalExecutor", "TaskSession"]
