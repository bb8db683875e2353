# SPDX-License-Identifier: Apache-2.0
"""Requests of `huggingface_hub` end: a stand-in of its client gives answers that do not."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from curation.reading import hub_requests
from curation.reading.hub_requests import API_SECONDS, FILE_SECONDS, IDLE_SECONDS, Requests, limited
from tests.needs import needs

needs("huggingface_hub")

from huggingface_hub import utils


def request(path: str, method: str = "GET", **headers: str) -> Any:
    return SimpleNamespace(method=method, url=SimpleNamespace(path=path), headers=headers)


def answer(asked: Any, status: int = 200, **rest: Any) -> Any:
    known = {"status_code": status, "headers": {}, "is_closed": False, "num_bytes_downloaded": 0, "request": asked}
    return SimpleNamespace(**known | rest)


def hold(requests: Requests, seconds: float) -> None:
    for _ in range(round(seconds / 10)):
        requests.count(10)


def ends(requests: Requests, text: str) -> None:
    with pytest.raises(ConnectionError, match=text):
        requests.count(10)


def test_a_file_ends_without_bytes_and_another_request_by_its_total():
    requests = Requests()
    requests.asked(file := request("/datasets/o/n/resolve/main/a.parquet"))
    hold(requests, FILE_SECONDS)
    ends(requests, "60 s without a byte of the file")
    requests = Requests()
    requests.asked(file)
    requests.answered(response := answer(file))
    for size in range(1, 100):
        response.num_bytes_downloaded = size
        hold(requests, FILE_SECONDS)
    ends(requests, "60 s without a byte of the file")
    requests = Requests()
    requests.asked(listing := request("/api/datasets/o/n/tree/main"))
    requests.answered(response := answer(listing))
    for size in range(round(API_SECONDS / 10)):
        response.num_bytes_downloaded = size
        hold(requests, 10)
    ends(requests, "120 s without a whole answer")


def test_repeated_failures_are_no_progress_and_a_whole_answer_is():
    requests = Requests()
    listing = request("/api/datasets/o/n/tree/main")
    for _ in range(10):
        requests.asked(listing)
        hold(requests, API_SECONDS)
        requests.answered(answer(listing, is_closed=True))
        hold(requests, IDLE_SECONDS)
    for _ in range(round(API_SECONDS / 10)):
        requests.asked(listing)
        hold(requests, 10)
    requests.asked(listing)
    ends(requests, "120 s without a whole answer")
    requests = Requests()
    requests.asked(listing)
    requests.answered(answer(listing, 503, is_closed=True))
    hold(requests, IDLE_SECONDS)
    ends(requests, "600 s without a request")


def test_a_call_is_given_up_or_gives_its_value_or_error(monkeypatch: pytest.MonkeyPatch):
    hooks: dict[str, list[Any]] = {"request": [], "response": []}
    client = SimpleNamespace(event_hooks=hooks)
    monkeypatch.setattr(utils, "get_session", lambda: client)
    assert limited(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 / 0)
    monkeypatch.setattr(hub_requests, "FILE_SECONDS", 0.0)
    monkeypatch.setattr(hub_requests, "STEP_SECONDS", 0.01)
    end = threading.Event()

    def hang() -> None:
        client.event_hooks["request"][-1](request("/datasets/o/n/resolve/main/a"))
        end.wait()

    with pytest.raises(ConnectionError, match="0 s without a byte of the file"):
        limited(hang)
    end.set()
    assert client.event_hooks is hooks
