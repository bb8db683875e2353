# SPDX-License-Identifier: Apache-2.0
"""From 16 workers on, tasks run in processes of several threads."""

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from curation.base.engine import load_engine
from curation.base.system import memory, pools
from curation.base.system.cluster import pool_of_processes, process_pool
from curation.base.system.memory import Limit, choose, needs, needs_in_processes
from curation.base.system.pools import threads_of_processes
from curation.running.planning import arguments

GIB = 1 << 30


def place(number: int) -> tuple[int, int, int]:
    time.sleep(0.05)
    return number, os.getpid(), threading.get_ident()


class OddError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def fail(number: int) -> int:
    if number == 3:
        raise OddError("a", "b")
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize(
    ("scheduler", "workers", "threads"),
    [
        ("auto", 2, []),
        ("auto", 15, []),
        ("auto", 16, [8, 8]),
        ("auto", 17, [6, 6, 5]),
        ("auto", 64, [8] * 8),
        ("threads", 64, []),
        ("processes", 3, [1, 1, 1]),
    ],
)
def test_threads_of_each_process(scheduler: str, workers: int, threads: list[int]):
    assert threads_of_processes(scheduler, workers) == threads


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch):
    """Take four workers for many."""
    monkeypatch.setattr(pools, "MANY_WORKERS", 4)
    monkeypatch.setattr(pools, "THREADS_PER_PROCESS", 2)


@pytest.mark.slow("many workers are processes of several threads")
@pytest.mark.usefixtures("_few")
def test_many_workers_are_processes_of_several_threads_and_few_are_threads():
    with load_engine("cpu").open_session(4, "auto") as session:
        found = session.map(place, range(32))
        with pytest.raises(TypeError, match="second"):  # the class of the error cannot be rebuilt
            session.map(fail, [3])
        with pytest.raises(BrokenExecutor, match="a worker process ended abruptly"):
            session.map(fail, range(5, 40))
    assert [number for number, _, _ in found] == list(range(32))
    processes = {process for _, process, _ in found}
    assert len(processes) == 2 and os.getpid() not in processes
    threads = {process: {thread for _, other, thread in found if other == process} for process in processes}
    assert max(map(len, threads.values())) == 2
    with load_engine("cpu").open_session(2, "auto") as session:
        assert {process for _, process, _ in session.map(place, range(4))} == {os.getpid()}


def test_sixteen_processors_are_used_as_processes_if_memory_allows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arguments, "read_processors", lambda: 32)
    monkeypatch.setattr(arguments, "read_limits", lambda: [Limit("resident", memory.MACHINE, 64 * GIB, 64 * GIB)])
    chosen = arguments.find_resources(load_engine("cpu"), "cpu", 0, "auto", 1)
    expected = needs_in_processes("resident", [8] * 4, chosen.batch_bytes, chosen.max_slice_bytes)
    assert chosen.workers == 32 and chosen.needed_bytes == expected + 5 * memory.FILE_BYTES
    few = choose([Limit("resident", memory.MACHINE, GIB, GIB)], 32, 1 << 20, 1 << 20, scheduler="auto")
    assert few.workers < 16 and few.needed_bytes == needs("resident", few.workers, 1 << 20, 1 << 20)


def stop_itself(number: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.slow("an interrupt ends a run whose worker processes are stopped")
@pytest.mark.parametrize("pool", [lambda: process_pool(1), lambda: pool_of_processes([2])])
def test_stopped_workers_end_with_an_interrupted_run(pool: Callable[[], Any]):
    process = 0
    with suppress(KeyboardInterrupt), pool() as workers:
        process = workers.submit(place, 0).result()[1]
        workers.submit(stop_itself, 0)
        os.waitid(os.P_PID, process, os.WSTOPPED)
        raise KeyboardInterrupt
    assert process and not Path(f"/proc/{process}").exists()
