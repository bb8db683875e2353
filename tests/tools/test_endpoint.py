# SPDX-License-Identifier: Apache-2.0
"""An endpoint that answers, stalls, refuses, breaks off and lies, over HTTP on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.tools.synthesis import connection, endpoint
from tests.needs import needs
from tests.tools.endpoint import Body, Local, Reply, completion, serving

needs("openai")
KEY = "sk-secret/+key-0123"
ERROR = {"error": {"message": f"wrong key {KEY} at http://user:{KEY}@host/x?signature=1"}}


def task_of(local: Local, **more: Any) -> dict[str, Any]:
    return {"kind": "template", "endpoint": local.url, "model": "m", "seeds": ["a"], "prompt": "on {text}",
            "key_variable": "TEST_KEY", "retries": 0, "timeout_seconds": 5, **more}  # fmt: skip


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited before retries."""
    found: list[float] = []
    monkeypatch.setattr(endpoint, "_sleep", lambda seconds: found.extend([seconds] * (seconds > 0)))
    return found


def answer_in(folder: Path) -> Any:
    return json.loads((folder / "answers.jsonl").read_text("utf-8"))


def test_requests_and_answers_over_http(tmp_path: Path):
    with serving(lambda request, number: completion("said")) as local:
        found = curation.generate(task_of(local, temperature=0.2, parameters={"top_k": 3}), tmp_path)
    sent = {
        "model": "m",
        "messages": [{"role": "user", "content": "on a"}],
        "temperature": 0.2,
        "max_tokens": 1024,
        "top_k": 3,
    }
    assert (local.requests, local.keys) == ([sent], [f"Bearer {KEY}"])
    stored = answer_in(tmp_path)
    assert (stored["request"], stored["text"], stored["prompt_tokens"]) == (sent, "said", 10)
    assert found.report["documents"] == 1
    assert not any(KEY in path.read_text("utf-8") for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("body", "outcome", "text", "tokens"),
    [
        (completion("half", "length"), "cut", "half", (10, 1)),
        (completion(None, "content_filter"), "refused", "", (10, 0)),
        (completion("  "), "empty", "  ", (10, 0)),
        (completion("one two three four", usage=None), "answered", "one two three four", (1, 4)),
        ({"choices": [{"message": {"refusal": "I cannot"}}]}, "refused", "I cannot", (1, 2)),
        (Reply(ERROR, 400), "refused", "[key]", (0, 0)),
    ],
    ids=["cut", "filtered", "empty", "not-counted", "refusal", "http-400"],
)  # fmt: skip
def test_outcomes(body: Any, outcome: str, text: str, tokens: tuple[int, int], tmp_path: Path):
    told = {"on a": completion("fine"), "on b": body}
    with serving(lambda request, number: told[request["messages"][0]["content"]]) as local:
        curation.generate(task_of(local, seeds=["a", "b"], concurrency=1), tmp_path)
    stored = json.loads((tmp_path / "answers.jsonl").read_text("utf-8").splitlines()[-1])
    assert (stored["outcome"], stored["prompt_tokens"], stored["answer_tokens"]) == (outcome, *tokens)
    assert text == stored["text"] or (text in stored["text"] and KEY not in stored["text"])


LARGE = b'{"choices": "' + b"x" * 200_000
PASSING = {
    "no-json": (Reply(b"busy"), "sends no chat completion (Expecting value: line 1 column 1 (char 0))"),
    "no-choices": ({"choices": []}, "sends no chat completion (Expected `array` of length >= 1 - at `$.choices`)"),
    "wrong-types": ({"choices": [{"message": {"content": 5}}]}, "got `int` - at `$.choices[0].message.content`"),
    "not-utf8": (Reply(b'{"choices": "\xff"}'), "sends no chat completion ('utf-8' codec"),
    "too-large": (Reply(LARGE), "sends an answer of more than 100,000 bytes"),
    "too-large-error": (Reply(LARGE, 500), 'answers 500: {"choices": "xxx'),
    "cut-off": (Reply(completion("x" * 500), sent=40), "gives no answer ("),
    "server-error": (Reply({"error": {"message": "out of memory"}}, 503), "answers 503: out of memory"),
    "rate": (Reply(ERROR, 429), "answers 429: wrong key [key] at http://host/x"),
}


@pytest.mark.parametrize(("body", "message"), PASSING.values(), ids=PASSING)
def test_failures_are_tried_again(
    body: Any, message: str, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for module in (endpoint, connection):
        monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    monkeypatch.setattr(connection, "MAX_ERROR_BYTES", 1_000)
    with serving(lambda request, number: "fine" if number == 2 else body) as local:
        failed = curation.generate(task_of(local), tmp_path / "none")
        assert (failed.asked, failed.failed, failed.report["requests"]["missing"], waits) == (0, 1, 1, [])
        assert failed.fault.startswith(f"{local.url} ") and message in failed.fault
        assert KEY not in failed.fault and len(failed.fault) < 420
        found = curation.generate(task_of(local, retries=2), tmp_path / "later")
    assert (found.asked, found.report["retries"], waits, len(local.requests)) == (1, 1, [1.0], 3)


def test_waits_grow_and_follow_retry_after(waits: list[float], tmp_path: Path):
    date = formatdate(time.time() + 90, usegmt=True)
    after = {
        1: {"Retry_After": "7.5"},
        2: {"Retry_After": date},
        3: {"Retry_After": "soon"},
        4: {"Retry_After": "99999"},
    }
    with serving(lambda request, number: Reply(ERROR, 429, **after.get(number, {})) if number < 5 else "x") as local:
        curation.generate(task_of(local, retries=5), tmp_path)
    assert [round(wait) if wait < 60 else wait // 60 * 60 for wait in waits] == [1, 8, 60, 8, 3600]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "answers 401: wrong key [key] at http://host/x. Check the key in TEST_KEY. Answers so far are stored"),
        (403, "answers 403: wrong key [key] at http://host/x. Check the key in TEST_KEY"),
        (404, "http://host/x. Check endpoint, which often ends in /v1, and model. Answers so far are stored"),
        (402, "answers 402: wrong key [key] at http://host/x. Answers so far are stored"),
    ],
)
def test_an_endpoint_that_refuses_all_ends_the_call(status: int, message: str, waits: list[float], tmp_path: Path):
    with serving(lambda request, number: Reply(ERROR, status)) as local, pytest.raises(curation.InputError) as raised:
        curation.generate(task_of(local, seeds=[*"abcdefghijkl"], retries=3, concurrency=2), tmp_path)
    assert message in str(raised.value) and KEY not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__ | (raised.value.__context__ is None)
    assert waits == [] and len(local.requests) <= 4


def test_a_missing_key_or_endpoint_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(lambda request, number: "x") as local:
        monkeypatch.setenv("TEST_KEY", " ")
        with pytest.raises(curation.InputError, match=r"the environment variable TEST_KEY \(key_variable\) is not set"):
            curation.generate(task_of(local), tmp_path / "no_key")
        assert local.requests == []
        monkeypatch.setenv("OPENAI_API_KEY", KEY)  # of another endpoint
        curation.generate(task_of(local, key_variable=""), tmp_path / "none")
        assert local.keys == ["Bearer none"]
    found = curation.generate(task_of(local, key_variable=""), tmp_path / "gone")
    assert found.fault.startswith(f"{local.url} gives no answer (") and "refused" in found.fault


def test_a_signal_keeps_what_arrived_and_the_next_call_asks_the_rest(tmp_path: Path):
    answered = threading.Semaphore(0)

    def some(request: Body, number: int) -> str:
        if number >= 6:
            answered.release()
            time.sleep(0.2)
        return f"said {request['messages'][0]['content']}"

    seeds = [str(number) for number in range(12)]
    with serving(some) as local:
        (tmp_path / "task.json").write_text(json.dumps(task_of(local, seeds=seeds, concurrency=2)))
        command = [
            sys.executable,
            "-m",
            "curation",
            "generate",
            str(tmp_path / "task.json"),
            "-o",
            str(tmp_path / "out"),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert answered.acquire(timeout=60)
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=30)[1]
        assert process.returncode == 130 and "interrupted; rerun the same command to resume" in told
        stored = (tmp_path / "out" / "answers.jsonl").read_bytes().count(b"\n")
        assert stored == len(local.requests) <= 8
        assert curation.generate(tmp_path / "task.json", tmp_path / "out").asked == 12 - stored
        assert len(local.requests) == 12
    assert os.path.getsize(tmp_path / "out" / "documents.jsonl") > 0
