# SPDX-License-Identifier: Apache-2.0
"""Sessions hand over a few tasks at a time, and take the next items when tasks have ended."""

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from curation.base.system import sessions
from curation.base.system.cluster import BATCH_SECONDS, batch_of
from curation.base.system.sessions import CountedItems, LocalExecutor, TaskSession


class Backwards:
    """An executor that runs the last of the tasks that wait first, and counts those that wait."""

    window = 7

    def __init__(self, batch: int = 1, message: int = 1) -> None:
        self.size, self.batches = batch, list[int]()
        self.message, self.messages, self.seconds = message, list[int](), list[float]()
        self.waiting: list[tuple[Future[Any], Callable[[Any], Any], Any]] = []
        self.most = self.checks = 0
        self.cancelled: list[Any] = []

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Future[Any]]:
        made: list[Future[Any]] = [Future() for _ in items]
        self.waiting += zip(made, [function] * len(items), items, strict=True)
        self.most = max(self.most, len(self.waiting))
        self.batches += map(len, items)
        self.messages.append(len(items))
        if len(self.waiting) == self.window or "last" in items[-1]:
            threading.Thread(target=self._end_one).start()
        return made

    def _end_one(self) -> None:
        while self.waiting:
            future, function, item = self.waiting.pop()
            future.set_result(function(item))

    def batch(self, waiting: int, seconds: float) -> int:
        self.seconds.append(seconds)
        return min(max(waiting // 10, 1), self.size)

    def results(self, futures: Sequence[Any]) -> list[Any]:
        return [future.result() for future in futures]

    def cancel(self, futures: Sequence[Any]) -> None:
        self.cancelled += futures

    def check(self) -> None:
        self.checks += 1
        if self.checks == 3:
            raise OSError("no worker")


def test_a_batch_begins_by_the_function_of_its_session():
    events = []
    with ThreadPoolExecutor(1) as pool:
        session = TaskSession(LocalExecutor(pool, 1), begin=lambda: events.append("begins"))
        assert session.map(lambda item: events.append(item) or item, [1, 2]) == [1, 2]
    assert events == ["begins", 1, "begins", 2]


def test_results_are_in_the_order_of_items_whatever_ends_first():
    assert TaskSession(Backwards()).map(lambda item: f"<{item}>", [*range(100), "last"]) == [
        *(f"<{number}>" for number in range(100)), "<last>",
    ]  # fmt: skip


def test_batches_become_smaller_towards_the_end_and_results_stay_with_their_items():
    executor, ended = Backwards(batch=8), []
    items = [*range(100), "last"]
    TaskSession(executor).run(lambda item: f"<{item}>", items, lambda *told: ended.append(told))
    assert sorted(ended, key=str) == sorted([(k, item, f"<{item}>") for k, item in enumerate(items)], key=str)
    assert executor.batches[0] == 8 and executor.batches[-1] == 1 and sum(executor.batches) == 101
    assert executor.batches == sorted(executor.batches, reverse=True) and executor.most == 7

    counted = Backwards(batch=8)
    assert TaskSession(counted).map(str, CountedItems(iter(items), 101)) == [*map(str, items)]
    assert counted.batches == executor.batches


class OneByOne(Backwards):
    """An executor that ends one batch per millisecond, in the order of their begin."""

    window, most_begun = 8, 0
    ending = threading.Lock()

    def submit(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Sequence[Future[Any]]:
        self.batches += map(len, items)
        self.messages.append(len(items))
        made: list[Future[Any]] = [Future() for _ in items]
        self.waiting += zip(made, [function] * len(items), items, strict=True)
        self.most_begun = max(self.most_begun, len(self.waiting))
        threading.Thread(target=self._end_these, args=(len(items),)).start()
        return made

    def _end_these(self, count: int) -> None:
        for _ in range(count):
            time.sleep(0.001)
            with self.ending:
                future, function, item = self.waiting.pop(0)
                result = function(item)
            future.set_result(result)

    def results(self, futures: Sequence[Any]) -> list[Any]:
        self.checks += 1
        return super().results(futures)


@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_a_message_has_several_batches_and_is_sent_before_the_others_have_ended(
    monkeypatch: pytest.MonkeyPatch, seconds: float
):
    monkeypatch.setattr(sessions, "LINGER_SECONDS", seconds)
    executor, begun = OneByOne(message=4), []
    TaskSession(executor).run(begun.append, range(50))
    assert begun == [*range(50)] and executor.most_begun == 8
    assert all(count == 4 for count in executor.messages[:-1]) and sum(executor.messages) == 50
    assert executor.checks <= 50 // 4 + 1 or not seconds  # results come together too


def test_a_batch_that_ends_alone_is_noticed_soon():
    executor, release = OneByOne(message=4), threading.Event()
    ended, waited = list[int](), list[bool]()

    def task(item: int) -> None:
        if item == 1:
            waited.append(release.wait(10))

    def done(number: int, item: int, result: None) -> None:
        ended.append(item)
        release.set()

    TaskSession(executor).run(task, range(5), done)
    assert ended == [*range(5)] and waited == [True]


@pytest.mark.parametrize(
    ("tasks", "threads", "largest", "most"), [(7, 4, 1, 7), (100, 4, 12, 40), (10**5, 64, 64, 2300)]
)
def test_a_cluster_gets_half_of_the_tasks_left_in_batches_and_the_last_ones_alone(
    tasks: int, threads: int, largest: int, most: int
):
    sizes, left = [], tasks
    while left:
        sizes.append(batch_of(left, threads))
        assert sizes[-1] == 1 or sizes[-1] * threads <= left / 2
        left -= sizes[-1]
    assert sizes[0] == largest and len(sizes) <= most and sum(sizes) == tasks
    assert {*sizes[-2 * threads :]} == {1}


def wall_seconds(tasks: int, threads: int, seconds: float, known: bool) -> float:
    """Seconds of a phase whose batches begin one after the other, BATCH_SECONDS apart, on free threads."""
    free, begun = [0.0] * threads, 0.0
    while tasks:
        size = batch_of(tasks, threads, seconds if known else 0.0)
        begun, tasks = begun + BATCH_SECONDS, tasks - size
        heapq.heapreplace(free, max(free[0], begun) + size * seconds)
    return max(free)


@pytest.mark.parametrize(
    ("tasks", "threads", "seconds", "at_most"),
    [
        (31_250, 6400, 0.5, 0.3),  # 1 TB on 100 nodes: the scheduler is the bottleneck
        (31_250, 64, 0.5, 1.01),
        (1000, 640, 0.5, 1.0),
        (150, 64, 0.5, 1.0),
        (2000, 2, 1e-5, 1.0),
        (10, 4, 60.0, 1.0),
    ],
)
def test_batches_of_short_tasks_are_larger_where_the_scheduler_would_be_waited_for(
    tasks: int, threads: int, seconds: float, at_most: float
):
    assert wall_seconds(tasks, threads, seconds, True) <= at_most * wall_seconds(tasks, threads, seconds, False)


def test_batches_that_have_ended_give_the_time_of_a_task():
    executor = OneByOne(message=4)
    TaskSession(executor).run(lambda item: time.sleep(0.002), range(50))
    assert executor.seconds[:4] == [0.0] * 4 and 0.002 <= executor.seconds[-1] < 1


@pytest.mark.parametrize("tasks", [1000, 10_000])
def test_few_tasks_wait_and_few_items_are_made_however_many_there_are(tasks: int):
    alive, most = 0, [0]

    def items() -> Iterator[int]:
        nonlocal alive
        for number in range(tasks):
            alive += 1
            most.append(alive)
            yield number

    def done(number: int, item: int, result: int) -> None:
        nonlocal alive
        assert number == item == -result
        alive -= 1

    with ThreadPoolExecutor(4) as pool:
        TaskSession(LocalExecutor(pool, 4)).run(lambda item: -item, items(), done)
    assert alive == 0 and max(most) <= 8


def test_an_error_cancels_the_tasks_that_wait():
    begun: list[int] = []

    def task(item: int) -> None:
        begun.append(item)
        raise ValueError(item)

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match=r"^0$"):
        TaskSession(LocalExecutor(pool, 50)).run(task, range(1000))
    assert len(begun) <= 100


def test_an_executor_that_cannot_end_a_task_ends_the_session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sessions, "POLL_SECONDS", 0.01)
    executor = Backwards()
    with pytest.raises(OSError, match="no worker"):
        TaskSession(executor).run(abs, range(3))  # fewer than the window: they never begin
    assert executor.checks == 3 and len(executor.cancelled) == 3
