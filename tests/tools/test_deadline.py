# SPDX-License-Identifier: Apache-2.0
"""An attempt ends after `timeout_seconds` in all, whatever the server does, and leaves no thread and no connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import curation
from tests.needs import needs
from tests.tools.endpoint import trickling

needs("openai")
HEAD = b"HTTP/1.1 %s\r\nContent-Length: 50000\r\n"
REDIRECT = b"Location: /v1/chat/completions\r\n\r\n"
ANSWERS = {  # seed -> first bytes, further bytes
    "status": (b"HTTP/1.1 2", b"0"),
    "headers": (b"HTTP/1.1 200 OK\r\nX-A: ", b"a"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "answer": (HEAD % b"200 OK" + b"\r\n", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "error": (HEAD % b"500 X" + b"\r\n", b"a"),
    "redirect": (HEAD % b"307 X" + REDIRECT, b"a"),
    "again": (b"HTTP/1.1 307 X\r\nContent-Length: 0\r\n" + REDIRECT, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "silence": (b"", b""),
}
FAULT = "gives no whole answer within 0.3 s (timeout_seconds)"


def by_prompt(answers: dict[str, tuple[bytes, bytes]]) -> dict[str, tuple[bytes, bytes]]:
    return {f'on {seed}"': answer for seed, answer in answers.items()}


def task_of(endpoint: str, **more: Any) -> dict[str, Any]:
    return {"kind": "template", "endpoint": endpoint, "model": "m", "seeds": ["x"], "prompt": "on {text}", "retries": 0,
            "timeout_seconds": 0.3, "concurrency": 20, **more}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_PROXY", "*")
    before, begun = {*threading.enumerate()}, time.monotonic()
    yield
    for thread in {*threading.enumerate()} - before:
        thread.join(60)
        assert not thread.is_alive()
    assert time.monotonic() - begun < 60  # the servers go on for minutes


def test_attempts_end_whatever_the_server_sends(tmp_path: Path):
    with trickling(by_prompt(ANSWERS)) as address:
        task = task_of(f"http://{address}", seeds=[*ANSWERS])
        found = curation.generate(task, tmp_path)
        assert (found.failed, found.fault) == (len(ANSWERS), f"http://{address} {FAULT}")
    assert (tmp_path / "answers.jsonl").read_bytes() == b""


def test_attempts_end_in_the_handshake_of_tls(tmp_path: Path):
    with trickling({"": (b"\x16\x03\x03\x3f\xff", b"\x00")}) as address:  # a long record
        assert FAULT in curation.generate(task_of(f"https://{address}"), tmp_path).fault


def test_attempts_end_in_the_search_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: over.wait(60) and [])
    assert FAULT in curation.generate(task_of("http://a.test/v1"), tmp_path).fault
    over.set()


def test_the_end_of_a_call_ends_attempts_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.tools.synthesis.asking.END_SECONDS", 0.0)
    answers = ANSWERS | {"wrong": (b"HTTP/1.1 401 X\r\nContent-Length: 3\r\n\r\nkey", b"")}
    with (
        trickling(by_prompt(answers)) as address,
        pytest.raises(curation.InputError, match=r"answers 401: key\. Name the variable"),
    ):
        curation.generate(task_of(f"http://{address}", seeds=[*answers], timeout_seconds=600), tmp_path)
