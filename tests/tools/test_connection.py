# SPDX-License-Identifier: Apache-2.0
"""Proxies, certificates, redirects, compressed answers and faults of this machine: each ends in one message."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

import curation
from curation.cli import main
from curation.tools.synthesis import answers, connection
from curation.tools.synthesis.connection import proxy_for
from curation.tools.synthesis.endpoint import Endpoint, FailedError, Pace
from curation.tools.synthesis.task import load_task
from tests.needs import needs
from tests.tools.endpoint import Local, Reply, completion, serving, trickling
from tests.tools.model import MESSAGES

needs("openai")
VARIABLES = [f"{name}_proxy" for name in ("http", "https", "all", "no")] + ["ssl_cert_file", "ssl_cert_dir"]


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def task_of(endpoint: str, **more: Any) -> dict[str, Any]:
    return {"kind": "template", "endpoint": endpoint, "model": "m", "seeds": ["a"], "prompt": "on {text}",
            "retries": 0, "timeout_seconds": 60, **more}  # fmt: skip


def refused(task: dict[str, Any], folder: Path) -> str:
    with pytest.raises(curation.CurationError) as raised:
        curation.generate(task, folder)
    return str(raised.value)


def without(package: str, load: Any) -> Any:
    def loaded(name: str, *arguments: Any, **options: Any) -> Any:
        if name == package:
            raise ImportError(name)
        return load(name, *arguments, **options)

    return loaded


URL, SOCKS = "http://127.0.0.1:8000/v1", "socks://127.0.0.1:7897/"
PROXIED: list[tuple[str, dict[str, str], str]] = [  # URL, environment -> proxy, or the message
    (URL, {}, ""),
    (URL, {"HTTP_PROXY": "proxy:3128", "https_proxy": "http://other:1"}, "http://proxy:3128"),
    ("https://h/v1", {"HTTP_PROXY": "proxy:3128", "https_proxy": "http://other:1"}, "http://other:1"),
    (URL, {"all_proxy": "socks5h://a:1"}, "socks5h://a:1"),
    (URL, {"all_proxy": SOCKS, "http_proxy": "http://a:1"}, "http://a:1"),
    (URL, {"ALL_PROXY": SOCKS, "NO_PROXY": "localhost,127.0.0.0/8,::1"}, ""),
    (URL, {"ALL_PROXY": SOCKS, "NO_PROXY": "127.0.0.1:8000"}, ""),
    ("http://[::1]:8000/v1", {"ALL_PROXY": SOCKS, "NO_PROXY": "localhost, 127.0.0.0/8, ::1"}, ""),
    ("http://[fd00::7]:8000/v1", {"ALL_PROXY": SOCKS, "NO_PROXY": "fd00::/8"}, ""),
    ("http://a.intern/v1", {"ALL_PROXY": SOCKS, "NO_PROXY": ".intern"}, ""),
    (URL, {"ALL_PROXY": SOCKS, "NO_PROXY": "*"}, ""),
    (URL, {"ALL_PROXY": SOCKS, "NO_PROXY": "10.0.0.0/8,127.0.0.1/x"}, "the proxy socks://127.0.0.1:7897/ of the"),
    ("https://h/v1", {"ALL_PROXY": "socks4://u:pw@a:1"}, "the proxy socks4://a:1 of the environment has a scheme that"),
    ("https://h/v1", {"ALL_PROXY": "ftp://a"}, "Set https_proxy, or no_proxy=h to ask https://h/v1 without it"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "environment", "expected"), PROXIED)
def test_proxies(url: str, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if " " not in expected:
        assert proxy_for(url) == expected
        return
    with pytest.raises(curation.InputError) as raised:
        proxy_for(url)
    assert expected in str(raised.value) and "pw" not in str(raised.value)


def test_requests_by_a_proxy_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(lambda request, number: "fine") as local:
        monkeypatch.setenv("ALL_PROXY", SOCKS)
        assert "has a scheme that cannot be used" in refused(task_of(local.url), tmp_path / "socks")
        monkeypatch.setenv("ALL_PROXY", "http://u:SE/CRET@a:1")
        assert "the proxy http://a:1 of the environment is no valid URL (" in refused(
            task_of(local.url), tmp_path / "wrong"
        )
        monkeypatch.setattr("builtins.__import__", without("socksio", __import__))
        monkeypatch.setenv("ALL_PROXY", "socks5://u:SECRET@a:1")
        message = refused(task_of(local.url), tmp_path / "package")
        assert message.startswith("the proxy socks5://a:1 of the environment needs another package: Using SOCKS")
        monkeypatch.setenv("no_proxy", "localhost,127.0.0.0/8,::1")
        assert curation.generate(task_of(local.url), tmp_path / "excluded").asked == 1
        monkeypatch.setenv("http_proxy", local.url.removesuffix("/v1").replace("//", "//user:pw@"))
        assert curation.generate(task_of("http://other.invalid/v1"), tmp_path / "proxy").asked == 1
        assert local.paths == ["/v1/chat/completions", "http://other.invalid/v1/chat/completions"]
    fault = curation.generate(task_of("http://other.invalid/v1"), tmp_path / "dead").fault
    proxy = local.url.removesuffix("/v1")
    assert fault == f"http://other.invalid/v1 (by the proxy {proxy}) gives no answer (ConnectError: Connection refused)"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_certificates_of_the_environment(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "text.pem").write_text("no certificate")
    (tmp_path / "empty.pem").write_bytes(b"")
    wrong = ["gone.pem", "text.pem", "empty.pem"] if variable == "SSL_CERT_FILE" else []
    for name in wrong:
        monkeypatch.setenv(variable, str(tmp_path / name))
        message = refused(task_of("https://127.0.0.1:1/v1"), tmp_path / "out")
        assert message.startswith(f"{variable} is {tmp_path / name}, where no certificates can be read (")
    monkeypatch.setenv(variable, str(tmp_path))
    with serving(lambda request, number: "fine") as local:
        monkeypatch.setenv(variable, str(tmp_path / "gone.pem"))
        assert curation.generate(task_of(local.url), tmp_path / "http").asked == 1


ENDPOINTS = {
    "http://h:port/v1": "task: endpoint is no valid URL. Check its host and its port",
    "http://h:99999/v1": "endpoint is no valid URL",
    "http://:80/v1": "endpoint is no valid URL",
    "http://u:SECRET@h:S/v1": "endpoint is no valid URL",
    "http://h/v1#SECRET": "endpoint has a fragment (#...), which no request can carry. Leave it out",
    "http://u:S#E/CRET@h/v1": "write / as %2F, ? as %3F and # as %23 in its user name or password",
    "http://h\x01/v1?SECRET=1": "http://h\x01/v1 is no valid URL (InvalidURL). Check its host",
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_wrong_endpoints(endpoint: str, tmp_path: Path):
    message = refused(task_of(endpoint), tmp_path)
    assert ENDPOINTS[endpoint] in message and "SECRET" not in message


@contextmanager
def asking(local: Local, **more: Any) -> Iterator[Callable[[], str]]:
    """A function that asks, and returns the text of the answer or the message of an error."""
    task = load_task(task_of(local.url, **more))

    def asked() -> str:
        try:
            return endpoint.answer(task.request("on a")).text
        except (FailedError, curation.InputError) as error:
            return str(error)

    with closing(Endpoint(task, Pace(task))) as endpoint:
        yield asked


def test_redirects_stay_at_the_endpoint(monkeypatch: pytest.MonkeyPatch):
    """One to another origin would take the texts of the task there, and others turn a POST into a GET."""
    monkeypatch.setenv("TEST_KEY", "a-key-of-16-characters")
    replies: list[Reply] = []
    with (
        serving(lambda request, number: replies.pop() if replies else "fine") as local,
        serving(lambda request, number: "fine") as other,
        asking(local, key_variable="TEST_KEY") as asked,
    ):
        for status, target in ((307, other.url), (308, other.url), (302, local.url), (303, local.url), (301, "/v1")):
            replies.append(Reply({}, status, Location=f"{target}/chat/completions?token=SECRET"))
            target = target if "//" in target else local.url
            assert asked() == (
                f"{local.url} answers {status}, a redirect to {target}/chat/completions. Set endpoint to an address "
                "that answers without a redirect. Answers so far are stored"
            )
        assert other.requests == [] and len(local.requests) == 5
        for location in ("/v1/other", f"{local.url}/again?a=b"):
            replies.append(Reply({}, 307, Location=location))
            assert asked() == "fine"
        assert local.paths[-1] == "/v1/again?a=b" and {*local.keys} == {"Bearer a-key-of-16-characters"}
        replies.append(Reply(b"", 304))
        assert asked() == f"{local.url} answers 304. Answers so far are stored"


BODY = json.dumps(completion("fine")).encode()
COMPRESSED = [
    (Reply(gzip.compress(BODY), Content_Encoding="GZIP"), "fine"),
    (Reply(zlib.compress(BODY), Content_Encoding="deflate"), "fine"),
    (Reply(BODY, Content_Encoding="identity"), "fine"),
    (Reply(BODY, Content_Encoding="gzip"), "incorrect header check"),
    (Reply(gzip.compress(BODY)[:-20], Content_Encoding="gzip"), "sends no chat completion ("),
    (Reply(gzip.compress(b" " * 9_000_000), Content_Encoding="gzip"), "sends an answer of more than 8,000,000 bytes"),
    (Reply(BODY, Content_Encoding="gzip, br"), "its Content-Encoding is gzip, br, expected none"),
    (Reply(gzip.compress(b'{"error": "busy"}'), 503, Content_Encoding="gzip"), "answers 503: busy"),
    (Reply(BODY, 402, Content_Encoding="gzip"), "answers 402. Answers so far are stored"),
    (Reply(BODY, 402, sent=20), "answers 402. Answers so far are stored"),
    (Reply(b"", 204), "sends no chat completion (an empty body)"),
    (Reply({"error": {"message": "slow down", "code": 429}}), "answers 429: slow down"),
    (Reply({"error": "upstream failed"}), "answers an error: upstream failed"),
    (Reply(b"<html><title>Bad\n gateway</title>", 502), "answers 502: Bad gateway"),
    (Reply(b"\r\n" + BODY), "fine"),
]  # fmt: skip


def test_answers_of_servers_with_their_own_ways():
    with serving(lambda request, number: COMPRESSED[number][0]) as local, asking(local) as asked:
        for _, expected in COMPRESSED:
            assert expected in asked()


def test_bodies_are_read_to_a_limit():
    class Endless:
        headers: ClassVar[dict[str, str]] = {}

        async def aiter_raw(self) -> AsyncIterator[bytes]:
            for _ in range(10_000):
                yield b"x" * 1_000

    assert len(asyncio.run(connection._beginning(Endless(), 64_000))) == 65_000


def test_marks_of_the_endpoint_are_not_those_of_refused_requests(tmp_path: Path):
    """A refused request is stored only after an answer, since it may be refused for the whole task."""
    with serving(lambda request, number: completion("fine", "HTTP 500")) as local:
        assert curation.generate(task_of(local.url), tmp_path).report["requests"]["answered"] == 1
    assert '"finish_reason":"\'HTTP 500\'"' in (tmp_path / "answers.jsonl").read_text("utf-8")
    with serving(lambda request, number: Reply({"error": {"message": "no credits", "code": 402}})) as local:
        assert "answers 402: no credits. Answers so far" in refused(task_of(local.url, retries=9), tmp_path / "none")
        assert len(local.requests) == 1


def test_odd_counts_are_estimated_and_nothing_is_paid_twice(tmp_path: Path):
    odd: list[Any] = [{"prompt_tokens": 7}, {"completion_tokens": 2.0}, [], {"prompt_tokens": "x"}, None]
    with serving(lambda request, number: completion("said " * 4, usage=odd[number])) as local:
        found = curation.generate(task_of(local.url, seeds=[*"abcde"], retries=3, concurrency=1), tmp_path)
    assert (len(local.requests), found.report["documents"]) == (5, 5)
    assert found.report["tokens"] == {"prompt": 7 + 4, "answer": 5 * 5, "estimated": 7 + 4 + 5 * 5}


@pytest.fixture
def fine() -> Iterator[Local]:
    with serving(lambda request, number: "fine") as local:
        yield local


def test_messages_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def fails(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def told(mistake: str, **more: Any) -> None:
        task = task_of(local.url) | {"key_variable": "ENDPOINT_KEY"} | more
        message = refused(task, tmp_path / mistake) if mistake != "silent server" else silent(task)
        port = urlsplit(local.url).port
        for here, there in ((f"127.0.0.1:{port}", "localhost:8000"), ("127.0.0.1", "localhost"), (" 0.3 s", " 600 s")):
            message = message.replace(here, there)
        assert message.replace("`", "") == MESSAGES[mistake]

    def silent(task: dict[str, Any]) -> str:
        with trickling({"on a": (b"", b"")}) as address:
            fault = curation.generate(
                task | {"endpoint": f"http://{address}", "timeout_seconds": 0.3}, tmp_path / "x"
            ).fault
        return fault.replace(address, "127.0.0.1:8000/v1")

    replies = [Reply({"error": {"message": "invalid key"}}, 401)]
    with serving(lambda request, number: replies[0]) as local:
        told("no key")
        monkeypatch.setenv("ENDPOINT_KEY", "sk-proj/abc+DEF45678\nx")
        told("key with a line end inside")
        monkeypatch.setenv("ENDPOINT_KEY", "sk-proj/abc+DEF45678")
        told("key in the text of a task", prompt="{text} sk-proj/abc+DEF45678")
        told("wrong key")
        replies[0] = Reply(b"", 302, Location=f"{local.url[:-1]}2")
        told("redirect")
        told("silent server")
        with monkeypatch.context() as patch:
            patch.setenv("all_proxy", "socks://127.0.0.1:7897/")
            told("proxy of another kind")
        with monkeypatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", "gone.pem")
            told("no certificates", endpoint="https://localhost:1/v1")
        with monkeypatch.context() as patch:  # not called a broken connection
            patch.setattr(connection._Loop, "create_connection", fails)
            told("too many requests at once", retries=9)


def test_a_full_disk_is_no_broken_connection(
    fine: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fails(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "task.json").write_text(json.dumps(task_of(fine.url)))
    with monkeypatch.context() as patch:
        patch.setattr(answers.os, "fsync", fails)
        assert main(["generate", str(tmp_path / "task.json"), "-o", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().err
    assert "the disk is full (ENOSPC)" in told and "answer (" not in told
