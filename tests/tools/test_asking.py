# SPDX-License-Identifier: Apache-2.0
"""Limits per minute, and what becomes of paid requests that are under way when a call ends."""

from __future__ import annotations

import threading
import time
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.base.system.interrupts import check as check_interrupts
from curation.tools.synthesis import asking, endpoint
from curation.tools.synthesis.endpoint import Pace
from curation.tools.synthesis.task import load_task
from tests.needs import needs
from tests.tools.endpoint import Reply, serving
from tests.tools.model import TASK


class Clock:
    """In place of `time`: it stands still but for sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_limits_per_minute_space_the_requests(use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, times, wait = Clock(), [], asking.wait
    for module in (asking, endpoint):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(asking, "wait", lambda pending, seconds, when: clock.sleep(seconds) or wait(pending, 1, when))
    use(lambda prompt: times.append(clock.now) or "x")
    curation.generate(TASK | {"requests_per_minute": 30, "concurrency": 1}, tmp_path / "requests")
    assert [round(now) for now in times] == [0, 2, 4]
    times.clear()
    curation.generate(TASK | {"tokens_per_minute": 600, "max_tokens": 99, "concurrency": 1}, tmp_path / "tokens")
    assert [round(later - now) for now, later in pairwise(times)] == [10, 10]  # 1 + 99 tokens each


@pytest.mark.parametrize("retry_after", ["", "1"])
def test_repetitions_count_in_the_limits_per_minute(retry_after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Three requests are repeated at the same time, after each pause alike."""
    needs("openai")
    turns: list[float] = []
    turn = Pace.turn
    monkeypatch.setattr(Pace, "turn", lambda pace, request: turns.append(turn(pace, request)) or turns[-1])
    monkeypatch.setattr(endpoint, "_sleep", lambda seconds: None)  # the turns are compared
    headers = {"Retry_After": retry_after} if retry_after else {}
    with serving(lambda request, number: Reply({}, 429, **headers)) as local:
        task = TASK | {"endpoint": local.url, "requests_per_minute": 6000, "retries": 4}
        assert curation.generate(task, tmp_path).failed == 3
        assert len(turns) == len(local.requests) == 15
    assert all(later - now >= 0.0099 for now, later in pairwise(sorted(turns)))


def test_turns_of_threads_differ(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(endpoint, "time", Clock())
    task = load_task(TASK | {"requests_per_minute": 60, "tokens_per_minute": 60_000, "max_tokens": 1999})
    pace, turns = Pace(task), []
    threads = [
        threading.Thread(target=lambda: turns.extend(pace.turn(task.request("abcd")) for _ in range(50)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turns) == [2.0 * number for number in range(200)]  # 2,000 tokens of 1,000 per second


@pytest.mark.parametrize("has_answered", [True, False])
def test_paid_answers_are_waited_for_if_the_endpoint_has_answered(
    has_answered: bool, use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(asking, "END_SECONDS", 0.0)
    under_way = threading.Barrier(3)

    def model(prompt: str) -> str:
        if prompt == "on a":
            return "answered"
        under_way.wait(60)
        if prompt == "on b":
            raise curation.InputError("it answers 401")
        try:
            while True:
                check_interrupts()
                threading.Event().wait(0.01)
        except KeyboardInterrupt:  # the call has ended
            return prompt

    use(model)
    seeds = [*"abcd"] if has_answered else [*"bcd"]
    with pytest.raises(curation.InputError) as raised:
        curation.generate(TASK | {"seeds": seeds, "concurrency": 3}, tmp_path / "out")
    end = ". The call waited for 2 requests under way: 2 answers arrived" if has_answered else ""
    assert str(raised.value) == f"it answers 401{end}"
    assert (tmp_path / "out" / "answers.jsonl").read_bytes().count(b"\n") == (3 if has_answered else 0)


def test_a_signal_ends_the_wait_for_paid_answers(use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asking, "END_SECONDS", 0.0)
    over, refused = threading.Event(), threading.Event()
    checks = count()

    def check() -> None:
        if refused.is_set() and next(checks) == 3:
            raise KeyboardInterrupt

    def model(prompt: str) -> str:
        if prompt == "on b":
            refused.set()
            raise curation.InputError("it answers 401")
        return "answered" if prompt == "on a" else str(over.wait(60))

    use(model)
    monkeypatch.setattr(asking, "check_interrupts", check)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        curation.generate(TASK | {"seeds": [*"acb"], "concurrency": 2}, tmp_path / "out")
    over.set()
    assert time.monotonic() - begun < 50
